"""Reads NVLink domains from their manager's REST API (NMX-M, now a part of NetQ). Off by default.

The probe covers hosts without an agent, or with a driver that does not report its domain. Reports of agents
are more accurate, and the collector uses them to match the manager's names.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from hyperscout.v1.finding_pb2 import Sweep
from hyperscout_formats.managers import nmx
from hyperscout_formats.text.errors import FormatError
from hyperscout_formats.text.json_array import ArrayReader

from hyperscout_agent.findings.bulk import compress
from hyperscout_agent.findings.probe import Observation, ProbeError, Scope, data
from hyperscout_agent.managers.client import ManagerConnection, ManagerError
from hyperscout_agent.runtime.threads import in_thread
from hyperscout_agent.settings.manager_settings import NmxSettings


class NmxProbe:
    """Reads nodes and GPUs from NMX-M. `clock`: monotonic seconds."""

    name = "nmx"
    scope: Scope = "fabric"
    max_findings = 1

    def __init__(self, settings: NmxSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval_s = settings.interval_s
        self.timeout_s = settings.timeout_s + 5.0
        self._settings = settings
        self._clock = clock

    async def observe(self) -> Observation:
        started_s = self._clock()
        connection = ManagerConnection(self._settings, self._clock)
        try:
            text, problems = await in_thread(lambda: self._look(connection), self.name)
        except (ManagerError, FormatError) as error:
            raise ProbeError(str(error)) from error
        finally:
            connection.abandon()
        bulk = compress(text)
        payload = Sweep(
            format="nmx",
            sha256=bulk.sha256,
            size_bytes=bulk.size_bytes,
            duration_s=self._clock() - started_s,
        )
        return Observation({connection.place: data(payload, problems)}, bulks=(bulk,))

    def _look(self, connection: ManagerConnection) -> tuple[bytes, str]:
        """Return the text for the collector and a text of problems. Runs in a thread.

        Raises ManagerError, and FormatError when the text cannot be parsed.
        """
        headers = connection.basic()
        text = nmx.text(*(self._all(connection, what, headers) for what in (nmx.NODES, nmx.GPUS)))
        found = nmx.parse(text, f"NMX at {connection.place}")
        return text, "; ".join(str(problem) for problem in found.problems[:3])

    @staticmethod
    def _all(connection: ManagerConnection, what: str, headers: Mapping[str, str]) -> list[Mapping[str, Any]]:
        array = ArrayReader(f"NMX at {connection.place}: {what}")
        found = [item for piece in connection.get(f"/nmx/v1/{what}", headers) for item in array.feed(piece)]
        array.close()
        return found
