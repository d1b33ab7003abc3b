"""Saves the newest published topology to disk without delaying the next one.

After a restart, names continue from it. A crash between publishing and saving loses no name: the evidence is
on disk, and the same evidence with the same earlier topology gives the same names. A large topology takes
seconds of CPU time to save, so it is saved less often than it changes.

The evidence on disk may not be that from which the topology was inferred: during a take-over, most of it has
not arrived yet. The file records that, and a start from it is a take-over again.

A number names one generation, also after a crash. So numbers are reserved on disk, far ahead of the last one
that was saved, and a start after a crash continues behind them. A clean stop reserves none ahead.
"""

import contextlib
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.errors import described
from hyperscout_topology.frames import decoded, encoded_whole
from hyperscout_topology.json_reader import from_json
from hyperscout_topology.topology import Topology

from hyperscout_collector.evidence.store import MAX_GENERATION, EvidenceStore
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.writer import Priority, StoreWriter, WriteQueue

_SETTLE_S = 0.5  # without a newer generation
_SHARE = 0.02  # the largest share of time that saving takes: for 10,000 nodes about once in 5 s
_RESERVED = 1000  # numbers ahead of the last topology that was saved


class Saver:
    """Saves topologies with `writer`. `lacks_evidence()`: whether a take-over is in progress."""

    def __init__(self, store: EvidenceStore, writer: StoreWriter, lacks_evidence: Callable[[], bool]) -> None:
        self._store = store
        self._lacks_evidence = lacks_evidence
        self._newest: Topology | None = None  # what was offered last
        self._last: Topology | None = None  # what was saved last
        self._saved_as_lacking = False
        self._encoder = BoundedExecutor("topology-encoder")
        self.queue: WriteQueue[Topology] = WriteQueue(
            writer,
            Priority.TOPOLOGY,
            "the published topology is not saved",
            self._write,
            join=lambda old, new: new,
            settle_s=_SETTLE_S,
            share=_SHARE,
        )

    def offer(self, topology: Topology) -> None:
        self._newest = topology
        self.queue.put(topology)

    def tick(self) -> None:
        """Save again after a take-over that ended without a change. Call it about once a second."""
        saved = self._last
        # A newer topology that waits is saved with the new mark anyway.
        if (
            saved is not None
            and saved is self._newest
            and self._saved_as_lacking
            and not self._lacks_evidence()
        ):
            self._saved_as_lacking = False
            self.offer(saved)

    async def _write(self, topology: Topology) -> bool:
        lacks_evidence = self._lacks_evidence()
        encoded = await self._encoder(encoded_whole, topology)
        save = partial(self._store.save_topology, lacks_evidence=lacks_evidence)
        await self.queue.in_thread(save, encoded, ahead(topology.generation))
        self._last, self._saved_as_lacking = topology, lacks_evidence
        return True

    async def close(self) -> None:
        """Save what was offered last, and reserve no more than its number."""
        with contextlib.suppress(StoreError):
            await self.queue.written()
            self.tick()
            await self.queue.written()
            if self._last is not None:
                await self.queue.in_thread(self._store.reserve, self._last.generation)


def ahead(generation: int) -> int:
    """Return the last number to reserve if this is the highest one that may have been used."""
    return min(generation + _RESERVED, MAX_GENERATION)


def after_crash(topology: Topology, reserved: int) -> Topology:
    """Return the topology under a number that no other topology had: without a clean stop the process that
    published it may have published others under the next numbers."""
    return replace(topology, generation=reserved + 1) if reserved > topology.generation else topology


def read_saved(encoded: bytes | None) -> tuple[Topology | None, str | None]:
    """Returns the saved topology, and the error if it cannot be read."""
    if encoded is None:
        return None, None
    try:
        inflate = zlib.decompressobj()
        text = inflate.decompress(encoded)
        if text.startswith(b"{") and not inflate.unused_data:  # version 0.1 saved JSON
            return from_json(json.loads(text)), None
        return decoded(encoded), None
    except Exception as error:  # damaged data may raise anything
        return None, f"the saved topology cannot be read, HyperNodes get new names: {described(error)}"
