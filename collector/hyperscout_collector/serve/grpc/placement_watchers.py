"""Sends reservations to watchers: first all of them, then each change.

Only the newest state of each gang waits for a watcher. So a slow watcher needs at most the memory of all
reservations, and misses only states that were already replaced.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from hyperscout_placer.book.reservation import Reservation

from hyperscout_collector.serve.fanout.channel import WatchEndedError


@dataclass(frozen=True, slots=True)
class News:
    """Changes for one watcher.

    `held`: new or changed reservations. `released`: gangs without a reservation now. `snapshot`: `held`
    contains all reservations.
    """

    held: tuple[Reservation, ...]
    released: tuple[str, ...] = ()
    snapshot: bool = False


@dataclass(slots=True, eq=False)
class Watcher:
    """One reader. `behind`: its next message is a snapshot."""

    behind: bool = True
    changes: dict[str, Reservation | None] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class PlacementWatchers:
    """The watchers of reservations. `book()`: all reservations. `limit`: watchers at once.

    A snapshot replaces the waiting changes of a watcher if there are more than `most`.
    """

    def __init__(self, book: Callable[[], list[Reservation]], *, limit: int = 1000, most: int = 1000) -> None:
        self.resnapshots = 0  # times that a slow watcher was sent a new snapshot, since the start
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

    def changed(self, gang: str, held: Reservation | None) -> None:
        """The reservation of a gang was made, changed or, if `held` is None, released."""
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
        """End all watches, present and future ones."""
        self._ended = WatchEndedError(reason, leader)
        for watcher in self._watchers:
            watcher.wake.set()

    async def next(self, watcher: Watcher) -> News:
        """Wait for the next changes for this watcher and return them. Raises WatchEndedError."""
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
