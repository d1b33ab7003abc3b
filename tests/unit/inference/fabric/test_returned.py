"""A port that is up again counts for its cable until a newer sweep shows where it leads."""

from dataclasses import replace
from typing import Any

import pytest
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_inference.fabric.inputs import FabricInputs, SweepSeen
from hyperscout_inference.fabric.network import RETURNED
from hyperscout_inference.hierarchy.infer import infer
from hyperscout_runtime.units import NS
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.readings.sweep_text import sweep_texts
from hyperscout_topology.topology import Topology
from support.inference import own_ports, sweep, without

T = 60 * NS
FABRIC = shapes.clos2(3, 4, 2)
CABLE = next(c for c in FABRIC.cables if c.a in FABRIC.node_map())
HOST, OTHER = FABRIC.node_map()[CABLE.a], FABRIC.hosts[-1]
CUT = without(FABRIC, CABLE)
ENDS = {(f"{CABLE.a:016x}", str(CABLE.a_port)), (f"{CABLE.b:016x}", str(CABLE.b_port))}
PORTS = {host: own_ports(FABRIC, host) for host in FABRIC.hosts}
BEFORE = infer(FabricInputs(sweeps=(sweep(FABRIC, 1 * T),), infiniband=PORTS))
MISSING = infer(
    FabricInputs(sweeps=(sweep(CUT, 2 * T),), infiniband=PORTS | {HOST: own_ports(FABRIC, HOST, down=CABLE)}),
    previous=BEFORE,
)


def after(*sweeps: SweepSeen, previous: Topology = MISSING, **up_ns: Any) -> Topology:
    """`up_ns`: by node, since when its port of the cable is up."""
    up = {node: {(CABLE.a, CABLE.a_port): at_ns} for node, at_ns in up_ns.items()}
    return infer(FabricInputs(sweeps=sweeps, infiniband=PORTS, infiniband_up_ns=up), previous=previous)


def seen(fabric: SimFabric, at_ns: int) -> tuple[SweepSeen, ...]:
    """What sweeps of all parts of a fabric see."""
    return tuple(SweepSeen(parse(text), observed_at_ns=at_ns) for text in sweep_texts(fabric))


def missing(topology: Topology) -> set[Any]:
    return {x.ends for x in topology.anomalies if x.kind == "MissingLink"}


def cables(topology: Topology) -> set[Any]:
    return {frozenset(((x.a_device, x.a_port), (x.b_device, x.b_port))) for x in topology.links}


def test_it_was_missing() -> None:
    assert missing(MISSING) == {frozenset(ENDS)} == cables(BEFORE) - cables(MISSING)


def test_it_is_where_it_was() -> None:
    back = after(sweep(CUT, 2 * T), **{HOST: 3 * T})
    assert back.anomalies == ()
    assert cables(back) == cables(BEFORE)
    assert back.hypernodes == BEFORE.hypernodes
    [link] = [x for x in back.links if {(x.a_device, x.a_port), (x.b_device, x.b_port)} == ENDS]
    assert link.sources == ("infiniband",)


@pytest.mark.parametrize(
    "up_ns", [{}, {HOST: T}, {OTHER: 3 * T}], ids=["down", "swept since", "another's port"]
)
def test_it_stays_missing(up_ns: dict[str, int]) -> None:
    assert missing(after(sweep(CUT, 2 * T), **up_ns)) == {frozenset(ENDS)}


def test_a_switch_that_no_sweep_contains_is_not_back() -> None:
    """Its hosts may be in another switch that has taken its place."""
    others = tuple(c for c in FABRIC.cables if CABLE.b not in (c.a, c.b))
    gone = replace(FABRIC, cables=others, switches=tuple(x for x in FABRIC.switches if x.guid != CABLE.b))
    before = infer(FabricInputs(sweeps=(sweep(gone, 2 * T),), infiniband=PORTS), previous=MISSING)
    found = after(sweep(gone, 2 * T), previous=MISSING, **{HOST: 3 * T})
    assert {x.id for x in found.switches} == {x.id for x in before.switches}
    assert frozenset(ENDS) not in cables(found)


def test_the_newest_sweep_of_the_switch_counts() -> None:
    assert missing(after(sweep(CUT, 2 * T), sweep(CUT, 4 * T), **{HOST: 3 * T})) == {frozenset(ENDS)}
    other = sweep(shapes.single_rack(2, 1), 9 * T)  # of another fabric
    assert missing(after(sweep(CUT, 2 * T), other, **{HOST: 3 * T})) == set()


def test_either_end_may_come_first_and_doubtful_ones_are_left_out() -> None:
    turned = [replace(x, subject=x.peer or x.subject, peer=x.subject) for x in MISSING.anomalies]
    found = after(sweep(CUT, 2 * T), previous=replace(MISSING, anomalies=tuple(turned)), **{HOST: 3 * T})
    assert cables(found) == cables(BEFORE)
    doubtful = [replace(x, confidence=0.6) for x in MISSING.anomalies]
    found = after(sweep(CUT, 2 * T), previous=replace(MISSING, anomalies=tuple(doubtful)), **{HOST: 3 * T})
    assert frozenset(ENDS) not in cables(found)


def test_it_stays_where_it_was_until_the_next_sweep() -> None:
    """Also after its all-clear is published."""
    found = MISSING
    for _ in range(3):
        found = after(sweep(CUT, 2 * T), previous=found, **{HOST: 3 * T})
        assert (found.anomalies, cables(found)) == ((), cables(BEFORE))


def test_a_sweep_that_was_under_way_says_nothing() -> None:
    up_ns = 2 * T - 5 * NS
    assert missing(after(sweep(CUT, 2 * T), **{HOST: up_ns})) == set()
    assert missing(after(sweep(CUT, 2 * T), **{HOST: up_ns - 5 * NS})) == {frozenset(ENDS)}


def test_a_partial_sweep_is_no_answer() -> None:
    partial = replace(sweep(CUT, 4 * T), partial=True)
    assert missing(after(sweep(CUT, 2 * T), partial, **{HOST: 3 * T})) == set()


def test_of_two_cables_at_one_port_none_is_back() -> None:
    (one,) = MISSING.anomalies
    assert one.peer is not None
    other = replace(one, peer=replace(one.peer, port="33"))
    found = after(sweep(CUT, 2 * T), previous=replace(MISSING, anomalies=(one, other)), **{HOST: 3 * T})
    assert len(cables(found)) == len(CUT.cables)
    assert [x for x in found.anomalies if x.kind == "SourcesDisagree"] == []


def test_only_the_node_of_the_adapter_can_say_so() -> None:
    """Another one reports the GUID, too, and the node itself is silent."""
    ports = {host: mine for host, mine in PORTS.items() if host != HOST} | {OTHER: PORTS[HOST]}
    up = {OTHER: {(CABLE.a, CABLE.a_port): 3 * T}}
    inputs = FabricInputs(sweeps=(sweep(CUT, 2 * T),), infiniband=ports, infiniband_up_ns=up)
    assert frozenset(ENDS) in missing(infer(inputs, previous=MISSING))


def test_fabrics_stay_apart() -> None:
    """Both cables of a host are back, each in a fabric of its own."""
    rails = shapes.rail_only(1, 4, 2)
    host = rails.hosts[0]
    mine = [c for c in rails.cables if rails.node_map().get(c.a) == host]
    texts = sweep_texts(rails)
    ports = {name: own_ports(rails, name) for name in rails.hosts}

    assert len(texts) == len(mine) == 2
    before = infer(FabricInputs(sweeps=seen(rails, T), infiniband=ports))
    cut = seen(without(rails, *mine), 2 * T)
    gone = infer(FabricInputs(sweeps=cut, infiniband=ports), previous=before)
    up = {host: {(c.a, c.a_port): 3 * T for c in mine}}
    back = infer(FabricInputs(sweeps=cut, infiniband=ports, infiniband_up_ns=up), previous=gone)
    assert {(x.a_device, x.fabric) for x in back.links} == {(x.a_device, x.fabric) for x in before.links}


def test_a_manager_that_still_shows_it_changes_nothing() -> None:
    manager = sweep(FABRIC, 2 * T, "ufm")
    found = after(manager, sweep(CUT, 2 * T), **{HOST: 3 * T})
    assert cables(found) == cables(BEFORE)
    assert missing(found) == set()


def test_a_newer_sweep_tells() -> None:
    back = after(sweep(CUT, 2 * T), **{HOST: 3 * T})
    assert missing(after(sweep(CUT, 4 * T), previous=back, **{HOST: 3 * T})) == {frozenset(ENDS)}
    found = after(sweep(FABRIC, 4 * T), previous=back, **{HOST: 3 * T})
    assert (found.anomalies, cables(found)) == ((), cables(BEFORE))


def test_a_port_that_is_taken_since() -> None:
    """Another host's cable is in the port of the switch now."""
    mine = next(c for c in FABRIC.cables if c.a in FABRIC.node_map() and c.b != CABLE.b)
    there = mine._replace(b=CABLE.b, b_port=CABLE.b_port)
    moved: SimFabric = replace(CUT, cables=tuple(there if c == mine else c for c in CUT.cables))
    found = after(sweep(moved, 2 * T), **{HOST: 3 * T})
    assert frozenset(ENDS) not in cables(found)
    assert [x.kind for x in found.anomalies if x.kind == "SourcesDisagree"] == []


def test_what_is_no_infiniband_port_is_left_out() -> None:
    odd = replace(
        MISSING,
        anomalies=tuple(
            replace(x, subject=replace(x.subject, device="02:00:00:00:00:01")) for x in MISSING.anomalies
        ),
    )
    assert after(sweep(CUT, 2 * T), previous=odd, **{HOST: 3 * T}).links


RAILS = shapes.multi_plane(3, 3, 4, 2)
MOVER = RAILS.hosts[0]
MINE = [c for c in RAILS.cables if RAILS.node_map().get(c.a) == MOVER]
RAIL_PORTS = {name: own_ports(RAILS, name) for name in RAILS.hosts}
SETTLED = infer(FabricInputs(sweeps=seen(RAILS, T), infiniband=RAIL_PORTS))
_LEAVES = [c.b for c in RAILS.cables if RAILS.node_map().get(c.a) == RAILS.hosts[-1]]
THERE = [c._replace(b=b, b_port=30) for c, b in zip(MINE, _LEAVES, strict=True)]


def moved(*cables: Any) -> SimFabric:
    """The host has these cables."""
    return replace(without(RAILS, *MINE), cables=(*without(RAILS, *MINE).cables, *cables))


def rails_after(sweeps: tuple[SweepSeen, ...], up_ns: int, previous: Topology = SETTLED) -> Topology:
    up = {MOVER: {(c.a, c.a_port): up_ns for c in MINE}}
    return infer(FabricInputs(sweeps=sweeps, infiniband=RAIL_PORTS, infiniband_up_ns=up), previous=previous)


def kinds(topology: Topology) -> set[str]:
    return {x.kind for x in topology.anomalies}


def test_a_guess_accuses_no_port() -> None:
    """A host moves: two sweeps show its cables at the new leaves. The third port is up, and not swept yet."""
    sweeps = seen(moved(*THERE[:2]), 2 * T)
    assert kinds(rails_after(sweeps, T)) == {"MissingLink"}
    found = rails_after(sweeps, 3 * T)
    assert found.anomalies == ()
    assert sum(x.sources == (RETURNED,) for x in found.links) == 1


def test_a_port_that_came_up_since_its_sweep_is_not_called_miswired() -> None:
    """The cable was pulled and plugged in so fast that no sweep lacks it."""
    sweeps = seen(moved(*THERE[:2], MINE[2]), 2 * T)
    assert "Miswired" in kinds(rails_after(sweeps, T))
    assert kinds(rails_after(sweeps, 3 * T)) == set()


def test_what_was_published_for_long_stays() -> None:
    """Only the agent was started: it sees its ports as up since then."""
    sweeps = seen(moved(*THERE[:2], MINE[2]), 2 * T)
    published = rails_after(sweeps, T)
    known = [replace(x, since_ns=2 * T) for x in published.anomalies]
    for up_ns, stays in ((9 * T, True), (3 * T, False)):
        found = rails_after(sweeps, up_ns, replace(published, anomalies=tuple(known)))
        assert ("Miswired" in kinds(found)) is stays, up_ns


def test_a_newer_partial_sweep_that_shows_the_cable_answers() -> None:
    wrong = moved(*THERE[:2], MINE[2])
    partial = tuple(replace(one, partial=True) for one in seen(wrong, 9 * T))
    assert "Miswired" in kinds(rails_after((*seen(wrong, 2 * T), *partial), 3 * T))


@pytest.mark.parametrize(("up_ns", "says"), [(T, True), (3 * T, False)])
def test_a_sweep_that_disputes_the_cable_is_no_answer_for_a_minute(up_ns: int, says: bool) -> None:
    """Another node confirms it by then, or does not."""
    disputed = frozenset([(MINE[2].a, MINE[2].a_port)])
    sweeps = tuple(replace(one, disputed=disputed) for one in seen(moved(*THERE[:2], MINE[2]), 3 * T + NS))
    assert ("Miswired" in kinds(rails_after(sweeps, up_ns))) is says


def test_a_missing_link_that_names_host_and_adapter_is_left_out_too() -> None:
    """The adapter was not published, no sweep shows it, and another host's cable is where it was."""
    other = next(c for c in RAILS.cables if c.b == THERE[2].b and c.a in RAILS.node_map())
    taken = moved(*THERE[:2])
    taken = replace(
        without(taken, other),
        cables=(*without(taken, other).cables, other._replace(b=MINE[2].b, b_port=MINE[2].b_port)),
    )
    published = rails_after(seen(moved(*THERE[:2]), 2 * T), T)
    adapters = tuple(x for x in published.adapters if (x.node, x.name) != (MOVER, "mlx5_2"))
    published = replace(published, adapters=adapters)
    before = rails_after(seen(taken, 3 * T), T, published)
    assert (MOVER, "mlx5_2") in {(x.subject.device, x.subject.port) for x in before.anomalies}
    found = rails_after(seen(taken, 3 * T), 4 * T, published)
    assert MOVER not in {x.subject.name for x in found.anomalies}


def test_the_newest_sweep_decides_whether_the_cable_is_disputed() -> None:
    """An older one shows the new place, and the newest one keeps the old one until it is confirmed."""
    disputed = frozenset([(MINE[2].a, MINE[2].a_port)])
    kept = tuple(replace(one, disputed=disputed) for one in seen(moved(*THERE[:2], MINE[2]), 3 * T + 2 * NS))
    assert kinds(rails_after((*seen(moved(*THERE), 3 * T + NS), *kept), 3 * T)) == set()


@pytest.mark.parametrize(("since_ns", "is_back"), [(0, True), (2 * T, True), (T, False)])
def test_a_cable_that_was_missing_for_a_minute_waits_for_the_next_sweep(since_ns: int, is_back: bool) -> None:
    """Perhaps only the agent was started, which sees its port as up since then."""
    known = replace(MISSING, anomalies=tuple(replace(x, since_ns=since_ns) for x in MISSING.anomalies))
    assert (missing(after(sweep(CUT, 2 * T), previous=known, **{HOST: 3 * T})) == set()) is is_back


def test_a_cable_that_flaps_is_missing_since_it_went_last() -> None:
    """Its anomaly was shown all the time, because the all-clear is held back."""
    known = replace(MISSING.anomalies[0], since_ns=T, flaps=4, changed_ns=2 * T + T // 2)
    found = after(sweep(CUT, 2 * T), previous=replace(MISSING, anomalies=(known,)), **{HOST: 3 * T})
    assert missing(found) == set()


def test_an_adapter_stays_known_while_its_agent_reports_it() -> None:
    """No sweep shows it, but others of its host. A host without any is not shown to be there."""
    cut = without(RAILS, MINE[0])
    published = infer(FabricInputs(sweeps=seen(RAILS, T), infiniband=RAIL_PORTS))
    down = RAIL_PORTS | {MOVER: own_ports(RAILS, MOVER, down=MINE[0])}
    found = infer(FabricInputs(sweeps=seen(cut, 2 * T), infiniband=down), previous=published)
    assert found.adapters == published.adapters
    unheard = infer(FabricInputs(sweeps=seen(cut, 2 * T), infiniband={}), previous=published)
    assert f"{MINE[0].a:016x}" not in {x.id for x in unheard.adapters}
    alone = infer(FabricInputs(sweeps=seen(without(RAILS, *MINE), 2 * T), infiniband=down), previous=found)
    assert MOVER not in {x.node for x in alone.adapters}
    assert MOVER in alone.nodes_without_evidence


def test_a_manager_confirms_a_cable_that_is_back() -> None:
    """It is not said to report a cable that sweeps lack, and gives the rate."""
    manager = replace(sweep(FABRIC, 2 * T + 30 * NS), source="ufm")
    back = after(sweep(CUT, 2 * T), manager, **{HOST: 2 * T + 20 * NS})
    assert back.anomalies == ()
    [link] = [x for x in back.links if {(x.a_device, x.a_port), (x.b_device, x.b_port)} == ENDS]
    assert link.sources == ("infiniband", "ufm")
    assert link.speed_gbps > 0


def test_a_cable_is_back_where_its_adapter_was_not_published() -> None:
    adapters = tuple(x for x in MISSING.adapters if x.id != f"{CABLE.a:016x}")
    back = after(sweep(CUT, 2 * T), previous=replace(MISSING, adapters=adapters), **{HOST: 3 * T})
    assert cables(back) == cables(BEFORE)
