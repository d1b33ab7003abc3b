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
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from hyperscout.v1.discovery_pb2 import SweepLease
from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.infiniband.ibnetdiscover_text import summary
from hyperscout_formats.infiniband.sysfs import parse

from hyperscout_agent.findings.bulk import Bulk, BulkBuilder
from hyperscout_agent.findings.probe import ProbeContext, ProbeParts
from hyperscout_agent.runtime.infiniband_tree import read_tree
from hyperscout_agent.runtime.subprocesses import ToolError, first_line, run_tool
from hyperscout_agent.runtime.threads import in_thread
from hyperscout_agent.sweeps.leased import FabricSize, LeasedProbe, Swept, error_lines

# The only line that differs between two sweeps of an unchanged fabric. Its date is removed, so an unchanged
# text keeps its digest and is not sent again.
_DATE = re.compile(rb"^# Topology file: generated on .*$", re.MULTILINE)
# The date is searched only in the beginning of the text. Real lines are far shorter than `_LINE_BYTES`.
_HEAD_BYTES = 4096
_LINE_BYTES = 64 * 1024
_MIN_INTERVAL_S = 1.0
_MAX_INTERVAL_S = 86_400.0

PortOf = Callable[[str, int], Awaitable[InfinibandPort | None]]


def build(context: ProbeContext) -> ProbeParts | None:
    settings = context.settings.ibnetdiscover
    if not settings.enabled:
        return None
    return IbnetdiscoverProbe(
        port_of=partial(port_of, context.settings.infiniband.root),
        command=settings.command,
        timeout_s=settings.timeout_s,
        trigger=context.trigger,
    ).parts()


async def port_of(root: Path, device: str, number: int) -> InfinibandPort | None:
    """Read the current state of one of this host's ports, None when there is no such port."""
    ports, _ = parse(await in_thread(lambda: read_tree(root), "infiniband-sysfs"), str(root))
    return next((port for port in ports if (port.device, port.port) == (device, number)), None)


class _Reader:
    """Takes the tool's output in pieces, compresses it and counts devices by whole lines."""

    def __init__(self) -> None:
        self.builder = BulkBuilder()
        self.size = FabricSize()
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
        self.size = FabricSize(
            self.size.switches + counts.switches + counts.routers,
            self.size.adapters + counts.adapters,
            self.size.links + counts.records,
        )
        self.port_guid = self.port_guid or counts.port_guid
        self.builder.write(text)


class IbnetdiscoverProbe(LeasedProbe):
    """Sweeps under each lease.

    `port_of` reads the state of the leased port; it returns None when this host does not have the port.
    """

    name = "ibnetdiscover"
    runs_ahead = True

    def __init__(self, *, port_of: PortOf, **options: Any) -> None:
        super().__init__(**options)
        self._port_of = port_of
        self._last_whole: dict[tuple[str, int], FabricSize] = {}

    @property
    def interval_s(self) -> float | None:
        if not self._leases:
            return None
        shortest_s = min(lease.interval_s for lease in self._leases.values())
        return min(max(shortest_s, _MIN_INTERVAL_S), _MAX_INTERVAL_S)

    @property
    def timeout_s(self) -> float:
        """Time in seconds for two consecutive sweeps under each lease, and for ending the tool."""
        return 2 * self._tool_timeout_s * max(len(self._leases), 1) + 10.0

    async def _sweep(self, lease: SweepLease) -> Swept:
        """Sweep, and sweep again if the result is much smaller than the last whole sweep."""
        key = (lease.device, lease.port)
        before = self._last_whole.get(key)
        swept, size = await self._once(lease)
        if not swept.trouble and before is not None and size.is_shrunken(before):
            first_size = size
            swept, size = await self._once(lease)
            if not swept.trouble and size.is_shrunken(before) and size != first_size:
                reason = f"{size} after {before}; the sweep just before found {first_size}"
                swept = Swept(swept.bulk, reason, swept.port_guid)
        if not swept.trouble:
            self._last_whole[key] = size
        return swept

    async def _once(self, lease: SweepLease) -> tuple[Swept, FabricSize]:
        reader = _Reader()
        argv = (*self._command, "-C", lease.device, "-P", str(lease.port))
        result = await run_tool(
            argv, take=reader.take, timeout_s=self._tool_timeout_s, max_output_bytes=self._max_output_bytes
        )
        bulk = reader.finish()
        errors = error_lines(result.stderr)
        size = reader.size
        if not size.switches and not size.adapters:
            reason = errors or first_line(result.stderr) or "no device in its output"
            raise ToolError(f"{self._command[0]}: exit {result.exit_code}: {reason}")
        port = await self._port_of(lease.device, lease.port)
        trouble = ""
        if result.exit_code != 0:
            trouble = f"exit {result.exit_code}: {errors or first_line(result.stderr)}"
        elif errors:
            trouble = errors
        elif port is not None and port.state != "ACTIVE":
            trouble = f"the port of the sweep, {lease.device}/{lease.port}, is {port.state}"
        elif size.links == 0:
            trouble = "the sweep found only its own adapter: the port is down or its cable is unplugged"
        return Swept(bulk, trouble, reader.port_guid or (port.port_guid if port else 0)), size
