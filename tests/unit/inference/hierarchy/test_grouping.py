"""Grouping by majority, as tables: which child joins which group, and what is only a tie."""

import numpy as np
import pytest
from hyperscout_inference.grouping.grouping import group_children
from hypothesis import example, given
from hypothesis import strategies as st
from support.examples import examples


def grouped(children: list[str], **options: object) -> tuple[list[int], list[str], list[bool]]:
    """Children as texts of their items ("abc" = a, b and c): group of each, items of each group, ties."""
    pairs = [(i, ord(x) - ord("a")) for i, row in enumerate(children) for x in row]
    child, item = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    result = group_children(len(children), child, item, **options)  # type: ignore[arg-type]
    items = ["".join(chr(ord("a") + i) for i in row) for row in result.items]
    return result.group.tolist(), items, result.tie.tolist()


@pytest.mark.parametrize(
    ("children", "groups", "items"),
    [
        (["a", "a", "b"], [0, 0, 1], ["a", "b"]),
        (["abcd"] * 4 + ["efgh"] * 4, [0] * 4 + [1] * 4, ["abcd", "efgh"]),
        # a cable plugged into the neighbour's unit; a dead rail; both at once
        (["abcd", "abcd", "abch", "efgh", "efgd", "efgh"], [0, 0, 0, 1, 1, 1], ["abcd", "efgh"]),
        (["abcd", "abcd", "abc", "efgh", "efgh", "fgh"], [0, 0, 0, 1, 1, 1], ["abcd", "efgh"]),
        (["abcd", "abcd", "abh", "efgh", "efgh", "efgh"], [0, 0, 0, 1, 1, 1], ["abcd", "efgh"]),
        # no child has the whole set, yet the majority has each of its items
        (["bcd", "acd", "abd", "abc"], [0, 0, 0, 0], ["abcd"]),
        # wide rails: c and d serve both units, and are items of both
        (["acd", "acd", "bcd", "bcd"], [0, 0, 1, 1], ["acd", "bcd"]),
        (["acd", "acd", "acd", "bcd", "bcd", "bcd"], [0, 0, 0, 1, 1, 1], ["acd", "bcd"]),
    ],
)
def test_the_majority_decides(children: list[str], groups: list[int], items: list[str]) -> None:
    assert grouped(children) == (groups, items, [False] * len(children))


def test_an_even_split_is_a_tie_and_the_past_settles_it() -> None:
    children = ["ab", "ab", "ab", "ad", "cd", "cd", "cd"]
    group, _, tie = grouped(children)
    assert tie == [False] * 3 + [True] + [False] * 3
    for former in (0, 1):
        before = np.array([0, 0, 0, former, 1, 1, 1], np.int64)
        group, _, tie = grouped(children, before=before)
        assert group[3] == group[0 if former == 0 else 4]
        assert tie[3]


def test_kin_decides_where_items_tie() -> None:
    children = ["ab", "ab", "ab", "ad", "cd", "cd", "cd"]
    for kind in (0, 1):
        group, _, tie = grouped(children, kin=np.array([0, 0, 0, kind, 1, 1, 1], np.int64))
        assert group[3] == group[0 if kind == 0 else 4]
        assert not tie[3]


def test_a_child_without_a_voice_only_joins() -> None:
    children = ["ab", "ab", "ab", "a", "a", "a", "a", "b", "b", "b", "b"]
    voters = np.array([True] * 3 + [False] * 8)
    assert grouped(children, voters=voters)[1] == ["ab"]
    assert grouped(children)[1] == ["a", "b"]  # without it the children with one item would decide


def test_woven_groups_are_one_and_astray_cables_weave_nothing() -> None:
    ring = ["ab", "bc", "cd", "da"]
    assert len(grouped(ring, merge_share=0.3)[1]) == 1
    pods = ["abcd"] * 5 + ["abch"] + ["efgh"] * 5 + ["efgd"]
    assert len(grouped(pods, merge_share=0.3)[1]) == 2


@example(["a", "a", "b", "c", "c", "ab", "ab", "bcd"])  # b is of no group
@examples(5)
@given(st.lists(st.text("abcdefgh", min_size=1, max_size=6), min_size=1, max_size=12))
def test_any_wiring_places_every_child_once(children: list[str]) -> None:
    group, items, _ = grouped(children)
    assert all(0 <= g < len(items) for g in group)
    assert set(group) == set(range(len(items)))
    first = [group.index(g) for g in range(len(items))]
    assert first == sorted(first)  # numbered by their lowest child


@given(
    st.lists(st.text("abcdefgh", min_size=1, max_size=6), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_cables_may_come_in_any_order(children: list[str], rng: object) -> None:
    pairs = [(i, ord(x) - ord("a")) for i, row in enumerate(children) for x in row]
    rng.shuffle(pairs)  # type: ignore[attr-defined]
    child, item = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    result = group_children(len(children), child, item)
    assert result.group.tolist() == grouped(children)[0]
