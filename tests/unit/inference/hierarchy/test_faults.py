"""Planted faults: the domains stay what they are, and the anomaly names what was done."""

from collections import Counter
from random import Random

import pytest
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.faults import (
    Fault,
    NotApplicableError,
    Standing,
    plant,
    plant_many,
    standings,
)
from hyperscout_topology.topology import Topology
from hypothesis import assume, given
from hypothesis import strategies as st
from support.examples import examples, slow_after
from support.inference import Namer, cut_off, inferred, tiers, truth
from unit.inference.hierarchy.test_shapes import check_tree

# Large enough that a single fault is outvoted wherever the planter says that it leaves a trace.
SHAPES = {
    "clos2": lambda seed: shapes.clos2(4, 8, 4, seed=seed),
    "clos2-double": lambda seed: shapes.clos2(4, 8, 4, 2, seed=seed),
    "clos3": lambda seed: shapes.clos3(3, 4, 4, 4, 4, seed=seed),
    "fat-tree": lambda seed: shapes.fat_tree(8, seed=seed),
    "rail": lambda seed: shapes.rail_optimised(4, 8, 4, 4, seed=seed),
    "rail-8": lambda seed: shapes.rail_optimised(3, 8, 8, 3, seed=seed),
    "rail-shared": lambda seed: shapes.rail_optimised(4, 8, 4, shared_spines=6, seed=seed),
    "rail-pods": lambda seed: shapes.rail_optimised(4, 8, 4, 4, pods=3, seed=seed),
    "dual-homed": lambda seed: shapes.dual_homed(4, 8, 4, 2, seed=seed),
    "rail-only": lambda seed: shapes.rail_only(4, 8, 8, seed=seed),
    "rail-only-wide": lambda seed: shapes.rail_only_wide(16, 8, seed=seed),
    "planes": lambda seed: shapes.multi_plane(4, 4, 8, 4, seed=seed),
    "dragonfly+": lambda seed: shapes.dragonfly_plus(4, 4, 4, 4, 4, seed=seed),
    "rack": lambda seed: shapes.single_rack(16, 1, seed=seed),
    "rack-4": lambda seed: shapes.single_rack(16, 4, seed=seed),
}


def hosts_by_adapter(topology: Topology, fabric: SimFabric) -> list[set[frozenset[str]]]:
    """The tiers, with adapters that no agent claims counted as their hosts."""
    host_of = {f"{x.guid:016x}": x.host for x in fabric.adapters}
    return [{frozenset(host_of.get(n, n) for n in d) for d in tier} for tier in tiers(topology)]


def can_have(fabric: SimFabric, fault: Fault) -> bool:
    try:
        plant(fabric, fault, Random(0))
    except NotApplicableError:
        return False
    return True


def cases() -> st.SearchStrategy[tuple[str, Fault]]:
    fabrics = {name: make(0) for name, make in SHAPES.items()}
    return st.sampled_from(
        [(name, fault) for name, fabric in fabrics.items() for fault in Fault if can_have(fabric, fault)]
    )


@examples(2)
@given(st.deferred(cases), st.integers(0, 10_000))
def test_one_fault(case: tuple[str, Fault], seed: int) -> None:
    shape, fault = case
    fabric = SHAPES[shape](seed % 7)
    try:
        faulty, planted = plant(fabric, fault, Random(seed))
    except NotApplicableError:  # this one would split the fabric
        assume(False)
        return
    topology = inferred(faulty)
    check_tree(topology)
    namer = Namer(fabric)
    named = [x for x in topology.anomalies if namer.names(x, planted)]
    others = [x for x in topology.anomalies if x not in named]
    if planted.leaves_trace:
        assert named, [x.message for x in topology.anomalies]
    # A swapped cable of a host with one or two cables reads like a rebuild, or ties: both are named.
    single = fault is Fault.SWAPPED_HOST_LINKS and not planted.leaves_trace
    if planted.tied:
        ends = {end for x in topology.anomalies for end in namer.ends(x)}
        assert set(planted.tied) <= ends
        assert all(x.confidence <= 0.5 for x in others)
    elif not single:
        assert [x.message for x in others] == []
    if fault is Fault.RENAMED:
        assert [len(t) for t in tiers(topology)] == [len(t) for t in truth(fabric)]
    elif not (single or planted.tied):
        assert hosts_by_adapter(topology, fabric) == truth(
            fabric, without={*cut_off(faulty), *planted.cut_off}
        )


MANY = {
    "8 rails": (lambda: shapes.rail_optimised(32, 32, 8, 8), {Standing.TIED, Standing.OUTVOTED}),
    "8 rails, no spines": (lambda: shapes.rail_only(32, 32, 8), {Standing.TIED, Standing.OUTVOTED}),
    "4 rails": (lambda: shapes.rail_optimised(32, 32, 4, 16), {Standing.TIED, Standing.OUTVOTED}),
    "4 rails, 2 pods": (
        lambda: shapes.rail_optimised(16, 32, 4, 8, pods=2),
        {Standing.TIED, Standing.OUTVOTED},
    ),
    "4 planes": (lambda: shapes.multi_plane(4, 32, 32, 16), {Standing.TIED, Standing.OUTVOTED}),
    "2 rails": (lambda: shapes.dual_homed(32, 32, 8), {Standing.TIED, Standing.OUTVOTED}),
    "1 rail": (lambda: shapes.clos2(32, 32, 16), {Standing.OUTVOTED}),
    "1 rail, 3 tiers": (lambda: shapes.clos3(8, 8, 16, 8, 8), {Standing.OUTVOTED}),
}


@pytest.mark.parametrize("shape", slow_after(2, sorted(MANY)))
@pytest.mark.parametrize("seed", slow_after(1, [1, 2]))
def test_many_faults_at_1024_hosts(shape: str, seed: int) -> None:
    make, may_be_wrong = MANY[shape]
    fabric = make()
    faulty, faults = plant_many(fabric, 0.05, 0.01, Random(seed))
    topology = inferred(faulty)
    check_tree(topology)
    assert [len(t) for t in tiers(topology)] == [len(t) for t in truth(fabric)]
    standing, own = standings(fabric, faulty), fabric.truth.domain_of()
    of_domain = {}
    for h in topology.hypernodes:
        if h.tier == 1:
            home = Counter(own[node] for node in h.nodes).most_common(1)[0][0]
            of_domain.update(dict.fromkeys(h.nodes, home))
    wrong = Counter(standing[host] for host in own if of_domain.get(host) != own[host])
    assert set(wrong) <= may_be_wrong | {Standing.CUT_OFF}
    namer = Namer(fabric)
    may_name = {pair: i for i, fault in enumerate(faults) for pair in namer.pairs(fault)}
    named = {may_name[e] for x in topology.anomalies if (e := namer.ends(x)) in may_name}
    traced = [i for i, fault in enumerate(faults) if fault.leaves_trace]
    assert traced
    assert sum(i in named for i in traced) >= 0.95 * len(traced)
    # No healthy cable is accused; where a host's cables tie, both candidates are named, at even odds.
    healthy = set(faulty.cables) & set(fabric.cables)
    present = {frozenset((namer.host_of.get(c.a, c.a), c.b)) for c in healthy}
    accused = [x for x in topology.anomalies if namer.ends(x) in present and namer.ends(x) not in may_name]
    assert [x.message for x in accused if x.confidence > 0.5] == []
    listed = {end for x in topology.anomalies for end in namer.ends(x)}
    assert {host for host, s in standing.items() if s is Standing.TIED} <= listed
