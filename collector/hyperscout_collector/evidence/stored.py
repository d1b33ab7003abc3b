"""What both stores of evidence do with stored data: they check rows, and move times to those of the process.

Times are of the process that wrote them (`hyperscout_runtime.clock`). With each write the store records that
time and the machine's clock. At the start the difference between the two machine clocks is the time since the
last write, and all stored times are moved so that ages are what they were then, plus this time. A clock that
was set while the collector ran changes no age; one that was set back since the last write counts as no time.
"""

from collections.abc import Sequence

from hyperscout.v1.finding_pb2 import Finding
from hyperscout_formats.facts.clean_message import clean
from hyperscout_runtime.clock import Clock
from hyperscout_runtime.units import NS

from hyperscout_collector.evidence.limits import decoded_bytes
from hyperscout_collector.evidence.rows import MAX_TIME_NS, Key, Row, stored_row
from hyperscout_collector.evidence.state import AgentRow
from hyperscout_collector.evidence.store import StoredFinding
from hyperscout_collector.store.sql import SqlConnection

_STEP_NS = 2 * NS  # a smaller difference of two clocks is not worth a write of all rows


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


def page_of(
    db: SqlConnection, node: str, probe: str, after: tuple[Key, int] | None, limit: int
) -> Sequence[StoredFinding]:
    """Returns a page of findings, as in `EvidenceStore.page`."""
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
    rows = db.execute(
        "SELECT node, probe, subject, rank, observed_ns, offset_ns, received_ns, finding "  # noqa: S608
        f"FROM findings WHERE {' AND '.join(where)} ORDER BY node, probe, subject, rank LIMIT ?",
        (*values, limit),
    ).fetchall()
    return [StoredFinding(Key(*row[:3]), *row[3:]) for row in rows]


def shift_since(clock: Clock, written_ns: int, wall_ns: int) -> int:
    """Returns by how much to move stored times, in ns. `written_ns`, `wall_ns`: as recorded last."""
    return bounded_shift(clock.now_ns() - max(clock.wall_ns() - wall_ns, 0) - written_ns)


def bounded_shift(shift_ns: int) -> int:
    """Returns 0 for a shift that is not worth it, or that no clock explains."""
    return 0 if abs(shift_ns) <= _STEP_NS or abs(shift_ns) >= MAX_TIME_NS else shift_ns
