"""Links whose ports do something wrong: which cable, whose domain, in which words, and after a restart."""

from dataclasses import replace

import pytest
from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_inference.fabric.inputs import FabricInputs, PortHealth, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_runtime.units import NS
from hyperscout_sim.fabric import shapes
from hyperscout_topology.topology import Anomaly, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.inference import inputs_of
from support.small_fabric import HOST, LEAF, OTHER, SPINE, TEXT
from support.switched import Wiring, chassis

WIRING = Wiring(
    [
        *(f"leaf-{x}/swp{i} h{x}{i}/eth0" for x in (1, 2) for i in range(1, 5)),
        *(f"leaf-{x}/swp{48 + s} spine-{s}/swp{x}" for x in (1, 2) for s in (1, 2)),
        "mgmt-1/swp1 h11/eth9",
        "mgmt-1/swp2 h12/eth9",
    ],
    speeds_mbps={("h11", "eth9"): 1000, ("h12", "eth9"): 1000},
)
ERRORS = PortHealth(4.1, 0.0, 0.0, "switch")
LOUD = PortHealth(0.25, 1300.0, 0.0, "lldp")
FLAPS = PortHealth(0.0, 0.0, 6.0, "lldp")


def erroring(topology: Topology) -> list[Anomaly]:
    return [x for x in topology.anomalies if x.kind == "ErroringLink"]


def one(inputs: FabricInputs, previous: Topology | None = None) -> Anomaly:
    (found,) = erroring(infer(inputs, previous=previous))
    return found


HOST_LINK = "h11/eth0 to leaf-1/swp1"
UPLINK = "leaf-2/swp50 to spine-2/swp2"


@pytest.mark.parametrize(
    ("health", "domain", "words", "sources"),
    [
        pytest.param(
            {(chassis("leaf-1"), "swp1"): ERRORS},
            "h11",
            f"{HOST_LINK}: 4.1 errors/s at leaf-1/swp1",
            ("switch",),
            id="host-link-by-its-switch",
        ),
        pytest.param(
            {("h11", "eth0"): LOUD},
            "h11",
            f"{HOST_LINK}: 0.25 errors/s and 1300 discards/s at h11/eth0",
            ("lldp",),
            id="host-link-by-its-host",
        ),
        pytest.param(
            {("h11", "eth0"): replace(FLAPS, errors_per_s=3), (chassis("leaf-1"), "swp1"): ERRORS},
            "h11",
            f"{HOST_LINK}: flaps 6 times an hour, 3 errors/s at h11/eth0, 4.1 errors/s at leaf-1/swp1",
            ("lldp", "switch"),
            id="both-ends",
        ),
        pytest.param(
            {(chassis("spine-2"), "swp2"): ERRORS},
            "h21",
            f"{UPLINK}: 4.1 errors/s at spine-2/swp2",
            ("switch",),
            id="uplink-counts-against-its-lower-end",
        ),
        pytest.param(
            {(chassis("mgmt-1"), "swp1"): ERRORS},
            None,
            "mgmt-1/swp1 to h11/eth9: 4.1 errors/s at mgmt-1/swp1",
            ("switch",),
            id="management-degrades-nothing",
        ),
    ],
)
def test_the_cable_is_named(
    health: dict[tuple[str, str], PortHealth], domain: str | None, words: str, sources: tuple[str, ...]
) -> None:
    topology = infer(replace(WIRING.inputs(), health=health))
    (found,) = erroring(topology)
    assert (found.message, found.sources) == (words, sources)
    assert found.peer is not None
    assert found.subject.port is not None
    assert found.peer.port is not None
    degraded = {
        h.name: c.message
        for h in topology.hypernodes
        for c in h.conditions
        if (c.type, c.status) == ("Degraded", "True")
    }
    if domain is None:
        assert (found.hypernode, found.confidence, degraded) == (None, 0.5, {})
    else:
        (home,) = (h for h in topology.hypernodes if h.tier == 1 and domain in h.nodes)
        assert (found.hypernode, found.confidence) == (home.name, 0.9)
        assert list(degraded) == [home.name]
        assert words in degraded[home.name]


def test_the_lower_end_comes_first_whatever_the_ids() -> None:
    hosts = [f"spine-{x}/swp{i} h{x}{i}/eth0" for x in (1, 2) for i in range(1, 5)]
    inputs = Wiring([*hosts, "spine-1/swp49 leaf-9/swp1", "spine-2/swp49 leaf-9/swp2"]).inputs()
    found = one(replace(inputs, health={(chassis("leaf-9"), "swp1"): ERRORS}))
    assert found.message == "spine-1/swp49 to leaf-9/swp1: 4.1 errors/s at leaf-9/swp1"


def test_what_is_no_link_is_not_told() -> None:
    health = {("h11", "eth5"): ERRORS, ("absent", "eth0"): ERRORS, (chassis("leaf-1"), "swp60"): ERRORS}
    assert erroring(infer(replace(WIRING.inputs(), health=health))) == []


def fabric(**more: object) -> FabricInputs:
    return FabricInputs((SweepSeen(parse(TEXT)),), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("guid", "port", "named"),
    [
        pytest.param(LEAF, "3", "leaf1/p3 to spine1/p1", id="switch"),
        pytest.param(HOST, "1", "node-0001 mlx5_0/p1 to leaf1/p1", id="adapter"),
        pytest.param(HOST | 1, "1", "node-0001 mlx5_0/p1 to leaf1/p1", id="adapter-by-the-guid-of-its-port"),
        pytest.param(OTHER | 2, "2", "node-0002 mlx5_0/p2 to spine1/p2", id="its-second-port"),
        pytest.param(SPINE | 7, "1", None, id="the-guid-of-no-adapter"),
        pytest.param(-1, "1", None, id="no-guid"),
    ],
)
def test_infiniband(guid: int, port: str, named: str | None) -> None:
    found = erroring(
        infer(fabric(health={(f"{guid:x}".rjust(16, "0"), port): ERRORS, ("f" * 17, port): ERRORS}))
    )
    assert [x.message.split(":")[0] for x in found] == ([named] if named else [])


def test_an_adapter_that_its_own_agent_and_the_sweep_both_count() -> None:
    own = InfinibandPort("mlx5_0", 1, HOST, HOST | 1, HOST, "ACTIVE", "LinkUp", 200.0, 6, 1, "", "InfiniBand")
    health = {
        (f"{HOST:016x}", "1"): PortHealth(3.0, 0.0, 0.0, "infiniband"),
        (f"{HOST | 1:016x}", "1"): PortHealth(2.0, 0.0, 0.0, "ibqueryerrors"),
    }
    found = one(fabric(infiniband={"node-0001": (own,)}, health=health))
    assert "3 errors/s" in found.message
    assert "2 errors/s" not in found.message


@pytest.mark.parametrize("young", [True, False])
def test_after_a_restart_no_reporter_can_tell_yet(young: bool) -> None:
    inputs = WIRING.inputs()
    published = infer(replace(inputs, health={("h11", "eth0"): LOUD, (chassis("leaf-2"), "swp2"): ERRORS}))
    again = infer(
        replace(inputs, health={(chassis("leaf-2"), "swp2"): FLAPS}, health_is_young=young),
        previous=published,
    )
    old = next(x for x in erroring(published) if x.subject.device == "h11")
    flapping = next(x for x in erroring(again) if x.subject.device == "h22")
    assert "flaps" in flapping.message
    assert [x for x in erroring(again) if x is not flapping] == ([old] if young else [])


CLEARS = replace(FLAPS, clears_ns=7200 * NS)


@pytest.mark.parametrize(
    ("health", "clears_ns", "words"),
    [
        pytest.param({("h11", "eth0"): CLEARS}, 7200 * NS, "; clears at 1970-01-01T02:00:00Z", id="flaps"),
        pytest.param(
            {("h11", "eth0"): CLEARS, (chassis("leaf-1"), "swp1"): replace(CLEARS, clears_ns=7260 * NS)},
            7260 * NS,
            "; clears at 1970-01-01T02:01:00Z",
            id="both-ends",
        ),
        pytest.param({("h11", "eth0"): replace(CLEARS, errors_per_s=1)}, 0, "", id="errors-too"),
        pytest.param(
            {("h11", "eth0"): CLEARS, (chassis("leaf-1"), "swp1"): LOUD},
            0,
            "",
            id="discards-at-the-other-end",
        ),
    ],
)
def test_flaps_say_until_when_they_count(
    health: dict[tuple[str, str], PortHealth], clears_ns: int, words: str
) -> None:
    found = one(replace(WIRING.inputs(), health=health))
    assert found.clears_ns == clears_ns
    assert found.message.partition("; clears")[1:] == words.partition("; clears")[1:]


@pytest.mark.parametrize("count", [True, False])
def test_flaps_of_before_a_restart_count_on(count: bool) -> None:
    inputs = WIRING.inputs()
    health = {("h11", "eth0"): CLEARS, (chassis("leaf-2"), "swp2"): CLEARS}
    published = infer(replace(inputs, health=health))
    (kept,) = (x for x in published.anomalies if x.subject.device == "h11" and x.peer is not None)
    flapped = frozenset([kept.ends]) if count else frozenset()
    again = infer(replace(inputs, flapped=flapped), previous=published)
    assert erroring(again) == ([kept] if count else [])
    over = replace(kept, message=f"over since then; before: {kept.message}", flaps=3, changed_ns=1)
    for young in (True, False):
        again = infer(
            replace(inputs, flapped=flapped, health_is_young=young),
            previous=replace(published, anomalies=(over,)),
        )
        assert erroring(again) == [], "it was over before the restart"


def test_a_cable_that_is_gone_errs_no_more() -> None:
    inputs = WIRING.inputs()
    published = infer(replace(inputs, health={("h11", "eth0"): LOUD}))
    pulled = replace(WIRING.without("leaf-1/swp1 h11/eth0").inputs(), health_is_young=True)
    assert erroring(infer(pulled, previous=published)) == []


SHAPES = {
    "clos3": shapes.clos3(3, 4, 4, 4, 4),
    "rail": shapes.rail_optimised(4, 8, 4, 4),
    "dual-homed": shapes.dual_homed(4, 8, 4, 2),
    "planes": shapes.multi_plane(4, 4, 8, 4),
    "dragonfly+": shapes.dragonfly_plus(4, 4, 4, 4, 4),
    "rack": shapes.single_rack(16, 4),
}


@given(st.sampled_from(sorted(SHAPES)), st.integers(0, 10**6), st.booleans(), st.booleans())
def test_any_cable_of_any_fabric(shape: str, number: int, other_end: bool, by_port: bool) -> None:
    """It is named with both ends, counts against one domain that holds its lower end, and moves no host."""
    fabric = SHAPES[shape]
    wrong = fabric.cables[number % len(fabric.cables)]
    ends = {(f"{wrong.a:016x}", str(wrong.a_port)), (f"{wrong.b:016x}", str(wrong.b_port))}
    ports = {x.guid: x.port_guid for x in fabric.adapters}
    guid, port = (wrong.b, wrong.b_port) if other_end else (wrong.a, wrong.a_port)
    guid = ports.get(guid, guid) if by_port else guid
    inputs = inputs_of(fabric)
    plain = infer(inputs)
    topology = infer(replace(inputs, health={(f"{guid:016x}", str(port)): ERRORS}))
    (found,) = topology.anomalies
    assert found.peer is not None
    assert {(found.subject.device, found.subject.port), (found.peer.device, found.peer.port)} == ends
    assert [(h.name, h.nodes) for h in topology.hypernodes] == [(h.name, h.nodes) for h in plain.hypernodes]
    (home,) = (h for h in topology.hypernodes if h.name == found.hypernode)
    host = fabric.node_map().get(wrong.a, fabric.node_map().get(wrong.b))
    if host is not None:
        assert (home.tier, host in home.nodes, found.subject.name) == (1, True, host)
    else:
        assert found.subject.device in home.switches
