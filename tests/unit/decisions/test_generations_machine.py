"""Generations under any history: what must hold after every event, whatever the fabric does."""

from hyperscout_collector.decisions.publication.generations import (
    Decision,
    GenerationNotHeldError,
    Generations,
    GenerationSettings,
)
from hyperscout_collector.decisions.publication.membership import loss, nodes_of
from hyperscout_collector.decisions.publication.stamps import by_link
from hyperscout_inference.hierarchy.conditions import ConditionFacts
from hyperscout_runtime.units import NS
from hyperscout_topology.json_reader import from_json
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import Topology
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from .trees import leaves_of, lost_uplink, tree, uplink

SETTINGS = GenerationSettings()
START_NS = 1_767_225_600 * NS
TREES = [leaves_of(n) for n in (6, 6, 5, 3, 7)] + [{}]  # growth, a leaf less, half, all gone
Shape = list[tuple[str, int, tuple[str, ...], tuple[str, ...]]]


def shape(topology: Topology) -> Shape:
    return [(h.name, h.tier, h.children, h.nodes) for h in topology.hypernodes]


class GenerationsMachine(RuleBasedStateMachine):
    """Offers of a few trees and anomalies at random times; ticks when asked for; restarts; approvals."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START_NS
        self.generations = Generations(SETTINGS, None, self.now)
        self.decision = Decision()
        self.published: Topology | None = None
        self.offered: list[Shape] = []
        self.last: tuple[Topology, ConditionFacts] | None = None
        self.lost_since: int | None = None
        self.approved = False
        self.shown_changed: dict[object, int] = {}

    @initialize(anomalies=st.frozensets(st.integers(0, 3)))
    def first(self, anomalies: frozenset[int]) -> None:
        self.offer(1, 0, anomalies, frozenset(), frozenset())

    @rule(
        wait_s=st.sampled_from([0, 1, 4, 9, 31, 70]),
        members=st.integers(0, len(TREES) - 1),
        anomalies=st.frozensets(st.integers(0, 3)),
        cables=st.frozensets(st.integers(0, 1)),
        down=st.frozensets(st.sampled_from(["n0000", "n0005"])),
    )
    def offer(
        self,
        wait_s: float,
        members: int,
        anomalies: frozenset[int],
        cables: frozenset[int],
        down: frozenset[str],
    ) -> None:
        self.pass_time(wait_s)
        topology = tree(
            TREES[members],
            [lost_uplink(k, "SlowLink" if k == 3 else "MissingLink") for k in sorted(anomalies)],
            links=[uplink(k) for k in range(4) if k in cables or k not in anomalies],
        )
        facts = ConditionFacts(down_nodes=dict.fromkeys(down, "stopped"))
        self.last = (topology, facts)
        self.offered.append(shape(topology))
        self.judge(self.generations.offer(topology, self.now, facts))
        again = self.generations.offer(from_json(to_json(topology)), self.now, facts)
        assert again.publish is None, "the same again is no news"
        assert again.held == self.decision.held

    @rule(wait_s=st.sampled_from([1, 15, 100, 700]))
    def pass_time(self, wait_s: float) -> None:
        """Tick when asked to, and once in between for no reason."""
        end = self.now + round(wait_s * NS)
        self.now = (self.now + end) // 2
        self.judge(self.generations.tick(self.now))
        for _ in range(100):
            if self.decision.wake_at_ns is None or self.decision.wake_at_ns > end:
                break
            self.now = max(self.now, self.decision.wake_at_ns)
            self.judge(self.generations.tick(self.now))
        else:
            raise AssertionError("wakes for nothing")
        self.now = end

    @rule(right=st.booleans())
    def approve(self, right: bool) -> None:
        held = self.decision.held
        if held is None:
            return
        self.approved = right
        try:
            self.judge(self.generations.approve(held.generation + (not right), self.now))
            assert right
        except GenerationNotHeldError:
            assert not right
        self.approved = False

    @rule()
    def restart(self) -> None:
        if self.published is not None:
            self.published = from_json(to_json(self.published))
            self.generations = Generations(SETTINGS, self.published, self.now)
            self.decision = Decision()
            self.lost_since = None
            # What flapped and is clear is forgotten: bad news after a restart is at once.
            shown = by_link(self.published.anomalies)
            self.shown_changed = {k: at for k, at in self.shown_changed.items() if k in shown}
            if self.last is not None:
                self.judge(self.generations.offer(self.last[0], self.now, self.last[1]))

    def judge(self, decision: Decision) -> None:
        self.decision = decision
        assert decision.wake_at_ns is None or decision.wake_at_ns > self.now
        before, new = self.published, decision.publish
        if new is not None:
            now = max((c.since_ns for h in new.hypernodes for c in h.conditions), default=0)
            assert new == self.generations.published
            assert shape(new) in [*self.offered, shape(before) if before else None]
            if before is not None:
                self.follows(before, new)
            assert now <= self.now
            self.published = new
        held = decision.held
        if held is not None:
            assert before is not None
            assert self.last is not None
            lost = loss(before, self.last[0])
            assert lost.nodes or lost.hypernodes or lost.tiers, "growth is never held"
            assert (held.removes_nodes, held.removes_hypernodes) == (
                tuple(sorted(lost.nodes)),
                tuple(sorted(lost.hypernodes)),
            )
            self.lost_since = held.since_ns
        elif decision.publish is None or shape(decision.publish) == (shape(before) if before else None):
            self.lost_since = None

    def follows(self, before: Topology, new: Topology) -> None:
        assert new.generation > before.generation
        assert (new.hypernodes, new.anomalies, new.links, new.switches) != (
            before.hypernodes, before.anomalies, before.links, before.switches,
        )  # fmt: skip
        since = {x.key: x.since_ns for x in before.anomalies}
        for x in new.anomalies:
            assert START_NS <= x.since_ns <= self.now
            assert since.get(x.key, x.since_ns) == x.since_ns
        flipped = {(h.name, c.type): c for h in before.hypernodes for c in h.conditions}
        for h in new.hypernodes:
            for c in h.conditions:
                old = flipped.get((h.name, c.type))
                if old is not None and old.status == c.status:
                    assert c.since_ns == old.since_ns
                elif old is not None:
                    assert c.since_ns >= old.since_ns
        gone = nodes_of(before.hypernodes) - nodes_of(new.hypernodes)
        if len(gone) > 0.2 * len(nodes_of(before.hypernodes)) and len(gone) > 1 and not self.approved:
            assert self.lost_since is not None, "a mass removal that was never held"
            assert self.now - self.lost_since >= SETTINGS.hold_s * NS
        links_before, links_new = by_link(before.anomalies), by_link(new.anomalies)
        for link in links_before.keys() | links_new.keys():
            if links_before.get(link, {}).keys() != links_new.get(link, {}).keys():
                last = self.shown_changed.get(link, 0)
                assert self.now - last >= SETTINGS.damping.hold_down_s * NS, "faster than the hold-down"
                self.shown_changed[link] = self.now

    @invariant()
    def one_tree(self) -> None:
        if self.published is None:
            return
        names = {h.name for h in self.published.hypernodes}
        assert {x.hypernode for x in self.published.anomalies} <= {*names, None}
        switches = {s.id for s in self.published.switches}
        assert {s for h in self.published.hypernodes for s in h.switches} <= switches

    def run_out(self) -> None:
        for _ in range(20):
            if self.decision.wake_at_ns is None:
                return
            self.now = self.decision.wake_at_ns
            self.judge(self.generations.tick(self.now))
        raise AssertionError("wakes for ever")

    def teardown(self) -> None:
        """When the fabric stands still, the picture comes to be true, and then nothing more happens."""
        self.run_out()
        if self.last is None:
            return
        topology, facts = self.last
        self.judge(self.generations.offer(topology, self.now, facts))
        self.run_out()  # what was stale only while it was held
        if self.published is not None:
            assert shape(self.published) == shape(topology)
            assert by_link(self.published.anomalies).keys() == by_link(topology.anomalies).keys()
            assert sorted(self.published.links) == sorted(topology.links)
            assert self.published.switches == topology.switches


TestGenerations = GenerationsMachine.TestCase
TestGenerations.settings = settings(stateful_step_count=25, report_multiple_bugs=False)
