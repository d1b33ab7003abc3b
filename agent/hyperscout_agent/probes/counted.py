"""Adds the error counters of this host's NICs to the payloads of a probe for Ethernet ports.

Counters change on healthy ports too. They are read once a minute, and when the carrier changed (a link
counts errors while it trains), so that they rarely cause a changed finding.
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from hyperscout.v1.finding_pb2 import LldpPort, PortCounters
from hyperscout_formats.facts import interface_counters
from hyperscout_formats.facts.wire import counters_to_proto

from hyperscout_agent.findings.probe import Observation, Probe, Scope
from hyperscout_agent.runtime.ports import read_statistics
from hyperscout_agent.runtime.threads import in_thread

EVERY_S = 60.0


class _Read(NamedTuple):
    """The last reading of a port's counters. `at_s`: monotonic seconds."""

    at_s: float
    carrier_changes: int
    counters: PortCounters | None  # None = the port has no counters


class Counted:
    """Wraps the probe `inner`, which has payloads of type `LldpPort`, and adds counters to them."""

    def __init__(
        self, inner: Probe, *, sysfs: Path = Path("/sys"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._inner = inner
        self._sysfs = sysfs
        self._clock = clock
        self._known: dict[str, _Read] = {}

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def scope(self) -> Scope:
        return self._inner.scope

    @property
    def interval_s(self) -> float | None:
        return self._inner.interval_s

    @property
    def timeout_s(self) -> float:
        return self._inner.timeout_s

    @property
    def max_findings(self) -> int:
        return self._inner.max_findings

    async def observe(self) -> Observation:
        observation = await self._inner.observe()
        ports = [x.payload for x in observation.sights.values() if isinstance(x.payload, LldpPort)]
        now_s = self._clock()
        if due := [port for port in ports if self._is_due(port, now_s)]:
            names = [port.interface for port in due]
            found = await in_thread(lambda: self._read(names), "counters")
            for port, counters in zip(due, found, strict=True):
                self._known[port.interface] = _Read(now_s, port.carrier_changes, counters)
        self._known = {port.interface: self._known[port.interface] for port in ports}
        for port in ports:
            if (counters := self._known[port.interface].counters) is not None:
                port.counters.CopyFrom(counters)
        return observation

    def _is_due(self, port: LldpPort, now_s: float) -> bool:
        known = self._known.get(port.interface)
        if known is None or known.carrier_changes != port.carrier_changes:
            return True
        return now_s - known.at_s >= EVERY_S

    def _read(self, names: Iterable[str]) -> list[PortCounters | None]:
        """Read the counters of the ports. Blocks."""
        files = (read_statistics(self._sysfs, name, interface_counters.COUNTERS) for name in names)
        return [counters_to_proto(interface_counters.parse(one)) for one in files]
