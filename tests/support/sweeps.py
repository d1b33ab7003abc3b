"""Simulated fabrics of all shapes, and a sweep as comparable records."""

from collections.abc import Callable
from random import Random

from hyperscout_formats.infiniband import ibnetdiscover
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.faults import Fault, plant

Shape = Callable[[], SimFabric]
SHAPES: dict[str, Shape] = {
    "clos2": lambda: shapes.clos2(3, 3, 2, 2),
    "fat tree": lambda: shapes.fat_tree(4),
    "rails": lambda: shapes.rail_optimised(2, 3, 4, 1, pods=2),
    "dual-homed": lambda: shapes.dual_homed(3, 3, 2, 1),
    "rail-only": lambda: shapes.rail_only(2, 3, 2),
    "planes": lambda: shapes.multi_plane(2, 2, 3, 2),
    "dragonfly+": lambda: shapes.dragonfly_plus(3, 2, 2, 2),
    "single rack": lambda: shapes.single_rack(3, 2),
    "SHARP": lambda: plant(shapes.clos2(2, 2, 2), Fault.SHARP, Random(0))[0],
    "storage with two ports": lambda: plant(shapes.clos2(3, 2, 2), Fault.STORAGE, Random(5))[0],
    "swapped cables": lambda: plant(shapes.clos2(3, 2, 3), Fault.SWAPPED_UPLINKS, Random(2))[0],
    "factory descriptions": lambda: plant(shapes.clos2(2, 2, 2), Fault.FACTORY_FABRIC, Random(0))[0],
}

Record = tuple[int, int, int, int, int, float]  # GUID, port, own port GUID (0 = switch), peer, its port, rate
Device = tuple[int, int, int, str]  # GUID, kind, ports, description


def read(text: bytes) -> tuple[set[Device], list[Record], int]:
    """Devices, records and the GUID it looked from."""
    sweep = ibnetdiscover.parse(text)
    assert not sweep.problems
    assert sweep.declared.all()
    guid = sweep.guid.tolist()
    devices = set(zip(guid, sweep.kind.tolist(), sweep.port_count.tolist(), sweep.descriptions, strict=True))
    assert sweep.system_image_guid.tolist() == guid
    columns = (sweep.device, sweep.port, sweep.port_guid, sweep.peer, sweep.peer_port, sweep.rate_gbps)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    records = [
        (guid[d], port, port_guid, guid[p], peer_port, rate)
        for d, port, port_guid, p, peer_port, rate in rows
    ]
    return devices, sorted(records), sweep.initiated_from
