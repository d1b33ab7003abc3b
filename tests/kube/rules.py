"""What a scheduler suffers from in a tree of HyperNodes: each write is replayed, and each state is judged.

The rules are those of a consumer (docs/publishers/kubernetes.md): a state that breaks one, if only for a
moment, stops or crashes it. Pure; `recorder` feeds it with what really happened on a server.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]

OURS = "hyperscout"
LABELS = {"volcano.sh/network-topology-source": OURS, "app.kubernetes.io/managed-by": OURS}
# A child that was deleted under its parent is one that is missing from then on: the same trouble.
_LASTING = {"deleted-child": "missing-child"}


@dataclass(frozen=True, slots=True)
class Event:
    """One write. `before` is None for a creation, `after` for a deletion; `by`: a field manager or ""."""

    revision: int
    name: str
    before: Object | None
    after: Object | None
    by: str = OURS

    @property
    def what(self) -> str:
        if self.before is None:
            return "created"
        return "deleted" if self.after is None else "changed"


@dataclass(frozen=True, slots=True)
class Problem:
    """A rule that a write broke. `subject` is the HyperNode or node that it is about."""

    rule: str
    subject: str
    text: str
    event: Event

    def __str__(self) -> str:
        event = self.event
        by = f" by {event.by}" if event.by else ""
        return f"{self.rule}: {self.text} (revision {event.revision}: {event.name} {event.what}{by})"


@dataclass(frozen=True, slots=True)
class _Seen:
    """A HyperNode as a scheduler reads it. `nodes` also holds what selects nodes other than by name."""

    tier: int
    tier_name: str
    children: tuple[str, ...]
    nodes: tuple[str, ...]
    vague: tuple[str, ...]  # HyperNode members that are not named
    ours: bool


def is_ours(thing: Object) -> bool:
    labels = thing["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in LABELS.items())


def _read(thing: Object) -> _Seen:
    spec = thing.get("spec") or {}
    children, nodes, vague = [], [], []
    for member in spec.get("members") or []:
        selector = member.get("selector") or {}
        name = (selector.get("exactMatch") or {}).get("name")
        if member.get("type") == "HyperNode":
            children += [name] if name else []
            vague += [] if name else [json.dumps(selector, sort_keys=True)]
        else:
            nodes.append(name or json.dumps(selector, sort_keys=True))
    return _Seen(
        int(spec.get("tier", 0)),
        str(spec.get("tierName") or ""),
        tuple(children),
        tuple(nodes),
        tuple(vague),
        is_ours(thing),
    )


@dataclass
class Replay:
    """The tree after each write. `problems` are breaches by us, `others` breaches by other clients."""

    objects: dict[str, Object] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    others: list[Problem] = field(default_factory=list)
    notes: set[str] = field(default_factory=set)
    _tree: dict[str, _Seen] = field(default_factory=dict)
    _broken: dict[tuple[str, str], str] = field(default_factory=dict)
    _headless: dict[str, Event] = field(default_factory=dict)  # whose root is gone: they must follow

    def start_with(self, thing: Object) -> None:
        """A HyperNode that was there before the first write."""
        name = thing["metadata"]["name"]
        self.objects[name] = thing
        self._tree[name] = _read(thing)
        self._broken = dict(_breaches(self._tree, Event(0, "", None, None)))

    def take(self, event: Event) -> None:
        """The next write. Writes must come in order, none left out."""
        for rule, text in _conduct(event):
            self._report(Problem(rule, event.name, text, event))
        seen = None if event.after is None else _read(event.after)
        if seen is None:
            self.objects.pop(event.name, None)
        else:
            assert event.after is not None
            self.objects[event.name] = event.after
        if seen == self._tree.get(event.name):
            return
        self._roots(event, seen)
        if seen is None:
            self._tree.pop(event.name, None)
        else:
            self._tree[event.name] = seen
        broken = dict(_breaches(self._tree, event))
        before = {(_LASTING.get(rule, rule), subject) for rule, subject in self._broken}
        for (rule, subject), text in broken.items():
            if (_LASTING.get(rule, rule), subject) not in before:
                self._report(Problem(rule, subject, text, event))
        self._broken = broken
        self.notes |= _notes(self._tree)

    def unfinished(self) -> list[Problem]:
        """Roots that went while others lived on, as it stands now."""
        left = defaultdict(list)
        for name, event in self._headless.items():
            left[event.revision].append((name, event))
        return [
            Problem("root-gone", e[0][1].name, f"{sorted(n for n, _ in e)} live on", e[0][1])
            for e in left.values()
        ]

    def _report(self, problem: Problem) -> None:
        (self.problems if problem.event.by in {"", OURS} else self.others).append(problem)

    def _roots(self, event: Event, seen: _Seen | None) -> None:
        """A top root may go only as the first of all that is below it."""
        gone = self._tree.get(event.name)
        if seen is not None:
            if seen.ours and self._headless:
                waiting = {
                    name: e
                    for name, e in self._headless.items()
                    if name == event.name or name in seen.children
                }
                for root in {e.revision: e for e in waiting.values()}.values():
                    text = f"gone while others lived: {event.name} was written after it"
                    self._report(Problem("root-gone", root.name, text, root))
                for name in waiting:
                    del self._headless[name]
            return
        self._headless.pop(event.name, None)
        if gone is None or not gone.ours:
            return
        top = max(other.tier for other in self._tree.values() if other.ours)
        if gone.tier == top and event.name not in _parents(self._tree):
            for name in _below(self._tree, event.name):
                self._headless[name] = event


def _conduct(event: Event) -> Iterator[tuple[str, str]]:
    """What one write does wrong by itself: (rule, what)."""
    before, after = event.before, event.after
    if before is not None and not is_ours(before):
        yield "foreign", f"{event.name} is not ours and was {event.what}"
    elif after is not None and not is_ours(after):
        yield "foreign", f"{event.name} was {event.what} without our labels"
    if before is not None and after is not None and _content(before) == _content(after):
        yield "idle", f"{event.name} was written with no difference"


def _content(thing: Object) -> Object:
    kept = {"managedFields", "resourceVersion", "generation"}
    return thing | {"metadata": {k: v for k, v in thing["metadata"].items() if k not in kept}}


def _breaches(tree: dict[str, _Seen], event: Event) -> Iterator[tuple[tuple[str, str], str]]:
    """Rules that a state breaks: ((rule, subject), what)."""
    for child, parents in _parents(tree).items():
        if len(parents) > 1:
            yield ("two-parents", child), f"{child} is in {', '.join(sorted(parents))}"
        for parent in sorted(parents):
            if child not in tree:
                deleted = child == event.name
                how = "was deleted while" if deleted else "does not exist, and"
                rule = "deleted-child" if deleted else "missing-child"
                yield (rule, f"{parent}/{child}"), f"{child} {how} {parent} names it"
            elif tree[parent].tier <= tree[child].tier:
                text = f"{parent} (tier {tree[parent].tier}) is above {child} (tier {tree[child].tier})"
                yield ("tiers", f"{parent}/{child}"), text
    for ring in _rings(tree):
        yield ("cycle", min(ring)), f"{' -> '.join(ring)} -> {ring[0]}"
    leaves = defaultdict(set)
    for name, seen in tree.items():
        for node in seen.nodes:
            leaves[node].add(name)
        for selector in seen.vague:
            yield ("unnamed-child", name), f"{name} names a child by {selector}: it is not read"
    for node, names in leaves.items():
        if len(names) > 1:
            yield ("two-leaves", node), f"node {node} is in {', '.join(sorted(names))}"


def _parents(tree: dict[str, _Seen]) -> dict[str, set[str]]:
    parents: dict[str, set[str]] = defaultdict(set)
    for name, seen in tree.items():
        for child in seen.children:
            parents[child].add(name)
    return parents


def _below(tree: dict[str, _Seen], name: str) -> set[str]:
    """All that lives below a HyperNode."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for child in tree[waiting.pop()].children:
            if child in tree and child not in found and child != name:
                found.add(child)
                waiting.append(child)
    return found


def _rings(tree: dict[str, _Seen]) -> Iterator[list[str]]:
    """Each cycle once, as a path."""
    done: set[str] = set()
    for start in tree:
        path: list[str] = []
        stack = [(start, 0)]
        while stack:
            name, depth = stack.pop()
            del path[depth:]
            if name in path:
                yield path[path.index(name) :]
            if name in done or name not in tree:
                continue
            done.add(name)
            path.append(name)
            stack += [(child, depth + 1) for child in tree[name].children]


def _notes(tree: dict[str, _Seen]) -> set[str]:
    names = defaultdict(set)
    for seen in tree.values():
        names[seen.tier].add(seen.tier_name)
    return {f"tier {tier} is called {sorted(called)}" for tier, called in names.items() if len(called) > 1}
