"""What `describe node` makes of the devices that the kubelet reports."""

from hyperscout.v1.topology_pb2 import StoredFinding
from hyperscout_cli.shared.tables import Row
from hyperscout_cli.show.describe import _devices
from hyperscout_formats.facts.facts import DeviceResource, NodeDevice
from hyperscout_formats.facts.wire import device_resource_to_proto
from hyperscout_topology import objects
from support.findings import gpus, lldp


def test_devices_by_resource_and_zone() -> None:
    found = gpus()
    devices = (
        NodeDevice("a", (0,), True),
        NodeDevice("b", (0,)),
        NodeDevice("c", (1,)),
        NodeDevice("d"),
        NodeDevice("e", (0, 1)),
    )
    found.device_resource.CopyFrom(device_resource_to_proto(DeviceResource("nvidia.com/gpu", devices)))
    rows = [Row("", (), (), objects.plain(StoredFinding(finding=one))) for one in (lldp("n1", "eth0"), found)]
    assert "".join(_devices(rows)) == (
        "Devices:\n"
        "  RESOURCE         NUMA   FREE   TOTAL\n"
        "  nvidia.com/gpu   -      1      1\n"
        "  nvidia.com/gpu   0      1      2\n"
        "  nvidia.com/gpu   0,1    1      1\n"
        "  nvidia.com/gpu   1      1      1\n"
    )
    assert list(_devices(rows[:1])) == []
