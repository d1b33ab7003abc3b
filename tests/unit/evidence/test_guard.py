"""An exception of a component that follows the evidence costs it only the changes of that reporter."""

from collections.abc import Collection, Sequence

import pytest
from hyperscout_collector.evidence.guard import EvidenceGuard
from hyperscout_collector.evidence.rows import Row, row_of
from hyperscout_collector.evidence.state import EvidencePlan, EvidenceState, KeyChange
from hyperscout_runtime.signals import Signal
from support.findings import T0, lldp

PROBLEM = (
    "a follower raised with the evidence of {}, and may be wrong about it until the same evidence is reported"
    " again, or the collector restarts: {}"
)


class Follower:
    """Raises with the evidence of some reporters."""

    def __init__(self, *bad: str) -> None:
        self.bad = set(bad)
        self.taken: list[str] = []

    def follow(self, changes: Sequence[KeyChange]) -> None:
        self.load([change.key.node for change in changes])

    def load(self, reporters: Collection[str]) -> None:
        for reporter in reporters:
            self.one(reporter)

    def one(self, reporter: str) -> None:
        if reporter in self.bad:
            raise ValueError("planted")
        self.taken.append(reporter)


def row(node: str) -> Row:
    return row_of(lldp(node, "eth0"), sent_ns=T0, received_ns=T0)


class Rig:
    def __init__(self, *followers: Follower, nodes: str = "") -> None:
        self.state = EvidenceState()
        self.state.load(map(row, nodes), [])
        self.guard = EvidenceGuard(self.state)
        self.committed = Signal[[Sequence[KeyChange]]]()
        self.committed.subscribe(self.guard.follow)
        for name, follower in zip(("a follower", "another"), followers, strict=False):
            self.committed.subscribe(self.guard.guarded(name, follower.follow))

    def put(self, nodes: str, *, removed: bool = False) -> None:
        plan = EvidencePlan(self.state, T0)
        for one in map(row, nodes):
            plan.remove(one.key)
            if not removed:
                plan.upsert(one, b"")
        self.committed(self.state.commit(plan) or [KeyChange(row(n).key, (), (row(n),)) for n in nodes])

    def port(self, name: str, *, removed: bool = False) -> None:
        """Reporter "a" reports a port, or no longer reports it."""
        found = row_of(lldp("a", name), sent_ns=T0, received_ns=T0)
        plan = EvidencePlan(self.state, T0)
        plan.remove(found.key)
        if not removed:
            plan.upsert(found, b"")
        self.committed(self.state.commit(plan))


def test_a_follower_that_raises_takes_the_changes_of_all_other_reporters() -> None:
    raising, other = Follower("b"), Follower()
    rig = Rig(raising, other)
    rig.put("abc")
    assert raising.taken == ["a", "a", "c"], "the changes before the exception come again"
    assert other.taken == ["a", "b", "c"]
    assert rig.guard.problems == [PROBLEM.format("b", "ValueError: planted")]


def test_the_problem_ends_when_later_evidence_is_taken() -> None:
    raising = Follower("a", "b")
    rig = Rig(raising)
    rig.put("ab")
    assert rig.guard.problems == [PROBLEM.format("a, b", "ValueError: planted")]
    raising.bad = {"b"}
    rig.put("ab")
    assert rig.guard.problems == [PROBLEM.format("b", "ValueError: planted")]
    raising.bad = set()
    rig.put("b")
    assert rig.guard.problems == []


def test_the_problem_ends_with_the_evidence_unless_its_removal_raises() -> None:
    raising = Follower("a")
    rig = Rig(raising)
    rig.put("a")
    raising.bad = set()
    with rig.guard.reading("a reader", row("a").key):
        raise ValueError("planted")
    assert len(rig.guard.problems) == 2
    rig.put("a", removed=True)
    assert rig.guard.problems == []
    rig.put("a")
    raising.bad = {"a"}
    rig.put("a", removed=True)
    assert rig.guard.problems == [PROBLEM.format("a", "ValueError: planted")]


def test_a_problem_with_one_key_ends_with_this_key_only() -> None:
    bad: set[str] = set()

    def follow(changes: Sequence[KeyChange]) -> None:
        if bad & {change.key.subject for change in changes}:
            raise ValueError("planted")

    rig = Rig()
    rig.committed.subscribe(rig.guard.guarded("a follower", follow))
    rig.port("eth0")
    rig.port("eth1")
    bad = {"eth0"}
    rig.port("eth0", removed=True)
    problem = PROBLEM.format("a", "ValueError: planted")
    assert rig.guard.problems == [problem]
    rig.port("eth2")
    assert rig.guard.problems == [problem], "the follower still believes in eth0"
    bad = set()
    rig.port("eth0")
    assert rig.guard.problems == []


def test_a_reader_that_raises_with_evidence_that_is_gone_leaves_no_problem(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(nodes="a")
    with rig.guard.reading("a reader", row("a").key):
        rig.put("a", removed=True)
        raise ValueError("planted")
    assert rig.guard.problems == []
    assert [record.getMessage() for record in caplog.records] == ["a reader raised with the evidence of a"]


def test_evidence_that_raises_while_it_is_loaded_does_not_stop_the_start() -> None:
    raising = Follower("b")
    rig = Rig(nodes="abc")
    rig.guard.load("a follower", raising.load)
    assert raising.taken == ["a", "c"]
    assert rig.guard.problems == [PROBLEM.format("b", "ValueError: planted")]


def test_a_subscriber_for_reporters() -> None:
    raising = Follower("b")
    rig = Rig()
    take = rig.guard.guarded_reporter("a follower", raising.one)
    for reporter in "abc":
        take(reporter)
    assert raising.taken == ["a", "c"]
    assert rig.guard.problems == [PROBLEM.format("b", "ValueError: planted")]


def test_one_defect_is_logged_once_and_named_in_one_problem(caplog: pytest.LogCaptureFixture) -> None:
    nodes = "abcdefghijkl"
    rig = Rig(Follower(*nodes))
    rig.put(nodes)
    rig.put(nodes)
    assert rig.guard.problems == [PROBLEM.format("a, b, c, d, e, f, g, h and 4 more", "ValueError: planted")]
    assert [record.getMessage() for record in caplog.records] == ["a follower raised with the evidence of a"]


def test_an_exception_of_a_whole_commit_only_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()

    def follow(changes: Sequence[KeyChange]) -> None:
        assert len(changes) < 2

    rig.committed.subscribe(rig.guard.guarded("a follower", follow))
    rig.put("ab")
    rig.put("ab")
    assert rig.guard.problems == []
    assert [record.getMessage() for record in caplog.records] == [
        "a follower raised with a commit, but took its parts"
    ]


def test_a_renewal_shows_the_whole_finding_to_a_follower_that_may_lack_it() -> None:
    seen: list[tuple[str, int, bool]] = []
    raising = Follower("a")

    def follow(changes: Sequence[KeyChange]) -> None:
        raising.follow(changes)
        seen.extend((change.key.node, len(change.before), change.is_renewal) for change in changes)

    rig = Rig()
    rig.committed.subscribe(rig.guard.guarded("a follower", follow))
    rig.put("ab")
    raising.bad.clear()
    for later in (1, 2):
        seen.clear()
        plan = EvidencePlan(rig.state, T0 + later)
        for node in "ab":
            assert plan.renew(row(node).renewed(T0 + later, 0, T0 + later))
        rig.committed(rig.state.commit(plan))
        assert seen == [("a", later - 1, later == 2), ("b", 1, True)]
        assert rig.guard.problems == []
