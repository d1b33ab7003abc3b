"""A real cluster: 11 switches, 89 adapters that all say the same, two tiers that carry information."""

import pytest
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_formats.infiniband.node_map import parse as parse_node_map
from hyperscout_inference.fabric.inputs import FabricInputs, SweepSeen
from hyperscout_inference.hierarchy import infer
from support.real import shared_recording

# Hosts of each leaf, by its GUID, counted in the file by hand.
LEAVES = {
    "0002c902004827b0": 9,
    "0002c90200417670": 24,
    "0008f10500200b50": 21,
    "0008f1050020369c": 5,
    "0008f10500108bba": 6,
    "0008f105002036b4": 24,
}
SPINES = {"0008f10500108098", "0008f10500108c5c", "0008f10500108530", "0008f1050010851e"}


@pytest.fixture(name="inputs")
def _inputs() -> FabricInputs:
    sweep = parse(shared_recording("psmn-x5.ibnetdiscover").read_bytes())
    node_map = parse_node_map(shared_recording("psmn-x5.nodemap").read_bytes(), "psmn-x5.nodemap")
    guids = node_map[0] if isinstance(node_map, tuple) else node_map
    return FabricInputs(sweeps=(SweepSeen(sweep),), node_map=guids)


def test_six_leaves_below_one_root(inputs: FabricInputs) -> None:
    topology = infer(inputs)
    leaves = [h for h in topology.hypernodes if h.tier == 1]
    assert {h.switches[0]: len(h.nodes) for h in leaves} == LEAVES
    assert all(len(h.switches) == 1 for h in leaves)
    (root,) = (h for h in topology.hypernodes if h.tier > 1)
    assert (root.tier, set(root.switches), len(root.nodes)) == (2, SPINES, 89)
    # The eleventh switch hangs above two of the four and groups nothing of its own.
    assert {s.id: s.level for s in topology.switches}["0008f105001086a2"] == 3
    hosts = {node for h in leaves for node in h.nodes}
    assert set(inputs.node_map.values()) <= hosts


def test_the_right_hosts_are_in_each(inputs: FabricInputs) -> None:
    of_leaf = {h.switches[0]: set(h.nodes) for h in infer(inputs).hypernodes if h.tier == 1}
    sweep = inputs.sweeps[0].sweep
    ids = [f"{guid:016x}" for guid in sweep.guid.tolist()]
    for device, peer in zip(sweep.device.tolist(), sweep.peer.tolist(), strict=True):
        if ids[device] in LEAVES and ids[peer] not in LEAVES | dict.fromkeys(SPINES):
            assert inputs.node_map.get(int(ids[peer], 16), ids[peer]) in of_leaf[ids[device]]


def test_only_the_three_adapters_outside_the_map_are_unknown(inputs: FabricInputs) -> None:
    topology = infer(inputs)
    assert [(x.kind, x.subject.device) for x in topology.anomalies] == [
        ("UnknownHost", "003048c749450000"),
        ("UnknownHost", "003048c74ae20000"),
        ("UnknownHost", "78e7d1030024535c"),
    ]
