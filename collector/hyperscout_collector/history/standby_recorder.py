"""Records the leader's generations on a standby, so that the history does not start again after a takeover.

The stream of generations does not contain their causes. The leader's own history contains them a moment
later.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from hyperscout.v1 import topology_pb2 as pb
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_topology.proto import after_event
from hyperscout_topology.topology import Topology

from hyperscout_collector.history.causes import FOLLOWED, RESTART, Cause
from hyperscout_collector.history.recorder import Recorder

_log = logging.getLogger(__name__)

# More than a follower reads before it requests a snapshot, so no event is dropped in normal operation.
MAX_WAITING = 512
_ATTEMPTS, _PAUSE_S = 5, 0.2  # the leader writes its history while it publishes


class StandbyRecorder:
    """Records the leader's stream. Call `receive` for every event, on the loop; run `run` as a task.

    `cause_of(generation)`: returns the cause as the leader recorded it; None = the leader has none, or does
    not answer. A snapshot replaces all waiting events. At most MAX_WAITING events wait. If there are more,
    all are dropped, and recording continues with the next snapshot.
    """

    def __init__(
        self,
        recorder: Recorder,
        cause_of: Callable[[int], Awaitable[Cause | None]],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._recorder = recorder
        self._cause_of = cause_of
        self._sleep = sleep
        self._events: deque[pb.WatchTopologyResponse] = deque()
        self._is_behind = False  # events were dropped; deltas cannot be applied before the next snapshot
        self._wake = asyncio.Event()
        self._topology: Topology | None = None
        self._unrecorded: Topology | None = None  # not recorded yet: its cause is being requested
        self._in_thread = BoundedExecutor("history-follower")

    def receive(self, event: pb.WatchTopologyResponse) -> None:
        """Queue a snapshot, or a delta to the generation before."""
        if event.HasField("snapshot"):
            self._events.clear()
            self._is_behind = False
        elif len(self._events) >= MAX_WAITING:
            _log.warning("%d generations of the leader are not recorded: too many wait", len(self._events))
            self._events.clear()
            self._is_behind = True
        if not self._is_behind:
            self._events.append(event)
            self._wake.set()

    async def run(self) -> None:
        """Record until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while await self._next():
                if (topology := self._unrecorded) is not None:
                    cause = await self._cause(topology.generation)
                    self._record(cause)

    async def finish(self) -> None:
        """Record the remaining events, after `run`.

        The leader, which may be gone, is not queried any more.
        """
        self._record(Cause(FOLLOWED))
        while await self._next():
            self._record(Cause(FOLLOWED))

    async def _next(self) -> bool:
        """Apply one event. Returns False if there is none."""
        if not self._events:
            return False
        event = self._events.popleft()
        topology = await self._in_thread(self._applied, event)
        if topology is not None and topology.generation:
            if event.HasField("snapshot"):  # its differences occurred while the standby did not follow
                self._recorder.resume(topology, Cause(RESTART))
            else:
                self._unrecorded = topology
        return True

    def _record(self, cause: Cause) -> None:
        if self._unrecorded is not None:
            self._recorder.offer(self._unrecorded, cause)
            self._unrecorded = None

    def _applied(self, event: pb.WatchTopologyResponse) -> Topology | None:
        """Returns the topology after the event. Runs in a thread."""
        if self._topology is not None or event.HasField("snapshot"):
            self._topology = after_event(self._topology or Topology(0), event)
        return self._topology

    async def _cause(self, generation: int) -> Cause:
        for _ in range(_ATTEMPTS):
            if (found := await self._cause_of(generation)) is not None:
                return found
            await self._sleep(_PAUSE_S)
        return Cause(FOLLOWED)
