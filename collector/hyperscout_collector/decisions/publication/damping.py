"""Damping: flapping in the fabric must not appear as flapping in what is published.

A `Damper` follows things by key (a link, a node). The observation of a thing is a set of items (anomalies of
a link). What is shown of it follows by these rules:

- The first change after a quiet time (`quiet_s`) is shown at once.
- After that the thing flaps. New items wait for one hold-down since the last change shown.
- Items that are gone stay shown until the shown items have neither gone nor come back for a hold-down, which
  doubles whenever they do. If the damper is to `tell` that, `flapping` returns until when they stay, as soon
  as they have been gone for a tenth of it, at most the shortest hold-down. It no longer does once they are
  back.
- The same items with other texts (a counter in a message) are shown after `quiet_s`, or with any other change
  that is shown.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from hyperscout_runtime.units import NS

_TOLD = 10  # the share of a hold-down after which it is told, as its inverse

K = TypeVar("K", bound=Hashable)
I = TypeVar("I", bound=Hashable)  # noqa: E741 - K, I, T: key, item, text of the item
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DampingSettings:
    """Settings of the damping. Times in seconds."""

    quiet_s: float = 60.0  # a change after this time without a change is shown at once
    hold_down_s: float = 10.0  # a retrained link and two sweeps; doubles with each change
    hold_down_max_s: float = 300.0  # a link that flaps all day is shown as clear at most this late
    remembered: int = 100_000  # clear things that flapped lately; the oldest are forgotten


@dataclass(frozen=True, slots=True)
class Flapping(Generic[I]):
    """A thing of which items came and went repeatedly.

    `flaps`: how often they went. `changed_ns`: when they last came or went, Unix ns. `gone`: the items that
    are shown and no longer observed, if that is told. `clears_ns`: until when these are shown; 0 = none are.
    """

    flaps: int
    changed_ns: int
    gone: frozenset[I] = frozenset()
    clears_ns: int = 0


@dataclass(slots=True)
class _Track(Generic[I, T]):
    observed: Mapping[I, T]
    shown: Mapping[I, T]
    observed_ns: int  # when the set of observed items changed, without those that were never shown
    shown_ns: int | None  # when a change of the set was last shown
    worded_ns: int  # when texts were last shown
    changes: int = 0  # since the last quiet time, without its first
    told_ns: int | None = None  # `observed_ns`, if it is told that items are gone since then

    @property
    def is_steady(self) -> bool:
        """Whether all is shown as it is observed, and nothing else is told."""
        return self.told_ns is None and self.observed == self.shown

    @property
    def gone(self) -> Collection[I]:
        return self.shown.keys() - self.observed.keys()

    @property
    def new(self) -> Collection[I]:
        return self.observed.keys() - self.shown.keys()


class Damper(Generic[K, I, T]):
    """Damps changes by key.

    `shown`: what is already published (after a restart); `now_ns` is then its last change, where `flapping`
    does not know it. `tell`: whether items that are gone and still shown are to be told.
    """

    def __init__(
        self,
        settings: DampingSettings,
        shown: Mapping[K, Mapping[I, T]] | None = None,
        now_ns: int = 0,
        *,
        flapping: Mapping[K, Flapping[I]] | None = None,
        tell: bool = False,
    ) -> None:
        self._quiet_ns = round(settings.quiet_s * NS)
        self._base_ns = round(settings.hold_down_s * NS)
        self._max_ns = max(round(settings.hold_down_max_s * NS), self._base_ns)
        self._remembered = settings.remembered
        self._tell = tell
        self._unknown: Collection[K] = ()
        self._has_dropped = False  # shown items were forgotten since the last `show`
        self._tracks: dict[K, _Track[I, T]] = {
            key: _Track(items, items, now_ns, now_ns, now_ns) for key, items in (shown or {}).items()
        }
        for key, known in (flapping or {}).items():
            track = self._tracks[key]
            track.observed_ns, track.changes = known.changed_ns, 2 * known.flaps
            if known.gone:
                track.observed = {i: x for i, x in track.shown.items() if i not in known.gone}
                track.changes -= 1  # it came once more than it went
                track.shown_ns = known.clears_ns - self._base_ns
                track.told_ns = known.changed_ns

    def observe(
        self, current: Mapping[K, Mapping[I, T]], now_ns: int, *, unknown: Collection[K] = ()
    ) -> None:
        """Record the whole current observation; a key that is missing in it has no items.

        `unknown`: keys of which nothing is known until the next observation. They stay as they are.
        """
        nothing: Mapping[I, T] = {}
        self._unknown = unknown
        for key, track in self._known():
            items = current.get(key, nothing)
            # An item that was never shown makes no other item flap.
            matter = track.shown.keys() or (items.keys() | track.observed.keys())
            if items.keys() & matter != track.observed.keys() & matter:
                track.changes = 0 if self._is_quiet(track, now_ns) else track.changes + 1
                track.observed_ns = now_ns
            track.observed = items
        for key, items in current.items():
            if key not in self._tracks and items:
                self._tracks[key] = _Track(items, nothing, now_ns, None, now_ns)
        self._forget(now_ns)

    def forget(self, keys: Iterable[K]) -> None:
        """Show nothing of these keys from now on, which is due at once. Their next observation is their
        first."""
        for key in keys:
            track = self._tracks.pop(key, None)
            self._has_dropped |= track is not None and bool(track.shown)

    def show(self, now_ns: int) -> None:
        """Show every change that is due, and the current texts of what is shown."""
        self._has_dropped = False
        for _, track in self._known():
            if track.is_steady:
                continue
            if track.gone and self._clears_ns(track) <= now_ns:
                track.shown, track.shown_ns, track.worded_ns = track.observed, now_ns, now_ns
            elif track.new and self._appears_ns(track) <= now_ns:
                track.shown = {**track.shown, **track.observed}
                track.shown_ns = track.worded_ns = now_ns
            texts = {i: track.observed.get(i, x) for i, x in track.shown.items()}
            may_tell = self._tell and track.gone and now_ns >= self._told_from_ns(track)
            told_ns = track.observed_ns if may_tell else None
            if texts != track.shown or told_ns != track.told_ns:
                track.shown, track.told_ns, track.worded_ns = texts, told_ns, now_ns

    def next_due_ns(self) -> int | None:
        """Returns when the next change may be shown; None if all is shown as it is observed, and told."""
        if self._has_dropped:
            return 0
        return min((due for _, track in self._known() for due in self._dues(track)), default=None)

    def flapping(self, key: K) -> Flapping[I] | None:
        """Returns how a thing of which something is shown flapped, as of the last `show`; None = not."""
        track = self._tracks[key]
        flaps = (track.changes + 1) // 2
        if not flaps:
            return None
        if track.told_ns is None:
            return Flapping(flaps, track.observed_ns)
        return Flapping(flaps, track.told_ns, frozenset(track.gone), self._clears_ns(track))

    def shown(self) -> Iterator[tuple[K, I, T]]:
        """Returns what may be published."""
        return ((key, i, x) for key, t in self._tracks.items() for i, x in t.shown.items())

    def observed(self) -> Iterator[tuple[K, I, T]]:
        """Returns the last observation."""
        return ((key, i, x) for key, t in self._tracks.items() for i, x in t.observed.items())

    def waiting(self) -> Iterator[T]:
        """Returns the items that are observed and not shown yet."""
        return (x for t in self._tracks.values() for i, x in t.observed.items() if i not in t.shown)

    def __len__(self) -> int:
        return len(self._tracks)

    def _known(self) -> Iterator[tuple[K, _Track[I, T]]]:
        return ((key, track) for key, track in self._tracks.items() if key not in self._unknown)

    def _hold_ns(self, track: _Track[I, T]) -> int:
        if track.changes == 0:
            return 0
        return min(self._base_ns << min(track.changes - 1, 40), self._max_ns)

    def _is_quiet(self, track: _Track[I, T], now_ns: int) -> bool:
        return now_ns - track.observed_ns >= max(self._quiet_ns, self._hold_ns(track))

    def _appears_ns(self, track: _Track[I, T]) -> int:
        return track.observed_ns if track.shown_ns is None else track.shown_ns + self._base_ns

    def _clears_ns(self, track: _Track[I, T]) -> int:
        stood_still_ns = track.observed_ns + self._hold_ns(track)
        return (
            stood_still_ns if track.shown_ns is None else max(stood_still_ns, track.shown_ns + self._base_ns)
        )

    def _told_from_ns(self, track: _Track[I, T]) -> int:
        """Returns when it may be told that items are gone. A link that flaps fast is never told to be up."""
        return track.observed_ns + min(self._hold_ns(track) // _TOLD, self._base_ns)

    def _dues(self, track: _Track[I, T]) -> Iterator[int]:
        if track.is_steady:
            return
        if track.gone:
            yield self._clears_ns(track)
        if track.new:
            yield self._appears_ns(track)
        if track.observed.keys() == track.shown.keys() and track.observed != track.shown:
            yield track.worded_ns + self._quiet_ns
        if track.told_ns is not None and not (track.gone and track.told_ns == track.observed_ns):
            yield track.observed_ns  # what is told is no longer true
        elif track.told_ns is None and track.gone and self._tell:
            yield self._told_from_ns(track)

    def _forget(self, now_ns: int) -> None:
        clear = [key for key, t in self._tracks.items() if not t.shown and not t.observed]
        done = [key for key in clear if self._is_quiet(self._tracks[key], now_ns)]
        for key in done:
            del self._tracks[key]
        if len(clear) - len(done) > self._remembered:
            rest = sorted(set(clear) - set(done), key=lambda key: self._tracks[key].observed_ns)
            for key in rest[: -self._remembered or None]:
                del self._tracks[key]


class FirstSeen:
    """Tells which members evidence shows for the first time since the start, or since they were gone."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._members, self._unseen = frozenset[str](), frozenset[str]()  # of the last tree

    def of(
        self, members: frozenset[str], silent: Collection[str], published: Collection[str]
    ) -> frozenset[str]:
        """Return the members that evidence shows for the first time. `members`: of the tree, the same object
        while they stay. `silent`: those without evidence. A member that is not `published` either is gone."""
        if members is not self._members:
            self._seen &= members.union(silent, published)
            self._members, self._unseen = members, members - self._seen
        first = self._unseen.difference(silent)
        self._seen |= first
        self._unseen -= first
        return first
