"""Runs NCCL during the hours of the setting `nccl_window`, one pair of nodes at a time.

Like every run, it uses only nodes that are reserved for measuring or cordoned.
`decisions.measuring.nccl_windows` chooses the next pair. A failed run is repeated in the next window.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from hyperscout_runtime.clock import Clock
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.measuring.nccl import PROBE, TIMEOUT_S, NcclRuns
from hyperscout_collector.decisions.measuring.nccl_windows import (
    Window,
    next_pair,
    open_window,
    pairs_of_domains,
)
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.ingest.streams import Streams
from hyperscout_collector.serve.grpc.measurement_service import MeasurementError

_log = logging.getLogger(__name__)

_TICK_S = 10.0  # between two runs: the driver reports a GPU as busy for about a second after a run


class NcclSchedule:
    """Run `run` as a task. `topology()`: the published topology. `clock`: windows are times of
    the machine's clock.
    """

    def __init__(
        self,
        windows: Sequence[Window],
        runs: NcclRuns,
        streams: Streams,
        state: EvidenceState,
        topology: Callable[[], Topology],
        *,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._windows = windows
        self._runs = runs
        self._streams = streams
        self._state = state
        self._topology = topology
        self._clock = clock
        self._sleep = sleep
        self._tried_ns: dict[str, int] = {}  # by domain

    async def run(self) -> None:
        """Run NCCL in each window until cancelled. Returns at once if no window is set."""
        if not self._windows:
            return
        while True:
            await self._sleep(_TICK_S)
            await self.turn()

    async def turn(self) -> None:
        """Do the next run if a window is open and a pair is due. A failed run raises nothing."""
        now_ns, wall_ns = self._clock.now_ns(), self._clock.wall_ns()
        window = open_window(self._windows, wall_ns)
        if window is None or window.until_ns - wall_ns < TIMEOUT_S * NS:
            return
        since_ns = window.since_ns - wall_ns + now_ns
        free = {stream.node for stream in self._streams if self._runs.free(stream.node)}
        pairs = pairs_of_domains(self._topology().hypernodes, free)
        chosen = next_pair(pairs, self._last_ns, since_ns)
        if chosen is None:
            return
        name, pair = chosen
        # Without this, names of removed domains would accumulate.
        self._tried_ns = {k: v for k, v in self._tried_ns.items() if v >= since_ns}
        self._tried_ns[name] = now_ns
        try:
            await self._runs.run(pair)
        except MeasurementError as error:
            _log.info("NCCL between %s and %s, for %s: %s", *pair, name, error)

    def _last_ns(self, name: str, pair: tuple[str, str]) -> int:
        rows = self._state.rows_of_key(Key(pair[0], PROBE, pair[1]))
        return max(self._tried_ns.get(name, 0), max((row.seen_ns for row in rows), default=0))
