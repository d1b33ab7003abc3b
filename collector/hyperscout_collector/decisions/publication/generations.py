"""Decides which inferred topologies are published, when, and with which number and times.

Inference reports at every moment what the evidence implies. A reader of HyperNodes needs changes at once, no
flapping, and no accidental removal of half a cluster. Three parts of a topology therefore change at their own
pace. Anomalies and other causes of conditions change at once but damped (`damping`). Membership changes when
it has been stable for a moment; a mass removal only when it lasts or is approved (`membership`). Cables,
lists and measured figures change with any other part, or a little later (figures: `renewal`). The published
topology is therefore always a tree that was offered, or the tree before with current conditions.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from hyperscout_inference.hierarchy.conditions import (
    INFERENCE_FAILED,
    NO_FACTS,
    ConditionFacts,
    with_conditions,
)
from hyperscout_inference.hierarchy.nvlink_tier import NAME as NVLINK
from hyperscout_topology.details import same_details, with_waiting
from hyperscout_topology.link_changes import table_of
from hyperscout_topology.topology import Anomaly, Topology

from hyperscout_collector.decisions.publication.damping import NS, Damper, DampingSettings
from hyperscout_collector.decisions.publication.membership import (
    NO_LOSS,
    Loss,
    Removals,
    loss,
    same_members,
)
from hyperscout_collector.decisions.publication.renewal import calmed, is_due, renewed
from hyperscout_collector.decisions.publication.stamps import (
    AnomalyKey,
    LinkKey,
    by_link,
    placed,
    stamped,
)


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """Settings of publication. Times in seconds."""

    damping: DampingSettings = field(default_factory=DampingSettings)
    first_settle_s: float = 2.0  # before the first generation: agents and sweeps arrive soon after a start
    settle_s: float = 10.0  # membership must be stable this long: moving a node affects jobs, a link does not
    settle_max_s: float = 60.0  # a cluster that grows node by node all day is published once per minute
    details_s: float = 30.0  # for cables and lists alone: no scheduler uses them, but they must not age
    removal_share: float = 0.2  # of HyperNodes or nodes, 0 to 1; a rack of a small cluster is more
    hold_s: float = 600.0  # a reboot of a switch or a fabric manager is over by then
    new_s: float = 120.0  # a first tree grows this long, because sources arrive one by one


@dataclass(frozen=True, slots=True)
class Held:
    """A tree that waits for approval or its deadline. `generation`: its own number, by which it is approved.

    The number stays the same until the loss grows by another share, so the approved tree is the one that was
    read.
    """

    generation: int
    reason: str
    since_ns: int
    applies_at_ns: int
    removes_hypernodes: tuple[str, ...]
    removes_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of an event.

    `publish`: a new generation; None = no change. `wake_at_ns`: latest time of the next `tick`.
    """

    publish: Topology | None = None
    held: Held | None = None
    wake_at_ns: int | None = None


class NotHeldError(LookupError):
    """The tree to approve no longer waits: it was published, withdrawn, or replaced by another."""


class Generations:
    """Receives the topologies that inference offers, and decides what is published.

    `published`: the last published generation, or None. Numbers, times and names continue from it. The caller
    that runs inference passes `published` to it as `previous`.
    """

    def __init__(self, settings: GenerationSettings, published: Topology | None, now_ns: int) -> None:
        self._settings = settings
        self._now_ns = now_ns
        self._published = published
        self._new_until_ns: int | None = None  # end of the time in which the first tree still grows
        self._highest = published.generation if published else 0
        self._offered: Topology | None = None
        self._differs_since_ns: int | None = None  # membership: since when offered and published differ
        self._still_since_ns = now_ns  # membership: since when all offers agree
        self._details_since_ns: int | None = None
        self._details = published  # the source of the last details
        self._held: Held | None = None
        self._held_loss = NO_LOSS
        self._removals = Removals(settings.removal_share, round(settings.hold_s * NS))
        before = published or Topology(0)
        self._since = {x.key: x.since_ns or now_ns for x in before.anomalies}
        self._anomalies: Damper[LinkKey, AnomalyKey, Anomaly] = Damper(
            settings.damping, by_link(before.anomalies), now_ns
        )
        self._absent: Damper[str, str, str] = Damper(
            settings.damping, {node: {"": ""} for node in before.nodes_without_evidence}, now_ns
        )
        self._down: Damper[str, str, str] = Damper(settings.damping)
        self._stale: Damper[str, str, int] = Damper(settings.damping)
        self._silent: Damper[str, str, int] = Damper(settings.damping)  # switches
        failed = any(c.reason == INFERENCE_FAILED for h in before.hypernodes for c in h.conditions)
        self._failing: Damper[str, str, str] = Damper(
            settings.damping, {"": {"": ""}} if failed else None, now_ns
        )

    @property
    def _dampers(self) -> tuple[Damper[Any, Any, Any], ...]:
        return (self._anomalies, self._absent, self._down, self._stale, self._silent, self._failing)

    @property
    def published(self) -> Topology | None:
        """The last published generation."""
        return self._published

    def offer(self, topology: Topology, now_ns: int, facts: ConditionFacts = NO_FACTS) -> Decision:
        """Process an inferred topology, and other facts about nodes."""
        now_ns = self._advance(now_ns)
        topology = calmed(topology, self._published)
        if self._offered is None or not same_members(self._offered, topology):
            self._still_since_ns = now_ns
        self._offered = topology
        self._watch_membership(topology, now_ns)
        aged = self._published is not None and is_due(self._published, topology)
        if aged or self._details is None or not same_details(self._details, topology):
            self._details_since_ns = now_ns if self._details_since_ns is None else self._details_since_ns
        else:
            self._details, self._details_since_ns = topology, None  # in the order of the next details
        self._observe(topology, facts, now_ns)
        return self._decide(now_ns)

    def tick(self, now_ns: int) -> Decision:
        """Process the passing of time."""
        return self._decide(self._advance(now_ns))

    def approve(self, generation: int, now_ns: int) -> Decision:
        """Publish the waiting tree at once. Raises NotHeldError if `generation` is not the one that waits."""
        now_ns = self._advance(now_ns)
        if self._held is None:
            raise NotHeldError(f"generation {generation} is not held: nothing is")
        if self._held.generation != generation:
            raise NotHeldError(f"generation {generation} is not held: {self._held.generation} is")
        return self._decide(now_ns, approved=True)

    def _advance(self, now_ns: int) -> int:
        self._now_ns = max(self._now_ns, now_ns)
        return self._now_ns

    # -- input ----------------------------------------------------------------------------------------------

    def _watch_membership(self, offered: Topology, now_ns: int) -> None:
        before = self._published
        if before is None:
            if self._differs_since_ns is None and _has_content(offered):
                self._differs_since_ns = self._still_since_ns = now_ns
            return
        if same_members(before, offered):
            self._differs_since_ns = self._held = None
            return
        if self._differs_since_ns is None:
            self._differs_since_ns = now_ns
        lost = loss(before, offered)
        new = self._new_until_ns is not None and now_ns < self._new_until_ns
        if (
            new
            and not lost.nodes
            and (len(offered.hypernodes) >= len(before.hypernodes) or _only_nvlink(before, lost))
        ):
            # NVLink domains that appear shortly after the cables, for the whole cluster or for the newest
            # nodes. No scheduler relies on these tiers yet.
            lost = NO_LOSS
        if lost.tiers is None and not self._removals.too_many(before, lost, now_ns):
            if self._held is not None:
                # The loss shrinks, perhaps in steps. The remaining change must be stable again before it is
                # published.
                self._held = None
                self._differs_since_ns = self._still_since_ns = now_ns
            return
        if self._held is not None:
            more = Loss(
                lost.hypernodes - self._held_loss.hypernodes, lost.nodes - self._held_loss.nodes, lost.tiers
            )
            if more.tiers == self._held_loss.tiers and not self._removals.too_many(before, more, now_ns):
                self._held = replace(
                    self._held,
                    reason=self._reason(before, lost),
                    removes_hypernodes=tuple(sorted(lost.hypernodes)),
                    removes_nodes=tuple(sorted(lost.nodes)),
                )
                return
        self._highest += 1
        self._held_loss = lost
        self._held = Held(
            self._highest,
            self._reason(before, lost),
            now_ns,
            now_ns + round(self._settings.hold_s * NS),
            tuple(sorted(lost.hypernodes)),
            tuple(sorted(lost.nodes)),
        )

    def _reason(self, before: Topology, lost: Loss) -> str:
        parts = []
        if lost.tiers:
            parts.append(f"changes the number of tiers from {lost.tiers[0]} to {lost.tiers[1]}")
        if lost.hypernodes or lost.nodes:
            nodes = len({n for h in before.hypernodes if not h.children for n in h.nodes})
            parts.append(
                f"removes {len(lost.hypernodes)} of {len(before.hypernodes)} HyperNodes"
                f" and {len(lost.nodes)} of {nodes} nodes"
            )
        return f"{' and '.join(parts)} (at most {self._settings.removal_share:.0%} go unasked)"

    def _observe(self, offered: Topology, facts: ConditionFacts, now_ns: int) -> None:
        known = {i for _, i, _ in self._anomalies.shown()} | {i for _, i, _ in self._anomalies.observed()}
        self._since = {key: since for key, since in self._since.items() if key in known}
        for x in offered.anomalies:
            self._since.setdefault(x.key, now_ns)
        self._anomalies.observe(by_link(offered.anomalies), now_ns)
        self._absent.observe({node: {"": ""} for node in offered.nodes_without_evidence}, now_ns)
        self._down.observe({node: {"": why} for node, why in facts.down_nodes.items()}, now_ns)
        stale = {node: {"": seen} for node, seen in facts.stale.items()}
        if self._held is not None:
            # These nodes are still published, but no evidence supports them.
            stale = {node: {"": self._held.since_ns} for node in self._held.removes_nodes} | stale
        self._stale.observe(stale, now_ns)
        self._silent.observe({id_: {"": seen} for id_, seen in facts.stale_switches.items()}, now_ns)
        self._failing.observe({"": {"": facts.failing}} if facts.failing else {}, now_ns)

    # -- output ---------------------------------------------------------------------------------------------

    def _decide(self, now_ns: int, *, approved: bool = False) -> Decision:
        offered = self._offered
        if offered is None:
            return Decision()
        held = self._held
        if held is not None:
            take = approved or now_ns >= held.applies_at_ns
        else:
            due = self._membership_due_ns()
            take = due is not None and now_ns >= due
        publish = None
        if take or (self._published is not None and self._condition_due(now_ns)):
            publish = self._next(offered, now_ns, take=take)
        return Decision(publish, self._held, self._wake_ns(now_ns))

    def _membership_due_ns(self) -> int | None:
        if self._differs_since_ns is None:
            return None
        empty = self._published is None or not self._published.hypernodes
        settle_s = self._settings.first_settle_s if empty else self._settings.settle_s
        still = self._still_since_ns + round(settle_s * NS)
        return min(still, self._differs_since_ns + round(self._settings.settle_max_s * NS))

    def _details_due_ns(self) -> int | None:
        if self._details_since_ns is None:
            return None
        return self._details_since_ns + round(self._settings.details_s * NS)

    def _dampers_due_ns(self) -> int | None:
        dues = [damper.next_due_ns() for damper in self._dampers]
        return min((due for due in dues if due is not None), default=None)

    def _condition_due(self, now_ns: int) -> bool:
        return any(
            due is not None and due <= now_ns for due in (self._dampers_due_ns(), self._details_due_ns())
        )

    def _wake_ns(self, now_ns: int) -> int | None:
        dues = [self._held.applies_at_ns if self._held else self._membership_due_ns()]
        if self._published is not None:
            dues += [self._dampers_due_ns(), self._details_due_ns()]
        return min((max(due, now_ns + 1) for due in dues if due is not None), default=None)

    def _next(self, offered: Topology, now_ns: int, *, take: bool) -> Topology | None:
        """Returns the next generation, or None if it would equal the one before."""
        for damper in self._dampers:
            damper.show(now_ns)
        before = self._published
        tree = offered if take or before is None else before
        wires = with_waiting(offered, before or offered, tree, list(self._anomalies.waiting()))
        if take or before is None or is_due(before, offered):
            wires = renewed(wires, offered, before)
        else:
            wires = replace(wires, tiers=before.tiers)
        anomalies = (replace(x, since_ns=self._since[x.key]) for _, _, x in self._anomalies.shown())
        facts = ConditionFacts(
            {node: why for node, _, why in self._down.shown()},
            {node: seen for node, _, seen in self._stale.shown()},
            {id_: seen for id_, _, seen in self._silent.shown()},
            next((why for _, _, why in self._failing.shown()), ""),
        )
        built = with_conditions(
            replace(
                wires,
                links=table_of(wires.links),
                anomalies=tuple(sorted(placed(anomalies, tree.hypernodes), key=lambda x: (x.key, x.message))),
                nodes_without_evidence=tuple(sorted(node for node, _, _ in self._absent.shown())),
            ),
            facts,
        )
        hypernodes = stamped(built.hypernodes, before, now_ns)
        self._details, self._details_since_ns = offered, None
        if take:
            self._take(before, offered, now_ns)
        own = self._held.generation if take and self._held else None
        if take:
            self._held = None
        same = (
            before is not None
            and hypernodes == before.hypernodes
            and built.anomalies == before.anomalies
            and built.nodes_without_evidence == before.nodes_without_evidence
            and built.tiers == before.tiers
            and same_details(built, before)
        )
        if same:
            return None
        if own != self._highest:
            self._highest += 1
        if before is None:
            self._new_until_ns = now_ns + round(self._settings.new_s * NS)
        self._published = replace(built, generation=self._highest, hypernodes=hypernodes)
        return self._published

    def _take(self, before: Topology | None, offered: Topology, now_ns: int) -> None:
        """Update the state after the offered tree became the published one."""
        self._differs_since_ns = None
        if self._held is not None:
            self._removals.agree()
        elif before is not None:
            self._removals.record(loss(before, offered), offered, now_ns)


def _only_nvlink(before: Topology, lost: Loss) -> bool:
    """Whether only NVLink domains disappear, as when single hosts turn out to be in one rack."""
    gone = (h for h in before.hypernodes if h.name in lost.hypernodes)
    return lost.tiers is None and all(h.tier_name == NVLINK for h in gone)


def _has_content(topology: Topology) -> bool:
    return bool(
        topology.hypernodes
        or topology.switches
        or topology.links
        or topology.anomalies
        or topology.nodes_without_evidence
    )
