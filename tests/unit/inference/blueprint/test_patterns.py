"""Names with holes: what they come to, and what is refused."""

import pytest
from hyperscout_inference.blueprint.patterns import PatternError, template, values_of

VALUES = {"u": 3, "n": 12, "rail": 5, "row": "east"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("leaf", "leaf"),
        ("leaf-u{u}-{rail}", "leaf-u3-5"),
        ("{row}-{n:03}", "east-012"),
        ("{u:2}", "03"),
        ("p{(n-1)*2+u}", "p25"),
        ("p{n//5}.{n%5}", "p2.2"),
        ("p{ n - u - 1 }", "p8"),
        ("p{2+3*4}", "p14"),
        ("{n-n}", "0"),
    ],
)
def test_holes_are_filled(text: str, expected: str) -> None:
    assert template(text, list(VALUES)).filled(VALUES) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{x}", "no variable 'x' in `for`, which has: u, n, rail, row"),
        ("{u", "unbalanced braces"),
        ("u}", "unbalanced braces"),
        ("{}", "expected numbers, variables"),
        ("{u+}", "expected numbers, variables"),
        ("{(u}", "expected numbers, variables"),
        ("{u)}", "expected numbers, variables"),
        ("{u/2}", "expected numbers, variables"),
        ("{u**2}", "expected numbers, variables"),
        ("{-u}", "expected numbers, variables"),
        ("{u.real}", "expected numbers, variables"),
        ("{1u}", "expected numbers, variables"),
        ("{9999999999+u}", "expected numbers, variables"),
        ("{u:x}", "expected a width such as 02 after the colon"),
        ("{u:99}", "expected a width such as 02 after the colon"),
        ("{" + "u+" * 60 + "u}", "at most 80 characters"),
        ("{u-n}", "-9 is below 0 for u=3, n=12"),
        ("{u//(n-12)}", "divided by 0 for u=3"),
        ("{u%(n-12)}", "divided by 0"),
        ("{row+1}", "expected a number for row, found 'east'"),
    ],
)
def test_what_means_nothing_is_refused(text: str, reason: str) -> None:
    with pytest.raises(PatternError) as caught:
        template(text, list(VALUES)).filled(VALUES)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1-4", [1, 2, 3, 4]),
        ("7", [7]),
        ("1,3, 8-9", [1, 3, 8, 9]),
        ("08-10", [8, 9, 10]),
        ("east", ["east"]),
    ],
)
def test_values(text: str, expected: list[object]) -> None:
    assert values_of(text) == expected


@pytest.mark.parametrize("text", ["4-1", "1-999999", "a,b", "", "1,,2"])
def test_no_values(text: str) -> None:
    with pytest.raises(PatternError):
        values_of(text)
