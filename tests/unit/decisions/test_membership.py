"""How much may go unasked."""

from dataclasses import replace

import pytest
from hyperscout_collector.decisions.publication.membership import (
    Loss,
    Removals,
    by_cluster,
    loss,
    nodes_of,
)
from hyperscout_runtime.units import NS
from hyperscout_topology.diff import same_members
from hyperscout_topology.topology import Topology
from support.builders import hypernode

from .trees import leaves_of, lost_uplink, tree


def without(leaves: dict[str, list[str]], *names: str) -> dict[str, list[str]]:
    return {k: [n for n in v if n not in names] for k, v in leaves.items() if k not in names}


TEN = leaves_of(10)
MIXED = {**leaves_of(20), "e00": [f"east/n{i:04}" for i in range(4)]}
ONE_OF_EAST = {**TEN, "l00": [*TEN["l00"], "east/n"]}
ONE_OWN = {"l00": ["east/n1", "east/n2", "n"]}
LOSSES: list[tuple[str, Topology, Topology, bool]] = [
    ("nothing", tree(TEN), tree(TEN), False),
    ("growth", tree(TEN), tree(leaves_of(20)), False),
    ("one of ten leaves", tree(TEN), tree(without(TEN, "l03")), False),
    ("two of ten leaves: the limit", tree(TEN), tree(without(TEN, "l03", "l04")), False),
    ("three of ten", tree(TEN), tree(without(TEN, "l03", "l04", "l05")), True),
    ("nodes alone", tree(TEN), tree({k: v[:3] for k, v in TEN.items()}), True),
    ("a node of four", tree(leaves_of(1), top=False), tree(without(leaves_of(1), "n0001"), top=False), False),
    ("one of three HyperNodes, with half of the nodes", tree(leaves_of(2)), tree(leaves_of(1)), True),
    (
        "one of three HyperNodes, its nodes stay",
        tree(leaves_of(2)),
        tree({"l00": [n for v in leaves_of(2).values() for n in v]}),
        False,
    ),
    ("the only node", tree({"l00": ["n"]}, top=False), tree({}), True),
    ("everything", tree(TEN), tree({}), True),
    ("the root goes", tree(TEN), tree(TEN, top=False), True),
    ("a tier on top", tree(TEN, top=False), tree(TEN), False),
    ("a tier on top, while a node goes", tree(TEN, top=False), tree(without(TEN, "n0000")), True),
    ("the first tree", tree({}), tree(TEN), False),
    ("the only node is replaced", tree({"l00": ["n"]}, top=False), tree({"l00": ["m"]}, top=False), False),
    ("a small cluster of several", tree(MIXED), tree(without(MIXED, "e00")), True),
    ("half of a small cluster", tree(MIXED), tree(without(MIXED, "east/n0000", "east/n0001")), True),
    ("a node of a small cluster", tree(MIXED), tree(without(MIXED, "east/n0000")), False),
    ("the last node of a cluster", tree(ONE_OF_EAST), tree(without(ONE_OF_EAST, "east/n")), True),
    ("the last node of the own cluster", tree(ONE_OWN), tree(without(ONE_OWN, "n")), True),
    ("a leaf of the own cluster", tree(MIXED), tree(without(MIXED, "l01")), False),
]


def too_many(removals: Removals, before: Topology, lost: Loss, now_ns: int) -> bool:
    nodes = {cluster: len(mine) for cluster, mine in by_cluster(nodes_of(before.hypernodes)).items()}
    return removals.too_many(lost, len(before.hypernodes), nodes, now_ns)


def record(removals: Removals, lost: Loss, after: Topology, now_ns: int) -> None:
    removals.record(lost, now_ns)
    removals.forget(removals.in_tree(after))


@pytest.mark.parametrize(("name", "before", "after", "held"), LOSSES, ids=[x[0] for x in LOSSES])
def test_limit(name: str, before: Topology, after: Topology, held: bool) -> None:
    lost = loss(before, after)
    assert (lost.always_waits or too_many(Removals(0.2, 600 * NS), before, lost, 0)) is held


def test_same_members() -> None:
    a = tree(TEN)
    other = replace(
        tree(TEN),
        generation=9,
        anomalies=(lost_uplink(1),),
        switches=(),
        hypernodes=tuple(replace(h, switches=()) for h in a.hypernodes),
    )
    assert same_members(a, other)
    one = a.hypernodes[0]
    for other in (
        replace(a, hypernodes=a.hypernodes[1:]),
        *(
            replace(a, hypernodes=(replace(one, **change), *a.hypernodes[1:]))  # type: ignore[arg-type]
            for change in (
                {"name": "x"}, {"tier": 7}, {"tier_name": "x"}, {"parent": None}, {"children": ("x",)},
                {"nodes": one.nodes[1:]},
            )
        ),
    ):  # fmt: skip
        assert not same_members(a, other)


def test_a_tier_between_is_no_growth() -> None:
    before = tree(leaves_of(2))
    pods = tuple(
        hypernode(f"pod{k}", h.nodes, parent="top", children=(h.name,))
        for k, h in enumerate(before.hypernodes[:2])
    )
    top = hypernode("top", before.hypernodes[2].nodes, tier=3, children=("pod0", "pod1"))
    after = Topology(1, (*before.hypernodes[:2], *pods, top))
    assert loss(before, after) == Loss(frozenset(), frozenset(), (2, 3))


def test_small_steps_add_up_within_the_window() -> None:
    removals = Removals(0.2, 600 * NS)
    trees = [tree(without(TEN, *(f"l{k:02}" for k in range(gone)))) for gone in range(4)]
    for step in range(2):
        lost = loss(trees[step], trees[step + 1])
        assert not too_many(removals, trees[step], lost, step * 100 * NS)
        record(removals, lost, trees[step + 1], step * 100 * NS)
    third = loss(trees[2], trees[3])
    assert too_many(removals, trees[2], third, 200 * NS)
    assert not too_many(removals, trees[2], third, 701 * NS), "the first steps are long ago"


def test_what_came_back_or_was_agreed_to_does_not_count() -> None:
    three, full = tree(without(TEN, "l00", "l01")), tree(TEN)
    lost = loss(full, three)
    for forgive in (lambda r: record(r, loss(three, full), full, 1), lambda r: r.agree()):
        removals = Removals(0.2, 600 * NS)
        record(removals, lost, three, 0)
        assert too_many(removals, full, loss(full, tree(without(TEN, "l05"))), 1)
        forgive(removals)
        assert not too_many(removals, full, loss(full, tree(without(TEN, "l05"))), 1)
