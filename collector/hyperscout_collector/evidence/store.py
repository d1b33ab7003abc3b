"""Where evidence lies when the collector is down: the interface, and what can go wrong with it.

One implementation today, SQLite (`sqlite.py`); PostgreSQL takes its place where several collectors
ingest and one infers. All methods block; the `Committer` calls them from one thread of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.evidence.state import AgentRow, Bulk


class StoreError(RuntimeError):
    """The store did not do it, and holds what it held before. Says what to do. Trying again may help."""


class StoreFullError(StoreError):
    """No room. Works again, without a restart, once there is."""


class StoreUnusableError(StoreError):
    """Trying again does not help: another process has it, or it is of a newer version."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What goes into one transaction: all of it, or nothing."""

    upserts: Sequence[tuple[Row, bytes]] = ()  # with the encoded Finding
    deletes: Sequence[tuple[Key, int]] = ()  # key, rank
    bulks: Sequence[Bulk] = ()
    maybe_unnamed_bulks: Sequence[bytes] = ()  # digests that go if no finding names them any more
    agents: Sequence[AgentRow] = ()
    removed_agents: Sequence[str] = ()  # by node

    def __bool__(self) -> bool:
        return bool(self.upserts or self.deletes or self.bulks or self.agents or self.removed_agents)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the store held at start. `problems`: what could not be read, and what became of it."""

    rows: Sequence[Row] = ()
    agents: Sequence[AgentRow] = ()
    topology_json: bytes | None = None  # as `topology_json.to_json` wrote it
    problems: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class StoredFinding:
    """One row of a page: its key with the rank, times as in `Row`, and the encoded Finding."""

    key: Key
    rank: int
    observed_ns: int
    offset_ns: int
    received_ns: int
    finding: bytes


class Store(Protocol):
    """A durable home for evidence, texts and the published topology. Every method may raise StoreError."""

    def load(self) -> Loaded: ...

    def apply(self, changes: Changes) -> None:
        """Write all in one transaction. When it returns, a crash of the process loses nothing of it."""

    def save_topology(self, topology_json: bytes) -> None:
        """Keep the published topology; it survives a power cut when this returns."""

    def page(
        self, node: str, probe: str, after: tuple[Key, int] | None, limit: int
    ) -> Sequence[StoredFinding]:
        """Up to `limit` findings after `after`, by (node, probe, subject, rank). "" = any node, any probe."""

    def bulk(self, sha256: bytes) -> bytes | None:
        """A text, compressed."""

    def close(self) -> None: ...
