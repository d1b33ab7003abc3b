"""When a window is open, and which pair of nodes is next in it."""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hyperscout_collector.decisions.measuring.nccl_windows import (
    Open,
    Window,
    next_pair,
    open_window,
    pairs_of_domains,
    parse_windows,
)
from hyperscout_runtime.units import NS
from hypothesis import given
from hypothesis import strategies as st
from support.builders import hypernode

HOUR_S, DAY_S = 3600, 86_400


def ns(text: str) -> int:
    """Unix ns of "2026-11-22 02:30" (which is a Sunday)."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * NS


@pytest.mark.parametrize(
    ("text", "windows"),
    [
        ("", ()),
        ("  ", ()),
        ("Mon 00:00-01:00", (Window(0, HOUR_S),)),
        ("Sun 02:00-04:00", (Window(6 * DAY_S + 2 * HOUR_S, 2 * HOUR_S),)),
        ("Sun 23:30-00:30", (Window(6 * DAY_S + 23 * HOUR_S + 1800, HOUR_S),)),
        ("Tue 10:00-24:00", (Window(DAY_S + 10 * HOUR_S, 14 * HOUR_S),)),
        ("Tue 10:00-10:00", (Window(DAY_S + 10 * HOUR_S, DAY_S),)),
        ("Mon 00:00-01:00, Wed 00:00-01:00", (Window(0, HOUR_S), Window(2 * DAY_S, HOUR_S))),
        ("daily 01:00-02:00", tuple(Window(day * DAY_S + HOUR_S, HOUR_S) for day in range(7))),
    ],
)
def test_windows(text: str, windows: tuple[Window, ...]) -> None:
    assert parse_windows(text) == windows


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Sun", "expected"),
        ("Sunday 02:00-04:00", "expected"),
        ("Sun 2:00-4:00", "expected"),
        ("Sun 02:00-04:00,", "expected"),
        ("Sun 25:00-04:00", "25:00 is no time"),
        ("Sun 02:60-04:00", "02:60 is no time"),
        ("Sun 24:01-04:00", "24:01 is no time"),
        ("daily 01:00-02:00, daily 03:00-04:00, daily 05:00-06:00", "at most 16"),
    ],
)
def test_no_windows(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_windows(text)


@given(st.text(max_size=40))
def test_any_text_is_windows_or_one_error(text: str) -> None:
    try:
        found = parse_windows(text)
    except ValueError:
        return
    assert all(0 <= w.begin_s <= 7 * DAY_S and 0 < w.length_s <= DAY_S for w in found)


@pytest.mark.parametrize(
    ("text", "now", "open_now"),
    [
        ("Sun 02:00-04:00", "2026-11-22 01:59", None),
        ("Sun 02:00-04:00", "2026-11-22 02:00", ("2026-11-22 02:00", "2026-11-22 04:00")),
        ("Sun 02:00-04:00", "2026-11-22 03:59", ("2026-11-22 02:00", "2026-11-22 04:00")),
        ("Sun 02:00-04:00", "2026-11-22 04:00", None),
        ("Sun 02:00-04:00", "2026-11-23 03:00", None),
        ("Sun 23:00-01:00", "2026-11-23 00:30", ("2026-11-22 23:00", "2026-11-23 01:00")),  # into Monday
        ("Sat 23:00-01:00", "2026-11-22 00:30", ("2026-11-21 23:00", "2026-11-22 01:00")),
        ("daily 02:00-04:00", "2026-11-25 03:00", ("2026-11-25 02:00", "2026-11-25 04:00")),
        ("Sun 02:00-03:00, Sun 02:30-05:00", "2026-11-22 02:45", ("2026-11-22 02:30", "2026-11-22 05:00")),
        ("", "2026-11-22 02:45", None),
    ],
)
def test_what_is_open(text: str, now: str, open_now: tuple[str, str] | None) -> None:
    expected = None if open_now is None else Open(ns(open_now[0]), ns(open_now[1]))
    assert open_window(parse_windows(text), ns(now)) == expected


TREE = (
    hypernode("a", ("n1", "n2", "n3")),
    hypernode("b", ("n4", "n5")),
    hypernode("c", ("n6",)),
    hypernode("pod", ("n1", "n2", "n3", "n4", "n5", "n6"), children=("a", "b", "c")),
)


@pytest.mark.parametrize(
    ("free", "pairs"),
    [
        ((), {}),
        (("n1",), {}),
        (("n3", "n1"), {"a": ("n1", "n3")}),
        (("n2", "n5"), {"pod": ("n2", "n5")}),  # across, since a domain's pair is of two parts of it
        (("n1", "n2", "n4", "n5", "n6"), {"a": ("n1", "n2"), "b": ("n4", "n5"), "pod": ("n1", "n4")}),
        (("n9", "n8"), {}),
    ],
)
def test_one_pair_for_each_domain(free: tuple[str, ...], pairs: Mapping[str, tuple[str, str]]) -> None:
    assert pairs_of_domains(TREE, frozenset(free)) == pairs


PAIRS = {"a": ("n1", "n2"), "b": ("n4", "n5"), "pod": ("n1", "n4")}


@pytest.mark.parametrize(
    ("last", "chosen"),
    [
        ({}, "a"),
        ({"a": 100, "b": 50, "pod": 70}, "b"),
        ({"a": 100, "b": 100, "pod": 100}, "a"),
        ({"a": 1000, "b": 1500}, "pod"),
        ({"a": 1000, "b": 1500, "pod": 999}, "pod"),
        ({"a": 1000, "b": 1500, "pod": 1000}, None),
    ],
)
def test_what_waited_longest_is_next_once_a_window(last: Mapping[str, int], chosen: str | None) -> None:
    found = next_pair(PAIRS, lambda name, pair: last.get(name, 0), 1000)
    assert found == (None if chosen is None else (chosen, PAIRS[chosen]))
