"""Adds the error counters of this host's NICs to the payloads of Ethernet ports.

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

from hyperscout_agent.findings.probe import Observation
from hyperscout_agent.runtime.ports import read_statistics
from hyperscout_agent.runtime.threads import in_thread

_EVERY_S = 60.0


class _Read(NamedTuple):
    """The last reading of a port's counters. `at_s`: monotonic seconds."""

    at_s: float
    carrier_changes: int
    counters: PortCounters | None  # None = the port has no counters


class CounterCache:
    """The last counters of each port."""

    def __init__(self, sysfs: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._sysfs = sysfs
        self._clock = clock
        self._known: dict[str, _Read] = {}

    async def add_to(self, observation: Observation) -> Observation:
        """Add counters to the payloads of type `LldpPort`, and return the same observation."""
        ports = [x.payload for x in observation.samples.values() if isinstance(x.payload, LldpPort)]
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
        return now_s - known.at_s >= _EVERY_S

    def _read(self, names: Iterable[str]) -> list[PortCounters | None]:
        """Read the counters of the ports. Blocks."""
        files = (read_statistics(self._sysfs, name, interface_counters.COUNTERS) for name in names)
        return [counters_to_proto(interface_counters.parse(one)) for one in files]
