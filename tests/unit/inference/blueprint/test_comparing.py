"""Where the wiring departs from the blueprint: what is told, once, and what is not."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hyperscout_inference.blueprint import comparing, drift
from hyperscout_inference.blueprint.comparing import Comparison, compare
from hyperscout_inference.blueprint.drift import with_drift
from hyperscout_inference.blueprint.reading import parse
from hyperscout_inference.hierarchy.conditions import with_conditions
from hyperscout_topology.topology import (
    Adapter,
    Anomaly,
    Endpoint,
    HyperNode,
    Link,
    LinkTable,
    Switch,
    Topology,
    say,
)
from hypothesis import given
from hypothesis import strategies as st
from support.builders import hypernode

SWITCHES = {"l1": ("leaf-1", 1), "l2": ("leaf-2", 1), "s1": ("spine-1", 2), "s2": ("spine-2", 2)}
# Two hosts a leaf, by InfiniBand adapters; two spines.
WIRES = ("g1 l1/1", "g2 l1/2", "g3 l2/1", "g4 l2/2", "l1/9 s1/1", "l1/10 s2/1", "l2/9 s1/2", "l2/10 s2/2")
PLAN = """\
switches: [leaf-1, leaf-2, spine-1, spine-2]
patterns:
- for: {l: 1-2, n: 1-2}
  link: n{(l-1)*2+n}/mlx5_0 -> leaf-{l}/p{n}
- for: {l: 1-2, s: 1-2}
  link: leaf-{l}/p{s+8} -> spine-{s}/p{l}
"""


def fabric(
    wires: Iterable[str] = WIRES,
    switches: dict[str, tuple[str, int]] = SWITCHES,
    sources: Sequence[str] = ("ibnetdiscover",),
    notes: dict[str, str] | None = None,
) -> Topology:
    """`wires`: "g1 l1/1": adapter g1 of node n1; all others are switches, or hosts by their own names."""
    links = []
    for wire in wires:
        (a, a_port), (b, b_port) = ((*end.split("/"), "1")[:2] for end in wire.split())
        links.append(Link(a, a_port, b, b_port, "ib", tuple(sources), (notes or {}).get(wire, "")))
    devices = {d for x in links for d in (x.a_device, x.b_device)}
    hosts = sorted(d for d in devices if d not in switches)
    adapters = [Adapter(d, f"n{d[1:]}", "mlx5_0") if d.startswith("g") else Adapter(d, d, "") for d in hosts]
    return Topology(
        1,
        (
            hypernode("tier-1-a", ("n1", "n2"), parent="top", switches=("l1",)),
            hypernode("tier-1-b", ("n3", "n4"), parent="top", switches=("l2",)),
            HyperNode(
                "top", 2, "pod", None, ("tier-1-a", "tier-1-b"), ("n1", "n2", "n3", "n4"), ("s1", "s2")
            ),
        ),
        switches=tuple(Switch(id_, name, level) for id_, (name, level) in sorted(switches.items())),
        adapters=tuple(adapters),
        links=LinkTable.of(links),
    )


def told(found: Comparison) -> list[str]:
    return [f"{x.sign} {x.anomaly.message}" for x in found.drifts]


def rewired(gone: Iterable[str] = (), come: Iterable[str] = ()) -> list[str]:
    assert set(gone) <= set(WIRES)
    return [*(w for w in WIRES if w not in gone), *come]


@pytest.mark.parametrize(
    ("wires", "expected"),
    [
        pytest.param(WIRES, [], id="as declared"),
        pytest.param([" ".join(reversed(w.split())) for w in WIRES], [], id="told from the other end"),
        pytest.param(
            rewired(["g1 l1/1"]), ["- no cable from n1/mlx5_0 to leaf-1/p1; the blueprint has one"], id="cut"
        ),
        pytest.param(
            rewired(["l2/9 s1/2"]),
            ["- no cable from leaf-2/p9 to spine-1/p2; the blueprint has one"],
            id="uplink",
        ),
        pytest.param(
            rewired(["g1 l1/1"], ["g1 l1/5"]),
            ["~ n1/mlx5_0 is plugged into leaf-1/p5; the blueprint has n1/mlx5_0 -> leaf-1/p1"],
            id="another hole",
        ),
        pytest.param(
            rewired(["g1 l1/1"], ["x/eth0 l1/1"]),
            ["~ x/eth0 is plugged into leaf-1/p1; the blueprint has leaf-1/p1 -> n1/mlx5_0"],
            id="another host",
        ),
        pytest.param(
            rewired(["g1 l1/1", "g3 l2/1"], ["g1 l2/1", "g3 l1/1"]),
            [
                (
                    "~ n1/mlx5_0 is plugged into leaf-2/p1; the blueprint has n1/mlx5_0 -> leaf-1/p1"
                    " and leaf-2/p1 -> n3/mlx5_0"
                ),
                (
                    "~ n3/mlx5_0 is plugged into leaf-1/p1; the blueprint has n3/mlx5_0 -> leaf-2/p1"
                    " and leaf-1/p1 -> n1/mlx5_0"
                ),
            ],
            id="swapped",
        ),
        pytest.param(
            rewired((), ["x/eth0 l1/7"]),
            ["+ x/eth0 is plugged into leaf-1/p7; the blueprint has no such cable"],
            id="a cable too much",
        ),
        pytest.param(
            rewired((), ["l1/20 l2/20"]),
            ["+ leaf-1/p20 is plugged into leaf-2/p20; the blueprint has no such cable"],
            id="a peer link too much",
        ),
        pytest.param(
            rewired(["l1/10 s2/1", "l2/10 s2/2"]),
            [
                (
                    "- spine-2 has 2 cables in the blueprint, and none of them is present: "
                    "p1 -> leaf-1/p10, p2 -> leaf-2/p10"
                )
            ],
            id="a spine is gone",
        ),
        pytest.param(
            rewired(["g1 l1/1", "g2 l1/2", "l1/9 s1/1", "l1/10 s2/1"]),
            [
                (
                    "- leaf-1 has 4 cables in the blueprint, and none of them is present: "
                    "p1 -> n1/mlx5_0, p10 -> spine-2/p1, p2 -> n2/mlx5_0 and 1 more"
                )
            ],
            id="a leaf is gone, and hosts with it",
        ),
        pytest.param(
            [],
            [
                # Two devices of two cables each explain one another.
                (
                    "- leaf-1 has 4 cables in the blueprint, and none of them is present: "
                    "p1 -> n1/mlx5_0, p10 -> spine-2/p1, p2 -> n2/mlx5_0 and 1 more"
                ),
                (
                    "- leaf-2 has 4 cables in the blueprint, and none of them is present: "
                    "p1 -> n3/mlx5_0, p10 -> spine-2/p2, p2 -> n4/mlx5_0 and 1 more"
                ),
            ],
            id="nothing is there",
        ),
    ],
)
def test_each_difference_is_told_once(wires: list[str], expected: list[str]) -> None:
    found = compare(fabric(wires), parse(PLAN.encode()))
    assert told(found) == expected
    assert (found.declared, found.unseen, found.more) == (8, 0, 0)


def test_both_ends_are_named_as_other_anomalies_name_them() -> None:
    (found,) = compare(fabric(rewired(["g1 l1/1"], ["g1 l1/5"])), parse(PLAN.encode())).drifts
    x = found.anomaly
    assert (x.kind, x.subject, x.peer) == (
        "BlueprintDrift",
        Endpoint("g1", "n1", "1"),
        Endpoint("l1", "leaf-1", "5"),
    )
    assert (x.sources, x.confidence) == (("ibnetdiscover",), 1.0)
    (found,) = compare(fabric(rewired(["l2/9 s1/2"])), parse(PLAN.encode())).drifts
    assert (found.anomaly.subject, found.anomaly.peer) == (
        Endpoint("l2", "leaf-2", "9"),
        Endpoint("s1", "spine-1", "2"),
    )
    assert found.anomaly.peer is not None
    assert say(found.anomaly.peer) == "spine-1/p2"


@pytest.mark.parametrize(
    ("plan", "wires", "expected"),
    [
        pytest.param("links: [n1/mlx5_0 -> leaf-1/p1]", WIRES, [], id="it speaks of one port alone"),
        pytest.param(
            "links: [n1/mlx5_0 -> leaf-1/p2]",
            WIRES,
            [
                "~ n1/mlx5_0 is plugged into leaf-1/p1; the blueprint has n1/mlx5_0 -> leaf-1/p2",
                "~ n2/mlx5_0 is plugged into leaf-1/p2; the blueprint has leaf-1/p2 -> n1/mlx5_0",
            ],
            id="both cables on the ports of one",
        ),
        pytest.param("links: [n1 -> leaf-1/p1, leaf-1/p9 -> spine-1]", WIRES, [], id="a port left open"),
        pytest.param(
            "links: [n1 -> leaf-1/p2]",
            WIRES,
            ["~ n2/mlx5_0 is plugged into leaf-1/p2; the blueprint has leaf-1/p2 -> n1"],
            id="a port left open and taken",
        ),
        pytest.param("links: [leaf-1 -> spine-1, leaf-1 -> spine-2]", WIRES, [], id="both ports left open"),
        pytest.param(
            "links: [leaf-1 -> spine-1, leaf-1 -> spine-1]",
            WIRES,
            ["- no cable from leaf-1 to spine-1; the blueprint has one"],
            id="one of two is there",
        ),
        pytest.param(
            "links: [leaf-1 -> spine-1, leaf-1/p9 -> spine-1/p1]",
            WIRES,
            ["- no cable from leaf-1 to spine-1; the blueprint has one"],
            id="a cable counts once",
        ),
        pytest.param(
            "{switches: [spine-1], links: [leaf-1 -> spine-1, leaf-2 -> spine-1]}",
            rewired((), ["l1/11 s1/7"]),
            ["+ leaf-1/p11 is plugged into spine-1/p7; the blueprint has no such cable"],
            id="one more than declared",
        ),
        pytest.param(
            "switches: [spine-3]", WIRES, ["- spine-3 is in the blueprint, and none of its cables is present"]
        ),
        pytest.param(
            (
                "{switches: [{name: leaf-1, id: l1}], links: [n1 -> leaf-1, n2 -> leaf-1, leaf-1 -> spine-1, "
                "leaf-1 -> spine-2]}"
            ),
            WIRES,
            [],
            id="by id",
        ),
        pytest.param(
            "{switches: [{name: edge, id: l1}], links: [n1 -> edge/p1, n2 -> edge, edge -> s1, edge -> s2]}",
            WIRES,
            [],
            id="an id counts more than a name",
        ),
        pytest.param(
            (
                "{switches: [{name: leaf-1, id: l7}], links: [n1 -> leaf-1, n2 -> leaf-1, leaf-1 -> spine-1, "
                "leaf-1 -> spine-2]}"
            ),
            WIRES,
            ["~ leaf-1 is l1; the blueprint has l7"],
            id="another device of that name",
        ),
    ],
)
def test_what_a_blueprint_speaks_of(plan: str, wires: list[str], expected: list[str]) -> None:
    assert told(compare(fabric(wires), parse(plan.encode()))) == expected


def test_a_switch_without_an_id_matches_no_other() -> None:
    """What is heard without a chassis id goes by none."""
    nameless = fabric([*WIRES, "l2/30 /x"], SWITCHES | {"": ("odd", 0)})
    plan = PLAN.replace("spine-2]", "spine-2, odd]") + "links: [leaf-2/p30 -> odd/x]\n"
    assert told(compare(nameless, parse(plan.encode()))) == []


def test_two_switches_of_one_name_must_be_named_by_id() -> None:
    twins = SWITCHES | {"l2": ("leaf-1", 1)}
    plan = parse(b"links: [n1/mlx5_0 -> leaf-1/p1, n2 -> l1/p2, l2/p1 -> n3]")
    found = compare(fabric(switches=twins), plan)
    assert told(found) == ["~ more than one switch is called leaf-1: the blueprint must name them by id"]
    assert found.unseen == 1


def test_a_link_that_contradicts_the_declared_one_is_not_another_drift() -> None:
    wires = rewired((), ["x/eth0 l1/1"])
    notes = {"x/eth0 l1/1": "another one claims the port"}
    assert told(compare(fabric(wires, notes=notes), parse(PLAN.encode()))) == []
    (found,) = compare(fabric(wires), parse(PLAN.encode())).drifts
    assert found.anomaly.confidence == 1.0
    (found,) = compare(fabric(wires[1:], notes=notes), parse(PLAN.encode())).drifts
    assert found.anomaly.message.endswith("-> n1/mlx5_0 (another one claims the port)")
    assert found.anomaly.confidence == 0.5


def test_what_is_no_host_s_is_no_drift_but_on_a_declared_port() -> None:
    def with_storage(port: int, gone: Sequence[str] = ()) -> list[str]:
        wires = rewired(gone, [f"x/eth0 l1/{port}"])
        found = fabric(wires)
        return told(
            compare(
                replace(found, adapters=tuple(x for x in found.adapters if x.id != "x")), parse(PLAN.encode())
            )
        )

    assert with_storage(7) == []
    assert with_storage(1, ["g1 l1/1"]) == [
        "~ x/eth0 is plugged into leaf-1/p1; the blueprint has leaf-1/p1 -> n1/mlx5_0"
    ]


def test_an_unclaimed_adapter_may_be_the_declared_one() -> None:
    wires = rewired(["g1 l1/1"], ["u1 l1/1"])
    unknown = Anomaly("UnknownHost", Endpoint("u1", "u1"), None, 1, (), 1.0, "whose?")
    topology = replace(fabric(wires), anomalies=(unknown,))
    found = compare(topology, parse(PLAN.encode()))
    assert (told(found), found.unseen) == ([], 1)
    topology = replace(
        fabric([*wires, "u2 l1/8"]), anomalies=(replace(unknown, subject=Endpoint("u2", "u2")),)
    )
    assert [line[:4] for line in told(compare(topology, parse(PLAN.encode())))] == ["~ u1", "+ u2"]


@pytest.mark.parametrize(
    ("sources", "wires", "unseen", "missing"),
    [
        pytest.param(["lldp"], WIRES[:4], 4, 0, id="hosts alone: no reporter sees what is above leaves"),
        pytest.param(["lldp"], [*WIRES[:3]], 4, 1, id="a host's own cable they see"),
        pytest.param(["lldp", "snmp"], WIRES[:4], 0, 2, id="a leaf that was asked has no uplink"),
    ],
)
def test_what_no_reporter_can_see_is_no_drift(
    sources: list[str], wires: list[str], unseen: int, missing: int
) -> None:
    found = compare(fabric(wires, sources=sources), parse(PLAN.encode()))
    assert (found.unseen, len(found.drifts)) == (unseen, missing)


@pytest.mark.parametrize(
    ("gone", "come", "domain"),
    [
        ("g3 l2/1", (), "tier-1-b"),
        ("l1/9 s1/1", (), "tier-1-a"),
        ("g1 l1/1", ("g1 l2/7",), "tier-1-a"),
    ],
)
def test_drift_counts_against_the_lower_end_s_domain(gone: str, come: tuple[str, ...], domain: str) -> None:
    topology = fabric(rewired([gone], come))
    after = with_conditions(with_drift(topology, compare(topology, parse(PLAN.encode()))))
    (x,) = after.anomalies
    assert (x.hypernode, x.tier) == (domain, 1)
    inconsistent = {
        h.name: (c.reason, c.message)
        for h in after.hypernodes
        for c in h.conditions
        if c.type == "Consistent" and c.status == "False"
    }
    ((name, (reason, message)),) = inconsistent.items()
    assert (name, reason) == (domain, "BlueprintDrift")
    assert x.message in message


def test_a_missing_switch_counts_against_the_domain_that_it_serves() -> None:
    plan = parse(PLAN.replace("spine-2]", "spine-2, spine-3]").replace("s: 1-2", "s: 1-3").encode())
    topology = fabric()
    (x,) = with_drift(topology, compare(topology, plan)).anomalies
    assert (x.subject, x.hypernode, x.tier) == (Endpoint("spine-3", "spine-3"), "top", 2)


def test_a_node_s_cables_are_in_the_lowest_domain_with_switches() -> None:
    topology = fabric(rewired(["g1 l1/1"]))
    a, b, top = topology.hypernodes
    rack = hypernode("rack", ("n1", "n2"), parent="tier-1-a", tier_name="nvlink")
    family = (rack, replace(a, tier=2, children=("rack",)), replace(b, tier=2), replace(top, tier=3))
    topology = replace(topology, hypernodes=family)
    (x,) = with_drift(topology, compare(topology, parse(PLAN.encode()))).anomalies
    assert x.hypernode == "tier-1-a"


def test_drift_is_bounded_and_what_is_left_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "MAX_DRIFTS", 5)
    monkeypatch.setattr(drift, "MAX_ANOMALIES", 2)
    topology = fabric((), {})
    plan = parse(b"links:\n" + b"".join(b"- h%d/1 -> t%d/1\n" % (i, i) for i in range(8)))
    found = compare(topology, plan)
    assert (len(found.drifts), found.more) == (5, 3)
    assert [x.message for x in with_drift(topology, found).anomalies][:1] == [
        "6 more differences: `hyperscout diff --blueprint` lists them"
    ]
    assert len(with_drift(topology, found).anomalies) == 3


def test_the_order_of_links_and_plan_changes_nothing() -> None:
    wires = rewired(["g1 l1/1", "g3 l2/1", "l2/9 s1/2"], ["g1 l2/1", "g3 l1/1"])
    plan = PLAN.split("\n")
    turned = "\n".join([plan[0], plan[1], *plan[4:6], *plan[2:4], ""])
    expected = compare(fabric(wires), parse(PLAN.encode()))
    assert len(expected.drifts) == 3
    assert compare(fabric(wires[::-1]), parse(turned.encode())) == expected


Rows = list[tuple[tuple[str, int], tuple[str, int]]]


def _proper(rows: Rows) -> Rows:
    """No port twice, no cable from a port to itself."""
    used: set[tuple[str, int]] = set()
    kept = []
    for a, b in rows:
        if a != b and not {a, b} & used:
            used |= {a, b}
            kept.append((a, b))
    return kept


ends = st.tuples(st.sampled_from("abc"), st.integers(1, 3))
wirings = st.lists(st.tuples(ends, ends), max_size=5).map(_proper)


@given(wirings, wirings, st.sets(st.sampled_from("abc")))
def test_nothing_is_told_exactly_where_nothing_differs(wired: Rows, declared: Rows, whole: set[str]) -> None:
    links = [Link(a, str(p), b, str(q), "", ("x",)) for (a, p), (b, q) in wired]
    topology = Topology(1, switches=tuple(Switch(d, d, 1) for d in "abc"), links=LinkTable.of(links))
    lines = "".join(f"- {a}/{p} -> {b}/{q}\n" for (a, p), (b, q) in declared)
    text = f"switches: [{', '.join(sorted(whole))}]\nlinks:\n{lines}"
    found = compare(topology, parse(text.encode()))

    there = {frozenset(x) for x in wired}
    wanted = {frozenset(x) for x in declared}
    ports = {end for x in declared for end in x}
    wrong = {x for x in there - wanted if x & ports or {end[0] for end in x} & whole}
    missing = wanted - there
    bare = {d for d in whole if not any(end[0] == d for x in (*wired, *declared) for end in x)}
    assert bool(found.drifts) == bool(wrong or missing or bare)
    said = " ".join(told(found))
    named = {frozenset((x.anomaly.subject, x.anomaly.peer)) for x in found.drifts if x.anomaly.peer}
    for cable in wrong:
        assert frozenset(Endpoint(d, d, str(p)) for d, p in cable) in named
    for cable in missing:
        assert any(f"{d}/p{p}" in said or f"p{p} -> " in said for d, p in cable)
    assert len([x for x in found.drifts if x.sign in "~+"]) == len(wrong)
