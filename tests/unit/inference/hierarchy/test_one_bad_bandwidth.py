"""One host reports any bandwidth with all others: no other host, and no pair of others, is accused."""

from collections.abc import Collection

import numpy as np
import pytest
from hyperscout_formats.facts.facts import NcclResult, NcclRun
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.measured.weak_paths import Weights, weak_paths
from hyperscout_sim.fabric import shapes
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

NAMES = [f"h{i:02}" for i in range(14)]
LIAR = 0

Row = tuple[int, int, float]


def weights(rows: Collection[Row]) -> Weights:
    a, b, gbps = (np.array([row[i] for row in rows]) for i in range(3))
    zeros = np.zeros(len(rows), np.int64)
    return Weights(
        a.astype(np.int64), b.astype(np.int64), zeros, zeros, gbps.astype(float), zeros, "nccl", ()
    )


def ends(found: Collection[Suspicion]) -> set[frozenset[str]]:
    """The accused pairs, and the accused hosts as sets of one."""
    return {frozenset({x.subject.name, *([x.peer.name] if x.peer else [])}) for x in found}


def plainly_weak(rows: Collection[Row]) -> set[frozenset[str]]:
    """What these rows alone accuse, if each of them counts: an oracle without any rule about liars."""
    if len(rows) < 6:
        return set()
    gbps = np.array([row[2] for row in rows])
    median = np.median(gbps)
    least = min(0.7 * median, median - 6 * 1.4826 * np.median(np.abs(gbps - median)))
    weak = [frozenset(row[:2]) for row in rows if row[2] < least]
    found = {frozenset(NAMES[i] for i in pair) for pair in weak}
    for host, name in enumerate(NAMES):
        bad, of = sum(host in pair for pair in weak), sum(host in row[:2] for row in rows)
        if bad >= 3 and bad * 2 > of:
            found.add(frozenset({name}))
    return found


BANDWIDTHS = st.sampled_from([8.0, 100.0, 240.0, 360.0, 380.0, 400.0, 1600.0])


@given(
    st.dictionaries(
        st.tuples(st.integers(1, 13), st.integers(1, 13)).filter(lambda pair: pair[0] < pair[1]),
        BANDWIDTHS,
        max_size=40,
    ),
    st.dictionaries(st.integers(1, 13), BANDWIDTHS, max_size=13),
)
@examples(4)
def test_what_is_accused_without_the_liar_is_weak_without_its_results(
    honest: dict[tuple[int, int], float], false: dict[int, float]
) -> None:
    rows = [(*pair, gbps) for pair, gbps in honest.items()]
    found = weak_paths(NAMES, weights([*rows, *((LIAR, host, gbps) for host, gbps in false.items())]))
    assert {x for x in ends(found) if NAMES[LIAR] not in x} <= plainly_weak(rows)


@pytest.mark.parametrize("gbytes", [200.0, 100.0, 1.0, 0.001])
@pytest.mark.parametrize("count", [3, 5, 12, 30])
def test_false_results_of_nccl_with_each_host(count: int, gbytes: float) -> None:
    fabric = shapes.clos2(4, 8, 2)
    options = InferOptions(cluster_nodes=frozenset(fabric.hosts))
    liar, *others = fabric.hosts
    rng = np.random.default_rng(count)
    honest: dict[str, tuple[NcclRun, ...]] = {}
    for i in range(count):
        host = others[i]
        honest[host] = (run(others[(i + 17) % len(others)], 45.0 + rng.random()),)
    sweep = SweepSeen(parse(sweep_text(fabric)), observed_at_ns=1)
    before = infer(FabricInputs(sweeps=(sweep,), nccl=honest), options)
    assert not before.anomalies
    false = {**honest, liar: tuple(run(host, gbytes) for host in others)}
    after = infer(FabricInputs(sweeps=(sweep,), nccl=false), options, before)
    for x in after.anomalies:
        assert liar in (x.subject.name, x.peer.name if x.peer else "")
    assert without(liar, after) == without(liar, before)


def run(peer: str, gbytes: float) -> NcclRun:
    return NcclRun(peer, "libnccl", 5, "2.28", 2, (NcclResult("all_reduce", 1 << 30, 100.0, gbytes, gbytes),))


def without(liar: str, topology: Topology) -> list[object]:
    return [h for h in topology.hypernodes if liar not in h.nodes]


def test_a_host_without_other_pairs_than_those_of_one_host_is_judged() -> None:
    """An operator measures one host with all others: only that host's results judge its own pairs."""
    rows = [(LIAR, host, 240.0 if host == 5 else 400.0) for host in range(1, 10)]
    assert ends(weak_paths(NAMES, weights(rows))) == {frozenset({NAMES[LIAR], NAMES[5]})}


@pytest.mark.parametrize(
    ("weak", "of", "accused"), [(2, 2, False), (3, 3, True), (4, 8, False), (5, 8, True), (0, 0, False)]
)
def test_a_low_result_of_the_liar_does_not_complete_the_case_against_a_host(
    weak: int, of: int, accused: bool
) -> None:
    """Host 1 has `of` honest pairs, and one with the liar. `accused`: the honest pairs suffice."""
    honest = [(1, 2 + i, 100.0 if i < weak else 400.0) for i in range(of)]
    honest += [(a, b, 400.0) for a in range(2, 14) for b in range(2, a)]
    found = ends(weak_paths(NAMES, weights([*honest, (LIAR, 1, 100.0)])))
    assert (frozenset({NAMES[1]}) in found) == accused
    assert (frozenset({NAMES[1]}) in plainly_weak(honest)) == accused
