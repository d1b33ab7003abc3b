"""What both stores of evidence hold, and what is there after a restart."""

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.evidence.state import AgentRow, Bulk
from hyperscout_collector.evidence.store import Changes, EvidenceStore
from hyperscout_collector.store.errors import StoreError
from support.evidence_rows import kept
from support.evidence_stores import FIXED, OpenEvidence
from support.fake_time import Steps
from support.findings import T0, S, failed, lldp, sweep
from support.hostile import hostile


def bulk(text: bytes) -> Bulk:
    return Bulk(hashlib.sha256(text).digest(), len(text), zlib.compress(text))


@pytest.fixture
def store(evidence_of: OpenEvidence) -> Iterator[EvidenceStore]:
    found = evidence_of(FIXED)
    yield found
    found.close()


def test_everything_comes_back_after_a_restart(store: EvidenceStore, evidence_of: OpenEvidence) -> None:
    text = bulk(b"# a sweep")
    rows = [kept(lldp("n1", "eth0")), kept(failed("n1", "lldp", "eth1")), kept(sweep("n2", text.sha256))]
    store.apply(Changes(rows, bulks=[text], agents=[AgentRow("n1", (1 << 64) - 1, "0.1")]))
    store.save_topology(b"a topology")
    store.close()
    again = evidence_of(FIXED)
    loaded = again.load()
    assert sorted(loaded.rows, key=lambda row: row.key) == [row for row, _ in rows]
    assert loaded.agents == [AgentRow("n1", (1 << 64) - 1, "0.1")]
    assert (loaded.topology, loaded.lacks_evidence) == (b"a topology", False)
    assert loaded.problems == ()
    assert again.bulk(text.sha256) == text.compressed
    again.close()


def test_a_topology_lacks_evidence_until_another_is_saved(store: EvidenceStore) -> None:
    for lacks_evidence in (True, True, False):
        store.save_topology(b"a topology", lacks_evidence=lacks_evidence)
        store.reserve(7)
        assert store.load().lacks_evidence == lacks_evidence


@pytest.mark.slow
def test_a_finding_that_takes_too_much_memory_is_dropped_at_the_start(store: EvidenceStore) -> None:
    """An earlier version stored such findings, and ran out of memory at each start."""
    store.apply(Changes([kept(lldp("n1", "eth0")), kept(hostile("n1", "eth1", b"\x2a\x00" * 100_000))]))
    loaded = store.load()
    assert [(row.key.subject, row.memory_bytes > 1000) for row in loaded.rows] == [("eth0", True)]
    assert "1 damaged rows were dropped" in loaded.problems[0]


def test_a_transaction_is_all_or_nothing(store: EvidenceStore) -> None:
    store.apply(Changes([kept(lldp("n1", "eth0"))]))
    row, encoded = kept(lldp("n1", "eth1"))
    with pytest.raises(StoreError):
        store.apply(Changes([(row, encoded), (row, None)]))  # type: ignore[list-item]
    assert [row.key.subject for row in store.load().rows] == ["eth0"]


def test_a_text_goes_when_no_finding_names_it(store: EvidenceStore) -> None:
    old, new = bulk(b"old"), bulk(b"new")
    first = [kept(sweep("n1", old.sha256)), kept(sweep("n2", old.sha256))]
    store.apply(Changes(first, bulks=[old]))
    store.apply(Changes([kept(sweep("n1", new.sha256))], bulks=[new], maybe_unnamed_bulks=[old.sha256]))
    assert store.bulk(old.sha256) is not None  # n2 names it still
    store.apply(Changes(deletes=[(first[1][0].key, 2)], maybe_unnamed_bulks=[old.sha256]))
    assert (store.bulk(old.sha256), store.bulk(new.sha256)) == (None, new.compressed)


def test_pages_go_through_everything_once_and_in_order(store: EvidenceStore) -> None:
    rows = [kept(lldp(f"n{i // 4}", f"eth{i % 4}")) for i in range(20)]
    rows += [kept(failed("n1", "lldp", "eth1", T0 + S)), kept(failed("n0", "infiniband", "mlx5_0/1"))]
    store.apply(Changes(rows))
    found: list[tuple[Key, int]] = []
    after = None
    while page := store.page("", "", after, 3):
        found += [(row.key, row.rank) for row in page]
        after = found[-1]
    assert found == sorted((row.key, row.rank) for row, _ in rows)
    assert [row.key.node for row in store.page("n1", "lldp", None, 100)] == ["n1"] * 5
    assert [row.key.subject for row in store.page("", "infiniband", None, 100)] == ["mlx5_0/1"]
    only = store.page("n0", "lldp", None, 1)[0]
    assert (only.observed_ns - only.offset_ns, only.received_ns) == (T0 - 3 * S, T0)
    assert Finding.FromString(only.finding) == lldp("n0", "eth0")


def test_new_times_of_a_stored_finding(store: EvidenceStore) -> None:
    first, other = kept(lldp("n1", "eth0")), kept(lldp("n1", "eth1"))
    store.apply(Changes([first, other]))
    later = replace(first[0], observed_ns=T0 + 60 * S, offset_ns=S, received_ns=T0 + 59 * S)
    store.apply(Changes(renewed=[later]))
    assert sorted(store.load().rows, key=lambda row: row.key) == [later, other[0]]


@pytest.mark.parametrize("step_s", [-7200, 0, 7200])
@pytest.mark.parametrize("stop_step_s", [-7200, 0])
def test_a_clock_that_is_set_changes_no_age_across_restarts(
    evidence_of: OpenEvidence, step_s: int, stop_step_s: int
) -> None:
    machine = Steps()
    clock = machine.process()
    store = evidence_of(clock)
    store.apply(Changes([kept(lldp("n1", "eth0", T0 - 3 * S), T0)]))
    machine.passes(100)
    machine.wall_ns += step_s * S
    machine.passes(20)
    store.apply(Changes([kept(lldp("n1", "eth1", clock.now_ns() - 3 * S), clock.now_ns())]))
    store.close()
    machine.passes(10)
    machine.wall_ns += stop_step_s * S
    away_s = 0 if stop_step_s < 0 else 10  # it was set back: no time has passed
    shifts = []
    for extra_s in (0, 30):  # the second start finds what the first one wrote
        machine.passes(extra_s)
        clock = machine.process()
        store = evidence_of(clock)
        loaded = store.load()
        ages_s = sorted((clock.now_ns() - row.seen_ns) / S for row in loaded.rows)
        assert ages_s == pytest.approx([6 + away_s + extra_s, 126 + away_s + extra_s], abs=3)
        shifts.append(loaded.shift_ns // S)
        store.close()
    assert shifts == [step_s + stop_step_s + (10 if stop_step_s < 0 else 0), 0]
