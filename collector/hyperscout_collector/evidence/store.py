"""The interface of the evidence store.

`sqlite.py` and `postgresql.py` implement it. All methods block: writes run in the thread of the
`StoreWriter`, reads in threads of their callers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.evidence.state import AgentRow, Bulk


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
