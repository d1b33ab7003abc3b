"""Decides which inferred topologies are published, when, and with which number and times.

Inference reports at every moment what the evidence implies. A reader of HyperNodes needs changes at once, no
flapping, and no accidental removal of half a cluster. Three parts of a topology therefore change at their own
pace. Anomalies and other causes of conditions change at once but damped (`damping`). Membership changes when
it has been stable for a moment; a mass removal only when it lasts or is approved (`membership`). Cables,
lists and measured figures change with any other part, or a little later (figures: `renewal`); the first
cables of a fabric at once, because inference remembers only what is published. The published
topology is therefore always a tree that was offered, or the tree before with current conditions.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from hyperscout_formats.text.reporters import cluster_of
from hyperscout_inference.hierarchy.conditions import (
    INFERENCE_FAILED,
    NO_EVIDENCE,
    NO_FACTS,
    ConditionFacts,
    kept_conditions,
    with_conditions,
)
from hyperscout_runtime.event_log import EventLog
from hyperscout_runtime.units import NS
from hyperscout_topology.diff import same_members
from hyperscout_topology.link_changes import table_of
from hyperscout_topology.names import tier_level
from hyperscout_topology.topology import Anomaly, Topology, over_since

from hyperscout_collector.decisions.publication.damping import Damper, DampingSettings, FirstSeen
from hyperscout_collector.decisions.publication.details import (
    has_new_fabric,
    same_details,
    sharing,
    with_waiting,
)
from hyperscout_collector.decisions.publication.membership import (
    NO_LOSS,
    Approve,
    HeldTree,
    Loss,
    Membership,
    MembershipSettings,
    Offer,
    Tick,
    loss,
    nodes_of,
)
from hyperscout_collector.decisions.publication.renewal import calmed, is_due, renewed
from hyperscout_collector.decisions.publication.stamps import (
    AnomalyKey,
    Dated,
    LinkKey,
    by_link,
    flapping_of,
    placed,
    stamped,
    with_flapping,
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
class Decision:
    """The result of an event.

    `publish`: a new generation; None = no change. `wake_at_ns`: latest time of the next `tick`.
    """

    publish: Topology | None = None
    held: HeldTree | None = None
    wake_at_ns: int | None = None


_TICK = Tick()


class GenerationNotHeldError(LookupError):
    """The tree to approve no longer waits: it was published, withdrawn, or replaced by another."""


class Generations:
    """Receives the topologies that inference offers, and decides what is published.

    `published`: the last published generation, or None. Numbers, times and names continue from it. The caller
    that runs inference passes `published` to it as `previous`.
    """

    def __init__(
        self,
        settings: GenerationSettings,
        published: Topology | None,
        now_ns: int,
        log: EventLog | None = None,
        *,
        highest: int = 0,
    ) -> None:
        """`highest`: numbers up to it may have been used."""
        self._settings = settings
        self._now_ns = now_ns
        self._published = published
        self._new_until_ns: int | None = None  # end of the time in which the first tree still grows
        self._highest = max(published.generation if published else 0, highest)
        self._offered: Topology | None = None
        limits = MembershipSettings(
            settings.first_settle_s,
            settings.settle_s,
            settings.settle_max_s,
            settings.hold_s,
            settings.removal_share,
        )
        self._membership = Membership.started(limits, published, now_ns, log)
        self._details_due_ns: int | None = None
        self._details = published  # the source of the last details
        before = published or Topology(0)
        self._since = {x.key: x.since_ns or now_ns for x in before.anomalies}
        self._dated, self._conditions = Dated(), kept_conditions()
        self._anomalies: Damper[LinkKey, AnomalyKey, Anomaly] = Damper(
            settings.damping,
            by_link(before.anomalies),
            now_ns,
            flapping=flapping_of(before.anomalies),
            tell=True,
        )
        self._absent: Damper[str, str, str] = Damper(settings.damping, _absent(before), now_ns, tell=True)
        self._first = FirstSeen()
        self._down: Damper[str, str, str] = Damper(settings.damping, tell=True)
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
    def highest(self) -> int:
        """The highest number that may have been used."""
        return self._highest

    @property
    def published(self) -> Topology | None:
        """The last published generation."""
        return self._published

    def offer(
        self, topology: Topology, now_ns: int, facts: ConditionFacts = NO_FACTS, *, is_inferred: bool = True
    ) -> Decision:
        """Process a topology, and other facts about nodes.

        `is_inferred`: False where the published topology takes the place of an inferred one.
        """
        now_ns = self._advance(now_ns)
        topology = calmed(topology, self._published)
        if self._published is not None:
            topology = sharing(topology, self._published)
        last, self._offered = self._offered, topology
        self._membership.handle(self._compared(topology, last, now_ns), now_ns)
        if (held := self._membership.held) is not None:
            self._highest = max(self._highest, held.generation)
        aged = self._published is not None and is_due(self._published, topology)
        if aged or self._details is None or not same_details(self._details, topology):
            at_once = self._published is not None and has_new_fabric(topology, self._published)
            due_ns = now_ns + (0 if at_once else round(self._settings.details_s * NS))
            self._details_due_ns = min(due_ns, self._details_due_ns or due_ns)
        else:
            self._details, self._details_due_ns = topology, None  # in the order of the next details
        self._observe(topology, facts, now_ns)
        if is_inferred:
            self._see(topology)
        return self._decide(now_ns)

    def accept(self) -> None:
        """An operator accepted what is missing from the published topology: no longer hold back that it is
        over."""
        if self._published is not None:
            missing = (x for x in self._published.anomalies if x.kind in ("MissingLink", "MissingSwitch"))
            self._anomalies.forget(by_link(missing))

    def tick(self, now_ns: int) -> Decision:
        """Process the passing of time."""
        return self._decide(self._advance(now_ns))

    def approve(self, generation: int, now_ns: int) -> Decision:
        """Publish the waiting tree at once.

        Raises GenerationNotHeldError if `generation` is not the one that waits.
        """
        now_ns = self._advance(now_ns)
        if (held := self._membership.held) is None:
            raise GenerationNotHeldError(f"generation {generation} is not held: no generation is held")
        if held.generation != generation:
            raise GenerationNotHeldError(
                f"generation {generation} is not held: generation {held.generation} is held"
            )
        return self._decide(now_ns, Approve())

    def _advance(self, now_ns: int) -> int:
        self._now_ns = max(self._now_ns, now_ns)
        return self._now_ns

    # -- input ----------------------------------------------------------------------------------------------

    def _compared(self, offered: Topology, last: Topology | None, now_ns: int) -> Offer:
        """Returns how the members of an offered tree differ from the published ones."""
        before = self._published
        is_repeat = last is not None and same_members(last, offered)
        same = before is not None and same_members(before, offered)
        removed = NO_LOSS if before is None or same else loss(before, offered)
        lost = removed
        if self._new_until_ns is not None and now_ns < self._new_until_ns and not lost.nodes:
            # Accelerator domains that appear shortly after the cables, for the whole cluster or the newest
            # nodes. No scheduler relies on these tiers yet.
            grew = before is not None and len(offered.hypernodes) >= len(before.hypernodes)
            if before is None or grew or _only_accelerators(before, lost):
                lost = NO_LOSS
        hypernodes = before.hypernodes if before is not None else ()
        return Offer(
            is_repeat=is_repeat,
            has_content=_has_content(offered),
            same=same,
            lost=lost,
            removed=removed,
            back=self._membership.facts.removals.in_tree(offered),
            hypernodes=len(hypernodes),
            nodes={} if same else Counter(map(cluster_of, nodes_of(hypernodes))),
            is_empty=not offered.hypernodes,
            number=self._highest + 1,
        )

    def _observe(self, offered: Topology, facts: ConditionFacts, now_ns: int) -> None:
        known = {i for _, i, _ in self._anomalies.shown()} | {i for _, i, _ in self._anomalies.observed()}
        self._since = {key: since for key, since in self._since.items() if key in known}
        for x in offered.anomalies:
            self._since.setdefault(x.key, now_ns)
        # During a take-over the published topology is offered again, and says nothing about what is over.
        held_back = by_link(x for x in offered.anomalies if x.is_over)
        observed = by_link(offered.anomalies)
        self._anomalies.forget(self._of_missing_switches(offered, observed))
        self._anomalies.observe(observed, now_ns, unknown=held_back)
        self._absent.observe(_absent(offered), now_ns)
        self._down.observe({node: {"": why} for node, why in facts.down_nodes.items()}, now_ns)
        stale = {node: {"": seen} for node, seen in facts.stale.items()}
        if (held := self._membership.held) is not None:
            # These nodes are still published, but no evidence supports them.
            stale = {node: {"": held.since_ns} for node in held.removes_nodes} | stale
        self._stale.observe(stale, now_ns)
        self._silent.observe({id_: {"": seen} for id_, seen in facts.stale_switches.items()}, now_ns)
        self._failing.observe({"": {"": facts.failing}} if facts.failing else {}, now_ns)

    def _of_missing_switches(self, offered: Topology, observed: Collection[LinkKey]) -> list[LinkKey]:
        """Returns the links that are missing as a part of a missing switch: they have not come up."""
        switches = {x.subject.device for x in offered.anomalies if x.kind == "MissingSwitch"}
        return [
            link
            for link, _, x in self._anomalies.shown()
            if x.kind == "MissingLink" and link not in observed and any(end[0] in switches for end in link)
        ]

    def _see(self, offered: Topology) -> None:
        """The first evidence of a member since the start, or since it was gone, is no flapping: it shows at
        once."""
        published = nodes_of(self._published.hypernodes) if self._published is not None else frozenset()
        first = self._first.of(nodes_of(offered.hypernodes), offered.nodes_without_evidence, published)
        self._absent.forget(first & published)

    # -- output ---------------------------------------------------------------------------------------------

    def _decide(self, now_ns: int, event: Tick | Approve = _TICK) -> Decision:
        if (offered := self._offered) is None:
            return Decision()
        held, publish = self._membership.held, None
        take = self._membership.handle(event, now_ns)
        if take or (self._published is not None and self._condition_due(now_ns)):
            publish = self._next(offered, now_ns, held if take else None, take=take)
        return Decision(publish, self._membership.held, self._wake_ns(now_ns))

    def _dampers_due_ns(self) -> int | None:
        dues = [damper.next_due_ns() for damper in self._dampers]
        return min((due for due in dues if due is not None), default=None)

    def _condition_due(self, now_ns: int) -> bool:
        return any(
            due is not None and due <= now_ns for due in (self._dampers_due_ns(), self._details_due_ns)
        )

    def _wake_ns(self, now_ns: int) -> int | None:
        dues = [self._membership.due_ns]
        if self._published is not None:
            dues += [self._dampers_due_ns(), self._details_due_ns]
        return min((max(due, now_ns + 1) for due in dues if due is not None), default=None)

    def _next(self, offered: Topology, now_ns: int, held: HeldTree | None, *, take: bool) -> Topology | None:
        """Returns the next generation, or None if it would equal the one before.

        `take`: with the members of the offered tree. `held`: that tree was held until now.
        """
        before = self._published
        tree = offered if take or before is None else before
        if take and before is not None:
            # A node that joins the tree has evidence: that it lacked evidence before is no flapping.
            joined = nodes_of(tree.hypernodes) - nodes_of(before.hypernodes)
            self._absent.forget(joined.difference(offered.nodes_without_evidence))
        for damper in self._dampers:
            damper.show(now_ns)
        wires = with_waiting(offered, before or offered, tree, list(self._anomalies.waiting()))
        if take or before is None or is_due(before, offered):
            wires = renewed(wires, offered, before)
        else:
            wires = replace(wires, tiers=before.tiers)
        shown = ((x, self._anomalies.flapping(link)) for link, _, x in self._anomalies.shown())
        anomalies = self._dated(with_flapping(shown, offered), self._since)
        facts = ConditionFacts(
            _reasons(self._absent, self._down),
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
            self._conditions,
        )
        if before is not None:
            built = sharing(built, before)
        hypernodes = stamped(built.hypernodes, before, now_ns)
        self._details, self._details_due_ns = offered, None
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
        if held is None or held.generation != self._highest:
            self._highest += 1
        if before is None:
            self._new_until_ns = now_ns + round(self._settings.new_s * NS)
        self._published = replace(built, generation=self._highest, hypernodes=hypernodes)
        return self._published


def _absent(topology: Topology) -> dict[str, dict[str, str]]:
    return {node: {"": NO_EVIDENCE} for node in topology.nodes_without_evidence}


def _reasons(*reasons: Damper[str, str, str]) -> dict[str, str]:
    """Returns why nodes are not ready. If all reasons of a node are over: since when, and until when it is
    shown. Of two that hold, the last is shown."""
    found: dict[str, tuple[float, str]] = {}  # until when, and the text
    for nodes in reasons:
        for node, item, why in nodes.shown():
            until_ns, text, flapping = inf, why, nodes.flapping(node)
            if flapping is not None and item in flapping.gone:
                until_ns = flapping.clears_ns
                text = f"{why}; {over_since('over', flapping.changed_ns, flapping.flaps, flapping.clears_ns)}"
            if node not in found or until_ns >= found[node][0]:
                found[node] = until_ns, text
    return {node: text for node, (_, text) in found.items()}


def _only_accelerators(before: Topology, lost: Loss) -> bool:
    """Whether only accelerator domains disappear, as when single hosts turn out to be in one rack."""
    gone = (h for h in before.hypernodes if h.name in lost.hypernodes)
    return lost.tiers is None and all(tier_level(h.tier_name) == 0 for h in gone)


def _has_content(topology: Topology) -> bool:
    t = topology
    return any((t.hypernodes, t.switches, t.links, t.anomalies, t.nodes_without_evidence))
