"""Order of writes to HyperNodes such that no intermediate state harms a reader. Performs no I/O.

A scheduler that reads HyperNodes stops every topology job if one has two parents, even briefly. It may crash
if one is deleted while its parent still names it. So a write is sent only if it is safe in the current state:
its new members have no other parent, the children that it names exist, and tiers stay in order. Other writes
wait. If two writes wait for each other, a parent first removes the members that belong elsewhere. Deletions
come last and proceed from the root downwards. The documentation of this publisher has more details.

`next_writes` returns the writes that may be sent now, in any order or in parallel. The caller calls it again
when they are done. So a failed write or a concurrent change needs no special handling.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from hyperscout_publish.hypernodes.wanted import (
    KIND,
    MEASURED_ANNOTATIONS,
    NODES_ANNOTATION,
    OWNER_LABELS,
    Wanted,
    settled,
)

EXACT = "exactMatch"
NOTHING: Mapping[str, str] = MappingProxyType({})


class Member(NamedTuple):
    """`kind`: Node or HyperNode. `how`: the selector type. `value`: the name, or the selector as JSON."""

    kind: str
    how: str
    value: str


Members = frozenset[Member]


@dataclass(frozen=True, slots=True)
class Present:
    """A HyperNode on the API server.

    `ours`: it has this collector's labels. `going`: it is deleted, but a finalizer keeps it.
    `annotations`: annotations with measured figures that this collector wrote, sorted.
    """

    name: str
    ours: bool
    tier: int
    tier_name: str
    members: Members
    nodes_annotation: str = ""
    going: bool = False
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Create:
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class Update:
    """Make the HyperNode match `wanted`."""

    wanted: Wanted


@dataclass(frozen=True, slots=True)
class LetGo:
    """Remove members and change nothing else. `left`: members that stay; may be empty."""

    name: str
    left: Members


@dataclass(frozen=True, slots=True)
class Delete:
    name: str


Write = Create | Update | LetGo | Delete


def name_of(write: Write) -> str:
    """The HyperNode that a write is about."""
    return write.name if isinstance(write, LetGo | Delete) else write.wanted.name


@dataclass(frozen=True, slots=True)
class WritePlan:
    """`writes`: to be sent now; empty if all is as wanted except `stuck` (name -> reason)."""

    writes: tuple[Write, ...]
    stuck: Mapping[str, str] = field(default_factory=dict)


def is_ours(found: Mapping[str, Any]) -> bool:
    """Return whether a HyperNode has both labels of this collector. Others are never changed."""
    labels = (found.get("metadata") or {}).get("labels") or {}
    return all(labels.get(key) == value for key, value in OWNER_LABELS.items())


def present(found: Mapping[str, Any]) -> Present:
    """Return the relevant part of a HyperNode that the API server returned. The server checked its schema.

    If `found` has `owned`, only those annotations count: others were written by other clients.
    """
    metadata, spec = found["metadata"], found.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    owned = found.get("owned", MEASURED_ANNOTATIONS)
    return Present(
        metadata["name"],
        is_ours(found),
        spec.get("tier") or 0,
        spec.get("tierName") or "",
        members_of(spec.get("members") or ()),
        str(annotations.get(NODES_ANNOTATION, "")),
        bool(metadata.get("deletionTimestamp")),
        tuple(
            (key, str(annotations[key]))
            for key in MEASURED_ANNOTATIONS
            if key in annotations and key in owned
        ),
    )


def members_of(members: Any) -> Members:
    """Return `spec.members` as values that compare equal in any order."""
    return frozenset(_member(member) for member in members)


def _member(member: Mapping[str, Any]) -> Member:
    kind, selector = str(member.get("type")), member.get("selector") or {}
    if len(selector) == 1 and EXACT in selector and list(selector[EXACT]) == ["name"]:
        return Member(kind, EXACT, selector[EXACT]["name"])
    return Member(kind, ",".join(sorted(selector)), json.dumps(selector, sort_keys=True))


class _World:
    """The existing HyperNodes, and the parents of each member."""

    def __init__(self, there: Mapping[str, Present], wanted: Mapping[str, Wanted]) -> None:
        self.there = there
        self.wanted = wanted
        self.target = {name: members_of(w.members()) for name, w in wanted.items()}
        self.holders: dict[Member, set[str]] = {}
        for name, p in there.items():
            for member in p.members:
                # A node in a HyperNode of another owner is an overlap, which `overlap` handles.
                if member.how == EXACT and (p.ours or member.kind == KIND):
                    self.holders.setdefault(member, set()).add(name)

    def parents(self, name: str) -> set[str]:
        return self.holders.get(Member(KIND, EXACT, name), set())

    def is_done(self, w: Wanted) -> bool:
        p = self.there.get(w.name)
        return (
            p is not None
            and p.members == self.target[w.name]
            and (p.tier, p.tier_name, p.nodes_annotation) == (w.tier, w.tier_name, str(w.count))
            and p.annotations == w.annotations
        )

    def hindrance(self, w: Wanted) -> str | None:
        """Return why `w` may not be written now; None if it may."""
        p = self.there.get(w.name)
        if p is not None and not p.ours:
            return "a HyperNode of this name exists that hyperscout does not manage"
        for member in self.target[w.name]:
            held_by = self.holders.get(member, set()) - {w.name}
            if held_by:
                return f"{member.kind} {member.value} is a member of {', '.join(sorted(held_by))}"
            if member.kind == KIND:
                child = self.there.get(member.value)
                if child is None:
                    return f"HyperNode {member.value} does not exist"
                if child.tier >= w.tier:
                    return f"HyperNode {member.value} has tier {child.tier}"
        for parent in self.parents(w.name):
            if self.there[parent].tier <= w.tier:
                return f"its parent {parent} has tier {self.there[parent].tier}"
        return None

    def lets_go(self) -> Iterator[LetGo]:
        """Yield writes that remove members from the wrong parents."""
        needed = frozenset().union(*self.target.values())
        for name, p in sorted(self.there.items()):
            left = p.members & self.target[name] if name in self.wanted else p.members - needed
            if p.ours and left != p.members:
                yield LetGo(name, left)


def as_it_settles(wanted: Mapping[str, Wanted], there: Mapping[str, Present]) -> dict[str, Wanted]:
    """Return the tree with published figures kept if they differ little, so a steady state writes nothing."""
    return {
        name: settled(w, dict(there[name].annotations)) if name in there else w for name, w in wanted.items()
    }


def next_writes(
    there: Mapping[str, Present], wanted: Mapping[str, Wanted], failed: Mapping[str, str] = NOTHING
) -> WritePlan:
    """Return the writes that are safe now, in linear time. `failed`: objects not to retry, with reasons."""
    world = _World(there, wanted)
    waiting = [w for w in wanted.values() if not world.is_done(w)]
    hindered = {w.name: why for w in waiting if (why := failed.get(w.name) or world.hindrance(w)) is not None}
    free = [Update(w) if w.name in there else Create(w) for w in waiting if w.name not in hindered]
    if free:
        return WritePlan(tuple(free))
    if hindered.keys() - failed.keys() and (
        lets_go := tuple(x for x in world.lets_go() if x.name not in failed)
    ):
        return WritePlan(lets_go)
    gone = [name for name, p in sorted(there.items()) if p.ours and name not in wanted]
    deletes = tuple(
        Delete(name)
        for name in gone
        if name not in failed and not there[name].going and not world.parents(name)
    )
    if deletes:
        return WritePlan(deletes, hindered)
    return WritePlan((), hindered | {name: failed.get(name) or _named(world, name) for name in gone})


def _named(world: _World, name: str) -> str:
    if world.there[name].going:
        return "it is being deleted, but has a finalizer"
    return f"it is to be deleted, but is still a member of {', '.join(sorted(world.parents(name)))}"
