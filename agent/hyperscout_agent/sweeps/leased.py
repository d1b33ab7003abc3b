"""Runs a tool of infiniband-diags under each sweep lease. Work under a lease ends with the lease."""

import asyncio
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from hyperscout.v1.discovery_pb2 import SweepLease, SweepRevoke
from hyperscout.v1.finding_pb2 import Sweep
from hyperscout_formats.text.counts import count

from hyperscout_agent.findings.bulk import Bulk
from hyperscout_agent.findings.probe import Observation, ProbeParts, Sample, Scope, data, failed
from hyperscout_agent.runtime.subprocesses import ToolError, ToolMissingError

_T = TypeVar("_T")

# Error texts of libibnetdisc and libibmad (infiniband-diags 44; a silent node gives "bad status 110").
_ERROR_LINE = re.compile(rb"bad status|iberror|ibwarn|timed out|failed|can't|cannot|error", re.IGNORECASE)
# A sweep that lost more than this share of its switches, adapters or links needs a confirmation.
_SHRUNKEN_SHARE = 0.2
_INSTALL = "install it (Debian and RHEL: the package infiniband-diags) or set its path"


class FabricSize(NamedTuple):
    """The number of devices and links in a sweep. `switches` includes routers."""

    switches: int = 0
    adapters: int = 0
    links: int = 0

    def is_shrunken(self, before: "FabricSize") -> bool:
        """Whether this is much smaller than an earlier sweep."""
        return any(now < was * (1 - _SHRUNKEN_SHARE) for now, was in zip(self, before, strict=True))

    def __str__(self) -> str:
        return (
            f"{count(self.switches, 'switch')}, {count(self.adapters, 'adapter')}, "
            f"{count(self.links, 'link')}"
        )


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of one run. `trouble`: why it is partial; "" = it is whole. `port_guid`: 0 = unknown."""

    bulk: Bulk
    trouble: str
    port_guid: int = 0


class LeasedProbe(ABC):
    """Runs under each lease; without a lease it does not run. A host may have one lease for each rail."""

    name: str
    scope: Scope = "fabric"
    max_findings = 64
    complete = False
    runs_ahead = False  # whether a lease that is granted again asks for a run ahead of time

    def __init__(
        self,
        *,
        command: Sequence[str],
        timeout_s: float = 120.0,
        max_output_bytes: int = 256 * 1024 * 1024,
        trigger: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = tuple(command)
        self._tool_timeout_s = timeout_s
        self._max_output_bytes = max_output_bytes
        self._trigger = trigger
        self._clock = clock
        self._leases: dict[str, SweepLease] = {}  # by id
        self._ended: dict[str, asyncio.Event] = {}

    def parts(self) -> ProbeParts:
        def revoke(directive: SweepRevoke) -> None:
            self.revoke(directive.lease_id)

        return ProbeParts(
            self, directives={"lease": self.take_lease, "revoke": revoke}, stream_ended=self.drop
        )

    @property
    @abstractmethod
    def interval_s(self) -> float | None: ...

    @property
    @abstractmethod
    def timeout_s(self) -> float: ...

    def take_lease(self, lease: SweepLease) -> None:
        """Take a lease and run immediately, or take a known one again: its interval may have changed, and the
        collector may want a run ahead of time."""
        known = lease.lease_id in self._leases
        self._leases[lease.lease_id] = lease
        if not known:
            self._ended[lease.lease_id] = asyncio.Event()
        if self.runs_ahead or not known:
            self._trigger()

    def revoke(self, lease_id: str) -> None:
        """End one lease, and a run under it. Unknown ids are ignored."""
        if self._leases.pop(lease_id, None) is not None:
            self._ended.pop(lease_id).set()

    def drop(self) -> None:
        """End all leases and a run under one of them, when the stream to the collector ends."""
        for lease_id in list(self._leases):
            LeasedProbe.revoke(self, lease_id)

    async def observe(self) -> Observation:
        """Run once for each lease, one after the other, to limit the load on host and fabric."""
        samples: dict[str, Sample] = {}
        bulks: list[Bulk] = []
        for lease in list(self._leases.values()):
            ran = await self._under(lease, self._sample(lease))
            if ran is not None:
                sample, bulk = ran
                samples[f"{lease.device}/{lease.port}"] = sample
                bulks += [bulk] if bulk is not None else []
        return Observation(samples, complete=self.complete, bulks=tuple(bulks))

    @abstractmethod
    async def _sweep(self, lease: SweepLease) -> Swept:
        """Run the tool. Raises ToolError."""

    async def _sample(self, lease: SweepLease) -> tuple[Sample, Bulk | None]:
        started_s = self._clock()
        payload = Sweep(format=self.name, device=lease.device, port=lease.port, lease_id=lease.lease_id)
        try:
            swept = await self._sweep(lease)
        except ToolMissingError as error:
            return failed(f"{error}: {_INSTALL}", payload), None
        except ToolError as error:
            return failed(str(error), payload), None
        payload.port_guid = swept.port_guid
        payload.sha256 = swept.bulk.sha256
        payload.size_bytes = swept.bulk.size_bytes
        payload.partial = bool(swept.trouble)
        payload.partial_reason = swept.trouble
        payload.duration_s = self._clock() - started_s
        return data(payload, swept.trouble), swept.bulk

    async def _under(self, lease: SweepLease, work: Coroutine[Any, Any, _T]) -> _T | None:
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
            await asyncio.gather(working, return_exceptions=True)


def error_lines(stderr: bytes) -> str:
    """Return the first error line in stderr and the number of further ones, "" when there is none."""
    lines = [line for line in stderr.splitlines() if _ERROR_LINE.search(line)]
    if not lines:
        return ""
    first = lines[0].decode(errors="replace").strip()[:300]
    return first if len(lines) == 1 else f"{first} (and {len(lines) - 1} more like it)"
