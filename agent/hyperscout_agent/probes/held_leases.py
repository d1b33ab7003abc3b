"""Tracks the sweep leases that this agent holds. Work under a lease ends with the lease."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from hyperscout.v1.discovery_pb2 import SweepLease

from hyperscout_agent.findings.probe import ProbeError
from hyperscout_agent.runtime.subprocesses import ToolError

_T = TypeVar("_T")


class HeldLeases:
    """The leases that the agent holds. `taken`: called for each new lease."""

    def __init__(self, taken: Callable[[], None]) -> None:
        self._taken = taken
        self._leases: dict[str, SweepLease] = {}  # by id: a host may hold one for each rail
        self._ended: dict[str, asyncio.Event] = {}

    def __iter__(self) -> Iterator[SweepLease]:
        return iter(list(self._leases.values()))

    def __len__(self) -> int:
        return len(self._leases)

    def take(self, lease: SweepLease) -> None:
        """Add a lease, or update a known one, of which only the interval can change."""
        known = lease.lease_id in self._leases
        self._leases[lease.lease_id] = lease
        if not known:
            self._ended[lease.lease_id] = asyncio.Event()
            self._taken()

    def revoke(self, lease_id: str) -> None:
        """End one lease. Unknown ids are ignored."""
        if self._leases.pop(lease_id, None) is not None:
            self._ended.pop(lease_id).set()

    def drop(self) -> None:
        """End all leases, when the stream to the collector ends."""
        for lease_id in list(self._leases):
            self.revoke(lease_id)

    async def under(self, lease: SweepLease, work: Coroutine[Any, Any, _T]) -> _T | None:
        """Return the result of `work`, or cancel it and return None when the lease ends first."""
        lease_ended = self._ended.get(lease.lease_id)
        if lease_ended is None:
            work.close()
            return None
        working = asyncio.create_task(work, name="sweep")
        ended = asyncio.create_task(lease_ended.wait(), name="lease-end")
        try:
            await asyncio.wait((working, ended), return_when=asyncio.FIRST_COMPLETED)
            return None if lease_ended.is_set() else working.result()
        finally:
            for task in (working, ended):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ToolError, ProbeError):
                await working
