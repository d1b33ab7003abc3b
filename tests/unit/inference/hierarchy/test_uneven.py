"""Uneven fabrics: the tree is the true one, nothing healthy is accused, and faults are named."""

from collections import Counter

import pytest
from hyperscout_sim.uneven.case import healthy
from hyperscout_sim.uneven.faults import faulty
from hyperscout_topology.topology import Topology
from support.examples import seeds, slow_after
from support.uneven_cases import inferred, judged, mistakes

TENS = [range(first, first + 10) for first in range(0, 500, 10)]


@pytest.mark.parametrize("chosen", slow_after(1, TENS), ids=lambda chosen: str(chosen[0]))
def test_a_healthy_fabric_is_right_and_accused_of_nothing(chosen: range) -> None:
    assert {seed: wrong for seed in chosen if (wrong := mistakes(healthy(seed)))} == {}


@pytest.mark.parametrize("count", slow_after(1, [10, 300]))
def test_faults_are_named(count: int) -> None:
    verdicts = [(case, judged(case)[1]) for case in map(faulty, range(count))]
    planted = sum(len(case.defects) for case, _ in verdicts)
    missed = sum(len(verdict.unnamed) for _, verdict in verdicts)
    assert planted > count
    assert missed <= 0.02 * planted


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(131, id="a stray cable between leaves makes no tier"),
        pytest.param(172, id="a spine with a host is in no plan of trunks"),
        pytest.param(252, id="a slow cable whose host is known by address alone"),
        pytest.param(311, id="a stray cable between leaves, spines full of storage"),
        pytest.param(367, id="a host on a spine and a stray cable between leaves below it"),
        pytest.param(404, id="a leaf is down below some hosts of a domain only"),
        pytest.param(499, id="storage on spines has more endpoints than the leaves"),
        pytest.param(500, id="likewise below a core, and one of two pods is thin"),
        pytest.param(509, id="the leaves of a storage fabric overlap in a ring"),
        pytest.param(837, id="all hosts have the name of a role, and one lacks a cable"),
        pytest.param(935, id="a pod of leaves on cores"),
    ],
)
def test_a_combination_of_faults_is_named_and_nothing_else(seed: int) -> None:
    assert mistakes(faulty(seed)) == []


def conditions(topology: Topology) -> Counter[tuple[str, str]]:
    return Counter((c.type, c.status) for h in topology.hypernodes for c in h.conditions)


@pytest.mark.parametrize("kind", ["ring", "torus", "mesh", "dragonfly", "HyperX", "two switches joined"])
@seeds(3)
def test_without_a_tree_there_is_one_root_and_a_note_that_changes_no_condition(kind: str, seed: int) -> None:
    topology = inferred(healthy(seed, kind))
    assert [h.parent for h in topology.hypernodes].count(None) == 1
    assert {x.kind for x in topology.anomalies} == {"NotATree"}
    found = conditions(topology)
    assert found["Degraded", "True"] == found["Consistent", "False"] == found["Ready", "False"] == 0
