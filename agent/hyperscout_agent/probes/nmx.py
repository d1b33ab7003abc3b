"""Reads NVLink domains from their manager's REST API (NMX-M, now a part of NetQ). Off by default.

The probe covers hosts without an agent. Reports of agents are more accurate, and the collector uses them to
match the manager's names.
"""

from collections.abc import Mapping
from typing import Any

from hyperscout_formats.managers import nmx
from hyperscout_formats.text.json_array import ArrayReader

from hyperscout_agent.findings.probe import Observation, ProbeContext, ProbeParts
from hyperscout_agent.managers.client import ManagerConnection, ManagerProbe
from hyperscout_agent.settings.manager_settings import NmxSettings


def build(context: ProbeContext) -> ProbeParts | None:
    return NmxProbe.parts(context.settings.nmx)


class NmxProbe(ManagerProbe[NmxSettings]):
    """Reads nodes and GPUs from NMX-M."""

    name = "nmx"
    max_answer_bytes = 256 * 1024 * 1024

    def _read(self, connection: ManagerConnection) -> Observation:
        started_s = self._clock()
        headers = connection.basic()
        text = nmx.text(*(self._all(connection, what, headers) for what in (nmx.NODES, nmx.GPUS)))
        found = nmx.parse(text, f"NMX at {connection.place}")
        problems = "; ".join(str(problem) for problem in found.problems[:3])
        return self._text_observation(connection, text, started_s, reason=problems)

    @staticmethod
    def _all(connection: ManagerConnection, what: str, headers: Mapping[str, str]) -> list[Mapping[str, Any]]:
        array = ArrayReader(f"NMX at {connection.place}: {what}")
        found = [item for piece in connection.get(f"/nmx/v1/{what}", headers) for item in array.feed(piece)]
        array.close()
        return found
