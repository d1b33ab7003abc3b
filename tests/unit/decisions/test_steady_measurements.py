"""A network that is measured anew all day: what is published, and written to a cluster, stands still."""

from dataclasses import replace

import numpy as np
import pytest
from hyperscout_collector.decisions.publication.generations import Generations, GenerationSettings
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.latency.pairs import PairTable
from hyperscout_publish.hypernodes.plan import Present, as_it_settles, members_of, next_writes
from hyperscout_publish.hypernodes.wanted import wanted
from hyperscout_runtime.units import NS
from hyperscout_sim.fabric import shapes
from hyperscout_topology.topology import Topology
from support.examples import slow_after
from support.inference import inputs_of
from support.measurements import AT_NS, World, pinged

MINUTE_NS = 60 * NS


def written(topology: Topology) -> dict[str, Present]:
    """The HyperNodes as they are in a cluster after they were published."""
    return {
        w.name: Present(
            w.name,
            True,
            w.tier,
            w.tier_name,
            members_of(w.members()),
            str(w.count),
            annotations=w.annotations,
        )
        for w in wanted(topology)
    }


def day(world: World, base: FabricInputs, minutes: int, bursts: int = 0) -> list[Topology]:
    """What is published while pairs are measured anew every five minutes."""
    generations = Generations(GenerationSettings(), None, AT_NS)
    found = []
    for minute in range(0, minutes, 5):
        now_ns = AT_NS + minute * MINUTE_NS
        pairs = _at(world.table(bursts or 1 + minute % 9), now_ns)
        inputs = replace(base, pairs=pairs)
        decision = generations.offer(infer(inputs, previous=generations.published), now_ns)
        while True:
            if decision.publish is not None:
                found.append(decision.publish)
            if decision.wake_at_ns is None or decision.wake_at_ns >= now_ns + 5 * MINUTE_NS:
                break
            decision = generations.tick(decision.wake_at_ns)
    return found


def _at(pairs: PairTable, now_ns: int) -> PairTable:
    return replace(pairs, at_ns=np.full(len(pairs), now_ns))


@pytest.mark.parametrize("seed", slow_after(1, range(3)))
@pytest.mark.slow
def test_a_wired_network_is_renewed_once_an_hour_and_writes_nothing(seed: int) -> None:
    fabric = shapes.clos3(2, 3, 6, 3, 2, seed=seed)
    published = day(pinged(fabric, seed, rows=400), inputs_of(fabric), 240)
    assert len(published) <= 1 + 4
    there = written(published[0])
    for topology in published[1:]:
        asked = {w.name: w for w in wanted(topology)}
        assert not next_writes(there, as_it_settles(asked, there)).writes
        assert [h.conditions for h in topology.hypernodes] == [h.conditions for h in published[0].hypernodes]


@pytest.mark.slow
def test_a_slow_pair_is_told_once_and_in_the_same_words() -> None:
    fabric = shapes.clos3(2, 3, 6, 3, 2, seed=1)
    world = pinged(fabric)
    published = day(world.plus(np.array([5]), 12.0), inputs_of(fabric), 240, bursts=9)
    told = {x.message for topology in published for x in topology.anomalies}
    assert len(published) <= 1 + 4
    assert len(told) == 1
