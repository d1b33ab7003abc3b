"""Lists the changes from one generation to another as events that a person can read and search.

The events of a difference always have the same order. A change is reported once: a condition that is about
links makes an event only when its status or reason changes, because anomalies report the links.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from hyperscout_formats.text.counts import count

from hyperscout_topology.diff import Changes, Diff
from hyperscout_topology.health import HEALTHY
from hyperscout_topology.memo import memoized, names_of_adapters, nodes_of_adapters
from hyperscout_topology.topology import (
    Anomaly,
    Condition,
    Endpoint,
    HyperNode,
    Link,
    Switch,
    Topology,
    say,
    undamped,
)

_APART = re.compile(r"\s+(?:--|->)\s+")  # as messages contain it
# The order of events within a generation. The generation is last, so that it comes first in a list with the
# newest event at the top.
KINDS = (
    "LinkRemoved",
    "LinkAdded",
    "SwitchRemoved",
    "SwitchAdded",
    "NodeRemoved",
    "NodeMoved",
    "NodeAdded",
    "HyperNodeRemoved",
    "HyperNodeMoved",
    "HyperNodeAdded",
    "AnomalyCleared",
    "AnomalyAppeared",
    "ConditionChanged",
    "GenerationPublished",
)
_WORDS = {
    "LinkRemoved": ("link", "removed"),
    "LinkAdded": ("link", "added"),
    "SwitchRemoved": ("switch", "removed"),
    "SwitchAdded": ("switch", "added"),
    "NodeRemoved": ("node", "removed"),
    "NodeMoved": ("node", "moved"),
    "NodeAdded": ("node", "added"),
    "HyperNodeRemoved": ("HyperNode", "removed"),
    "HyperNodeMoved": ("HyperNode", "moved"),
    "HyperNodeAdded": ("HyperNode", "added"),
    "AnomalyCleared": ("anomaly", "cleared"),
    "AnomalyAppeared": ("anomaly", "appeared"),
    "ConditionChanged": ("condition", "changed"),
}
_UNTOLD = frozenset({"Ready", "Stale"})  # conditions that no anomaly describes by node
MAX_OF_A_KIND = 1000  # in one generation, so that an outage of a fabric stays readable


def ends_in(text: str) -> list[str]:
    """The two ends in the name of a link, as messages and `get links -o name` write it; else the name."""
    ends, ids = _APART.split(text), text.split("--")
    return ids if len(ends) == 1 and all(":" in end for end in ids) else ends


@dataclass(frozen=True, slots=True)
class Event:
    """A change, with the fields of the API's `HistoryEvent` except those that the history adds.

    `nodes`: all nodes that it is about besides `node`, sorted; `message` names only the first few.
    """

    kind: str
    message: str
    hypernode: str = ""
    node: str = ""
    subject: Endpoint | None = None
    peer: Endpoint | None = None
    what: str = ""
    before: str = ""
    after: str = ""
    reason: str = ""
    nodes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def thing(self) -> str:
        """An identity of what changed, by which its changes can be counted; "" = no single thing."""
        sort = _WORDS.get(self.kind, ("", ""))[0]
        if sort in ("link", "switch", "anomaly"):
            if self.subject is None:
                return ""
            ends = [(x.device, x.port or "") for x in (self.subject, self.peer) if x is not None]
            return "\x1f".join((sort, self.what, *(part for end in ends for part in end)))
        name = self.node if sort == "node" else self.hypernode
        return "\x1f".join((sort, self.what, name)) if sort and name else ""

    @property
    def is_flip(self) -> bool:
        """Whether the thing itself changed, and not only its description."""
        return self.kind != "ConditionChanged" or self.before != self.after


def events(diff: Diff) -> list[Event]:
    """The events of a difference, by kind and name."""
    homes = _Home(diff.old), _Home(diff.new)
    found = [
        *_links(diff.links, homes),
        *_switches(diff.switches, homes),
        *_nodes(diff.old, diff.new),
        *_hypernodes(diff.hypernodes),
        *_anomalies(diff.anomalies, homes),
        *_conditions(diff.hypernodes),
    ]
    rank = {kind: i for i, kind in enumerate(KINDS)}
    return sorted(found, key=lambda x: rank[x.kind])  # stable: by name within a kind


def published(diff: Diff, changes: Sequence[Event], missed: int = 0) -> Event | None:
    """The event of the generation itself; None when only times and measured values changed.

    `missed`: generations in between that were not recorded.
    """
    if changes:
        what = summary(changes)
    elif diff.old.foreign_endpoints != diff.new.foreign_endpoints:
        what = "foreign endpoints changed"
    elif not missed and not diff.links:
        return None
    else:
        what = "details of links changed" if not missed else "nothing else changed"
    return Event("GenerationPublished", what + _missed(missed))


def first_published(new: Topology, missed: int = 0) -> Event:
    """The event of a generation without a known one before it. `missed`: as of `published`."""
    what = f"the first that is recorded: {count(len(new.hypernodes), 'HyperNode')}"
    return Event("GenerationPublished", what + _missed(missed))


def _missed(missed: int) -> str:
    return f"; {count(missed, 'generation')} before it could not be recorded" if missed else ""


def summary(changes: Iterable[Event]) -> str:
    """The number of changes of each kind: "1 link removed, 2 conditions changed"."""
    counts = Counter(x.kind for x in changes)
    return ", ".join(
        f"{count(counts[kind], word)} {verb}" for kind, (word, verb) in _WORDS.items() if counts[kind]
    )


def bounded(changes: Sequence[Event], most: int = MAX_OF_A_KIND) -> list[Event]:
    """At most `most` events of each kind; `changes` are sorted by kind.

    Where a kind has more events, the last one counts the rest and has all of their nodes.
    """
    found: list[Event] = []
    for kind, group in groupby(changes, key=lambda x: x.kind):
        same = list(group)
        if len(same) > most:
            rest = same[most - 1 :]
            message = f"{len(rest)} more; `hyperscout diff --since` lists the remaining differences"
            nodes = {node for x in rest for node in (x.node, *x.nodes) if node}
            same[most - 1 :] = [Event(kind, message, nodes=tuple(sorted(nodes)))]
        found += same
    return found


_Place = tuple[int, str]  # tier and name of a HyperNode


def _lowest(members: tuple[tuple[_Place, tuple[str, ...]], ...]) -> dict[str, _Place]:
    """Return the lowest HyperNode of each member."""
    found: dict[str, _Place] = {}
    for place, names in sorted(members):
        for name in names:
            found.setdefault(name, place)
    return found


# In successive generations members seldom change.
_homes_of_nodes, _homes_of_switches = memoized(_lowest), memoized(_lowest)


class _Home:
    """The lowest HyperNode of nodes and switches, and display names of devices; computed on demand."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._called: dict[str, str] = {}
        self._adapters: dict[str, str] = {}

    @cached_property
    def _nodes(self) -> dict[str, _Place]:
        leaves = (h for h in self._topology.hypernodes if not h.children)
        return _homes_of_nodes(tuple(((h.tier, h.name), h.nodes) for h in leaves))

    @cached_property
    def _switches(self) -> dict[str, _Place]:
        return _homes_of_switches(tuple(((h.tier, h.name), h.switches) for h in self._topology.hypernodes))

    @cached_property
    def _silent(self) -> frozenset[str]:
        return frozenset(self._topology.nodes_without_evidence)

    def of(self, *names: str) -> str:
        """The lowest HyperNode that contains one of these; "" = none."""
        homes = [home[name] for home in (self._nodes, self._switches) for name in names if name in home]
        return min(homes)[1] if homes else ""

    def node(self, *names: str) -> str:
        """The first of these names that is a node; "" = none is."""
        return next((name for name in names if name in self._nodes or name in self._silent), "")

    def call(self, devices: set[str]) -> None:
        """Load the display names of these devices."""
        nodes = nodes_of_adapters(self._topology.adapters)
        self._adapters = names_of_adapters(self._topology.adapters)
        self._called = {device: nodes[device] for device in devices if device in nodes}
        self._called |= {s.id: s.name for s in self._topology.switches if s.id in devices and s.name}

    def end(self, device: str, port: str) -> Endpoint:
        """An end of a link, named as anomalies name it."""
        name = self._called.get(device, device)
        return Endpoint(device, name, port or None, self._adapters.get(device, ""))


_Homes = tuple[_Home, _Home]


def _links(changes: Changes[Link], homes: _Homes) -> Iterable[Event]:
    """Links that were removed or added. A change of sources, fabric or note makes no event."""
    before, after = {_ends(x) for x in changes.removed}, {_ends(x) for x in changes.added}
    for kind, word, links, others, home in (
        ("LinkRemoved", "was removed", changes.removed, after, homes[0]),
        ("LinkAdded", "was added", changes.added, before, homes[1]),
    ):
        home.call({device for x in links for device in (x.a_device, x.b_device)})
        for link in sorted({_ends(x): x for x in links if _ends(x) not in others}.values()):
            yield _link(kind, word, link, home)


def _link(kind: str, word: str, link: Link, home: _Home) -> Event:
    a, b = home.end(link.a_device, link.a_port), home.end(link.b_device, link.b_port)
    seen = f", seen by {', '.join(link.sources)}" if kind == "LinkAdded" and link.sources else ""
    names = (a.device, a.name, b.device, b.name)
    message = f"{say(a)} -- {say(b)} of {link.fabric} {word}{seen}"
    return Event(kind, message, home.of(*names), home.node(*names), a, b)


def _ends(link: Link) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(((link.a_device, link.a_port), (link.b_device, link.b_port))))


def _switches(changes: Changes[Switch], homes: _Homes) -> Iterable[Event]:
    for kind, word, switches, home in (
        ("SwitchRemoved", "was removed", changes.removed, homes[0]),
        ("SwitchAdded", "was added", changes.added, homes[1]),
    ):
        for s in sorted(switches, key=lambda s: (s.name, s.id)):
            name, level = s.name or s.id, f", level {s.level}," if s.level else ""
            yield Event(kind, f"switch {name}{level} {word}", home.of(s.id), subject=Endpoint(s.id, name))


def _nodes(old: Topology, new: Topology) -> Iterable[Event]:
    """Nodes by their HyperNode of tier 1; "" = an expected node that no fabric shows."""
    if _members(old) == _members(new) and old.nodes_without_evidence == new.nodes_without_evidence:
        return
    was, now = _node_homes(old), _node_homes(new)
    for node in sorted(node for node in was.keys() | now.keys() if was.get(node) != now.get(node)):
        before, after = was.get(node), now.get(node)
        if before is None:
            message = f"{node} was added to {after}" if after else f"{node} was added; no fabric shows it"
            yield Event("NodeAdded", message, after or "", node, after=after or "")
        elif after is None:
            yield Event("NodeRemoved", f"{node} was removed", before, node, before=before)
        else:
            message = f"{node} moved from {before or 'no HyperNode'} to {after or 'no HyperNode'}"
            reason = "" if after else "NoEvidence"
            yield Event(
                "NodeMoved", message, after or before, node, before=before, after=after, reason=reason
            )


def _members(topology: Topology) -> list[tuple[str, tuple[str, ...]]]:
    return [(h.name, h.nodes) for h in topology.hypernodes if not h.children]


def _node_homes(topology: Topology) -> dict[str, str]:
    found = dict.fromkeys(topology.nodes_without_evidence, "")
    found.update((node, h.name) for h in topology.hypernodes if not h.children for node in h.nodes)
    return found


def _hypernodes(changes: Changes[HyperNode]) -> Iterable[Event]:
    for h in sorted(changes.removed, key=_name):
        yield Event("HyperNodeRemoved", f"{_about(h)} was removed", h.name, before=h.parent or "")
    for h in sorted(changes.added, key=_name):
        yield Event("HyperNodeAdded", f"{_about(h)} was added", h.name, after=h.parent or "")
    for a, b in sorted(changes.changed, key=lambda pair: pair[0].name):
        before, after = a.parent or "", b.parent or ""
        if before != after:
            message = f"{a.name} moved from {before or 'the top'} to {after or 'the top'}"
            yield Event("HyperNodeMoved", message, a.name, before=before, after=after)
        elif (a.tier, a.tier_name) != (b.tier, b.tier_name):
            message = f"{a.name}: tier {a.tier} {a.tier_name} is tier {b.tier} {b.tier_name} now"
            yield Event("HyperNodeMoved", message, a.name, before=after, after=after, reason="TierChanged")


def _name(h: HyperNode) -> str:
    return h.name


def _about(h: HyperNode) -> str:
    return f"{h.name} (tier {h.tier} {h.tier_name}, {count(len(h.nodes), 'node')})"


def _anomalies(changes: Changes[Anomaly], homes: _Homes) -> Iterable[Event]:
    for x in sorted(changes.removed, key=lambda x: x.key):
        yield _anomaly("AnomalyCleared", x, homes[0])
    for x in sorted(changes.added, key=lambda x: x.key):
        yield _anomaly("AnomalyAppeared", x, homes[1])


def _anomaly(kind: str, x: Anomaly, home: _Home) -> Event:
    names = [text for end in (x.subject, x.peer) if end is not None for text in (end.device, end.name)]
    message = f"over: {undamped(x).message}" if kind == "AnomalyCleared" else x.message
    return Event(
        kind,
        message,
        x.hypernode or "",
        home.node(*names),
        x.subject,
        x.peer,
        what=x.kind,
        reason=x.kind,
        nodes=x.nodes,
    )


def _conditions(changes: Changes[HyperNode]) -> Iterable[Event]:
    """Changes of the conditions of existing HyperNodes, and unhealthy conditions of new ones.

    `nodes` of an event are those that the condition is about only now or was about only before.
    """
    was = {before.name: before.conditions for before, _ in changes.changed}
    for h in sorted(changes.put, key=_name):
        former = {c.type: c for c in was.get(h.name, ())}
        for c in h.conditions:
            a = former.get(c.type)
            if _is_news(a, c):
                nodes = sorted({*(a.nodes if a else ())} ^ {*c.nodes})
                yield Event(
                    "ConditionChanged",
                    c.message,
                    h.name,
                    nodes[0] if len(nodes) == 1 else "",
                    what=c.type,
                    before=a.status if a else "",
                    after=c.status,
                    reason=c.reason,
                    nodes=tuple(nodes),
                )


def _is_news(before: Condition | None, now: Condition) -> bool:
    if before is None:
        return now.status != HEALTHY.get(now.type, now.status)
    if (before.status, before.reason) != (now.status, now.reason):
        return True
    if now.type not in _UNTOLD or now.status == HEALTHY[now.type]:
        return False
    return (before.message, before.nodes) != (now.message, now.nodes)
