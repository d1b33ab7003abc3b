"""The taint policy: whose links are degraded, which node is tainted first, how slowly taints are cleared."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hyperscout_publish.nodes.taint_policy import (
    TaintPolicy,
    TaintSettings,
    Trouble,
    lines,
    say_over,
    troubles,
)
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Anomaly, Endpoint, Link, LinkTable, Switch, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.builders import hypernode
from support.topologies import HOST, LEAF, SECOND, SINCE_NS, SPINE, on_leaf_b, two_leaves

CALM = TaintSettings()


def with_anomalies(*anomalies: Anomaly) -> Topology:
    return replace(two_leaves(), anomalies=anomalies)


@pytest.mark.parametrize(
    ("name", "anomalies", "ill"),
    [
        ("a cable that is out", [on_leaf_b("MissingLink", HOST)], {"n03": 1}),
        ("named from the switch's end", [on_leaf_b("SlowLink", LEAF, HOST)], {"n03": 1}),
        ("errors", [on_leaf_b("ErroringLink", HOST)], {"n03": 1}),
        ("two of a node", [on_leaf_b("SlowLink", HOST), on_leaf_b("MissingLink", SECOND)], {"n03": 2}),
        ("an adapter that is gone", [on_leaf_b("MissingLink", Endpoint("gone", "n04", "1"))], {"n04": 1}),
        ("an unknown adapter", [on_leaf_b("MissingLink", Endpoint("n04", "n04"))], {"n04": 1}),
        ("back to back", [on_leaf_b("SlowLink", HOST, Endpoint("a01", "n01", "1"))], {"n03": 1, "n01": 1}),
        ("a tie", [on_leaf_b("MissingLink", HOST, confidence=0.5)], {}),
        ("a plug in another leaf", [on_leaf_b("Miswired", HOST)], {}),
        ("sources disagree", [on_leaf_b("SourcesDisagree", HOST)], {}),
        ("an uplink", [on_leaf_b("MissingLink", LEAF, SPINE)], {}),
        ("a switch", [on_leaf_b("MissingSwitch", LEAF, None)], {}),
        ("storage", [on_leaf_b("SlowLink", Endpoint("st", "storage-1", "1"))], {}),
        ("nothing", [], {}),
    ],
)  # fmt: skip
def test_whose_link_it_is(name: str, anomalies: Sequence[Anomaly], ill: dict[str, int]) -> None:
    found = troubles(with_anomalies(*anomalies), CALM)
    assert {node: trouble.links for node, trouble in found.items()} == ill


def test_the_reason_names_the_first_cable_and_the_oldest_time_counts() -> None:
    found = troubles(
        with_anomalies(
            on_leaf_b("MissingLink", HOST, since_ns=SINCE_NS + 9 * NS),
            on_leaf_b("SlowLink", HOST, since_ns=SINCE_NS + 3 * NS),
        ),
        CALM,
    )
    assert found == {"n03": Trouble(2, SINCE_NS + 3 * NS, "MissingLink: n03/p1 -> leaf-b/p1")}


@pytest.mark.parametrize(
    ("peer", "sources", "ill"),
    [
        (Endpoint("n04", "n04", "eth0"), ("latency",), set()),
        (Endpoint("n04", "n04", "eth0"), ("latency", "nccl"), set()),
        (None, ("latency",), {"n03"}),
        (Endpoint("n04", "n04", "eth0"), ("latency", "lldp"), {"n03", "n04"}),
        (Endpoint("n04", "n04", "eth0"), (), {"n03", "n04"}),
    ],
)
def test_a_slow_way_between_two_nodes_taints_neither(
    peer: Endpoint | None, sources: tuple[str, ...], ill: set[str]
) -> None:
    slow = on_leaf_b("SlowLink", Endpoint("n03", "n03", "eth0"), peer, sources=sources)
    assert troubles(with_anomalies(slow), CALM).keys() == ill


@pytest.mark.parametrize(
    ("uplink_share", "lost", "ill"),
    [(0.0, 4, set()), (0.5, 1, set()), (0.5, 2, {"n03", "n04"}), (0.25, 1, {"n03", "n04"}), (1.0, 3, set())],
)
def test_a_domain_taints_its_nodes_only_when_asked_and_when_enough_is_lost(
    uplink_share: float, lost: int, ill: set[str]
) -> None:
    """Four uplinks, some of them down."""
    up = [Link("s2", f"{i}", "s9", f"{i}", "ib", ()) for i in range(4)]
    gone = [
        on_leaf_b("MissingLink", Endpoint("s2", "leaf-b", f"{i}"), Endpoint("s9", "spine", f"{i}"))
        for i in range(lost)
    ]
    topology = _cabled(replace(two_leaves(), links=LinkTable.of(up[lost:]), anomalies=tuple(gone)))
    found = troubles(topology, TaintSettings(uplink_share=uplink_share))
    assert set(found) == ill
    if ill:
        assert found["n03"].why == f"{lost} of 4 uplinks of leaf-b degraded"
        assert found["n03"].links == 0


def test_inside_a_domain_with_switches_may_lie_others_that_have_none() -> None:
    """NVLink domains under a leaf: its nodes are still those that its uplinks serve."""
    topology = with_anomalies(on_leaf_b("MissingSwitch", LEAF, None))
    inner = [
        hypernode(f"rack-{h.name}", h.nodes, parent=h.name, tier_name="nvlink", source="nvlink")
        for h in topology.hypernodes
        if not h.children
    ]
    outer = [h if h.children else replace(h, children=(f"rack-{h.name}",)) for h in topology.hypernodes]
    nested = replace(topology, hypernodes=(*inner, *outer))
    settings = TaintSettings(uplink_share=0.5)
    assert set(troubles(nested, settings)) == set(troubles(topology, settings)) == {"n03", "n04"}


@pytest.mark.parametrize(("uplink_share", "ill"), [(0.5, {"n03", "n04"}), (0.6, set()), (0.0, set())])
def test_a_missing_switch_counts_by_the_switches_of_its_domain(uplink_share: float, ill: set[str]) -> None:
    topology = _cabled(with_anomalies(on_leaf_b("MissingSwitch", Endpoint("s3", "rail-2"), None)))
    assert set(troubles(topology, TaintSettings(uplink_share=uplink_share))) == ill


def _cabled(topology: Topology) -> Topology:
    """leaf-b with the one switch s2 that the links name."""
    hypernodes = tuple(replace(h, switches=("s2",)) if h.name == "leaf-b" else h for h in topology.hypernodes)
    switches = (*topology.switches, Switch("s3", "rail-2", 1))
    return replace(topology, hypernodes=hypernodes, switches=switches)


NODES = [f"n{i:02}" for i in range(20)]


def ill(*rows: tuple[str, int, int]) -> dict[str, Trouble]:
    """(node, links, since when in seconds)."""
    return {node: Trouble(links, since_s * NS, f"{links} down") for node, links, since_s in rows}


def test_trouble_must_last_and_health_even_longer() -> None:
    policy = TaintPolicy(TaintSettings(after_s=30, clear_after_s=300))
    bad = ill(("n01", 1, 100))
    first = policy.decide(bad, NODES, (), 110 * NS)
    assert (first.taint, first.wake_at_ns) == ((), 130 * NS)
    due = policy.decide(bad, NODES, (), 130 * NS)
    assert (due.taint, due.wake_at_ns) == (("n01",), None)
    assert policy.decide(bad, NODES, ("n01",), 131 * NS).taint == ()
    healed = policy.decide({}, NODES, ("n01",), 200 * NS)
    assert (healed.clear, healed.wake_at_ns) == ((), 500 * NS)
    relapsed = policy.decide(ill(("n01", 1, 400)), NODES, ("n01",), 400 * NS)
    assert (relapsed.clear, relapsed.wake_at_ns) == ((), None)
    assert policy.decide({}, NODES, ("n01",), 410 * NS).wake_at_ns == 710 * NS
    assert policy.decide({}, NODES, ("n01",), 709 * NS).clear == ()
    assert policy.decide({}, NODES, ("n01",), 710 * NS).clear == ("n01",)
    assert policy.decide({}, NODES, (), 711 * NS).wake_at_ns is None


def test_after_a_restart_what_lasts_is_still_known_and_what_is_well_waits_anew() -> None:
    settings = TaintSettings(after_s=30, clear_after_s=300)
    assert TaintPolicy(settings).decide(ill(("n01", 1, 100)), NODES, (), 130 * NS).taint == ("n01",)
    assert TaintPolicy(settings).decide({}, NODES, ("n01",), 900 * NS).wake_at_ns == 1200 * NS


@pytest.mark.parametrize(
    ("share", "nodes", "limit"),
    [(0.1, 20, 2), (0.1, 29, 2), (0.1, 3, 1), (0.0, 20, 0), (1.0, 20, 20), (0.5, 0, 0)],
)
def test_the_cap_lets_one_node_go(share: float, nodes: int, limit: int) -> None:
    assert TaintPolicy(TaintSettings(share)).limit(nodes) == limit


def test_the_worst_goes_first_and_the_rest_is_named() -> None:
    policy = TaintPolicy(TaintSettings(share=0.1, after_s=0))
    bad = ill(("n05", 1, 2), ("n03", 1, 1), ("n09", 4, 9), ("n04", 1, 1), ("absent", 8, 0))
    decision = policy.decide(bad, NODES, (), 10 * NS)
    assert (decision.taint, decision.over) == (("n09", "n03"), ("n04", "n05"))
    assert say_over(decision, 2, 20) == (
        "at most 2 of 20 nodes may be tainted (taint_share): n04, n05 are degraded but not tainted"
    )
    assert list(lines(decision, bad)) == ["n09: taint (4 down)", "n03: taint (1 down)"]


def test_a_tainted_node_stays_so_when_a_worse_one_comes_and_makes_room_when_cleared() -> None:
    policy = TaintPolicy(TaintSettings(share=0.05, after_s=0, clear_after_s=60))
    both = ill(("n01", 1, 0), ("n02", 4, 5))
    kept = policy.decide(both, NODES, ("n01",), 10 * NS)
    assert (kept.taint, kept.clear, kept.over) == ((), (), ("n02",))
    policy.decide(ill(("n02", 4, 5)), NODES, ("n01",), 20 * NS)
    room = policy.decide(ill(("n02", 4, 5)), NODES, ("n01",), 80 * NS)
    assert (room.taint, room.clear, room.over) == (("n02",), ("n01",), ())
    assert list(lines(room, {"n02": Trouble(4, 0, "x")})) == ["n02: taint (x)", "n01: clear"]


def test_over_is_said_in_few_words() -> None:
    policy = TaintPolicy(TaintSettings(share=0.05, after_s=0))
    decision = policy.decide(ill(*((node, 1, 0) for node in NODES)), NODES, (), 1)
    text = say_over(decision, 1, 20)
    assert text is not None
    assert text.endswith("n01, n02, n03, n04, n05 and 14 more are degraded but not tainted")
    assert say_over(policy.decide({}, NODES, (), 1), 1, 20) is None


STEPS = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.dictionaries(st.sampled_from(NODES[:6]), st.integers(1, 3), max_size=6),
    ),
    max_size=12,
)


@given(steps=STEPS, share=st.sampled_from([0.0, 0.05, 0.1, 0.3, 1.0]))
def test_whatever_happens(steps: list[tuple[int, dict[str, int]]], share: float) -> None:
    """Never over the cap, never early, never both at once; the same again decides nothing."""
    settings = TaintSettings(share, after_s=30, clear_after_s=100)
    policy = TaintPolicy(settings)
    tainted: set[str] = set()
    since: dict[str, int] = {}
    well: dict[str, int] = {}
    now = 1_000 * NS
    for wait_s, links in steps:
        now += wait_s * NS
        since = {node: since.get(node, now) for node in links}
        found = {node: Trouble(n, since[node], "") for node, n in links.items()}
        well = {node: well.get(node, now) for node in tainted if node not in found}
        decision = policy.decide(found, NODES, tainted, now)
        assert all(now - since[node] >= 30 * NS for node in decision.taint)
        assert all(now - well[node] >= 100 * NS for node in decision.clear)
        assert not set(decision.taint) & tainted
        assert set(decision.clear) <= tainted
        assert decision.wake_at_ns is None or decision.wake_at_ns > now
        tainted = (tainted - set(decision.clear)) | set(decision.taint)
        assert len(tainted) <= policy.limit(len(NODES))
        again = policy.decide(found, NODES, tainted, now)
        assert (again.taint, again.clear, again.over) == ((), (), decision.over)
