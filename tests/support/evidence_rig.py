"""Evidence of the collector without a stream: findings are committed, and inference gets a view of them."""

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome
from hyperscout_collector.evidence.rows import row_of
from hyperscout_collector.evidence.snapshot import Resolved, resolve
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.evidence.state import Bulk, EvidencePlan, EvidenceState, KeyChange
from hyperscout_collector.evidence.store import Changes
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.evidence.view import InputsView
from hyperscout_formats.infiniband.ibnetdiscover_text import summary

from support.findings import T0, S, stamp, sweep


class Rig:
    """Evidence that is put in without a stream."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.state = EvidenceState()
        self.view = InputsView(self.state, stale_after_s=300, started_ns=T0 - 10_000 * S)
        self.texts = SweepTexts(store)

    def put(self, *findings: Finding, at_ns: int = T0, texts: Sequence[bytes] = ()) -> list[KeyChange]:
        plan = EvidencePlan(self.state, at_ns)
        for text in texts:
            bulk = Bulk(hashlib.sha256(text).digest(), len(text), zlib.compress(text))
            plan.put_bulk(bulk)
            self.store.apply(Changes(bulks=[bulk]))
        for finding in findings:
            plan.upsert(row_of(finding, sent_ns=at_ns, received_ns=at_ns), b"")
        changes = self.state.commit(plan)
        self.view.follow(changes)
        return changes

    def sweep(self, node: str, text: bytes, at_ns: int = T0, *, partial: bool = False) -> None:
        digest = hashlib.sha256(text).digest()
        found = sweep(node, digest, at_ns, partial=partial)
        found.sweep.port_guid = summary(text).port_guid
        self.put(found, at_ns=at_ns, texts=[text])

    def sent(self, reporter: str, probe: str, text: bytes | None, at_ns: int) -> None:
        """A finding of a probe with a text. `text` None: the probe failed."""
        found = Finding(
            key=FindingKey(node=reporter, probe=probe, subject="x"),
            observed_at=stamp(at_ns),
            outcome=Outcome.OUTCOME_FAILED,
        )
        if text is not None:
            found.outcome = Outcome.OUTCOME_DATA
            found.sweep.format, found.sweep.size_bytes = probe, len(text)
            found.sweep.sha256 = hashlib.sha256(text).digest()
            found.sweep.port_guid = summary(text).port_guid if probe == "ibnetdiscover" else 0
        self.put(found, at_ns=at_ns, texts=[] if text is None else [text])

    def resolved(self, now_ns: int = T0 + S) -> Resolved:
        return resolve(self.view.snapshot(now_ns), self.texts, {})


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    store = SqliteStore(tmp_path / "evidence.db")
    yield Rig(store)
    store.close()
