"""Placements to everyone who watches: all that are held, then each change.

Of a gang only its newest state waits for a watcher, so a slow one costs no more than the book itself, and
misses nothing but what was over by the time it looked.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from hyperscout_placer.book.placements import Held


class WatchEndedError(Exception):
    """Nothing more is told here. `leader`: where to go on ("" = not known yet), None = nowhere."""

    def __init__(self, reason: str, leader: str | None) -> None:
        super().__init__(reason)
        self.leader = leader


@dataclass(frozen=True, slots=True)
class News:
    """`held`: new or changed. `released`: gangs that hold nothing any more. `snapshot`: all there is."""

    held: tuple[Held, ...]
    released: tuple[str, ...] = ()
    snapshot: bool = False


@dataclass(slots=True, eq=False)
class Watcher:
    """One reader. `behind`: it gets a snapshot next."""

    behind: bool = True
    changes: dict[str, Held | None] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class PlacementWatchers:
    """`book()`: all that are held. At most `limit` watch at once; of more than `most` changes that wait, a
    snapshot takes the place."""

    def __init__(self, book: Callable[[], list[Held]], *, limit: int = 1000, most: int = 1000) -> None:
        self.resnapshots = 0  # watchers that were too slow, since the start
        self._book = book
        self.limit = limit
        self._most = most
        self._watchers: set[Watcher] = set()
        self._ended: WatchEndedError | None = None

    def __len__(self) -> int:
        return len(self._watchers)

    @property
    def full(self) -> bool:
        return len(self._watchers) >= self.limit

    def add(self) -> Watcher:
        watcher = Watcher()
        watcher.wake.set()
        self._watchers.add(watcher)
        return watcher

    def discard(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def changed(self, gang: str, held: Held | None) -> None:
        """A gang came, changed or went."""
        for watcher in self._watchers:
            if watcher.behind:
                continue
            watcher.changes[gang] = held
            if len(watcher.changes) > self._most:
                watcher.changes.clear()
                watcher.behind = True
                self.resnapshots += 1
            watcher.wake.set()

    def close(self, reason: str, leader: str | None = None) -> None:
        """End all watches, and those that come."""
        self._ended = WatchEndedError(reason, leader)
        for watcher in self._watchers:
            watcher.wake.set()

    async def next(self, watcher: Watcher) -> News:
        """What is new for this watcher; waits for it. Raises WatchEndedError."""
        await watcher.wake.wait()
        if self._ended is not None:
            raise self._ended
        watcher.wake.clear()
        if watcher.behind:
            watcher.behind = False
            return News(tuple(self._book()), snapshot=True)
        changes, watcher.changes = watcher.changes, {}
        return News(
            tuple(held for held in changes.values() if held is not None),
            tuple(gang for gang, held in changes.items() if held is None),
        )
