"""What was measured, in the topology that comes out: figures, anomalies of the right domain, conditions."""

from dataclasses import replace

import numpy as np
import pytest
from hyperscout_formats.facts.facts import NcclResult, NcclRun
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.latency.bursts import PairHistory
from hyperscout_inference.latency.pairs import PairTable
from hyperscout_inference.measured.measured import MAX_SUSPICIONS
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_topology.topology import HyperNode, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.inference import inputs_of
from support.measurements import AT_NS, World, pinged
from unit.inference.hierarchy.test_shapes import fabrics


def with_pairs(fabric: SimFabric, pings: World, bursts: int = 3) -> FabricInputs:
    return replace(inputs_of(fabric), pairs=pings.table(bursts))


def common(topology: Topology, *nodes: str) -> HyperNode:
    return min((h for h in topology.hypernodes if {*nodes} <= {*h.nodes}), key=lambda h: h.tier)


def degraded(h: HyperNode) -> tuple[str, str, str]:
    return next((c.status, c.reason, c.message) for c in h.conditions if c.type == "Degraded")


@pytest.mark.slow
@given(fabrics(), st.integers(0, 9))
def test_any_healthy_wired_fabric_has_figures_and_accuses_no_node(fabric: SimFabric, seed: int) -> None:
    inputs = with_pairs(fabric, pinged(fabric, seed))
    plain, found = infer(replace(inputs, pairs=FabricInputs().pairs)), infer(inputs)
    assert not found.anomalies, [x.message for x in found.anomalies]
    assert plain.tiers == ()
    assert [(t.tier, t.tier_name) for t in found.tiers] == sorted(
        {(h.tier, h.tier_name) for h in found.hypernodes}
    )
    # Nothing else is changed by it.
    bare = [replace(h, latency_us=None) for h in found.hypernodes]
    assert [replace(h, conditions=()) for h in bare] == [replace(h, conditions=()) for h in plain.hypernodes]
    medians = [t.latency_us.median for t in found.tiers if t.latency_us and t.latency_us.samples > 100]
    assert medians == sorted(medians)


CLOS = shapes.clos3(2, 3, 6, 3, 2, seed=1)


def test_a_slow_pair_degrades_the_domain_that_holds_both() -> None:
    pings = pinged(CLOS)
    layer = [pings.fabric.domain[0][pings.a] == pings.fabric.domain[0][pings.b]]
    row = int(np.flatnonzero(~layer[0])[5])
    found = infer(with_pairs(CLOS, pings.plus(np.array([row]), 12.0), 9))
    (x,) = found.anomalies
    a, b = pings.names[pings.a[row]], pings.names[pings.b[row]]
    home = common(found, a, b)
    assert home.tier > 1
    assert (x.hypernode, x.tier) == (home.name, home.tier)
    status, reason, message = degraded(home)
    assert (status, reason) == ("True", "SlowLinks")
    assert message.startswith(f"1 path slow: {a}/eth0 -> {b}/eth0: ")
    assert " in the 6 bursts before, seen by latency" in message
    assert {h.name for h in found.hypernodes if degraded(h)[0] == "True"} == {home.name}


def test_a_slow_host_degrades_its_lowest_domain() -> None:
    pings = pinged(CLOS)
    found = infer(with_pairs(CLOS, pings.plus(pings.touching(4), 12.0)))
    (x,) = found.anomalies
    home = common(found, pings.names[4])
    assert (x.subject.name, x.peer, x.hypernode, x.tier) == (pings.names[4], None, home.name, 1)
    assert degraded(home)[2].startswith(f"1 path slow: {pings.names[4]}: its ")


def test_a_slow_way_out_degrades_the_domain_that_it_leads_out_of() -> None:
    pings = pinged(CLOS)
    leaf = pings.fabric.domain[0]
    found = infer(with_pairs(CLOS, pings.plus((leaf[pings.a] == 2) != (leaf[pings.b] == 2), 9.0)))
    (x,) = found.anomalies
    host = pings.names[int(np.flatnonzero(leaf == 2)[0])]
    assert x.hypernode == common(found, host).name
    assert "ways out" in degraded(common(found, host))[2]


def test_nccl_is_a_weight_on_the_common_hypernode() -> None:
    pings = pinged(CLOS)
    a, b = pings.names[0], pings.names[1]
    run = NcclRun(b, "libnccl", AT_NS, "2.28", 2, (NcclResult("all_reduce", 1 << 30, 9000.0, 48.0, 48.0),))
    found = infer(replace(inputs_of(CLOS), nccl={a: (run,)}))
    weighed = {h.name: h.bandwidth_gbps for h in found.hypernodes if h.bandwidth_gbps}
    home = common(found, a, b)
    assert weighed == {home.name: home.bandwidth_gbps}
    assert home.bandwidth_gbps is not None
    assert (home.bandwidth_gbps.median, home.bandwidth_gbps.at_ns) == (384.0, AT_NS)
    assert [t.bandwidth_gbps for t in found.tiers if t.tier == home.tier] == [home.bandwidth_gbps]


@pytest.mark.slow
@pytest.mark.parametrize("bursts", [1, 9])
def test_an_opaque_fabric_is_judged_by_its_own_tiers(bursts: int) -> None:
    pings = pinged(shapes.clos2(4, 12, 4, 1, seed=3))
    healthy = infer(FabricInputs(pairs=pings.table(bursts)))
    assert {h.source for h in healthy.hypernodes} == {"latency"}
    assert not healthy.anomalies
    assert all(h.latency_us for h in healthy.hypernodes)
    slow = infer(FabricInputs(pairs=pings.plus(np.array([9]), 12.0).table(bursts)))
    (x,) = slow.anomalies
    assert {x.subject.name, x.peer.name if x.peer else ""} == {
        pings.names[pings.a[9]],
        pings.names[pings.b[9]],
    }
    assert x.hypernode is not None


@given(fabrics(), st.integers(0, 10_000), st.integers(1, 400), st.booleans())
def test_nonsense_is_borne(fabric: SimFabric, seed: int, count: int, wired: bool) -> None:
    """Round trips from light's to a second's, rails without a plan, unknown hosts."""
    random = np.random.default_rng(seed)
    names = sorted({host for domain in fabric.truth.tiers[0] for host in domain} | {"stranger"})
    keys = np.unique(random.integers(0, len(names) ** 2 * 3, count))
    a, b, rail = keys // 3 // len(names), keys // 3 % len(names), keys % 3
    a, b, rail = a[a < b], b[a < b], rail[a < b]
    columns = [np.exp(random.uniform(np.log(0.1), np.log(1e6), len(a))) for _ in range(6)]
    columns[1] = np.where(random.random(len(a)) < 0.2, -1.0, columns[1])
    history = PairHistory(
        columns[2], columns[1], random.integers(1, 4, len(a)).astype(float), columns[3], columns[4],
        random.integers(0, 7, len(a)).astype(float),
    )  # fmt: skip
    pairs = PairTable(
        names,
        ("ib0", "ib0~ib1", "mlx5_0/rdma"),
        a.astype(np.int32),
        b.astype(np.int32),
        rail.astype(np.int32),
        columns[0],
        columns[1],
        np.where(random.random(len(a)) < 0.5, columns[5], 0.0),
        np.full(len(a), 16, np.int32),
        random.integers(0, AT_NS, len(a)),
        0,
        history if seed % 2 else None,
    )
    inputs = replace(inputs_of(fabric) if wired else FabricInputs(), pairs=pairs)
    options = InferOptions(latency_places=False)
    found = infer(inputs, options)
    assert len(found.anomalies) <= MAX_SUSPICIONS
    assert len({x.key for x in found.anomalies}) == len(found.anomalies)
    figures = [x for of in (*found.hypernodes, *found.tiers) for x in (of.latency_us, of.bandwidth_gbps) if x]
    assert all(np.isfinite(x.median) and np.isfinite(x.p99) and x.samples > 0 for x in figures)
    assert infer(inputs, options, found).anomalies == found.anomalies
