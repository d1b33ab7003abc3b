"""A fact comes back from its message as it was."""

import dataclasses

from hyperscout.v1 import finding_pb2
from hyperscout_formats.facts import wire
from hyperscout_formats.facts.facts import (
    InfinibandPort,
    LldpNeighbour,
    LldpPort,
    PortCounters,
    SwitchPort,
)
from hypothesis import given
from hypothesis import strategies as st

UINT32, UINT64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
TEXT = st.text(max_size=20)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
NEIGHBOURS = st.builds(
    LldpNeighbour,
    chassis_id_subtype=TEXT,
    chassis_id=TEXT,
    port_id_subtype=TEXT,
    port_id=TEXT,
    ttl_s=UINT32,
    port_description=TEXT,
    system_name=TEXT,
    system_description=TEXT,
    management_addresses=TEXTS,
    capabilities=TEXTS,
)
LLDP = st.builds(
    LldpPort,
    interface=TEXT,
    neighbours=st.lists(NEIGHBOURS, max_size=3).map(tuple),
    mac=TEXT,
    carrier=st.booleans(),
    speed_mbps=UINT64,
    carrier_changes=UINT32,
)
SWITCH_PORT = st.builds(
    SwitchPort,
    interface=TEXT,
    chassis_id_subtype=TEXT,
    chassis_id=TEXT,
    neighbours=st.lists(NEIGHBOURS, max_size=3).map(tuple),
    system_name=TEXT,
    port_id_subtype=TEXT,
    port_id=TEXT,
    port_description=TEXT,
    mac=TEXT,
    carrier=st.booleans(),
    speed_mbps=UINT64,
    carrier_changes=UINT32,
    counters=st.builds(PortCounters, UINT64, UINT64, UINT64, UINT64, UINT64),
)
INFINIBAND = st.builds(
    InfinibandPort,
    device=TEXT,
    port=UINT32,
    node_guid=UINT64,
    port_guid=UINT64,
    system_image_guid=UINT64,
    state=TEXT,
    physical_state=TEXT,
    rate_gbps=st.floats(allow_nan=False),
    lid=UINT32,
    sm_lid=UINT32,
    node_description=TEXT,
    link_layer=TEXT,
    board_id=TEXT,
    link_downed=UINT64,
)


@given(SWITCH_PORT)
def test_switch_port(port: SwitchPort) -> None:
    sent = wire.switch_port_to_proto(port).SerializeToString()
    assert wire.switch_port_from_proto(finding_pb2.SwitchPort.FromString(sent)) == port


@given(LLDP)
def test_lldp(port: LldpPort) -> None:
    sent = wire.lldp_to_proto(port).SerializeToString()
    assert wire.lldp_from_proto(finding_pb2.LldpPort.FromString(sent)) == port


@given(INFINIBAND)
def test_infiniband(port: InfinibandPort) -> None:
    sent = wire.infiniband_to_proto(port).SerializeToString()
    assert wire.infiniband_from_proto(finding_pb2.InfinibandPort.FromString(sent)) == port


def test_no_field_is_forgotten() -> None:
    pairs = [
        (LldpPort, finding_pb2.LldpPort),
        (LldpNeighbour, finding_pb2.LldpNeighbour),
        (InfinibandPort, finding_pb2.InfinibandPort),
        (SwitchPort, finding_pb2.SwitchPort),
        (PortCounters, finding_pb2.PortCounters),
    ]
    for fact, message in pairs:
        assert {field.name for field in dataclasses.fields(fact)} == set(message.DESCRIPTOR.fields_by_name)
