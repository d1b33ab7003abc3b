"""How wide texts are, and how they are cut."""

import pytest
from hyperscout_cli.shared.columns import ELLIPSIS, padded, shortened, width
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", 0),
        ("leaf-03", 7),
        ("葉-03", 5),
        ("Knoten-ü", 8),
        ("e\u0301", 1),
        ("ｆ", 2),
        ("a\u200db", 2),
        ("한", 2),
    ],
)
def test_width(text: str, columns: int) -> None:
    assert width(text) == columns
    assert width(padded(text, 12)) == 12


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("leaf", 4, "leaf"),
        ("leaf-1", 4, "lea…"),
        ("leaf-1", 1, "…"),
        ("葉葉葉", 6, "葉葉葉"),
        ("葉葉葉", 5, "葉葉…"),
        ("葉葉葉", 4, "葉…"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301…"),
    ],
)
def test_shortened(text: str, columns: int, expected: str) -> None:
    assert shortened(text, columns) == expected


@examples(5)
@given(st.text(max_size=20), st.integers(1, 25))
def test_nothing_is_wider_than_it_may_be(text: str, columns: int) -> None:
    cut = shortened(text, columns)
    assert width(cut) <= columns
    assert cut == text or (cut.endswith(ELLIPSIS) and text.startswith(cut[:-1]))
