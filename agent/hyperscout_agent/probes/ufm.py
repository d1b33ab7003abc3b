"""Reads an InfiniBand fabric from UFM's REST API. Off by default.

The three answers are converted to one text in the format of `ibnetdiscover`, which is sent to the collector
when it differs from the last one. A UFM that has just started returns only a part of its fabric. So a result
much smaller than the last whole one is partial until the next run returns the same size.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from hyperscout.v1.finding_pb2 import Sweep
from hyperscout_formats.managers.ufm import Fabric, UfmReader
from hyperscout_formats.text.errors import FormatError
from hyperscout_formats.text.json_array import ArrayReader

from hyperscout_agent.findings.bulk import compress
from hyperscout_agent.findings.probe import Observation, ProbeError, Scope, data
from hyperscout_agent.managers.client import ManagerConnection, ManagerError
from hyperscout_agent.runtime.threads import in_thread
from hyperscout_agent.settings.manager_settings import UfmSettings

_RESOURCES = ("ports", "links", "systems")
_SHRUNKEN_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class _Size:
    switches: int
    adapters: int
    cables: int

    def is_shrunken(self, before: "_Size") -> bool:
        keep = 1 - _SHRUNKEN_SHARE
        return (
            self.switches < before.switches * keep
            or self.adapters < before.adapters * keep
            or self.cables < before.cables * keep
        )

    def __str__(self) -> str:
        return f"{self.switches} switches, {self.adapters} adapters' ports, {self.cables} cables"


class UfmProbe:
    """Reads a fabric from UFM. `clock`: monotonic seconds."""

    name = "ufm"
    scope: Scope = "fabric"
    max_findings = 1

    def __init__(self, settings: UfmSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval_s = settings.interval_s
        self.timeout_s = settings.timeout_s + 5.0
        self._settings = settings
        self._clock = clock
        self._last: _Size | None = None
        self._last_whole: _Size | None = None

    async def observe(self) -> Observation:
        started_s = self._clock()
        connection = ManagerConnection(self._settings, self._clock)
        try:
            fabric = await in_thread(lambda: self._look(connection), self.name)
        except (ManagerError, FormatError) as error:
            raise ProbeError(str(error)) from error
        finally:
            connection.abandon()
        trouble = self._judged(_Size(fabric.switches, fabric.adapters, fabric.cables))
        bulk = compress(fabric.text)
        payload = Sweep(
            format="ufm",
            sha256=bulk.sha256,
            size_bytes=bulk.size_bytes,
            partial=bool(trouble),
            partial_reason=trouble,
            duration_s=self._clock() - started_s,
        )
        reason = trouble or "; ".join(str(problem) for problem in fabric.problems[:3])
        return Observation({connection.place: data(payload, reason)}, bulks=(bulk,))

    def _look(self, connection: ManagerConnection) -> Fabric:
        """Query UFM and convert the answers. Runs in a thread. Raises ManagerError and FormatError."""
        reader = UfmReader(f"UFM at {connection.place}")
        headers = connection.basic()
        for what in _RESOURCES:
            array = ArrayReader(f"UFM at {connection.place}: {what}")
            for piece in connection.get(f"/ufmRest/resources/{what}", headers):
                for item in array.feed(piece):
                    reader.take(item)
            array.close()
        return reader.finish()

    def _judged(self, size: _Size) -> str:
        """Return why this result is partial, or "" when it is whole."""
        before, last, self._last = self._last_whole, self._last, size
        if before is not None and size.is_shrunken(before) and size != last:
            return f"{size} after {before}: a UFM that has just started? The next look tells"
        self._last_whole = size
        return ""
