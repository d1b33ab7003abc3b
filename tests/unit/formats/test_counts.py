"""Counts and bounded lists in messages."""

import pytest
from hyperscout_formats.text.counts import and_more, count, first_few


@pytest.mark.parametrize(
    ("texts", "most", "expected"),
    [(["a", "b", "c"], 2, "a, b and 1 more"), (["a", "b"], 2, "a, b"), ([], 2, "")],
)
def test_the_first_few_are_named_and_the_others_counted(texts: list[str], most: int, expected: str) -> None:
    assert first_few(texts, most) == expected


def test_other_separators_are_possible() -> None:
    assert first_few(["a", "b", "c"], 2, "; ") == "a; b and 1 more"


def test_nothing_is_said_of_none() -> None:
    assert (and_more(3), and_more(0), and_more(-2)) == (" and 3 more", "", "")


def test_a_noun_follows_its_number() -> None:
    assert (count(1, "node"), count(0, "node")) == ("1 node", "0 nodes")
    for one, many in (("switch", "switches"), ("anomaly", "anomalies"), ("key", "keys"), ("pass", "passes")):
        assert count(2, one) == f"2 {many}"
