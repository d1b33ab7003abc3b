"""The difference of two topologies, by kind of object.

Delta messages (`proto`), steps on disk (`frames`), events (`events`) and the lines of `hyperscout diff` are
derived from it. `proto.apply` is the inverse.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import attrgetter, is_, ne
from typing import Generic, TypeVar

from hyperscout_topology.link_changes import link_changes
from hyperscout_topology.topology import Adapter, Anomaly, HyperNode, Link, Switch, Topology

T = TypeVar("T")
_SHAPE = attrgetter("name", "tier", "tier_name", "parent", "children", "nodes")


@dataclass(frozen=True, slots=True)
class Changes(Generic[T]):
    """The changes of one kind of object. `changed`: (before, after) of objects with the same identity."""

    added: tuple[T, ...] = ()
    removed: tuple[T, ...] = ()
    changed: tuple[tuple[T, T], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    @property
    def put(self) -> tuple[T, ...]:
        """The objects that are new or changed, as they are now."""
        return (*self.added, *(now for _, now in self.changed))


@dataclass(frozen=True)
class Diff:
    """The changes from `old` to `new`. Each kind is compared once, at its first use."""

    old: Topology
    new: Topology

    @cached_property
    def hypernodes(self) -> Changes[HyperNode]:
        """Identified by name."""
        return _changes(self.old.hypernodes, self.new.hypernodes, lambda h: h.name)

    @cached_property
    def switches(self) -> Changes[Switch]:
        """Identified by id."""
        return _changes(self.old.switches, self.new.switches, lambda s: s.id)

    @cached_property
    def anomalies(self) -> Changes[Anomaly]:
        """Identified by kind and ends."""
        return _changes(self.old.anomalies, self.new.anomalies, lambda x: x.key)

    @cached_property
    def adapters(self) -> Changes[Adapter]:
        """Sorted. A changed adapter is removed and added."""
        start, end = _alike(self.old.adapters, self.new.adapters)
        before, after = (set(x[start : len(x) - end]) for x in (self.old.adapters, self.new.adapters))
        return Changes(tuple(sorted(after - before)), tuple(sorted(before - after)))

    @cached_property
    def links(self) -> Changes[Link]:
        """A link with other sources, note, fabric, speed or width is removed and added.

        Takes 0.2 s for a million links.
        """
        added, removed = link_changes(self.old.links, self.new.links)
        return Changes(tuple(added), tuple(removed))


def _alike(old: Sequence[object], new: Sequence[object]) -> tuple[int, int]:
    """How many objects are equal at the start and at the end: of successive generations nearly all."""
    most = min(len(old), len(new))
    if old is new:
        return most, 0
    start = next((i for i, differ in enumerate(map(ne, old, new)) if differ), most)
    backwards = islice(map(ne, reversed(old), reversed(new)), most - start)
    return start, next((i for i, differ in enumerate(backwards) if differ), most - start)


def _changes(old: Iterable[T], new: Iterable[T], key: Callable[[T], object]) -> Changes[T]:
    if old == new:
        return Changes()
    before, after = {key(x): x for x in old}, {key(x): x for x in new}
    return Changes(
        tuple(x for k, x in after.items() if k not in before),
        tuple(x for k, x in before.items() if k not in after),
        tuple((before[k], x) for k, x in after.items() if k in before and before[k] != x),
    )


def same_members(a: Topology, b: Topology) -> bool:
    """Whether two trees have the same HyperNodes with the same members.

    Conditions and switches are ignored: a condition reports a missing switch at once.
    """
    same = len(a.hypernodes) == len(b.hypernodes) and all(map(is_, a.hypernodes, b.hypernodes))
    return same or list(map(_SHAPE, a.hypernodes)) == list(map(_SHAPE, b.hypernodes))
