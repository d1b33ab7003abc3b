"""The collector's three files with contents, copies with flipped bytes, and two starts from such a copy."""

import asyncio
import hashlib
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_collector.app.placing.reservations import Reservations, reservation_file
from hyperscout_collector.app.publication.saver import read_saved
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.evidence.state import AgentRow, Bulk, EvidenceState
from hyperscout_collector.evidence.store import Changes
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.history.errors import HistoryError
from hyperscout_collector.store.database import Damage
from hyperscout_collector.store.writer import StoreWriter
from hyperscout_formats.text.errors import FormatError
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.book.reservation import Reservation
from hyperscout_placer.cluster.answer import Cost, Placement
from hyperscout_placer.cluster.request import Group, Request, Workers
from hyperscout_runtime.clock import Clock
from hyperscout_topology.frames import encoded_whole

from support.evidence_rows import kept
from support.findings import T0, S, adapter, failed, lldp, sweep, switch_port, table
from support.recorder import generation, recording, why
from support.topologies import SINCE_NS, two_leaves

EVIDENCE, HISTORY, PLACEMENTS = "evidence.db", "history.db", "placements.db"
_TEXT = b"# a sweep of no ports\n" * 20
_BULK = Bulk(hashlib.sha256(_TEXT).digest(), len(_TEXT), zlib.compress(_TEXT))
_ROWS = [
    *(kept(lldp(f"n{i}", f"eth{j}", neighbour=f"leaf-{j}")) for i in range(12) for j in range(4)),
    *(kept(adapter(f"n{i}", guid=100 + 2 * i)) for i in range(12)),
    *(kept(switch_port("switch/leaf-1", f"swp{j}")) for j in range(8)),
    kept(table("leaf-2", {f"swp{j}": "spine-1/swp3" for j in range(8)})),
    kept(failed("n1", "lldp", "eth9")),
    kept(sweep("n2", _BULK.sha256)),
]
_AGENTS = [AgentRow(f"n{i}", i + 1, "0.2") for i in range(12)]
_ASKED = Request(Group(1, (Workers(2, (("nvidia.com/gpu", 8),)),), tier=2), "soft", frozenset({"n9"}))
_PLACED = Placement(("n1", "n2"), 2, "core", Cost(2, (1,), 2, 0, (3, 1, 0)), exact=False)


@dataclass(slots=True)
class Start:
    """What a start found damaged, by file, and what it said about it."""

    damage: Damage = field(default_factory=Damage)
    problems: list[str] = field(default_factory=list)

    @property
    def found(self) -> Mapping[str, int]:
        return self.damage.files + self.damage.rows


async def write(folder: Path) -> None:
    """Write all three files."""
    store = SqliteStore(folder / EVIDENCE, clock=_clock())
    store.apply(Changes(_ROWS, bulks=[_BULK], agents=_AGENTS))
    store.save_topology(encoded_whole(two_leaves()))
    store.close()
    file = reservation_file(folder / PLACEMENTS)
    writer = StoreWriter()
    reservations = Reservations(file, writer, now_ns=lambda: T0)
    for i in range(20):
        reservations.follow(f"gang-{i}", Reservation(f"gang-{i}", "api", _ASKED, _PLACED, T0, T0 + 3600 * S))
    assert await reservations.queue.flush()
    await writer.close()
    file.close()
    async with recording(folder) as recorder:
        for number in range(1, 31):
            recorder.offer(generation(number), why(number))
            assert await recorder.queue.flush()


def _clock() -> Clock:
    return Clock(lambda: T0, lambda: T0)


def flipped(data: bytes, random: Random, count: int) -> bytes:
    """Another value in `count` bytes."""
    found = bytearray(data)
    for at in random.sample(range(len(data)), count):
        found[at] ^= random.randrange(1, 256)
    return bytes(found)


async def start(folder: Path) -> Start:
    """Open, read and write the three files as the collector does."""
    found = Start()
    await _evidence(folder, found)
    await _placements(folder, found)
    await _history(folder, found)
    return found


async def _evidence(folder: Path, found: Start) -> None:
    store = SqliteStore(folder / EVIDENCE, clock=_clock(), damage=found.damage)
    loaded = await asyncio.to_thread(store.load)
    found.problems += loaded.problems
    state = EvidenceState()
    state.load(loaded.rows, loaded.agents)
    texts = SweepTexts(store)
    for row in loaded.rows:
        if row.sha256:
            try:
                texts.get(row.sha256, "a sweep")
            except FormatError as error:
                assert "damaged" not in str(error), error  # noqa: PT017
    _, problem = read_saved(loaded.topology)
    if problem:
        found.problems.append(problem)
    after = None
    while page := store.page("", "", after, 50):
        for one in page:
            assert Finding.FromString(one.finding).key.node == one.key.node
        after = page[-1].key, page[-1].rank
    store.apply(Changes(_ROWS, bulks=[_BULK], agents=_AGENTS))
    store.apply(Changes(deletes=[(row.key, row.rank) for row, _ in _ROWS], removed_agents=["n1"]))
    assert not store.load().rows
    store.apply(Changes(_ROWS, bulks=[_BULK], agents=_AGENTS))
    store.save_topology(encoded_whole(two_leaves()))
    store.close()


async def _placements(folder: Path, found: Start) -> None:
    file = reservation_file(folder / PLACEMENTS, lambda: T0, found.damage)
    writer = StoreWriter()
    reservations = Reservations(file, writer, now_ns=lambda: T0)
    found.problems += reservations.problems
    book = Placements(clock_ns=lambda: T0, timer=lambda: 0.0, decided=lambda _: None)
    for one in reservations.restored:
        book.restore(one)
        reservations.follow(one.gang, one)
    reservations.follow("new", Reservation("new", "api", _ASKED, _PLACED, T0))
    assert await reservations.queue.flush(), reservations.queue.problem
    await writer.close()
    file.close()


async def _history(folder: Path, found: Start) -> None:
    async with recording(folder, found.damage) as recorder:
        for number in (98, 99):
            recorder.offer(generation(number), why(number))
            assert await recorder.queue.flush(), recorder.problem
        if recorder.problem:
            found.problems.append(recorder.problem)
        for request in (
            pb.ListHistoryRequest(),
            pb.ListHistoryRequest(about="n1"),
            pb.ListHistoryRequest(net=True),
        ):
            try:
                recorder.events(request)
            except HistoryError as error:
                assert "cannot be read" in str(error), error  # noqa: PT017
        for number in range(0, 32, 3):
            with suppress(HistoryError):
                recorder.topology_at(SINCE_NS + number * S)
