"""Findings as the evidence store takes them."""

from collections.abc import Iterator

from hyperscout.v1.finding_pb2 import Finding
from hyperscout_collector.evidence.rows import Row, row_of
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.evidence.store import Changes, EvidenceStore
from hyperscout_collector.store.errors import StoreFullError

from support.findings import T0, S, failed


def kept(finding: Finding, at_ns: int = T0) -> tuple[Row, bytes]:
    return row_of(finding, sent_ns=at_ns + 3 * S, received_ns=at_ns), finding.SerializeToString()


def all_rows(state: EvidenceState) -> Iterator[Row]:
    """All rows, reporter by reporter."""
    for node in state.nodes:
        yield from state.rows_of_node(node)


def fill(store: EvidenceStore) -> int:
    """Add findings until there is no room; returns how many are in."""
    count = 0
    for i in range(1000):
        rows = [kept(failed("n1", "lldp", f"eth{i}-{j}", reason="x" * 1000)) for j in range(20)]
        try:
            store.apply(Changes(rows))
        except StoreFullError as error:
            assert "no space is left" in str(error)  # noqa: PT017 - the loop ends here
            return count
        count += len(rows)
    raise AssertionError("the disk never filled")
