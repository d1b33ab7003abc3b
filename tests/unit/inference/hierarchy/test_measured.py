"""The hierarchy against measurements: figures, planted faults that are named, no node accused without one."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hyperscout_formats.facts.facts import NcclResult, NcclRun
from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.latency.bursts import RECENT
from hyperscout_inference.latency.pairs import NO_PAIRS, PairTable
from hyperscout_inference.measured.measured import MAX_SUSPICIONS, Measurements, measure
from hyperscout_inference.measured.pair_rows import medians
from hyperscout_sim.fabric.opaque import OpaqueFabric, opaque
from hyperscout_topology.figures import digits
from hyperscout_topology.topology import Measured
from hypothesis import given
from hypothesis import strategies as st
from support.examples import seed_blocks, slow_after
from support.measurements import AT_NS, World, layers_of, share_of, world

SEEDS = 20
FEW_OR_ALL = seed_blocks(range(SEEDS, SEEDS + 1), [range(SEEDS)])


def flat(sizes: Sequence[object], **more: float) -> OpaqueFabric:
    return opaque(sizes, seed=1, noisy=0.0, own_us=0.0, **more)  # type: ignore[arg-type]


def table(
    fabric: OpaqueFabric, *rows: tuple[int, int, float], rails: Sequence[str] = ("eth0",), gbps: float = 0.0
) -> PairTable:
    """Rows of (host, host, round trip), each on every rail."""
    each = [(min(a, b), max(a, b), i, us) for a, b, us in rows for i in range(len(rails))]
    a, b, rail, us = (np.array(column) for column in zip(*sorted(each), strict=True))
    count = len(each)
    return PairTable(
        fabric.names,
        rails,
        a.astype(np.int32),
        b.astype(np.int32),
        rail.astype(np.int32),
        us.astype(float),
        np.full(count, 0.2),
        np.full(count, gbps),
        np.full(count, 16, np.int32),
        AT_NS + np.arange(count),
    )


def ends(found: Measurements) -> list[tuple[str, str | None]]:
    """The subjects of the suspicions: two nodes, or one and its port."""
    return [(x.subject.name, x.peer.name if x.peer else x.subject.port) for x in found.suspicions]


def numbers_of(x: Suspicion) -> list[str]:
    """The numbers in a message, sorted, without those in names of hosts and ports."""
    text = re.sub(rf"\b[0-9a-f]{{12}}\b|eth\d+|last {RECENT} bursts", "", x.message)
    return sorted(re.findall(r"\d+(?:\.\d+)?", text))


def figures_of(x: Suspicion) -> list[str]:
    """The figures as a message writes them: with three digits, two for what hosts add and for jitter."""
    return sorted(
        f"{f.value:.0f}"
        if f.name.endswith(COUNTED)
        else digits(f.value, 2 if f.name in ("host_us", "jitter_us", "jitter_before_us") else 3)
        for f in x.figures
    )


COUNTED = ("pairs", "hosts", "domains", "bursts")


# -- figures ------------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_lowest_domain_that_holds_both() -> None:
    fabric = flat([[2, 2]])
    (one, other) = (np.flatnonzero(fabric.domain[0] == d).tolist() for d in (0, 1))
    pairs = table(
        fabric, (*one, 3.0), (one[0], other[0], 7.0), (one[1], other[1], 9.0), (one[0], other[1], 8.0)
    )
    found = measure(fabric.names, layers_of(fabric), pairs, {})
    assert [len(x) for x in found.latency_us] == [2, 1]
    inner = found.latency_us[0][0]
    assert inner is not None
    assert (inner.median, inner.p99, inner.samples) == (3.0, 3.0, 1)
    assert found.latency_us[0][1] is None
    outer = found.latency_us[1][0]
    assert outer is not None
    assert (outer.median, outer.p99, outer.samples) == (8.0, 9.0, 3)
    assert max(x.at_ns for x in (inner, outer)) == AT_NS + 3
    assert found.tiers == [(inner, None), (outer, None)]
    assert found.bandwidth_gbps == [[None, None], [None]]
    assert not found.suspicions


def test_the_worse_end_is_the_nearest_rank() -> None:
    fabric = flat([40])
    rows = [(a, b, 1.0 + i / 1000) for i, (a, b) in enumerate((a, b) for a in range(40) for b in range(a))][
        :200
    ]
    found = measure(fabric.names, layers_of(fabric), table(fabric, *rows), {})
    assert found.tiers[0][0] == Measured(pytest.approx(1.1, abs=1e-3), 1.197, 200, AT_NS + 199)
    weighed = replace(table(fabric, *rows), bandwidth_gbps=np.arange(200) + 101.0)
    bandwidth = measure(fabric.names, layers_of(fabric), weighed, {}).tiers[0][1]
    assert bandwidth is not None
    assert (bandwidth.median, bandwidth.p99) == (200.5, 102.0)


def test_udp_comes_before_rdma_and_is_not_mixed_with_it() -> None:
    fabric = flat([4])
    rows = [(0, 1, 5.0), (0, 2, 5.0), (0, 3, 5.0)]
    both = table(fabric, *rows, rails=("eth0", "mlx5_0/rdma"))
    both.rtt_us[both.rail == 1] = 1.0
    found = measure(fabric.names, layers_of(fabric), both, {}).tiers[0][0]
    assert found is not None
    assert (found.median, found.samples) == (5.0, 3)
    alone = measure(fabric.names, layers_of(fabric), table(fabric, *rows, rails=("mlx5_0/rdma",)), {})
    assert alone.tiers[0][0] is not None


def test_pairs_of_strangers_and_of_islands_count_nowhere() -> None:
    fabric = flat([2, 2])
    strangers = replace(table(fabric, (0, 1, 3.0), (2, 3, 3.0)), nodes=("a", "b", "c", "d"))
    layers = layers_of(fabric)
    assert measure(fabric.names, layers, strangers, {}).tiers == [(None, None)] * 2
    apart = [replace(layers[0], domain=np.array([0, 1, -1, -1]))]
    assert measure(fabric.names, apart, table(fabric, (0, 1, 3.0), (2, 3, 3.0)), {}).tiers == [(None, None)]
    assert measure((), [], NO_PAIRS, {}) == Measurements([], [], [], ())
    assert measure(fabric.names, layers, NO_PAIRS, {}).tiers == [(None, None)] * 2


@given(
    st.lists(st.tuples(st.integers(0, 4), st.floats(0.1, 1e6)), max_size=60),
)
def test_medians_of_groups(rows: list[tuple[int, float]]) -> None:
    group = np.array([g for g, _ in rows], np.int64)
    values = np.array([v for _, v in rows], np.float64)
    found, size = medians(group, values, 6)
    for g in range(6):
        mine = values[group == g]
        assert size[g] == len(mine)
        assert np.isnan(found[g]) if not len(mine) else found[g] == pytest.approx(np.median(mine), abs=1e-4)


# -- NCCL ---------------------------------------------------------------------------------------------------


def run(
    peer: str, gbytes: float, size: int = 1 << 30, at_ns: int = 5, operation: str = "all_reduce"
) -> NcclRun:
    return NcclRun(peer, "libnccl", at_ns, "2.28", 2, (NcclResult(operation, size, 100.0, gbytes, gbytes),))


def test_nccl_between_two_nodes_is_a_weight_on_the_path_between() -> None:
    fabric = flat([[2, 2]])
    (a, b), (c, _) = (np.flatnonzero(fabric.domain[0] == d).tolist() for d in (0, 1))
    names = fabric.names
    nccl = {
        names[a]: (run(names[b], 45.0), run(names[c], 20.0), run("", 300.0), run("gone", 1.0)),
        names[b]: (run(names[a], 50.0, at_ns=6),),  # the newer one of the pair
        names[c]: (run(names[b], 99.0, size=1 << 20), run(names[b], 24.0, operation="sendrecv")),
    }
    pairs = table(fabric, (a, b, 3.0), (a, c, 4.0), gbps=100.0)
    found = measure(names, layers_of(fabric), pairs, nccl)
    assert found.bandwidth_gbps[0][0] == Measured(400.0, 400.0, 1, 6)
    assert found.bandwidth_gbps[1][0] == Measured(176.0, 160.0, 2, 5)
    assert [t[1] for t in found.tiers] == [found.bandwidth_gbps[0][0], found.bandwidth_gbps[1][0]]
    # Without NCCL runs, what a port gives.
    ports = measure(names, layers_of(fabric), pairs, {names[a]: (run(names[b], 45.0),)})
    assert ports.bandwidth_gbps[0][0] == Measured(360.0, 360.0, 1, 5)
    assert ports.bandwidth_gbps[1][0] is not None
    assert ports.bandwidth_gbps[1][0].median == 100.0


def test_nccl_within_a_host_is_its_own_nvlink_domain_s() -> None:
    fabric = flat([1, 1, 2])
    leaf = layers_of(fabric)
    nvlink = [replace(leaf[0], name="nvlink"), *leaf[1:]]
    alone = [h for h in range(4) if np.count_nonzero(fabric.domain[0] == fabric.domain[0][h]) == 1]
    nccl = {name: (run("", 300.0),) for name in fabric.names}
    found = measure(fabric.names, nvlink, NO_PAIRS, nccl).bandwidth_gbps[0]
    assert [d for d, x in enumerate(found) if x] == sorted(int(fabric.domain[0][h]) for h in alone)
    assert measure(fabric.names, leaf, NO_PAIRS, nccl).tiers[0] == (None, None)


@pytest.mark.parametrize("method", ["nccl", "latency"])
def test_less_bandwidth_than_the_tier_s_is_named(method: str) -> None:
    fabric = flat([12])
    rows = [(a, b, 3.0) for a in range(12) for b in range(a)]
    pairs = table(fabric, *rows, gbps=390.0)
    weights = np.random.default_rng(1).uniform(380, 395, len(pairs))
    weights[7] = 200.0  # one pair
    weights[(pairs.a == 9) | (pairs.b == 9)] = 240.0  # one host
    names = fabric.names
    if method == "latency":
        found = measure(names, layers_of(fabric), replace(pairs, bandwidth_gbps=weights), {}).suspicions
    else:
        nccl: dict[str, tuple[NcclRun, ...]] = {}
        for a, b, gbps in zip(pairs.a.tolist(), pairs.b.tolist(), weights.tolist(), strict=True):
            nccl[names[a]] = (*nccl.get(names[a], ()), run(names[b], gbps / 8))
        found = measure(
            names, layers_of(fabric), replace(pairs, bandwidth_gbps=np.zeros(66)), nccl
        ).suspicions
    host, pair = found
    assert (host.subject.name, host.peer, host.sources) == (names[9], None, (method,))
    assert "240 Gbit/s in 11 of 11 pairs, where this tier's median is 38" in host.message
    assert pair.peer is not None
    assert {pair.subject.name, pair.peer.name} == {names[pairs.a[7]], names[pairs.b[7]]}
    assert pair.subject.port == ("eth0" if method == "latency" else None)
    assert pair.message.startswith(f"{names[pairs.a[7]]} -> {names[pairs.b[7]]}")
    assert pair.confidence == 0.5
    for x in found:
        assert numbers_of(x) == figures_of(x), x.message


def test_bandwidth_that_varies_accuses_no_node() -> None:
    fabric = flat([12])
    rows = [(a, b, 3.0) for a in range(12) for b in range(a)]
    for seed in range(SEEDS):
        weights = np.random.default_rng(seed).uniform(150, 395, len(rows))
        found = measure(
            fabric.names, layers_of(fabric), replace(table(fabric, *rows), bandwidth_gbps=weights), {}
        )
        assert not found.suspicions


# -- no node is accused without a fault ----------------------------------------------------------------------


@pytest.mark.parametrize("bursts", slow_after(1, [3, 1, 9]))
@pytest.mark.parametrize(
    "shape",
    slow_after(1, [{}, {"per_host": 4}, {"own_us": 4.0}, {"rails": 4}, {"per_host": 24}, {"own_us": 0.0}]),
    ids=str,
)
def test_a_healthy_network_accuses_no_node(bursts: int, shape: dict[str, int]) -> None:
    for seed in range(SEEDS // 2):
        found = world(seed, **shape).measured(bursts).suspicions  # type: ignore[arg-type]
        assert not found, [x.message for x in found]


@pytest.mark.parametrize(
    "counts", slow_after(1, [(6,), (40,), (2, 3), (8, 4), (2, 2, 2), (3, 1, 8), (2, 6, 30)])
)
def test_healthy_networks_of_all_sizes_accuse_no_node(counts: tuple[int, ...]) -> None:
    for seed in range(SEEDS):
        found = world(seed, *counts).measured(1 + seed % 9).suspicions
        assert not found, [x.message for x in found]


@FEW_OR_ALL
def test_small_gaps_between_tiers_accuse_no_node(seeds: range) -> None:
    """Tiers that differ by less than hosts do."""
    for seed in seeds:
        base = world(seed)
        fabric = opaque([[12] * 4] * 2, seed=seed, gap_us=0.5, noisy=0.0)
        found = replace(base, fabric=fabric).measured(3).suspicions
        assert not found, [x.message for x in found]


@FEW_OR_ALL
def test_only_hosts_that_are_noisy_are_named_for_noise(seeds: range) -> None:
    others = 0
    for seed in seeds:
        noisy = world(seed, noisy=0.03)
        bad = {noisy.names[h] for h in np.flatnonzero(noisy.fabric.noisy).tolist()}
        found = ends(noisy.measured(3))
        others += sum(not bad & {x, y} for x, y in found)
    assert not others


# -- planted faults are named -------------------------------------------------------------------------------


def planted(seed: int, **shape: int) -> tuple[World, int]:
    """A world, and a host of it."""
    found = world(seed, **shape)
    return found, int(np.random.default_rng(seed + 1000).integers(len(found.names)))


def leaf_name(of: World, host: int) -> str:
    domain = of.fabric.domain[0]
    return "leaf of " + min(of.names[h] for h in np.flatnonzero(domain == domain[host]).tolist())


FAULTS = ["host", "pair", "ways out", "rail", "ways within", "hairpin"]


def named(found: Measurements, expected: tuple[str, str | None], others: list[Suspicion]) -> bool:
    """Whether the fault is named; what is named besides is collected."""
    hit = False
    for x, end in zip(found.suspicions, ends(found), strict=True):
        hit |= end == expected
        others += [] if end == expected else [x]
    return hit


@FEW_OR_ALL
@pytest.mark.parametrize("bursts", slow_after(1, [3, 1, 9]))
@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_slow_is_named_and_nothing_else(fault: str, bursts: int, seeds: range) -> None:
    others: list[Suspicion] = []

    def is_named(seed: int) -> bool:
        here, host = planted(seed, **({"rails": 4} if fault == "rail" else {}))
        leaf = here.fabric.domain[0]
        one, other = leaf[here.a] == leaf[host], leaf[here.b] == leaf[host]
        expected: tuple[str, str | None] = (leaf_name(here, host), None)
        match fault:
            case "pair":
                row = host % len(here.a)
                expected = (here.names[here.a[row]], here.names[here.b[row]])
                here = here.plus(np.array([row]), 9.0)
            case "host":
                expected = (here.names[host], None)
                here = here.plus(here.touching(host), 9.0)
            case "rail":
                expected = (here.names[host], "eth2")
                here = here.plus(here.touching(host) & (here.rail == 2), 9.0)
            case "ways out":
                here = here.plus(one != other, 6.0)
            case "ways within":
                here = here.plus(one & other, 8.0)
            case _:
                here = here.plus(one & other, 1.5)  # what it takes to go by way of the tier above
        return named(here.measured(bursts), expected, others)

    assert share_of(seeds, is_named) >= 0.95
    assert len(others) <= len(seeds) / 20, [x.message for x in others]


@FEW_OR_ALL
@pytest.mark.parametrize("fault", ["leaf", "pair", "host"])
def test_jitter_that_grew_is_named_and_nothing_else(fault: str, seeds: range) -> None:
    others: list[Suspicion] = []

    def is_named(seed: int) -> bool:
        here, host = planted(seed)
        leaf = here.fabric.domain[0]
        expected: tuple[str, str | None] = (here.names[host], "eth0")
        rows = here.touching(host)
        if fault == "pair":
            row = host % len(here.a)
            rows, expected = np.arange(len(here.a)) == row, (here.names[here.a[row]], here.names[here.b[row]])
        if fault == "leaf":
            rows, expected = (
                (leaf[here.a] == leaf[host]) != (leaf[here.b] == leaf[host]),
                (leaf_name(here, host), None),
            )
        return named(here.plus(rows, 0.0, jitter_us=6.0).measured(9), expected, others)

    assert share_of(seeds, is_named) >= 0.95
    assert not others, [x.message for x in others]


def test_jitter_is_reported_only_with_enough_history() -> None:
    here, host = planted(1)
    unsteady = here.plus(here.touching(host), 0.0, jitter_us=6.0)
    assert not unsteady.measured(3).suspicions
    assert unsteady.measured(9).suspicions


def test_most_hosts_of_a_leaf_that_are_slow_are_one_anomaly() -> None:
    for seed in range(5):
        here, host = planted(seed)
        leaf = here.fabric.domain[0]
        for slow in np.flatnonzero(leaf == leaf[host])[:10].tolist():
            here = here.plus(here.touching(slow), 9.0)
        (x,) = here.measured(3).suspicions
        assert x.subject.name == leaf_name(here, host)
        assert x.message.startswith(f"{x.subject.name}: 10 of 12 hosts add ")
        assert numbers_of(x) == figures_of(x)


@FEW_OR_ALL
def test_a_host_within_the_usual_spread_is_not_accused(seeds: range) -> None:
    for seed in seeds:
        here, host = planted(seed, own_us=0)
        assert not here.plus(here.touching(host), 3.0).measured(3).suspicions


@pytest.mark.slow
def test_everything_slow_at_random_is_bounded() -> None:
    here = world(5, 2, 4, 40, per_host=40)
    wild = here.plus(here.random.random(len(here.a)) < 0.1, 50.0)
    found = wild.measured(3).suspicions
    assert 10 < len(found) <= MAX_SUSPICIONS
    for x in found:
        assert numbers_of(x) == figures_of(x), x.message


@pytest.mark.slow
def test_messages_have_numbers_and_history() -> None:
    here, _ = planted(0)
    before = here.plus(np.array([7]), 0.0)
    slow = np.zeros(len(here.a))
    slow[7] = 9.0
    found = before.plus(np.array([7]), 9.0).measured(9).suspicions
    (x,) = found
    assert x.message.startswith(f"{x.subject.name}/eth0 -> {x.peer.name if x.peer else ''}/eth0: 1")
    assert " us where this tier's median is " in x.message
    assert " pairs), was 1" in x.message
    assert x.message.endswith(" us in the 6 bursts before")
    assert numbers_of(x) == figures_of(x)
    names = ["round_trip_us", "tier_median_us", "tier_pairs", "before_us", "before_bursts"]
    assert [f.name for f in x.figures] == names
    assert (x.kind, x.sources, x.confidence) == ("SlowLink", ("latency",), 0.5)


def test_the_same_measurements_in_another_order_say_the_same() -> None:
    """Nodes by other numbers: nothing hangs on how hosts are counted."""
    here, host = planted(2)
    slow = here.plus(here.touching(host), 9.0)
    pairs, layers = slow.table(9), layers_of(slow.fabric)
    back = np.arange(len(slow.names))[::-1]
    turned = [replace(x, domain=x.domain[back]) for x in layers]
    first = measure(slow.names, layers, pairs, {})
    again = measure([slow.names[i] for i in back.tolist()], turned, pairs, {})
    assert [x.message for x in first.suspicions] == [x.message for x in again.suspicions]
    assert (first.latency_us, first.tiers) == (again.latency_us, again.tiers)
