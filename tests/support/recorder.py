"""A history recorder with a fake clock, and generations for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from hyperscout.v1 import topology_pb2 as pb
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.history.causes import Cause
from hyperscout_collector.history.opening import in_file
from hyperscout_collector.history.recorder import Recorder
from hyperscout_collector.history.settings import HistorySettings
from hyperscout_collector.history.store import HistoryStore
from hyperscout_collector.store.database import Damage
from hyperscout_collector.store.writer import StoreWriter
from hyperscout_topology.topology import Anomaly, Endpoint, Topology

from support.topologies import SINCE_NS, two_leaves

S = 1_000_000_000


class Clock:
    """One second a look."""

    def __init__(self) -> None:
        self.now_ns = SINCE_NS

    def __call__(self) -> int:
        self.now_ns += S
        return self.now_ns


@asynccontextmanager
async def recording(folder: Path, damage: Damage | None = None) -> AsyncIterator[Recorder]:
    writer = StoreWriter()
    clock = Clock()
    found = Recorder(in_file(folder / "history.db", HistorySettings(), clock, damage), clock, writer)
    try:
        yield found
    finally:
        await writer.close()
        await found.close()


def record(store: HistoryStore, at_ns: int, topology: Topology, cause: Cause, missed: int = 0) -> None:
    """Add a generation, as the recorder does."""
    encoded = store.encode(at_ns, topology, cause, missed)
    while store.delete_oldest(encoded.at_ns, encoded.need_bytes):
        pass
    store.add(encoded)


def generation(number: int, noise: bytes = b"") -> Topology:
    ends = Endpoint(f"a{number}", f"n{number}"), None
    strange = Anomaly("UnknownHost", *ends, None, ("lldp",), 0.5, noise.hex())
    return replace(two_leaves(), generation=number, anomalies=(strange,))


def why(number: int) -> Cause:
    return Cause("findings", (Key(f"n{number}", "lldp", "eth0"),), 1)


def published(recorder: Recorder) -> list[pb.HistoryEvent]:
    """Oldest first."""
    request = pb.ListHistoryRequest(kinds=["GenerationPublished"])
    return list(reversed(recorder.events(request).events))
