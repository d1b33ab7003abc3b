"""Saves the newest published topology to disk without delaying the next one.

After a restart, names and generations continue from it. A crash between publishing and saving loses no name:
the evidence is on disk, and the same evidence with the same earlier topology gives the same names. So a save
waits for a quiet moment. A large topology takes seconds of CPU time to save, so it is saved less often than
it changes.
"""

import asyncio
import json
import logging
from collections.abc import Callable

from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_topology.json_objects import TopologyError, from_json, to_json
from hyperscout_topology.topology import Topology

from hyperscout_collector.evidence.committer import Committer
from hyperscout_collector.evidence.store import StoreError

_log = logging.getLogger(__name__)

_RETRY_S = 5.0
_QUIET_S = 0.5  # without a newer generation
_SHARE = 0.2  # the largest share of time that saving takes
_MAX_WAIT_S = 20.0


class Saver:
    """Saves topologies while `run` runs. `timer`: monotonic seconds.

    `problem`: why the newest topology is not saved; None = it is saved, or will be saved soon.
    """

    def __init__(self, committer: Committer, timer: Callable[[], float]) -> None:
        self.problem: str | None = None
        self._committer = committer
        self._timer = timer
        self._unsaved: Topology | None = None
        self._wake = asyncio.Event()
        self._in_thread = BoundedExecutor("saver")

    def offer(self, topology: Topology) -> None:
        self._unsaved = topology
        self._wake.set()

    async def run(self) -> None:
        """Save until cancelled."""
        while True:
            await self._wake.wait()
            await self._until_quiet()
            began_s = self._timer()
            saved = await self.flush()
            rest_s = min((self._timer() - began_s) / _SHARE, _MAX_WAIT_S) if saved else _RETRY_S
            if not saved:
                self._wake.set()
            await asyncio.sleep(rest_s)

    async def _until_quiet(self) -> None:
        """Wait until no newer generation has come for `_QUIET_S`, at most `_MAX_WAIT_S`."""
        give_up_s = self._timer() + _MAX_WAIT_S
        while self._wake.is_set() and self._timer() < give_up_s:
            self._wake.clear()
            try:
                async with asyncio.timeout(_QUIET_S):
                    await self._wake.wait()
            except TimeoutError:
                return

    async def flush(self) -> bool:
        """Save the newest topology if it is not saved. Returns False if that fails."""
        if (topology := self._unsaved) is None:
            return True
        encoded = await self._in_thread(lambda: json.dumps(to_json(topology)).encode())
        try:
            await self._committer.save_topology(encoded)
        except StoreError as error:
            if self.problem is None:
                _log.error("generation %d is not saved: %s", topology.generation, error)
            self.problem = f"generation {topology.generation} is published, but not saved: {error}"
            return False
        self.problem = None
        if self._unsaved is topology:
            self._unsaved = None
        return True


def read_saved(encoded: bytes | None) -> tuple[Topology | None, str | None]:
    """The saved topology, and the error if it cannot be read."""
    if encoded is None:
        return None, None
    try:
        return from_json(json.loads(encoded)), None
    except (ValueError, TopologyError) as error:
        return None, f"the saved topology cannot be read, names begin anew: {error}"
