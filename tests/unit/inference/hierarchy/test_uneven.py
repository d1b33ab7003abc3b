"""Uneven fabrics: the tree is the true one, nothing healthy is accused, and faults are named."""

from collections import Counter

import pytest
from hyperscout_sim.uneven.case import healthy
from hyperscout_sim.uneven.faults import faulty
from hyperscout_topology.topology import Topology
from support.examples import in_blocks, seed_blocks, seeds
from support.uneven_cases import inferred, judged, mistakes

SLOW = pytest.mark.slow  # larger fabrics, read from walks


@seed_blocks(range(500, 503), in_blocks(50, 10))
def test_a_healthy_fabric_is_right_and_accused_of_nothing(seeds: range) -> None:
    assert {seed: wrong for seed in seeds if (wrong := mistakes(healthy(seed)))} == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(10010, id="more storage on spines than hosts on leaves"),
        pytest.param(10060, id="a storage fabric beside the leaves of pods"),
        pytest.param(10550, id="splitter cables beside whole cables to storage"),
        pytest.param(10751, id="a unit of hosts with the names of a role"),
        pytest.param(10810, id="units with fewer spines and fewer ports"),
        pytest.param(11247, id="service hosts beside a DGX unit"),
    ],
)
def test_a_combination_of_traits_is_right_and_accused_of_nothing(seed: int) -> None:
    assert mistakes(healthy(seed)) == []


@seed_blocks(range(301, 303), [range(300)])
def test_faults_are_named(seeds: range) -> None:
    verdicts = [(case, judged(case)[1]) for case in map(faulty, seeds)]
    planted = sum(len(case.defects) for case, _ in verdicts)
    missed = sum(len(verdict.unnamed) for _, verdict in verdicts)
    assert planted > len(seeds)
    assert missed <= 0.02 * planted


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(131, id="a stray cable between leaves makes no tier"),
        pytest.param(172, id="a spine with a host is in no plan of trunks"),
        pytest.param(252, marks=SLOW, id="a slow cable whose host is known by address alone"),
        pytest.param(311, id="a stray cable between leaves, spines full of storage"),
        pytest.param(367, id="a host on a spine and a stray cable between leaves below it"),
        pytest.param(404, id="a leaf is down below some hosts of a domain only"),
        pytest.param(457, id="the only host of a core, and one leaf on cores"),
        pytest.param(499, id="storage on spines has more endpoints than the leaves"),
        pytest.param(500, id="likewise below a core, and one of two pods is thin"),
        pytest.param(509, id="the leaves of a storage fabric overlap in a ring"),
        pytest.param(837, id="all hosts have the name of a role, and one lacks a cable"),
        pytest.param(935, id="a pod of leaves on cores"),
        pytest.param(288, id="a pair of cables is missing within a director"),
        pytest.param(10049, id="a leaf is down below hosts with the names of a role"),
        pytest.param(10072, id="a host of such a name is on a spine"),
        pytest.param(10083, id="leaves of three models below the same spines, and missing pairs"),
        pytest.param(
            10112, marks=pytest.mark.slow, id="a spine on other ports than the other pods' lacks a cable"
        ),
        pytest.param(10121, id="a stray cable at a spine with a fabric manager"),
        pytest.param(
            10177,
            marks=pytest.mark.slow,
            id="a host on a spine above a leaf of hosts with the names of a role",
        ),
        pytest.param(10227, marks=SLOW, id="a slow cable of a slower unit"),
        pytest.param(10284, id="exchanged leaves in a fabric whose units differ in rails"),
        pytest.param(10647, id="a slow cable of a host on a line chip of a director"),
        pytest.param(10764, id="most hosts lack a rail, and a control node is on its leaf"),
        pytest.param(10916, id="a stray cable between two of four leaves"),
        pytest.param(10946, id="a stray cable at a leaf without hosts"),
        pytest.param(10948, id="more hosts on the leaves of cores than in a pod"),
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
