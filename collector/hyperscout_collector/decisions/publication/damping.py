"""Damping: flapping in the fabric must not appear as flapping in what is published.

A `Damper` follows things by key (a link, a node). The observation of a thing is a set of items (anomalies of
a link). What is shown of it follows by these rules:

- The first change after a quiet time (`quiet_s`) is shown at once.
- After that the thing flaps. A new problem (items where none were shown) waits for one hold-down since the
  last change shown. Any other change also waits until the thing has been unchanged for a hold-down that
  doubles with each flap.
- The same items with other texts (a counter in a message) are shown after `quiet_s`, or with any other change
  that is shown.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from hyperscout_runtime.units import NS

K = TypeVar("K", bound=Hashable)
I = TypeVar("I", bound=Hashable)  # noqa: E741 - K, I, T: key, item, text of the item
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DampingSettings:
    """Settings of the damping. Times in seconds."""

    quiet_s: float = 60.0  # a change after this time without a change is shown at once
    hold_down_s: float = 10.0  # a retrained link and two sweeps; doubles with each flap
    hold_down_max_s: float = 300.0  # a link that flaps all day is shown as clear at most this late
    remembered: int = 100_000  # clear things that flapped lately; the oldest are forgotten


@dataclass(slots=True)
class _Track(Generic[I, T]):
    observed: Mapping[I, T]
    shown: Mapping[I, T]
    observed_ns: int  # when the set of items changed
    shown_ns: int | None  # when a change of the set was last shown
    worded_ns: int  # when texts were last shown
    flaps: int = 0


class Damper(Generic[K, I, T]):
    """Damps changes by key.

    `shown`: what is already published (after a restart); `now_ns` is then its last change.
    """

    def __init__(
        self, settings: DampingSettings, shown: Mapping[K, Mapping[I, T]] | None = None, now_ns: int = 0
    ) -> None:
        self._quiet_ns = round(settings.quiet_s * NS)
        self._base_ns = round(settings.hold_down_s * NS)
        self._max_ns = max(round(settings.hold_down_max_s * NS), self._base_ns)
        self._remembered = settings.remembered
        self._tracks: dict[K, _Track[I, T]] = {
            key: _Track(items, items, now_ns, now_ns, now_ns) for key, items in (shown or {}).items()
        }

    def observe(self, current: Mapping[K, Mapping[I, T]], now_ns: int) -> None:
        """Record the whole current observation; a key that is missing in it has no items."""
        nothing: Mapping[I, T] = {}
        for key, track in self._tracks.items():
            items = current.get(key, nothing)
            if items.keys() != track.observed.keys():
                track.flaps = 0 if self._is_quiet(track, now_ns) else track.flaps + 1
                track.observed_ns = now_ns
            track.observed = items
        for key, items in current.items():
            if key not in self._tracks and items:
                self._tracks[key] = _Track(items, nothing, now_ns, None, now_ns)
        self._forget(now_ns)

    def forget(self, keys: Iterable[K]) -> None:
        """Show nothing of these keys from now on. Their next observation is their first."""
        for key in keys:
            self._tracks.pop(key, None)

    def show(self, now_ns: int) -> None:
        """Show every change that is due, and the current texts of what is shown."""
        for track in self._tracks.values():
            if track.observed.keys() == track.shown.keys():
                if track.observed != track.shown:
                    track.shown, track.worded_ns = track.observed, now_ns
            elif self._due(track) <= now_ns:
                track.shown, track.shown_ns, track.worded_ns = track.observed, now_ns, now_ns

    def next_due_ns(self) -> int | None:
        """Returns when the next change may be shown; None if the shown items equal the observed ones."""
        return min((self._due(t) for t in self._tracks.values() if t.observed != t.shown), default=None)

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

    def _hold_ns(self, track: _Track[I, T]) -> int:
        if track.flaps == 0:
            return 0
        return min(self._base_ns << min(track.flaps - 1, 40), self._max_ns)

    def _is_quiet(self, track: _Track[I, T], now_ns: int) -> bool:
        return now_ns - track.observed_ns >= max(self._quiet_ns, self._hold_ns(track))

    def _due(self, track: _Track[I, T]) -> int:
        if track.observed.keys() == track.shown.keys():
            return track.worded_ns + self._quiet_ns
        stood_still_ns = track.observed_ns + (self._hold_ns(track) if track.shown else 0)
        return (
            stood_still_ns if track.shown_ns is None else max(stood_still_ns, track.shown_ns + self._base_ns)
        )

    def _forget(self, now_ns: int) -> None:
        clear = [key for key, t in self._tracks.items() if not t.shown and not t.observed]
        done = [key for key in clear if self._is_quiet(self._tracks[key], now_ns)]
        for key in done:
            del self._tracks[key]
        if len(clear) - len(done) > self._remembered:
            rest = sorted(set(clear) - set(done), key=lambda key: self._tracks[key].observed_ns)
            for key in rest[: -self._remembered or None]:
                del self._tracks[key]
