"""Keeps the published topology on disk: always the newest, never in the way of the readers.

Names and generations go on from it after a restart. A crash between publishing and saving costs nothing:
the evidence is on disk, and the same evidence from the same past gives the same names.
"""

import asyncio
import json
import logging

from hyperscout_collector.evidence.committer import Committer
from hyperscout_collector.evidence.store import StoreError
from hyperscout_collector.topology import Topology, TopologyError, from_json, to_json

_log = logging.getLogger(__name__)

_RETRY_S = 5.0


class Saver:
    """`problem`: why the newest is not saved; None when it is, or is about to be."""

    def __init__(self, committer: Committer) -> None:
        self.problem: str | None = None
        self._committer = committer
        self._unsaved: Topology | None = None
        self._wake = asyncio.Event()

    def offer(self, topology: Topology) -> None:
        self._unsaved = topology
        self._wake.set()

    async def run(self) -> None:
        """Save until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self.flush():
                try:
                    async with asyncio.timeout(_RETRY_S):
                        await self._wake.wait()
                except TimeoutError:
                    self._wake.set()

    async def flush(self) -> bool:
        """Save what is not saved yet. False when it could not be."""
        if (topology := self._unsaved) is None:
            return True
        encoded = await asyncio.to_thread(lambda: json.dumps(to_json(topology)).encode())
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
    """The saved topology, and what is wrong with it if it cannot be read."""
    if encoded is None:
        return None, None
    try:
        return from_json(json.loads(encoded)), None
    except (ValueError, TopologyError) as error:
        return None, f"the saved topology cannot be read, names begin anew: {error}"
