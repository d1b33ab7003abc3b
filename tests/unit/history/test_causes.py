"""Which findings a generation is put down to, however long it waited."""

from collections.abc import Callable

import pytest
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.history.causes import MAX_NAMED, Cause, CauseLog

S = 1_000_000_000
N1, N2 = Key("n1", "lldp", "eth0"), Key("n2", "lldp", "eth0")
SWEEP, LEAF = Key("n3", "ibnetdiscover", "mlx5_0/1"), Key("switch/leaf-1", "switch", "p1")


def looked(*steps: Callable[[CauseLog], object]) -> Cause:
    log = CauseLog()
    for step in steps:
        last = step(log)
    assert isinstance(last, Cause)
    return last


def changed(*keys: Key, at_s: int = 0) -> Callable[[CauseLog], object]:
    return lambda log: log.changed(keys, at_s * S)


def said(kind: str) -> Callable[[CauseLog], object]:
    return lambda log: log.input_changed(kind)


def looking(log: CauseLog) -> None:
    log.inference_started()


def of(at_s: int = 0, kind: str = "", *, waited: bool = False) -> Callable[[CauseLog], object]:
    return lambda log: log.take(at_s * S, kind, waited=waited)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([changed(N1), looking, of()], Cause("findings", (N1,), 1), id="news"),
        pytest.param(
            [changed(N1), looking, changed(N2), of()],
            Cause("findings", (N1,), 1),
            id="what came meanwhile is later",
        ),
        pytest.param(
            [changed(N1), looking, changed(N2), of(), looking, of()],
            Cause("findings", (N2,), 1, (N1,)),
            id="and then it counts",
        ),
        pytest.param(
            [changed(N1, N2, N1), looking, of()], Cause("findings", (N2, N1), 2), id="newest last, once"
        ),
        pytest.param([looking, of()], Cause("age"), id="nothing changed"),
        pytest.param([said("cluster"), looking, of()], Cause("cluster"), id="nodes of the cluster"),
        pytest.param([changed(N1), looking, of(kind="approved")], Cause("approved", (N1,), 1), id="approved"),
        pytest.param(
            [changed(N1), looking, looking, of(waited=True)],
            Cause("findings", (N1,), 1),
            id="a tree that stood still",
        ),
        pytest.param(
            [changed(N1), looking, looking, of()],
            Cause("age", (N1,), 1),
            id="evidence that grew old meanwhile",
        ),
        pytest.param(
            [changed(N1), looking, of(), of(30, waited=True)],
            Cause("age", (), 0, (N1,)),
            id="an all-clear that waited knows what changed earlier",
        ),
        pytest.param(
            [changed(N1), looking, of(), of(1000, waited=True)], Cause("age"), id="but not for ever"
        ),
        pytest.param(
            [said("cluster"), looking, of(), of(waited=True)], Cause("age"), id="each reason counts once"
        ),
    ],
)
def test_what_gave_rise_to_it(steps: list[Callable[[CauseLog], object]], expected: Cause) -> None:
    assert looked(*steps) == expected


def test_what_comes_first_after_a_start_happened_meanwhile() -> None:
    log = CauseLog("restart", 60 * S)
    log.changed([N1], S)
    log.inference_started()
    assert log.take(S) == Cause("restart", (N1,), 1)
    log.changed([N2], 2 * S)
    log.inference_started()
    assert log.take(2 * S).kind == "findings"  # only the first
    late = CauseLog("takeover", 60 * S)
    late.changed([N1], 61 * S)
    late.inference_started()
    assert late.take(61 * S).kind == "findings"
    person = CauseLog("restart", 60 * S)
    assert person.take(S, "approved").kind == "approved"


@pytest.mark.parametrize(
    ("cause", "names", "kind", "findings"),
    [
        (Cause("findings", (N1, N2), 2), {"n1"}, "findings", (N1, N2)),
        (Cause("findings", (N1, N2), 2), set[str](), "findings", (N2, N1)),
        (Cause("findings", (N1, SWEEP), 2), set[str](), "findings", (SWEEP, N1)),
        (Cause("findings", (LEAF, N1), 2), {"leaf-1"}, "findings", (LEAF, N1)),
        (Cause("findings", (N2,), 1, (N1,)), {"n1"}, "findings", (N1, N2)),
        (Cause("age", (), 0, (N1, N2)), {"n1"}, "findings", (N1,)),
        (Cause("age", (), 0, (N1, SWEEP)), {"leaf-7"}, "findings", (SWEEP,)),
        (Cause("age", (), 0, (N1,)), {"n2"}, "age", ()),
        (Cause("approved", (), 0, (N1,)), {"n1"}, "approved", (N1,)),
    ],
)
def test_the_findings_that_say_most_are_named(
    cause: Cause, names: set[str], kind: str, findings: tuple[Key, ...]
) -> None:
    found = cause.about(names)
    assert (found.kind, found.findings, found.earlier) == (kind, findings, ())
    assert found.total >= len(findings)


def test_many_are_counted_and_some_are_named() -> None:
    log = CauseLog()
    log.changed([Key(f"n{i}", "lldp", "eth0") for i in range(5000)], 0)
    log.inference_started()
    cause = log.take(0)
    assert len(cause.findings) == 1000
    named = cause.about({"n4500"})
    assert (len(named.findings), named.findings[0].node) == (MAX_NAMED, "n4500")
    assert named.total == cause.total >= 1000


def test_two_generations_that_are_recorded_as_one() -> None:
    both = Cause("restart", (N1,), 1).joined(Cause("findings", (N2, N1), 2))
    assert both == Cause("restart", (N1, N2), 3)
    assert Cause("findings", (N1,), 1).joined(Cause("age")).kind == "findings"
    assert Cause("age").joined(Cause("cluster")).kind == "cluster"
