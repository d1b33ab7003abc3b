"""The interface of the evidence store, and what its implementations share.

`sqlite.py` and `postgresql.py` implement it. All methods block: writes run in the thread of the
`StoreWriter`, reads in threads of their callers.

Times are of the process that wrote them (`hyperscout_runtime.clock`). With each write a store records that
time and the machine's clock. At the start the difference between the two machine clocks is the time since the
last write, and all stored times are moved so that ages are what they were then, plus this time. A clock that
was set while the collector ran changes no age; one that was set back since the last write counts as no time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from hyperscout.v1.finding_pb2 import Finding
from hyperscout_formats.facts.clean_message import clean
from hyperscout_runtime.clock import Clock
from hyperscout_runtime.units import NS

from hyperscout_collector.evidence.limits import decoded_bytes
from hyperscout_collector.evidence.rows import MAX_TIME_NS, Key, Row, by_rank, stored_row
from hyperscout_collector.evidence.state import AgentRow, Bulk, EvidencePlan, EvidenceState
from hyperscout_collector.store.sql import SqlReader

_STEP_NS = 2 * NS  # a smaller difference of two clocks is not worth a write of all rows

_R = TypeVar("_R", bound=SqlReader)


@dataclass(frozen=True, slots=True)
class Changes:
    """The content of one transaction: all of it is written, or none."""

    upserts: Sequence[tuple[Row, bytes]] = ()  # with the encoded Finding
    deletes: Sequence[tuple[Key, int]] = ()  # key, rank
    bulks: Sequence[Bulk] = ()
    maybe_unnamed_bulks: Sequence[bytes] = ()  # digests to delete if no finding names them any more
    agents: Sequence[AgentRow] = ()
    removed_agents: Sequence[str] = ()  # by node
    renewed: Sequence[Row] = ()  # stored rows with new times

    def __bool__(self) -> bool:
        rows = self.upserts or self.renewed or self.deletes
        return bool(rows or self.bulks or self.agents or self.removed_agents)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The content of the store at start. `problems`: what could not be read, and what happened to it.

    `shift_ns`: by how much the times of the rows were moved to the time of this process. Times in other data
    that was stored beside them must be moved too. `text_bytes`: compressed sizes of the texts, by digest.
    """

    rows: Sequence[Row] = ()
    agents: Sequence[AgentRow] = ()
    topology: bytes | None = None  # as `save_topology` received it
    problems: Sequence[str] = field(default_factory=tuple)
    shift_ns: int = 0
    text_bytes: Mapping[bytes, int] = field(default_factory=dict)
    reserved: int = 0  # see `EvidenceStore.reserve`
    lacks_evidence: bool = False  # as `save_topology` received it
    number: int = 0  # in PostgreSQL: of the last batch of a replica


def reloaded(state: EvidenceState, nodes: Iterable[str], loaded: Loaded, now_ns: int) -> EvidencePlan:
    """Plan to replace what is known of these nodes by what the store has."""
    plan = EvidencePlan(state, now_ns)
    for node in nodes:
        plan.rows.update(dict.fromkeys(state.keys_of(node), ()))
        plan.agents[node] = None
    rows: dict[Key, list[Row]] = {}
    for row in loaded.rows:
        rows.setdefault(row.key, []).append(row)
    plan.rows.update({key: by_rank(found) for key, found in rows.items()})
    plan.agents.update({agent.node: agent for agent in loaded.agents})
    return plan


@dataclass(frozen=True, slots=True)
class StoredFinding:
    """One row of a page: its key with the rank, times as in `Row`, and the encoded Finding.

    `observed_ns` may be later than the time in the finding.
    """

    key: Key
    rank: int
    observed_ns: int
    offset_ns: int
    received_ns: int
    finding: bytes


MAX_GENERATION: Final = 2**53  # in JSON, numbers are exact up to here


class EvidenceStore(Protocol):
    """Durable storage for evidence, texts and the published topology. Every method may raise StoreError."""

    def load(self) -> Loaded: ...

    def apply(self, changes: Changes) -> None:
        """Write all changes in one transaction.

        After it returns, a crash of the process loses none of them.
        """

    def save_topology(self, topology: bytes, reserved: int = 0, *, lacks_evidence: bool = False) -> None:
        """Store the published topology, and `reserve` numbers. After it returns, both survive a power cut.

        `lacks_evidence`: the evidence in the store is not that from which the topology was inferred.
        """

    def reserve(self, generation: int) -> None:
        """Store the highest number that a generation may have before the next call, as durably."""

    def page(
        self, node: str, probe: str, after: tuple[Key, int] | None, limit: int
    ) -> Sequence[StoredFinding]:
        """Returns up to `limit` findings after `after`, by (node, probe, subject, rank).

        "" = any node or probe.
        """

    def bulk(self, sha256: bytes) -> bytes | None:
        """Returns a compressed text, or None if it is not stored."""

    def close(self) -> None: ...


def row_in(
    key: tuple[str, str, str], numbers: tuple[int, int, int, int], sha256: bytes | None, encoded: bytes
) -> Row | None:
    """Returns a stored row; None = it is damaged.

    `numbers`: rank, observed_ns, offset_ns, received_ns. `encoded`: the Finding, which names key and text.
    """
    try:
        finding = Finding.FromString(encoded)
        memory_bytes = decoded_bytes(finding)  # an earlier version stored findings of any size
        clean(finding)  # and texts as they came
        row = stored_row(finding, *numbers, memory_bytes)
        same = row.key == key and row.sha256 == sha256
    except Exception:  # a reader of facts may raise anything for a damaged message
        return None
    return row if same else None


def agent_in(node: str, instance: str, version: str) -> AgentRow | None:
    """Returns a stored agent; None = it is damaged."""
    try:
        return AgentRow(node, int(instance), version)
    except ValueError:
        return None


class EvidenceReader(Generic[_R]):
    """The reads of an `EvidenceStore` that both databases share. They may be called from any thread."""

    def __init__(self, reader: _R) -> None:
        self._reader = reader

    def page(
        self, node: str, probe: str, after: tuple[Key, int] | None, limit: int
    ) -> Sequence[StoredFinding]:
        where: list[str] = ["1 = 1"]
        values: list[str | int] = []
        if node:
            where.append("node = ?")
            values.append(node)
        if probe:
            where.append("probe = ?")
            values.append(probe)
        if after is not None:
            where.append("(node, probe, subject, rank) > (?, ?, ?, ?)")
            values += [*after[0], after[1]]
        with self._reader.reading() as db:
            rows = db.execute(
                "SELECT node, probe, subject, rank, observed_ns, offset_ns, received_ns, finding "  # noqa: S608
                f"FROM findings WHERE {' AND '.join(where)} ORDER BY node, probe, subject, rank LIMIT ?",
                (*values, limit),
            ).fetchall()
        return [StoredFinding(Key(*row[:3]), *row[3:]) for row in rows]

    def bulk(self, sha256: bytes) -> bytes | None:
        with self._reader.reading() as db:
            row = db.execute("SELECT compressed FROM bulks WHERE sha256 = ?", (sha256,)).fetchone()
        return row[0] if row else None


def shift_since(clock: Clock, written_ns: int, wall_ns: int) -> int:
    """Returns by how much to move stored times, in ns. `written_ns`, `wall_ns`: as recorded last."""
    return bounded_shift(clock.now_ns() - max(clock.wall_ns() - wall_ns, 0) - written_ns)


def bounded_shift(shift_ns: int) -> int:
    """Returns 0 for a shift that is not worth it, or that no clock explains."""
    return 0 if abs(shift_ns) <= _STEP_NS or abs(shift_ns) >= MAX_TIME_NS else shift_ns
