"""Failed nodes of a gang: how long they are remembered, and how many."""

from collections.abc import Mapping, Sequence

import pytest
from hyperscout_placer.book import reservation as book_module
from hyperscout_placer.book.failed_nodes import Failed, FailedNode, after_clearing, after_look, after_report
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.book.reservation import NoReservationError, TooManyError
from support.builders import gang
from support.topologies import leaves

FAILED = (FailedNode("n1", 100), FailedNode("n2", 100, 200))


@pytest.mark.parametrize(
    ("down", "seen", "wanted"),
    [
        pytest.param([], {"n1": 300}, FAILED, id="reports alone do not make a node healthy"),
        pytest.param(["n2"], {"n2": 300}, FAILED, id="still down"),
        pytest.param([], {"n2": 300}, FAILED[:1], id="up, and its agent has reported since"),
        pytest.param([], {"n2": 200}, FAILED, id="its agent reported last when it was first seen down"),
        pytest.param([], {}, FAILED, id="it has no agent"),
        pytest.param(["n1", "n2"], {}, (FailedNode("n1", 100, 400), FAILED[1]), id="first seen down"),
    ],
)
def test_when_a_node_is_healthy_again(down: Sequence[str], seen: Mapping[str, int], wanted: Failed) -> None:
    assert after_look(FAILED, lambda node: node in down, lambda node: seen.get(node, 0), 400) == wanted


def test_a_second_report_starts_again_and_clearing_ends_it() -> None:
    found = after_report(FAILED, ["n2", "n0"], 500)
    assert found == (FailedNode("n0", 500), FAILED[0], FailedNode("n2", 500))
    assert after_clearing(found, ["n2", "n9"]) == found[:2]


def book() -> Placements:
    placements = Placements(clock_ns=lambda: 400, timer=lambda: 0.0)
    placements.set_topology(leaves(("n1", "n2"), ("n3", "n4")))
    placements.set_unused({node: {"workers": 1} for node in ("n1", "n2", "n3", "n4")})
    placements.place("a", gang(1), holder="api")
    return placements


def test_a_node_is_forgotten_when_it_was_down_and_has_reported() -> None:
    placements, told = book(), list[Failed]()
    placements.set_failed("a", (FailedNode("n1", 100), FailedNode("n3", 100), FailedNode("n4", 100)))
    placements.changed.subscribe(lambda _, held: told.append(held.failed if held else ()))
    seen = {"n1": 300, "n3": 300, "n4": 300}
    placements.forget_healthy(seen.__getitem__)
    assert told == [], "none of them was down"
    placements.set_unusable(["n1"])
    placements.set_topology(leaves(("n1", "n2"), ("n3",)))
    placements.forget_healthy(seen.__getitem__)
    wanted = (FailedNode("n1", 100, 400), FailedNode("n3", 100), FailedNode("n4", 100, 400))
    assert told == [wanted], "n1 accepts no work, n4 is in no topology"
    placements.set_unusable([])
    placements.set_topology(leaves(("n1", "n2"), ("n3", "n4")))
    placements.forget_healthy(seen.__getitem__)
    assert told == [wanted]
    seen |= {"n1": 500, "n3": 500}
    placements.forget_healthy(seen.__getitem__)
    assert told[1:] == [(FailedNode("n3", 100), FailedNode("n4", 100, 400))]
    placements.release("a")


def test_without_a_topology_nothing_is_forgotten() -> None:
    placements = Placements(clock_ns=lambda: 400, timer=lambda: 0.0)
    placements.restore(next(iter(book())))
    placements.set_failed("a", FAILED)
    placements.forget_healthy(lambda node: 500)
    assert placements.held("a").failed == FAILED


def test_no_more_are_remembered_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "MAX_FAILED", 3)
    placements = book()
    placements.place("b", gang(1), holder="api")
    placements.set_failed("a", FAILED)
    placements.set_failed("a", FAILED)
    with pytest.raises(TooManyError, match="would remember 4 failed nodes, the limit is 3: clear"):
        placements.set_failed("b", FAILED)
    monkeypatch.setattr(book_module, "MAX_FAILED_OF_GANG", 1)
    with pytest.raises(TooManyError, match="gang 'b' would remember 2 failed nodes, the limit is 1: clear"):
        placements.set_failed("b", FAILED)
    assert placements.held("b").failed == ()
    placements.set_failed("b", FAILED[:1])
    with pytest.raises(NoReservationError):
        placements.set_failed("c", ())
