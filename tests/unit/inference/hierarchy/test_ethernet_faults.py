"""Ethernet fabrics of any shape, by their switches' tables: the right domains, and planted faults named."""

import functools
from dataclasses import replace
from random import Random

import pytest
from hyperscout_inference.fabric.inputs import FabricInputs, SwitchTableSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.faults import Fault, NotApplicableError, plant
from hyperscout_sim.readings.snmp import STYLES
from hypothesis import assume, given
from hypothesis import strategies as st
from support.ethernet import EthernetNamer, heard_by, inputs_of, tables_of
from support.examples import examples, seeds, slow_after
from support.inference import cut_off, tiers, truth
from unit.inference.hierarchy.test_shapes import check_tree

SHAPES = {
    "clos2": lambda: shapes.clos2(4, 8, 4),
    "clos2-double": lambda: shapes.clos2(4, 8, 4, 2),
    "clos3": lambda: shapes.clos3(3, 4, 4, 4, 4),
    "rail": lambda: shapes.rail_optimised(4, 8, 4, 4),
    "rail-shared": lambda: shapes.rail_optimised(4, 8, 4, shared_spines=6),
    "dual-homed": lambda: shapes.dual_homed(4, 8, 4, 2),
    "rail-only": lambda: shapes.rail_only(4, 8, 4),
    "planes": lambda: shapes.multi_plane(4, 4, 8, 4),
    "dragonfly+": lambda: shapes.dragonfly_plus(4, 4, 4, 4, 4),
    "rack": lambda: shapes.single_rack(16, 2),
}
FABRICS = {name: make() for name, make in SHAPES.items()}
FAULTS = [
    Fault.HOST_LINK,
    Fault.UPLINK,
    Fault.SWAPPED_HOST_LINKS,
    Fault.SWAPPED_UPLINKS,
    Fault.DEAD_RAIL,
    Fault.LEAF,
    Fault.SPINE,
    Fault.STORAGE,
    Fault.LOGIN,
]
AGENTS = {"walks alone": (), "agents everywhere": None}


@functools.cache
def healthy_tables(shape: str) -> tuple[SwitchTableSeen, ...]:
    """Immutable; writing and reading the walks of a fabric takes longer than inference from them."""
    return tables_of(FABRICS[shape])


def healthy_inputs(shape: str, agents: str) -> FabricInputs:
    hosts = FABRICS[shape].hosts if AGENTS[agents] is None else ()
    return FabricInputs(lldp=heard_by(FABRICS[shape], hosts), tables=healthy_tables(shape))


@pytest.mark.parametrize("agents", AGENTS)
@pytest.mark.parametrize("shape", slow_after(5, list(SHAPES)))
def test_a_healthy_fabric(shape: str, agents: str) -> None:
    fabric = FABRICS[shape]
    topology = infer(healthy_inputs(shape, agents))
    check_tree(topology)
    assert tiers(topology) == truth(fabric)
    assert topology.anomalies == ()
    assert len(topology.links) == len(fabric.cables)
    assert not [x for x in topology.links if x.note]
    by = {x.sources for x in topology.links}
    assert by <= {("snmp",), ("lldp", "snmp")}
    assert (("lldp", "snmp") in by) == (agents == "agents everywhere")


@pytest.mark.parametrize("agents", AGENTS)
@pytest.mark.parametrize("shape", slow_after(1, ["clos2", "rail", "dual-homed"]))
def test_switches_of_all_makers(shape: str, agents: str) -> None:
    """Each writes and numbers in its own way; some tell no chassis id. Where they keep names to themselves,
    hosts are known by their own agents alone."""
    fabric = FABRICS[shape]
    private = agents == "agents everywhere"
    styles = [replace(STYLES[name], private=STYLES[name].private and private) for name in sorted(STYLES)]
    topology = infer(inputs_of(fabric, AGENTS[agents], styles))
    assert tiers(topology) == truth(fabric)
    assert len(topology.links) == len(fabric.cables)
    assert [x.message for x in topology.anomalies] == []


def test_a_host_that_is_in_no_domain_is_listed() -> None:
    """Two leaves of one chassis id: cables to their ports contradict, and shape nothing. No host is lost."""
    fabric = FABRICS["clos2"]
    tables = healthy_tables("clos2")
    chassis = [seen.table.ports[0].chassis_id for seen in tables if seen.table.ports[0].system_name < "m"][:2]
    clones = tuple(
        replace(
            seen,
            table=replace(
                seen.table, ports=tuple(replace(port, chassis_id=chassis[0]) for port in seen.table.ports)
            ),
        )
        if seen.table.ports[0].chassis_id == chassis[1]
        else seen
        for seen in tables
    )
    topology = infer(FabricInputs(tables=clones))
    placed = {node for h in topology.hypernodes for node in h.nodes}
    assert topology.nodes_without_evidence
    assert placed | set(topology.nodes_without_evidence) == set(fabric.hosts)


def test_switches_that_tell_no_id_are_found_by_their_cables() -> None:
    """Files, of which the walks of two styles tell neither a chassis id nor a name, nor at which address."""
    fabric = FABRICS["clos2"]
    nameless = replace(STYLES["nx-os"], tells_addresses=False)
    tables = tables_of(fabric, (nameless, STYLES["linux"], STYLES["junos"]))
    asked = tuple(replace(seen, table=replace(seen.table, addresses=()), observed_at_ns=0) for seen in tables)
    topology = infer(FabricInputs(tables=asked))
    assert {s.id for s in topology.switches} == set(EthernetNamer(fabric).guid_of)
    assert len(topology.links) == len(fabric.cables)
    assert {x.kind for x in topology.anomalies} <= {"UnknownHost"}  # hosts whose names were taken out


@examples(0.5)
@given(
    shape=st.sampled_from(sorted(SHAPES)),
    fault=st.sampled_from(FAULTS),
    agents=st.sampled_from(sorted(AGENTS)),
    seed=st.integers(1, 10_000),  # 0 made the fabrics: a new device would get the MAC address of another
)
def test_one_fault(shape: str, fault: Fault, agents: str, seed: int) -> None:
    fabric = FABRICS[shape]
    try:
        faulty, planted = plant(fabric, fault, Random(seed))
    except NotApplicableError:
        assume(False)
        return
    topology = infer(inputs_of(faulty, AGENTS[agents]))
    check_tree(topology)
    namer = EthernetNamer(fabric)
    named = [x for x in topology.anomalies if namer.names(x, planted)]
    others = [x for x in topology.anomalies if x not in named]
    # A leaf that is gone and one that does not answer look alike to hosts that tell nothing.
    unseen = fault is Fault.LEAF and agents == "walks alone"
    if planted.leaves_trace and not unseen:
        assert named, [x.message for x in topology.anomalies]
    single = fault is Fault.SWAPPED_HOST_LINKS and not planted.leaves_trace
    if not (single or planted.tied):
        assert [x.message for x in others if x.confidence > 0.5] == []
        gone = {*cut_off(faulty), *planted.cut_off}
        assert tiers(topology) == truth(fabric, without=gone)
    assert len(topology.links) == len(faulty.cables)


@pytest.mark.slow
@examples(0.5)
@given(shape=st.sampled_from(sorted(SHAPES)), seed=st.integers(0, 10_000))
def test_switches_that_do_not_answer(shape: str, seed: int) -> None:
    """As long as each cable has one end that tells of it."""
    fabric = FABRICS[shape]
    rng = Random(seed)
    quiet: set[int] = set()
    near: dict[int, set[int]] = {}
    for c in fabric.cables:
        near.setdefault(c.a, set()).add(c.b)
        near.setdefault(c.b, set()).add(c.a)
    for switch in rng.sample(fabric.switches, len(fabric.switches)):
        if rng.random() < 0.5 and not near.get(switch.guid, set()) & quiet:
            quiet.add(switch.guid)
    topology = infer(inputs_of(fabric, None, silent_switches=quiet))
    assert tiers(topology) == truth(fabric)
    assert topology.anomalies == ()
    assert len(topology.links) == len(fabric.cables)


@pytest.mark.parametrize("agents", AGENTS)
def test_a_cut_leaf_spine_cable_degrades_the_leaf_with_both_port_names(agents: str) -> None:
    fabric = FABRICS["clos2"]
    before = infer(healthy_inputs("clos2", agents))
    faulty, planted = plant(fabric, Fault.UPLINK, Random(1))
    (cut,) = planted.before
    topology = infer(inputs_of(faulty, AGENTS[agents]), previous=before)
    (lost,) = topology.anomalies
    assert {(e.device, e.port) for e in (lost.subject, lost.peer) if e} == {
        (mac, f"swp{port}")
        for mac, guid in EthernetNamer(fabric).guid_of.items()
        for end, port in cut.ends
        if end == guid
    }
    (unit,) = (h for h in topology.hypernodes if h.name == lost.hypernode)
    assert unit.tier == 1
    degraded = next(c for c in unit.conditions if c.type == "Degraded")
    assert (degraded.status, degraded.reason) == ("True", "LinksDown")


@pytest.mark.slow
def test_a_moved_host_cable_is_inconsistent() -> None:
    fabric = FABRICS["rail"]
    before = infer(healthy_inputs("rail", "agents everywhere"))
    faulty, planted = plant(fabric, Fault.SWAPPED_HOST_LINKS, Random(4))
    topology = infer(inputs_of(faulty, None), previous=before)
    accused = {x.hypernode for x in topology.anomalies if x.kind == "Miswired"}
    assert planted.leaves_trace
    assert accused
    for h in topology.hypernodes:
        consistent = next(c for c in h.conditions if c.type == "Consistent")
        assert (consistent.status == "False") == (h.name in accused)


@seeds(60)
def test_a_cable_between_two_silent_switches_is_not_missing(seed: int) -> None:
    """Not so for a few cables between the groups of a dragonfly+ fabric of which most switches are silent."""
    rng = Random(seed)
    fabric = FABRICS[rng.choice(sorted(SHAPES))]
    share = rng.choice([0.2, 0.5, 0.8])
    quiet = {switch.guid for switch in fabric.switches if rng.random() < share}
    topology = infer(inputs_of(fabric, None, silent_switches=quiet))
    check_tree(topology)
    accused = [x for x in topology.anomalies if x.kind in ("MissingLink", "MissingSwitch")]
    assert [x.message for x in accused if x.confidence > 0.5] == []
    assert tiers(topology)[0] == truth(fabric)[0]
