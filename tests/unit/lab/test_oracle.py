"""The oracle of the lab: what it takes for true, and each kind of thing that it must find false."""

from typing import Any

import pytest
from lab.oracle import Oracle, Seen, Tree, tree_of
from lab.trouble import PLAN
from lab.watching import Object

LEAVES = {"a": {"node1", "node2"}, "b": {"node3"}, "c": {"node4", "node5"}, "d": {"node6"}}
WELL = {"Ready": "True", "Degraded": "False", "Consistent": "True", "Stale": "False"}


def hypernode(tier: int, members: set[str], **conditions: str) -> Object:
    return {
        "spec": {"tier": tier, "members": [{"selector": {"exactMatch": {"name": x}}} for x in members]},
        "status": {
            "conditions": [
                {"type": kind, "status": status, "reason": "Because", "message": "it is so"}
                for kind, status in (WELL | conditions).items()
            ]
        },
    }


def whole(leaves: dict[str, set[str]] | None = None) -> dict[str, Object]:
    leaves = leaves or LEAVES
    tree = {name: hypernode(1, nodes) for name, nodes in leaves.items()}
    pods = {"ab": {"a", "b"} & leaves.keys(), "cd": {"c", "d"} & leaves.keys()}
    return tree | {name: hypernode(2, units) for name, units in pods.items()} | {"top": hypernode(3, {*pods})}


def missing(*ends: str, kind: str = "MissingLink", **more: Any) -> dict[str, Any]:
    subject, peer = ({"name": end.partition("/")[0], "port": end.partition("/")[2]} for end in ends)
    return {"kind": kind, "subject": subject, "peer": peer, "message": "", **more}


CABLE = ("node1/rail0", "leaf-a1/swp1")


def oracle() -> Oracle:
    return Oracle(PLAN, limit_s=3.0)


def judged(oracle: Oracle, *anomalies: Object, until_s: float = 10.0, tree: Any = None) -> list[str]:
    """What it finds when this is shown from 0 s on."""
    for second in range(int(until_s) + 1):
        oracle.judge(Seen(whole() if tree is None else tree, anomalies), float(second))
    return oracle.violations


def test_the_truth() -> None:
    wanted: Tree = frozenset(
        (tier, frozenset(nodes))
        for tier, nodes in [
            *((1, nodes) for nodes in LEAVES.values()),
            (2, LEAVES["a"] | LEAVES["b"]),
            (2, LEAVES["c"] | LEAVES["d"]),
            (3, set(PLAN.names)),
        ]
    )
    assert oracle().truth == wanted == tree_of(whole())
    assert judged(oracle()) == []
    assert oracle().wrong(Seen(whole(), ())) == []


def test_a_healthy_cable_is_accused() -> None:
    found = oracle()
    assert judged(found, missing(*CABLE), until_s=3) == []
    said = "false for more than 3 s: MissingLink node1/rail0 -- leaf-a1/swp1: "
    assert judged(found, missing(*CABLE)) == [said]
    assert found.worst_s == 10.0


def test_a_dead_cable_is_accused_while_it_is_dead() -> None:
    found = oracle()
    fault = found.begin("dead", CABLE, 0.0)
    assert judged(found, missing(*CABLE)) == []
    assert fault.is_shown
    assert judged(found, missing(*CABLE, kind="Miswired"))
    found = oracle()
    fault = found.begin("dead", CABLE, 0.0)
    found.end(fault, 8.0)
    assert judged(found, missing(*CABLE), until_s=11) == []
    assert judged(found, missing(*CABLE), until_s=12)


def test_without_a_leader_nothing_newer_can_be_shown() -> None:
    found = oracle()
    found.no_leader(8.0)
    assert judged(found, missing(*CABLE), until_s=11) == []
    assert judged(found, missing(*CABLE), until_s=12)


def test_a_cable_that_failed_twice_flaps() -> None:
    found = oracle()
    for began_s, ended_s in ((0.0, 4.0), (20.0, 25.0)):
        found.end(found.begin("dead", CABLE, began_s), ended_s)
    assert judged(found, missing(*CABLE), until_s=38) == []
    assert judged(found, missing(*CABLE), until_s=39)


@pytest.mark.parametrize(
    "anomaly",
    [
        missing(*CABLE, flaps=2, clearsAt="2026-01-01T00:00:00Z"),
        missing(*CABLE, kind="SlowLink"),
    ],
)
def test_what_is_no_accusation(anomaly: Object) -> None:
    assert judged(oracle(), anomaly) == []


def test_errors_are_counted_for_an_hour() -> None:
    found = oracle()
    errors = missing(*CABLE, kind="ErroringLink", clearsAt="2026-01-01T00:00:00Z")
    found.end(found.begin("dead", CABLE, 0.0), 0.0)
    assert judged(found, errors) == []
    assert found.wrong(Seen(whole(), [errors])) == []
    assert judged(oracle(), errors)


def test_an_adapter_goes_by_its_name() -> None:
    found = oracle()
    found.begin("dead", ("node1/mlx5_0", "ib-leaf-a/1"), 0.0)
    assert judged(found, missing("node1/1", "ib-leaf-a/1")) == []


def test_a_condition_that_says_that_it_is_over() -> None:
    tree = whole() | {"a": hypernode(1, LEAVES["a"], Consistent="False")}
    tree["a"]["status"]["conditions"][2]["message"] = "miswired: over since 14:00; flapped 2 times; clears at"
    assert judged(oracle(), tree=tree) == []


def test_what_is_shown_while_no_leader_answers_goes_on() -> None:
    found = oracle()
    judged(found, missing(*CABLE), until_s=2)
    found.judge(Seen(whole(), None), 5.0)
    found.judge(Seen(whole(), [missing(*CABLE)]), 6.0)
    assert found.violations
    assert found.wrong(Seen(whole(), None)) == ["no leader answers"]


@pytest.mark.parametrize(
    ("kind", "status", "part"),
    [("Ready", "False", "node1"), ("Consistent", "False", "node1"), ("Stale", "True", "leaf-a1")],
)
def test_conditions(kind: str, status: str, part: str) -> None:
    tree = whole() | {"a": hypernode(1, LEAVES["a"], **{kind: status})}
    assert judged(oracle(), tree=tree)
    found = oracle()
    found.begin("elsewhere" if kind == "Consistent" else "dead", [part], 0.0)
    assert judged(found, tree=tree) == []
    found = oracle()
    found.begin("dead", ["node3", "leaf-b1"], 0.0)
    assert judged(found, tree=tree)


MOVED = LEAVES | {"a": {"node1"}, "b": {"node2", "node3"}}


@pytest.mark.parametrize(
    "tree",
    [
        whole(MOVED),
        whole(LEAVES | {"a": {"node1"}}),
        whole({name: nodes for name, nodes in LEAVES.items() if name != "b"}),
        {name: one for name, one in whole().items() if name != "top"},
        {},
    ],
)
def test_members_change_for_no_reason(tree: dict[str, Object]) -> None:
    assert judged(oracle(), tree=tree, until_s=0)


def test_a_node_moves() -> None:
    found = oracle()
    found.move("node2", "b")
    for tree in (whole(), whole(LEAVES | {"a": {"node1"}}), whole(MOVED)):
        assert judged(found, tree=tree, until_s=0) == []
    assert judged(found, tree=whole(), until_s=0)  # it was there
    found = oracle()
    found.move("node2", "b")
    assert found.wrong(Seen(whole(), ()))
    assert judged(found, tree=whole(LEAVES | {"c": {"node4"}}), until_s=0)


def test_numbers_of_generations() -> None:
    found = oracle()
    for number in (4, 4, 7):
        found.judge(Seen(whole(), (), number), 0.0)
    assert found.violations == []
    found.judge(Seen(whole(), (), 6), 0.0)
    assert found.violations == ["generation 6 was shown after 7"]
    found = oracle()
    for anomalies in ([], [missing(*CABLE)]):
        found.judge(Seen(whole(), anomalies, 4), 0.0)
    assert found.violations == ["generation 4 was shown with two lists of anomalies"]
