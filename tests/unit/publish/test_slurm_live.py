"""Live updates of Slurm: they name only nodes that move, in the documented grammar."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hyperscout_formats.text.host_list import expand
from hyperscout_publish.slurm.live import Layout, layout_of, updated, updates
from hyperscout_publish.slurm.text import SlurmOptions
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import strategies as st
from support.builders import hypernode
from support.topologies import Places, leaves, placed, pods, two_leaves

OPTIONS = SlurmOptions(block_sizes=(1,))
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
# Topology Guide: a comma-separated list of units; a unit is the name of a topology, then names after colons.
UPDATE = re.compile(rf"update NodeName=\S+ Topology=({_NAME}(:{_NAME})+(,{_NAME}(:{_NAME})+)*)?")


class Controller:
    """The units of nodes as Slurm documents them: it creates missing switches of a path, never a root."""

    def __init__(self, layout: Layout) -> None:
        self.units = dict(layout.units)
        self.above = {name: path[-2] if path[1:] else None for name, path in layout.paths.items()}

    def run(self, arguments: Sequence[str]) -> None:
        assert UPDATE.fullmatch(" ".join(arguments))
        _, nodes, value = arguments
        unit = value.removeprefix("Topology=")
        path = unit.split(",", maxsplit=1)[0].split(":")[1:]
        assert not path or path[0] in self.above, "a new root"
        for above, name in pairwise(path):
            assert self.above.setdefault(name, above) == above, "a switch is below another one"
        for node in expand(nodes.removeprefix("NodeName=")):
            assert self.units.pop(node, "") != unit, "an unchanged node is set again"
            if unit:
                self.units[node] = unit


def after(old: Layout, new: Layout) -> dict[str, str]:
    """The units of a controller after the updates."""
    found = updates(old, new)
    assert found is not None
    controller = Controller(old)
    for arguments in found:
        controller.run(arguments)
    return controller.units


def layouts(*topologies: Topology, kind: str = "tree") -> list[Layout]:
    return [layout_of(topology, kind, OPTIONS) for topology in topologies]


def test_a_node_moves() -> None:
    old, new = layouts(leaves(("n1", "n2", "n3"), ("n4",)), leaves(("n1",), ("n2", "n3", "n4")))
    assert updates(old, new) == [("update", "NodeName=n[2-3]", "Topology=default:core:l2")]
    assert after(old, new) == new.units


def test_nodes_come_and_go() -> None:
    old, new = layouts(leaves(("n1", "n2"), ("n4",)), leaves(("n1",), ("n4", "n5")))
    assert updates(old, new) == [
        ("update", "NodeName=n2", "Topology="),
        ("update", "NodeName=n5", "Topology=default:core:l2"),
    ]


def test_a_node_that_loses_its_evidence_moves_if_slurm_has_the_switch() -> None:
    first = replace(two_leaves(), nodes_without_evidence=())
    old, one, two = layouts(first, two_leaves(), replace(two_leaves(), nodes_without_evidence=("n08", "n09")))
    assert updates(old, one) is None, "a new root"
    assert updates(one, two) == [("update", "NodeName=n08", "Topology=default:no-topology")]


@pytest.mark.parametrize("kind", ["tree", "block", "yaml"])
def test_an_unchanged_hierarchy_needs_nothing(kind: str) -> None:
    (layout,) = layouts(pods(3, 2), kind=kind)
    assert updates(layout, layout) == []


def test_the_yaml_names_both_topologies() -> None:
    old, new = layouts(leaves(("n1", "n2"), ("n3",)), leaves(("n1",), ("n2", "n3")), kind="yaml")
    assert updates(old, new) == [("update", "NodeName=n2", "Topology=tree:core:l2,block:l2")]
    assert after(old, new) == new.units


def test_a_node_moves_between_blocks() -> None:
    old, new = layouts(leaves(("n1", "n2"), ("n3",)), leaves(("n1",), ("n2", "n3")), kind="block")
    assert updates(old, new) == [("update", "NodeName=n2", "Topology=default:l2")]


def test_a_new_leaf_is_created_and_a_new_block_is_not() -> None:
    before, now = leaves(("n1", "n2")), leaves(("n1",), ("n2",))
    assert updates(*layouts(before, now)) == [("update", "NodeName=n2", "Topology=default:core:l2")]
    for kind in ("block", "yaml"):
        assert updates(*layouts(before, now, kind=kind)) is None


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (
            {"n1": ("l1", "p1"), "n2": ("l2", "p2")},
            {"n1": ("l1", "p2"), "n2": ("l2", "p2")},
        ),  # another parent
        ({"n1": ("l1", "p1"), "n2": ("x", "p1")}, {"n1": ("l1", "p1"), "n2": ("l2", "x")}),  # a leaf as a pod
        ({"n1": ("l1", "p1"), "n2": ("l2", "x")}, {"n1": ("l1", "p1"), "n2": ("x", "p1")}),  # and back
    ],
)
def test_another_place_of_a_switch_needs_a_reconfiguration(before: Places, now: Places) -> None:
    assert updates(*layouts(placed(before), placed(now))) is None


def test_a_pod_becomes_no_leaf() -> None:
    pod, leaf = (
        Topology(
            1, (hypernode("l1", ("n1",), parent="x"), hypernode("x", ("n1",), tier=2, children=("l1",)))
        ),
        Topology(1, (hypernode("x", ("n1",)),)),
    )
    assert updates(*layouts(pod, leaf)) is None
    assert updates(*layouts(leaf, pod)) is None


def test_other_sizes_need_a_reconfiguration() -> None:
    found = [layout_of(two_leaves(), "block", SlurmOptions(block_sizes=sizes)) for sizes in ((1,), (2,))]
    assert updates(*found) is None


def test_slurm_keeps_a_switch_that_has_become_empty() -> None:
    one, two, three = layouts(
        placed({"n1": ("l1", "p1"), "n2": ("l2", "p1"), "n3": ("l3", "p2")}),
        placed({"n1": ("l1", "p1"), "n2": ("l1", "p1"), "n3": ("l3", "p2")}),
        placed({"n1": ("l1", "p1"), "n2": ("l2", "p2"), "n3": ("l3", "p2")}),
    )
    assert updates(two, three) is not None
    assert updates(updated(one, two), three) is None, "l2 is still below p1"
    assert after(updated(one, two), one) == one.units


def test_many_changes_are_one_reconfiguration() -> None:
    names = [f"n{i}" for i in range(70)]
    before, now = (leaves(*((x,) for x in some)) for some in (names, [*names[1:], names[0]]))
    assert updates(*layouts(before, now)) is None


placements = st.dictionaries(
    st.sampled_from([f"n{i}" for i in range(8)]),
    st.sampled_from(
        [(f"l{leaf}", f"p{leaf // 2}") for leaf in range(6)] + [("l0", "p2"), ("x", "p0"), ("l9", "x")]
    ),
    min_size=1,
)


@given(st.lists(placements, min_size=2, max_size=5))
def test_updates_lead_to_the_new_hierarchy(steps: list[Places]) -> None:
    consistent = [
        s
        for s in steps
        if len({*s.values()}) == len({leaf for leaf, _ in s.values()})
        and not ({leaf for leaf, _ in s.values()} & {pod for _, pod in s.values()})
    ]
    slurm: Layout | None = None
    for step in consistent:
        (new,) = layouts(placed(step))
        if slurm is not None and updates(slurm, new) is not None:
            assert after(slurm, new) == new.units
            new = updated(slurm, new)
        slurm = new
