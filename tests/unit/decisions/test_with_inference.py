"""Generations around the real inference: what damping holds back must not be lost to the next inference."""

from dataclasses import replace
from random import Random

import pytest
from hyperscout_collector.decisions.publication.generations import (
    Decision,
    Generations,
    GenerationSettings,
)
from hyperscout_runtime.units import NS
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.faults import Fault, plant
from hyperscout_topology.json_reader import from_json
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import Topology
from hypothesis import example, given
from hypothesis import strategies as st
from support.examples import examples
from support.inference import inferred, tiers, without_switch

START_NS = 1_767_225_600 * NS
WHOLE = shapes.clos2(4, 4, 4, seed=3)


FABRICS = {
    "whole": WHOLE,
    "host link": plant(WHOLE, Fault.HOST_LINK, Random(1))[0],
    "uplink": plant(WHOLE, Fault.UPLINK, Random(1))[0],
    "another uplink": plant(WHOLE, Fault.UPLINK, Random(2))[0],
    "spine": without_switch(WHOLE, next(s.guid for s in WHOLE.switches if s.level == 2)),
    "leaf": without_switch(WHOLE, next(s.guid for s in WHOLE.switches if s.level == 1)),
}
FABRICS["both uplinks"] = replace(
    WHOLE,
    cables=tuple(
        c for c in WHOLE.cables if c in FABRICS["uplink"].cables and c in FABRICS["another uplink"].cables
    ),
)
FIRST = inferred(WHOLE)


class Collector:
    """Infers at every sweep with what is published as its past, and ticks when asked to."""

    def __init__(self) -> None:
        self.now_ns = START_NS
        self.generations = Generations(GenerationSettings(), None, self.now_ns)
        self.published: list[Topology] = []
        self.decision = Decision()

    def sweep(self, fabric: SimFabric, then_wait_s: float) -> None:
        offered = inferred(fabric, previous=self.generations.published)
        self.take(self.generations.offer(offered, self.now_ns))
        end_ns = self.now_ns + round(then_wait_s * NS)
        for _ in range(100):
            if self.decision.wake_at_ns is None or self.decision.wake_at_ns > end_ns:
                break
            self.now_ns = self.decision.wake_at_ns
            self.take(self.generations.tick(self.now_ns))
        self.now_ns = end_ns

    def take(self, decision: Decision) -> None:
        self.decision = decision
        if decision.publish is not None:
            self.published.append(decision.publish)


@examples(0.5)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(FABRICS)), st.sampled_from([1, 5, 12, 40, 90])),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(sorted(FABRICS)),
    st.booleans(),
)
# One cable waits to be called missing while another is news; a spine blinks after its loss was published.
@example([("uplink", 5), ("whole", 12), ("uplink", 1), ("both uplinks", 1)], "uplink", False)
@example([("spine", 90), ("another uplink", 1)], "spine", False)
@pytest.mark.slow
def test_after_any_flapping_the_picture_is_that_of_a_collector_that_saw_none(
    history: list[tuple[str, int]], last: str, restart: bool
) -> None:
    collector = Collector()
    collector.sweep(WHOLE, 100)
    (first,) = collector.published
    for name, wait_s in history:
        collector.sweep(FABRICS[name], wait_s)
    if restart:
        saved = from_json(to_json(collector.published[-1]))
        collector.generations = Generations(GenerationSettings(), saved, collector.now_ns)
    for _ in range(20):
        collector.sweep(FABRICS[last], 60)
    steady = len(collector.published)
    collector.sweep(FABRICS[last], 600)
    assert len(collector.published) == steady

    now = collector.generations.published
    assert now is not None
    expected = inferred(FABRICS[last], previous=FIRST)
    assert [x.key for x in now.anomalies] == [x.key for x in expected.anomalies]
    assert tiers(now) == tiers(expected)
    assert {h.name for h in now.hypernodes} == {h.name for h in first.hypernodes}
    assert sorted(now.links) == sorted(expected.links)
    assert now.nodes_without_evidence == expected.nodes_without_evidence
    conditions = {(h.name, c.type): c.status for h in now.hypernodes for c in h.conditions}
    assert conditions == {(h.name, c.type): c.status for h in expected.hypernodes for c in h.conditions}
