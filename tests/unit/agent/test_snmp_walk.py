"""A walk takes what it can get from any switch, ends, and says what was odd."""

import pytest
from hyperscout_agent.snmp.walk import MAX_ROWS, REPETITIONS, Walk, WalkError
from hyperscout_formats.snmp.rows import Row
from hypothesis import given
from hypothesis import strategies as st

A, B, C = (1, 0, 1), (1, 0, 2), (1, 3, 6)


def row(*oid: int) -> Row:
    return Row(oid, "integer", 1)


def switch(oids: list[tuple[int, ...]], walk: Walk, most: int = 1000) -> int:
    """Answer as RFC 3416 says until the walk is done. Returns how often it asked."""
    asked = 0
    while (question := walk.next) is not None:
        asked += 1
        start, repetitions = question
        walk.answered([row(*oid) for oid in sorted(oids) if oid > start][: min(repetitions, most)])
    return asked


def got(walk: Walk) -> list[tuple[int, ...]]:
    return [one.oid for one in walk.rows]


def test_parts_that_follow_each_other_are_one_walk() -> None:
    oids = [(*A, n) for n in range(20)] + [(*B, n) for n in range(20)]
    walk = Walk([B, A])
    assert switch(oids, walk) == 3
    assert got(walk) == oids
    assert walk.problems == []


def test_what_lies_between_is_passed_over() -> None:
    between = [(1, 1, n) for n in range(500)]
    oids = [(*A, 1), *between, (*C, 1), (1, 3, 7)]
    walk = Walk([A, C])
    assert switch(oids, walk) == 2
    assert got(walk) == [(*A, 1), (*C, 1)]


def test_a_part_that_is_not_there() -> None:
    walk = Walk([A, B, C])
    switch([(*B, 7)], walk)
    assert got(walk) == [(*B, 7)]
    assert walk.problems == []


def test_nothing_is_asked_where_nothing_is_wanted() -> None:
    assert Walk([]).next is None


def test_rows_out_of_order_are_taken() -> None:
    walk = Walk([A])
    walk.answered([row(*A, 5), row(*A, 3), row(*A, 9)])
    assert walk.next == ((*A, 9), REPETITIONS)
    walk.answered([row(*A, 4)])
    assert walk.next == ((*A, 4), REPETITIONS)
    walk.answered([])
    assert got(walk) == [(*A, 5), (*A, 3), (*A, 9), (*A, 4)]
    assert walk.next is None


def test_a_loop_ends_its_part_and_no_other() -> None:
    walk = Walk([A, B])
    walk.answered([row(*A, 1), row(*A, 2), row(*A, 1)])
    assert walk.problems == ["1.0.1: repeats itself: the rest of the table is unknown"]
    assert walk.next == (B, REPETITIONS)
    walk.answered([row(*B, 1)])
    assert got(walk) == [(*A, 1), (*A, 2), (*B, 1)]


def test_an_answer_that_leads_back_ends_its_part() -> None:
    walk = Walk([A, B])
    walk.answered([])
    walk.answered([row(*A, 1)])
    assert walk.next is None
    assert got(walk) == []


def test_an_endless_switch_is_too_much() -> None:
    walk = Walk([A], max_rows=100)

    def ask_on() -> None:
        at = 0
        while walk.next is not None:
            walk.answered([row(*A, n) for n in range(at, at + 32)])
            at += 32

    with pytest.raises(WalkError, match="more than 100 rows"):
        ask_on()
    assert len(walk) < 140


@pytest.mark.parametrize(
    ("errors", "repetitions", "problems"),
    [
        (["tooBig"], 16, []),
        (["tooBig"] * 5, 1, []),
        (["genErr"], REPETITIONS, ["1.0.1: answers genErr: the rest of the table is unknown"]),
        (["tooBig"] * 6, 1, ["1.0.1: answers tooBig: the rest of the table is unknown"]),
    ],
)
def test_errors_of_the_switch(errors: list[str], repetitions: int, problems: list[str]) -> None:
    walk = Walk([A, B])
    for error in errors:
        walk.refused(error)
    assert walk.next == (B if problems else A, repetitions)
    assert walk.problems == problems


def test_silence_at_first_is_the_end_and_later_asks_for_less() -> None:
    walk = Walk([A])
    assert not walk.silent()
    walk.answered([row(*A, 1)])
    asked = []
    while walk.silent():
        assert walk.next is not None
        asked.append(walk.next[1])
    assert asked == [4, 1]


def test_values_are_cut() -> None:
    walk = Walk([A])
    walk.answered([Row((*A, 1), "string", b"x" * 60_000)])
    assert [len(one.value) for one in walk.rows if isinstance(one.value, bytes)] == [1024]


def test_problems_are_few() -> None:
    walk = Walk([(1, n) for n in range(100)])
    while walk.next is not None:
        walk.refused("genErr")
    assert len(walk.problems) == 20


OIDS = st.lists(st.integers(0, 3), min_size=1, max_size=5).map(tuple)


@given(st.lists(OIDS, max_size=60, unique=True), st.lists(OIDS, min_size=1, max_size=6), st.integers(1, 9))
def test_an_honest_switch_is_walked_whole(
    oids: list[tuple[int, ...]], wanted: list[tuple[int, ...]], most: int
) -> None:
    parts = [part for part in wanted if not any(o != part and part[: len(o)] == o for o in wanted)]
    walk = Walk(set(parts))
    switch(oids, walk, most)
    below = {oid for oid in oids for part in parts if oid[: len(part)] == part}
    assert below - set(parts) <= set(got(walk)) <= below
    assert walk.problems == []


@given(st.data())
def test_whatever_comes_it_ends(data: st.DataObject) -> None:
    walk = Walk([(1,), (2, 1), (2, 3)], max_rows=200)
    asked = 0
    while walk.next is not None:
        asked += 1
        kind = data.draw(st.integers(0, 5))
        if kind == 0:
            walk.refused(data.draw(st.sampled_from(["tooBig", "genErr"])))
        elif kind == 1:
            if not walk.silent():
                break
        else:
            walk.answered([row(*oid) for oid in data.draw(st.lists(OIDS, max_size=8))])
    assert asked <= 3 * (len(walk) + 12)
    assert len({one.oid for one in walk.rows}) == len(walk) <= MAX_ROWS
