"""Sweeps an InfiniBand fabric with `ibnetdiscover` from a leased port, while the agent holds the lease.

`ibnetdiscover` exits with 0 even when it read only a part of the fabric, so the probe judges the sweep. A
sweep is partial when
- the tool reports on stderr that a device does not answer, or ends with an error after it printed devices;
- the port it swept from is not active, or the sweep contains only its own adapter;
- the sweep is much smaller than the last whole one, and a second sweep right after it does not confirm this.
A removed switch makes the sweep smaller too. Then both sweeps agree, stderr contains no error, and the
smaller fabric is accepted.
"""

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from hyperscout.v1.discovery_pb2 import SweepLease
from hyperscout.v1.finding_pb2 import Sweep
from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.infiniband.ibnetdiscover_text import TextSummary, summary

from hyperscout_agent.findings.bulk import Bulk, BulkBuilder
from hyperscout_agent.findings.probe import Observation, Scope, Sight, data, failed
from hyperscout_agent.probes.held_leases import HeldLeases
from hyperscout_agent.runtime.subprocesses import ToolError, ToolMissingError, run_tool

# Error texts of libibnetdisc and libibmad (infiniband-diags 44; a silent node gives "bad status 110").
_TROUBLE = re.compile(rb"bad status|iberror|ibwarn|timed out|failed|can't|cannot|error", re.IGNORECASE)
# The only line that differs between two sweeps of an unchanged fabric. Its date is removed, so an unchanged
# text keeps its digest and is not sent again.
_DATE = re.compile(rb"^# Topology file: generated on .*$", re.MULTILINE)
# A sweep that lost more than this share of its switches, adapters or port records is repeated.
_SHRUNKEN_SHARE = 0.2
# The date is searched only in the beginning of the text. Real lines are far shorter than `_LINE_BYTES`.
_HEAD_BYTES = 4096
_LINE_BYTES = 64 * 1024
_MIN_INTERVAL_S = 1.0
_MAX_INTERVAL_S = 86_400.0
_PACKAGE = "install it (Debian and RHEL: the package infiniband-diags) or set its path"


@dataclass(frozen=True, slots=True)
class _Size:
    """The number of devices and port records in a sweep. `switches` includes routers."""

    switches: int = 0
    adapters: int = 0
    records: int = 0

    def plus(self, other: TextSummary) -> "_Size":
        return _Size(
            self.switches + other.switches + other.routers,
            self.adapters + other.adapters,
            self.records + other.records,
        )

    def shrunken(self, before: "_Size") -> bool:
        keep = 1 - _SHRUNKEN_SHARE
        return (
            self.switches < before.switches * keep
            or self.adapters < before.adapters * keep
            or self.records < before.records * keep
        )

    def __str__(self) -> str:
        return f"{self.switches} switches, {self.adapters} adapters, {self.records} port records"


@dataclass(frozen=True, slots=True)
class _Swept:
    bulk: Bulk
    size: _Size
    port_guid: int
    trouble: str  # why the sweep is partial; "" = it is whole


class _Reader:
    """Takes the tool's output in pieces, compresses it and counts devices by whole lines."""

    def __init__(self) -> None:
        self.builder = BulkBuilder()
        self.size = _Size()
        self.port_guid = 0
        self._rest = b""
        self._first = True

    def take(self, piece: bytes) -> None:
        text = self._rest + piece
        cut = text.rfind(b"\n") + 1
        if len(text) < _HEAD_BYTES:
            cut = 0
        elif cut == 0 and len(text) > _LINE_BYTES:
            cut = len(text)  # longer than any real line
        self._rest = text[cut:]
        self._lines(text[:cut])

    def finish(self) -> Bulk:
        self._lines(self._rest)
        return self.builder.finish()

    def _lines(self, text: bytes) -> None:
        if not text:
            return
        if self._first:
            self._first = False
            text = _DATE.sub(b"# Topology file", text, count=1)
        counts = summary(text)
        self.size = self.size.plus(counts)
        self.port_guid = self.port_guid or counts.port_guid
        self.builder.write(text)


PortOf = Callable[[str, int], Awaitable[InfinibandPort | None]]


class IbnetdiscoverProbe:
    """Sweeps under each lease; without a lease it does not run.

    `port_of` reads the state of the leased port; it returns None when this host does not have the port.
    """

    name = "ibnetdiscover"
    scope: Scope = "fabric"
    max_findings = 64

    def __init__(
        self,
        *,
        command: Sequence[str] = ("ibnetdiscover",),
        timeout_s: float = 120.0,
        max_output_bytes: int = 256 * 1024 * 1024,
        port_of: PortOf,
        trigger: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = tuple(command)
        self._tool_timeout_s = timeout_s
        self._max_output_bytes = max_output_bytes
        self._port_of = port_of
        self._clock = clock
        self._leases = HeldLeases(lambda: self.trigger())  # noqa: PLW0108 - set anew later
        self._last_whole: dict[tuple[str, int], _Size] = {}
        self.trigger = trigger

    @property
    def interval_s(self) -> float | None:
        if not self._leases:
            return None
        shortest_s = min(lease.interval_s for lease in self._leases)
        return min(max(shortest_s, _MIN_INTERVAL_S), _MAX_INTERVAL_S)

    @property
    def timeout_s(self) -> float:
        """Time in seconds for two consecutive sweeps under each lease, and for ending the tool."""
        return 2 * self._tool_timeout_s * max(len(self._leases), 1) + 10.0

    def take_lease(self, lease: SweepLease) -> None:
        """Take a lease: sweep immediately, then at the lease's interval."""
        self._leases.take(lease)

    def revoke(self, lease_id: str) -> None:
        """End one lease, and a sweep that runs under it."""
        self._leases.revoke(lease_id)

    def drop_lease(self) -> None:
        """End all leases and a running sweep, when the stream to the collector ends."""
        self._leases.drop()

    async def observe(self) -> Observation:
        """Sweep once for each lease, one after the other, to limit the load on host and fabric."""
        found = [await self._leases.under(lease, self._sweep(lease)) for lease in self._leases]
        swept = [one for one in found if one is not None]
        return Observation(
            {subject: sight for one in swept for subject, sight in one.sights.items()},
            complete=False,
            bulks=tuple(bulk for one in swept for bulk in one.bulks),
        )

    async def _sweep(self, lease: SweepLease) -> Observation:
        started_s = self._clock()
        payload = Sweep(format="ibnetdiscover", device=lease.device, port=lease.port, lease_id=lease.lease_id)
        subject = f"{lease.device}/{lease.port}"
        try:
            swept = await self._judged(lease)
        except ToolMissingError as error:
            return _only(subject, failed(f"{error}: {_PACKAGE}", payload))
        except ToolError as error:
            return _only(subject, failed(str(error), payload))
        port = await self._port_of(lease.device, lease.port)
        payload.port_guid = swept.port_guid or (port.port_guid if port else 0)
        payload.sha256 = swept.bulk.sha256
        payload.size_bytes = swept.bulk.size_bytes
        payload.partial = bool(swept.trouble)
        payload.partial_reason = swept.trouble
        payload.duration_s = self._clock() - started_s
        return Observation({subject: data(payload, swept.trouble)}, complete=False, bulks=(swept.bulk,))

    async def _judged(self, lease: SweepLease) -> _Swept:
        """Sweep, and sweep again if the result is much smaller than the last whole sweep."""
        key = (lease.device, lease.port)
        before = self._last_whole.get(key)
        swept = await self._once(lease)
        if not swept.trouble and before is not None and swept.size.shrunken(before):
            first, swept = swept, await self._once(lease)
            if not swept.trouble and swept.size.shrunken(before) and swept.size != first.size:
                reason = f"{swept.size} after {before}, and a sweep just before saw {first.size}"
                swept = _Swept(swept.bulk, swept.size, swept.port_guid, reason)
        if not swept.trouble:
            self._last_whole[key] = swept.size
        return swept

    async def _once(self, lease: SweepLease) -> _Swept:
        reader = _Reader()
        argv = (*self._command, "-C", lease.device, "-P", str(lease.port))
        result = await run_tool(
            argv, take=reader.take, timeout_s=self._tool_timeout_s, max_output_bytes=self._max_output_bytes
        )
        bulk = reader.finish()
        said_wrong = complaint(result.stderr)
        size = reader.size
        if not size.switches and not size.adapters:
            said = said_wrong or first_line(result.stderr) or "no device in its output"
            raise ToolError(f"{self._command[0]}: exit {result.exit_code}: {said}")
        port = await self._port_of(lease.device, lease.port)
        trouble = ""
        if result.exit_code != 0:
            trouble = f"exit {result.exit_code}: {said_wrong or first_line(result.stderr)}"
        elif said_wrong:
            trouble = said_wrong
        elif port is not None and port.state != "ACTIVE":
            trouble = f"the port it looked from, {lease.device}/{lease.port}, is {port.state}"
        elif size.records == 0:
            trouble = "it saw nothing but its own adapter: the port is down or its cable is out"
        return _Swept(bulk, size, reader.port_guid, trouble)


def _only(subject: str, sight: Sight) -> Observation:
    return Observation({subject: sight}, complete=False)


def complaint(stderr: bytes) -> str:
    """Return the first error line in stderr and the number of further ones, "" when there is none."""
    lines = [line for line in stderr.splitlines() if _TROUBLE.search(line)]
    if not lines:
        return ""
    first = lines[0].decode(errors="replace").strip()[:300]
    return first if len(lines) == 1 else f"{first} (and {len(lines) - 1} more like it)"


def first_line(stderr: bytes) -> str:
    """Return the first line of stderr that is not empty, or ""."""
    return next(
        (line.decode(errors="replace").strip()[:300] for line in stderr.splitlines() if line.strip()), ""
    )
