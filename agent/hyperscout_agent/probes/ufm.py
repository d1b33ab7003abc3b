"""Reads an InfiniBand fabric from UFM's REST API. Off by default.

The three answers are converted to one text in the format of `ibnetdiscover`, which is sent to the collector
when it differs from the last one. A UFM that has just started returns only a part of its fabric. So a result
much smaller than the last whole one is partial until the next run returns the same size.
"""

import time
from collections.abc import Callable

from hyperscout_formats.managers.ufm import UfmReader
from hyperscout_formats.text.json_array import ArrayReader

from hyperscout_agent.findings.probe import Observation, ProbeContext, ProbeParts
from hyperscout_agent.managers.client import ManagerConnection, ManagerProbe
from hyperscout_agent.settings.manager_settings import UfmSettings
from hyperscout_agent.sweeps.leased import FabricSize

_RESOURCES = ("ports", "links", "systems")


def build(context: ProbeContext) -> ProbeParts | None:
    return UfmProbe.parts(context.settings.ufm)


class UfmProbe(ManagerProbe[UfmSettings]):
    """Reads a fabric from UFM."""

    name = "ufm"
    max_answer_bytes = 1 << 30  # the ports of 10,000 hosts in three tiers are 120 MB

    def __init__(self, settings: UfmSettings, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(settings, clock)
        self._last: FabricSize | None = None
        self._last_whole: FabricSize | None = None

    def _read(self, connection: ManagerConnection) -> Observation:
        started_s = self._clock()
        reader = UfmReader(f"UFM at {connection.place}")
        headers = connection.basic()
        for what in _RESOURCES:
            array = ArrayReader(f"UFM at {connection.place}: {what}")
            for piece in connection.get(f"/ufmRest/resources/{what}", headers):
                for item in array.feed(piece):
                    reader.take(item)
            array.close()
        fabric = reader.finish()
        return self._text_observation(
            connection,
            fabric.text,
            started_s,
            partial=self._partial(FabricSize(fabric.switches, fabric.adapters, fabric.cables)),
            reason="; ".join(str(problem) for problem in fabric.problems[:3]),
        )

    def _partial(self, size: FabricSize) -> str:
        """Return why this result is partial, or "" when it is whole."""
        before, last, self._last = self._last_whole, self._last, size
        if before is not None and size.is_shrunken(before) and size != last:
            return f"{size} after {before}: UFM may have just started; the next run decides"
        self._last_whole = size
        return ""
