"""The store: what is current, what is dirty, and what never replaces what."""

import zlib

import pytest
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome, Sweep
from hyperscout_agent.findings.bulk import compress
from hyperscout_agent.findings.store import MAX_FINDING_BYTES, Batch, FindingStore, StoreFull
from hypothesis import given
from hypothesis import strategies as st

DATA, NOTHING, FAILED = Outcome.OUTCOME_DATA, Outcome.OUTCOME_NOTHING, Outcome.OUTCOME_FAILED


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def finding(
    subject: str = "eth0",
    *,
    outcome: Outcome.ValueType = DATA,
    speed: int = 0,
    at: int = 1,
    node: str = "n1",
    reason: str = "",
) -> Finding:
    made = Finding(key=FindingKey(node=node, probe="lldp", subject=subject), outcome=outcome, reason=reason)
    made.observed_at.FromSeconds(at)
    if outcome == DATA:
        made.lldp.interface = subject
        made.lldp.speed_mbps = speed
    return made


def sweep(digest: bytes, *, partial: bool = False, subject: str = "p") -> Finding:
    return Finding(
        key=FindingKey(node="n1", probe="ibnetdiscover", subject=subject),
        outcome=DATA,
        sweep=Sweep(sha256=digest, partial=partial),
    )


def take(store: FindingStore, max_bytes: int = 1 << 20, max_findings: int = 1000) -> list[Batch]:
    batches = []
    while (batch := store.next_batch(max_bytes, max_findings)) is not None:
        batches.append(batch)
    return batches


def test_full_state_then_only_changes() -> None:
    store = FindingStore("n1", Clock())
    store.put(finding("eth0"))
    store.put(finding("eth1"))
    assert store.next_batch(1 << 20, 10) is None, "nothing goes out without a stream"
    store.begin_stream()
    (full,) = take(store)
    assert [f.key.subject for f in full.findings] == ["eth0", "eth1"]
    assert full.full_state_ends
    assert store.dirty == 2
    store.acked(full)
    assert store.dirty == 0
    assert not store.changed.is_set()
    assert store.put(finding("eth1", speed=100))
    assert store.changed.is_set()
    (delta,) = take(store)
    assert [f.key.subject for f in delta.findings] == ["eth1"]
    assert not delta.full_state_ends


def test_an_empty_store_still_ends_its_full_state() -> None:
    store = FindingStore("n1", Clock())
    store.begin_stream()
    assert store.changed.is_set()
    (batch,) = take(store)
    assert (batch.findings, batch.full_state_ends) == ((), True)


def test_a_finding_that_changed_after_it_was_sent_stays_dirty() -> None:
    store = FindingStore("n1", Clock())
    store.begin_stream()
    take(store)
    store.put(finding(speed=1))
    (first,) = take(store)
    store.put(finding(speed=2))
    store.acked(first)
    assert store.dirty == 1
    (second,) = take(store)
    assert second.findings[0].lldp.speed_mbps == 2
    store.acked(second)
    assert store.dirty == 0


def test_an_unchanged_finding_is_sent_once_a_refresh_interval() -> None:
    clock = Clock()
    store = FindingStore("n1", clock, refresh_interval_s=60.0)
    store.begin_stream()
    store.put(finding(at=1))
    for batch in take(store):
        store.acked(batch)
    for step in range(1, 60):
        clock.now_s += 1.0
        assert not store.put(finding(at=1 + step))
        assert take(store) == []
    clock.now_s += 1.0
    assert not store.put(finding(at=61))
    (refresh,) = take(store)
    assert refresh.findings[0].observed_at.seconds == 61, "the newest time is sent"


def test_removed_keys_are_told_on_a_stream_and_lacking_in_the_next() -> None:
    store = FindingStore("n1", Clock())
    store.put(finding("eth0"))
    store.put(finding("eth1"))
    store.begin_stream()
    (full,) = take(store)
    store.acked(full)
    store.remove(FindingKey(node="n1", probe="lldp", subject="eth1"))
    store.remove(FindingKey(node="n1", probe="lldp", subject="never seen"))
    (delta,) = take(store)
    assert [key.subject for key in delta.removed] == ["eth1"]
    assert store.dirty == 1
    store.end_stream()
    assert store.dirty == 0
    store.remove(FindingKey(node="n1", probe="lldp", subject="eth0"))
    store.begin_stream()
    (full,) = take(store)
    assert (full.findings, full.removed, full.full_state_ends) == ((), (), True)


@pytest.mark.parametrize(
    ("looks", "kept"),
    [
        pytest.param([("whole", 1), ("failed", 2)], ["whole1", "failed2"], id="a failure erases nothing"),
        pytest.param(
            [("whole", 1), ("failed", 2), ("whole", 3)], ["whole3"], id="the next look ends a failure"
        ),
        pytest.param(
            [("whole", 1), ("partial", 2)], ["whole1", "partial2"], id="a partial sweep erases nothing"
        ),
        pytest.param(
            [("whole", 1), ("partial", 2), ("failed", 3)],
            ["whole1", "partial2", "failed3"],
            id="all three ranks",
        ),
        pytest.param([("failed", 1), ("partial", 2)], ["partial2"], id="a better look ends a failure"),
        pytest.param(
            [("whole", 1), ("failed", 2), ("partial", 3)], ["whole1", "partial3"], id="partial ends a failure"
        ),
        pytest.param([("whole", 1), ("partial", 2), ("partial", 3)], ["whole1", "partial3"], id="same rank"),
    ],
)
def test_ranks_of_looks(looks: list[tuple[str, int]], kept: list[str]) -> None:
    store = FindingStore("n1", Clock())
    for kind, number in looks:
        look = sweep(bytes([number]), partial=kind == "partial")
        if kind == "failed":
            look.ClearField("sweep")
            look.outcome, look.reason = FAILED, str(number)
        store.put(look)
    store.begin_stream()
    (batch,) = take(store)
    seen = [
        f"failed{f.reason}"
        if f.outcome == FAILED
        else f"{'partial' if f.sweep.partial else 'whole'}{f.sweep.sha256[0]}"
        for f in batch.findings
    ]
    assert seen == kept


def test_bounds_are_refusals_with_a_reason() -> None:
    store = FindingStore("n1", Clock(), max_findings=2, max_bulk_bytes=1000)
    store.put(finding("a"))
    store.put(finding("b"))
    with pytest.raises(StoreFull, match="lldp c: not stored: the store has 2 findings"):
        store.put(finding("c"))
    store.put(finding("b", speed=3))  # what is there may still change
    with pytest.raises(ValueError, match="node 'n2' in the store of 'n1'"):
        store.put(finding(node="n2"))
    with pytest.raises(ValueError, match="larger than"):
        store.put(finding("a", outcome=FAILED, reason="x" * MAX_FINDING_BYTES))
    assert len(store) == 2


def test_removals_that_are_not_acked_count_against_the_bound() -> None:
    store = FindingStore("n1", Clock(), max_findings=3)
    store.begin_stream()
    for turn in range(3):
        store.put(finding(f"eth{turn}"))
        store.remove(FindingKey(node="n1", probe="lldp", subject=f"eth{turn}"))
    with pytest.raises(StoreFull):
        store.put(finding("eth3"))
    store.put(finding("eth2"))  # back again: it takes its own place
    for batch in take(store):
        store.acked(batch)
    store.put(finding("eth3"))


def test_bulk_texts_live_as_long_as_a_finding_names_them() -> None:
    store = FindingStore("n1", Clock(), max_bulk_bytes=400)
    first = store.put_bulk(compress(b"first"))
    store.put(sweep(first))
    second = store.put_bulk(compress(b"second"))
    store.put(sweep(second, partial=True))
    assert store.bulk(first), "the whole sweep is still the best one"
    third = store.put_bulk(compress(b"third"))
    store.put(sweep(third))
    assert (store.bulk(first), store.bulk(second)) == (None, None)
    held = store.bulk(third)
    assert held is not None
    assert (zlib.decompress(held.compressed), held.size_bytes) == (b"third", 5)
    store.put(sweep(third, subject="q"))
    store.remove(FindingKey(node="n1", probe="ibnetdiscover", subject="p"))
    assert store.bulk(third), "another finding names it"
    orphan = store.put_bulk(compress(bytes(range(256))))
    store.put_bulk(compress(bytes(reversed(range(256)))))
    assert store.bulk(orphan) is None, "room is made from texts that no finding names"
    with pytest.raises(StoreFull, match=r"a text of 2560 bytes .* was not stored"):
        store.put_bulk(compress(bytes((i * i * 7919 + i // 3) % 251 for i in range(2560))))
    store.remove(FindingKey(node="n1", probe="ibnetdiscover", subject="q"))
    assert store.bulk(third) is None


def test_batches_keep_their_limits() -> None:
    store = FindingStore("n1", Clock())
    for number in range(50):
        store.put(finding(f"eth{number}"))
    store.begin_stream()
    batches = take(store, max_findings=20)
    assert [len(batch.findings) for batch in batches] == [20, 20, 10]
    assert [batch.full_state_ends for batch in batches] == [False, False, True]
    store.begin_stream()
    small = take(store, max_bytes=300)
    assert max(sum(f.ByteSize() for f in batch.findings) for batch in small) <= 300
    assert sum(len(batch.findings) for batch in small) == 50
    assert [batch.full_state_ends for batch in small].count(True) == 1


_ops = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.just("fail"), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.just("remove"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("send"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("ack"), st.just(0), st.just(0)),
        st.tuples(st.just("reconnect"), st.just(0), st.just(0)),
        st.tuples(st.just("later"), st.integers(0, 90), st.just(0)),
    ),
    max_size=60,
)


@given(_ops)
def test_the_collector_ends_up_with_what_the_store_holds(ops: list[tuple[str, int, int]]) -> None:
    """Whatever happens in between: after everything was sent and acked, both sides agree.

    Where the last look of a key that was removed failed, the collector may keep what it knew: a failure
    replaces nothing better.
    """
    clock = Clock()
    store = FindingStore("n1", clock)
    remote: dict[str, Finding] = {}
    seen: set[str] | None = None
    in_flight: list[Batch] = []

    def deliver(batch: Batch) -> None:
        nonlocal seen
        for look in batch.findings:
            # A failure replaces a failure and nothing better.
            if look.outcome != FAILED or remote.get(look.key.subject, look).outcome == FAILED:
                remote[look.key.subject] = look
            if seen is not None:
                seen.add(look.key.subject)
        for key in batch.removed:
            remote.pop(key.subject, None)
        if batch.full_state_ends:
            assert seen is not None
            for subject in remote.keys() - seen:
                del remote[subject]
            seen = None

    for op, a, b in ops:
        if op == "put":
            store.put(finding(f"eth{a}", speed=b))
        elif op == "fail":
            store.put(finding(f"eth{a}", outcome=FAILED, reason=str(b)))
        elif op == "remove":
            store.remove(FindingKey(node="n1", probe="lldp", subject=f"eth{a}"))
        elif op == "later":
            clock.now_s += a
        elif op == "send":
            if (batch := store.next_batch(1 << 20, a)) is not None:
                deliver(batch)
                in_flight.append(batch)
        elif op == "ack":
            if in_flight:
                store.acked(in_flight.pop(0))
        else:
            store.end_stream()
            in_flight, seen = [], set()
            store.begin_stream()
    if not store._streaming:
        seen = set()
        store.begin_stream()
    for batch in take(store):
        deliver(batch)
        in_flight.append(batch)
    for batch in in_flight:
        store.acked(batch)
    assert store.dirty == 0
    assert remote.keys() == store.subjects("lldp")
    for subject in remote:
        look = store.get("lldp", subject)
        assert look is not None
        assert look.outcome == FAILED or look == remote[subject]
