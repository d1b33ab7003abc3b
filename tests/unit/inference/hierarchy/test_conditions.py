"""Conditions from anomalies and facts: the four of every HyperNode, and their words."""

from dataclasses import replace
from typing import Any

import pytest
from hyperscout_inference.hierarchy.conditions import MESSAGE_MAX, ConditionFacts, with_conditions
from hyperscout_topology.topology import (
    Adapter,
    Anomaly,
    Condition,
    Endpoint,
    Link,
    Switch,
    Topology,
)
from support.builders import anomaly, hypernode

NOON_NS = 1_767_268_800_000_000_000  # 2026-01-01T12:00:00Z


def end(device: str, port: str | None = None) -> Endpoint:
    return Endpoint(device, device.upper(), port)


def reported(kind: str, subject: Endpoint, *peer: Endpoint, **more: Any) -> Anomaly:
    """An anomaly of HyperNode a."""
    return anomaly(kind, subject, *peer, **({"hypernode": "a"} | more))


# Two leaves of four hosts under two spines, two cables from each leaf to each spine.
LINKS = (
    *(Link(f"n{i}", "1", "leaf1" if i < 4 else "leaf2", str(i), "ib", ("x",)) for i in range(8)),
    *(
        Link(leaf, str(20 + 2 * s + k), f"spine{s}", str(10 * n + k), "ib", ("x",))
        for n, leaf in enumerate(("leaf1", "leaf2"))
        for s in range(2)
        for k in range(2)
    ),
)
SWITCHES = (Switch("leaf1", "LEAF1", 1), Switch("leaf2", "LEAF2", 1), Switch("spine0", "SPINE0", 2))
BASE = Topology(
    generation=3,
    hypernodes=(
        hypernode("a", ("n0", "n1", "n2", "n3"), parent="top", switches=("leaf1",)),
        hypernode("b", ("n4", "n5", "n6", "n7"), parent="top", switches=("leaf2",)),
        hypernode("top", [f"n{i}" for i in range(8)], children=("a", "b"), switches=("spine0", "spine1")),
    ),
    switches=(*SWITCHES, Switch("spine1", "SPINE1", 2)),
    links=LINKS,
)


def conditions(topology: Topology, hypernode: str) -> dict[str, Condition]:
    (found,) = [h for h in topology.hypernodes if h.name == hypernode]
    return {c.type: c for c in found.conditions}


def facet(topology: Topology, hypernode: str, condition: str) -> tuple[str, str, str]:
    c = conditions(topology, hypernode)[condition]
    return (c.status, c.reason, c.message)


def test_a_hypernode_with_the_same_conditions_since_any_time_stays_as_it_is() -> None:
    hypernodes = tuple(
        replace(h, conditions=tuple(replace(c, since_ns=7) for c in h.conditions))
        for h in with_conditions(BASE).hypernodes
    )
    told = replace(BASE, hypernodes=hypernodes)
    assert all(x is y for x, y in zip(with_conditions(told).hypernodes, hypernodes, strict=True))
    down = with_conditions(told, ConditionFacts(down_nodes={"n0": "cordoned"}))
    same = [x is y for x, y in zip(down.hypernodes, hypernodes, strict=True)]
    assert same == [False, True, False]
    assert conditions(down, "a")["Ready"].nodes == ("n0",)


def test_a_message_has_the_name_of_an_adapter_as_soon_as_it_is_known() -> None:
    """Ends are equal whatever the name of the adapter."""
    gone = reported("MissingLink", end("n0", "1"), end("leaf1", "0"))
    named = replace(gone, subject=replace(gone.subject, adapter="mlx5_0"))
    assert named == gone
    for one, text in ((gone, "N0/p1 -> LEAF1/p0"), (named, "N0 mlx5_0/p1 -> LEAF1/p0")):
        found = with_conditions(replace(BASE, anomalies=(one,)))
        assert facet(found, "a", "Degraded")[2].endswith(f": {text}, seen by ibnetdiscover")


def test_a_healthy_domain_has_all_four_and_nothing_to_say() -> None:
    done = with_conditions(BASE)
    for h in done.hypernodes:
        assert [(c.type, c.status) for c in h.conditions] == [
            ("Ready", "True"),
            ("Degraded", "False"),
            ("Consistent", "True"),
            ("Stale", "False"),
        ]
        assert all(c.since_ns == 0 for c in h.conditions)
    assert replace(done, hypernodes=()) == replace(BASE, hypernodes=())
    assert with_conditions(done) == done


UPLINK = reported("MissingLink", end("leaf1", "20"), end("spine0", "0"))
WITHOUT_UPLINK = tuple(x for x in LINKS if (x.a_device, x.a_port) != ("leaf1", "20"))
SEEN = "seen by ibnetdiscover"
DEGRADED = [
    (
        "a cable to a spine that is up again, and its all-clear held back",
        (replace(UPLINK, message="up since then", since_ns=NOON_NS, flaps=2, changed_ns=1, clears_ns=2),),
        LINKS,
        (
            "LinksDown",
            f"1 of 4 uplinks down: LEAF1/p20 -> SPINE0/p0: up since then, {SEEN}, since 2026-01-01T12:00:00Z",
        ),
    ),
    (
        "a cable to a spine, since noon",
        (replace(UPLINK, since_ns=NOON_NS),),
        WITHOUT_UPLINK,
        ("LinksDown", f"1 of 4 uplinks down: LEAF1/p20 -> SPINE0/p0, {SEEN}, since 2026-01-01T12:00:00Z"),
    ),
    (
        "a cable that is back while its anomaly stands is not counted twice",
        (UPLINK,),
        LINKS,
        ("LinksDown", f"1 of 4 uplinks down: LEAF1/p20 -> SPINE0/p0, {SEEN}"),
    ),
    (
        "a host's cable",
        (reported("MissingLink", end("n0", "1"), end("leaf1", "0")),),
        LINKS[1:],
        ("LinksDown", f"1 of 4 host links down: N0/p1 -> LEAF1/p0, {SEEN}"),
    ),
    (
        "ports unknown, a named port",
        (reported("MissingLink", end("n0", "mlx5_0"), end("leaf1")),),
        LINKS[1:],
        ("LinksDown", f"1 of 4 host links down: N0/mlx5_0 -> LEAF1, {SEEN}"),
    ),
    (
        "no table of links, no total",
        (UPLINK, reported("MissingLink", end("leaf1", "21"), end("spine0", "1"))),
        (),
        ("LinksDown", f"2 uplinks down: LEAF1/p20 -> SPINE0/p0, {SEEN}; LEAF1/p21 -> SPINE0/p1, {SEEN}"),
    ),
    (
        "the other end unknown",
        (reported("ErroringLink", end("leaf1", "20"), message="77 symbol errors a minute."),),
        LINKS,
        ("LinksErroring", f"1 link erroring: 77 symbol errors a minute, {SEEN}"),
    ),
    (
        "slow",
        (reported("SlowLink", end("leaf1", "20"), end("spine0", "0"), message="100 of 400 Gbit/s"),),
        LINKS,
        ("SlowLinks", f"1 of 4 uplinks slow: 100 of 400 Gbit/s, {SEEN}"),
    ),
    (
        "a switch before its cables, both named",
        (UPLINK, reported("MissingSwitch", end("leaf9"), message="gone")),
        WITHOUT_UPLINK,
        (
            "SwitchMissing",
            f"1 switch missing: LEAF9, {SEEN}; 1 of 4 uplinks down: LEAF1/p20 -> SPINE0/p0, {SEEN}",
        ),
    ),
]


@pytest.mark.parametrize(("name", "anomalies", "links", "expected"), DEGRADED, ids=[x[0] for x in DEGRADED])
def test_degraded(
    name: str, anomalies: tuple[Anomaly, ...], links: tuple[Link, ...], expected: tuple[str, str]
) -> None:
    done = with_conditions(replace(BASE, anomalies=anomalies, links=links))
    assert facet(done, "a", "Degraded") == ("True", *expected)
    assert facet(done, "b", "Degraded")[0] == "False"
    assert facet(done, "top", "Degraded")[0] == "False", "does not roll up"
    assert facet(done, "a", "Consistent")[0] == "True"


def test_a_cable_between_switches_of_one_level_is_counted_for_each_domain_once() -> None:
    between = Link("leaf1", "40", "leaf2", "40", "ib", ("x",))
    inside = Link("leaf1", "41", "leaf3", "41", "ib", ("x",))
    a = replace(BASE.hypernodes[0], switches=("leaf1", "leaf3"))
    topology = replace(
        BASE,
        hypernodes=(a, *BASE.hypernodes[1:]),
        switches=(*BASE.switches, Switch("leaf3", "LEAF3", 1)),
        links=(*LINKS, between, inside),
        anomalies=(
            reported("SlowLink", end("leaf1", "40"), end("leaf2", "40")),
            reported("SlowLink", end("leaf2", "40"), end("leaf1", "40"), hypernode="b"),
        ),
    )
    done = with_conditions(topology)
    assert facet(done, "a", "Degraded")[2].startswith("1 of 6 uplinks slow")
    assert facet(done, "b", "Degraded")[2].startswith("1 of 5 uplinks slow")


def test_other_endpoints_are_no_hosts_where_adapters_are_known() -> None:
    topology = replace(
        BASE,
        adapters=tuple(Adapter(f"n{i}", f"n{i}", "mlx5_0") for i in range(8)),
        links=(*LINKS, Link("sharp", "1", "leaf1", "41", "ib", ("x",))),
        anomalies=(reported("SlowLink", end("n0", "1"), end("leaf1", "0"), message="100 of 400 Gbit/s"),),
    )
    assert facet(with_conditions(topology), "a", "Degraded")[2].startswith("1 of 4 host links slow")


def test_a_switch_of_unknown_level_is_above() -> None:
    topology = replace(
        BASE,
        switches=(*BASE.switches, Switch("odd", "ODD", 0)),
        links=(*LINKS, Link("odd", "1", "leaf1", "42", "ib", ("x",))),
        anomalies=(UPLINK, reported("SlowLink", end("n0", "1"), end("leaf1", "0"), message="slow")),
    )
    message = facet(with_conditions(topology), "a", "Degraded")[2]
    assert message.startswith("1 of 5 uplinks down")
    assert "1 of 4 host links slow" in message


def test_several_are_named_and_the_rest_counted() -> None:
    missing = tuple(reported("MissingLink", end(f"n{i}", "1"), end("leaf1", str(i))) for i in range(4))
    done = with_conditions(replace(BASE, anomalies=missing, links=LINKS[4:]))
    named = "; ".join(f"N{i}/p1 -> LEAF1/p{i}, {SEEN}" for i in range(3))
    assert facet(done, "a", "Degraded")[2] == f"4 of 4 host links down: {named} and 1 more"


CONSISTENT = [
    ("Miswired", "Miswired", "miswired: plugged into LEAF2"),
    ("Overlap", "Overlap", "overlaps: plugged into LEAF2"),
    ("SourcesDisagree", "SourcesDisagree", "sources disagree: plugged into LEAF2"),
    ("UnknownHost", "UnknownHost", "unknown hosts: plugged into LEAF2"),
    ("BlueprintDrift", "BlueprintDrift", "drifts from the blueprint: plugged into LEAF2"),
]


@pytest.mark.parametrize(("kind", "reason", "text"), CONSISTENT, ids=[x[0] for x in CONSISTENT])
def test_consistent(kind: str, reason: str, text: str) -> None:
    done = with_conditions(
        replace(BASE, anomalies=(reported(kind, end("n0"), message="plugged into LEAF2."),))
    )
    assert facet(done, "a", "Consistent") == ("False", reason, f"{text}, {SEEN}")
    assert facet(done, "a", "Degraded")[0] == "False"
    assert facet(done, "b", "Consistent")[0] == "True"


def test_anomalies_of_no_known_domain_count_nowhere() -> None:
    stray = (
        reported("MissingLink", end("n0"), end("leaf1"), hypernode=None),
        reported("Miswired", end("n0"), hypernode="gone"),
    )
    done = with_conditions(replace(BASE, anomalies=stray))
    assert done.hypernodes == with_conditions(BASE).hypernodes


ALL_A = {f"n{i}": "" for i in range(4)}
READY = [
    ("one of four down", {"n2": "kubelet"}, "False", "True", "3 of 4 nodes ready; not ready: n2 (kubelet)"),
    ("no reason given", {"n2": ""}, "False", "True", "3 of 4 nodes ready; not ready: n2"),
    ("a whole child", ALL_A, "False", "False", "0 of 4 nodes ready; not ready: n0, n1, n2 and 1 more"),
    ("another node", {"x": ""}, "True", "True", "4 of 4 nodes ready"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "down", "leaf", "top", "text"), READY, ids=[x[0] for x in READY])
def test_ready(name: str, down: dict[str, str], leaf: str, top: str, text: str) -> None:
    done = with_conditions(BASE, ConditionFacts(down_nodes=down))
    assert (facet(done, "a", "Ready")[0], facet(done, "top", "Ready")[0]) == (leaf, top)
    assert facet(done, "a", "Ready")[2] == text
    assert facet(done, "b", "Ready") == ("True", "AllNodesReady", "4 of 4 nodes ready")
    if top == "False":
        words = "4 of 8 nodes ready; 1 of 2 children have no ready node: a"
        assert facet(done, "top", "Ready") == ("False", "ChildrenNotReady", words)


def test_a_member_that_no_fabric_shows_is_down() -> None:
    done = with_conditions(replace(BASE, nodes_without_evidence=("n1", "spare")))
    assert facet(done, "a", "Ready") == (
        "False",
        "NodesNotReady",
        "3 of 4 nodes ready; not ready: n1 (no fabric shows it)",
    )


def test_down_rolls_up_through_three_tiers_only_when_whole() -> None:
    over = hypernode("core", BASE.hypernodes[2].nodes, tier=3, children=("top",))
    deep = replace(BASE, hypernodes=(*BASE.hypernodes[:2], replace(BASE.hypernodes[2], parent="core"), over))
    half = with_conditions(deep, ConditionFacts(down_nodes=ALL_A))
    assert [facet(half, name, "Ready")[0] for name in ("a", "top", "core")] == ["False", "False", "True"]
    whole = with_conditions(deep, ConditionFacts(down_nodes={f"n{i}": "" for i in range(8)}))
    assert facet(whole, "core", "Ready")[0] == "False"


def test_stale() -> None:
    done = with_conditions(BASE, ConditionFacts(stale={"n1": NOON_NS, "n2": 0}))
    words = "evidence of 2 of 4 nodes is older than its limit: n1 last seen 2026-01-01T12:00:00Z, n2"
    assert facet(done, "a", "Stale") == ("True", "EvidenceStale", words)
    assert facet(done, "b", "Stale")[0] == facet(done, "top", "Stale")[0] == "False"
    whole = with_conditions(BASE, ConditionFacts(stale=dict.fromkeys(ALL_A, NOON_NS)))
    words = "1 of 2 children have no node with fresh evidence: a"
    assert facet(whole, "top", "Stale") == ("True", "EvidenceStale", words)


def test_a_condition_lists_all_nodes_and_its_message_names_some() -> None:
    all_a = tuple(sorted(ALL_A))
    done = with_conditions(
        BASE, ConditionFacts(down_nodes=dict.fromkeys(ALL_A, ""), stale=dict.fromkeys(ALL_A, NOON_NS))
    )
    for kind in ("Ready", "Stale"):
        found = conditions(done, "a")[kind]
        assert (found.nodes, found.switches) == (all_a, ())
        assert found.message.endswith(" and 1 more")
        assert conditions(done, "b")[kind].nodes == conditions(done, "top")[kind].nodes == (), (
            "at tier 1 alone"
        )
    silent = with_conditions(
        BASE, ConditionFacts(stale={"n1": 0}, stale_switches={"spine1": 0, "spine0": 0, "leaf1": 0})
    )
    assert conditions(silent, "top")["Stale"].switches == ("spine0", "spine1")
    assert (conditions(silent, "a")["Stale"].nodes, conditions(silent, "a")["Stale"].switches) == (
        ("n1",),
        ("leaf1",),
    )


def test_switches_that_speak_no_more() -> None:
    silent = {"leaf1": NOON_NS, "spine0": 0, "unknown": NOON_NS}
    done = with_conditions(BASE, ConditionFacts(stale_switches=silent))
    words = "evidence of 1 of 1 switches is older than its limit: LEAF1 last seen 2026-01-01T12:00:00Z"
    assert facet(done, "a", "Stale") == ("True", "EvidenceStale", words)
    assert facet(done, "b", "Stale")[0] == "False"
    words = "evidence of 1 of 2 switches is older than its limit: SPINE0"
    assert facet(done, "top", "Stale") == ("True", "EvidenceStale", words)
    both = with_conditions(BASE, ConditionFacts(stale={"n1": NOON_NS}, stale_switches={"leaf1": NOON_NS}))
    words = (
        "evidence of 1 of 4 nodes is older than its limit: n1 last seen 2026-01-01T12:00:00Z; "
        "evidence of 1 of 1 switches is older than its limit: LEAF1 last seen 2026-01-01T12:00:00Z"
    )
    assert facet(both, "a", "Stale") == ("True", "EvidenceStale", words)


def test_a_switch_that_is_listed_higher_up_too_belongs_below() -> None:
    top = replace(BASE.hypernodes[2], switches=("leaf1", "spine0"))
    tree = replace(BASE, hypernodes=(*BASE.hypernodes[:2], top))
    done = with_conditions(tree, ConditionFacts(stale_switches={"leaf1": NOON_NS}))
    assert [facet(done, name, "Stale")[0] for name in ("a", "top")] == ["True", "False"]


def test_messages_are_bounded_whatever_is_in_them() -> None:
    long = "x" * 100_000
    anomalies = tuple(
        replace(
            reported(kind, Endpoint(f"{long}{i}", long, long), Endpoint(long, long, None), message=long),
            sources=(long,),
        )
        for i in range(50)
        for kind in ("MissingLink", "MissingSwitch", "SlowLink", "Miswired", "UnknownHost")
    )
    named = tuple(f"{long}{i}" for i in range(50))
    leaf = replace(BASE.hypernodes[0], nodes=named)
    done = with_conditions(
        replace(BASE, hypernodes=(leaf, *BASE.hypernodes[1:]), anomalies=anomalies),
        ConditionFacts(dict.fromkeys(named, long), dict.fromkeys(named, NOON_NS)),
    )
    messages = [c.message for c in conditions(done, "a").values()]
    assert max(map(len, messages)) == MESSAGE_MAX <= 1024
    assert all(m.isprintable() for m in messages)


def test_what_was_measured_is_a_path_and_no_link() -> None:
    node = Endpoint("n0", "n0", "eth0")
    words = "n0/eth0 -> n1/eth1: 14.2 us where this tier's median is 6.1 us (128 pairs)"
    path = replace(
        reported("SlowLink", node, Endpoint("n1", "n1", "eth1"), message=words), sources=("latency",)
    )
    domain = replace(
        reported("SlowLink", end("domain/leaf of n0"), message="leaf of n0: ways out: slow"),
        sources=("nccl",),
    )
    one = with_conditions(replace(BASE, anomalies=(replace(path, since_ns=NOON_NS),)))
    assert facet(one, "a", "Degraded") == (
        "True",
        "SlowLinks",
        f"1 path slow: {words}, seen by latency, since 2026-01-01T12:00:00Z",
    )
    two = with_conditions(replace(BASE, anomalies=(path, domain)))
    assert facet(two, "a", "Degraded")[2].startswith("2 paths slow: ")
    cable = reported("SlowLink", end("n1", "1"), end("leaf1", "1"))
    assert (
        "1 of 4 host links slow: "
        in facet(with_conditions(replace(BASE, anomalies=(cable, path))), "a", "Degraded")[2]
    )


def test_a_domain_from_latency_says_so_unless_something_is_wrong() -> None:
    a, *others = BASE.hypernodes
    opaque = replace(BASE, hypernodes=(replace(a, source="latency", confidence=0.934), *others))
    assert facet(with_conditions(opaque), "a", "Consistent") == (
        "True",
        "Inferred",
        "inferred from latency alone, confidence 0.93: no wiring evidence",
    )
    nvlink = replace(BASE, hypernodes=(replace(a, source="nvlink"), *others))
    assert facet(with_conditions(nvlink), "a", "Consistent")[1] == "WiringMatches"
    wrong = replace(opaque, anomalies=(reported("SourcesDisagree", end("n0"), message="two say two things"),))
    assert facet(with_conditions(wrong), "a", "Consistent")[:2] == ("False", "SourcesDisagree")
