"""Times on the command line: how long ago, or when; and durations."""

import click
import pytest
from hyperscout_cli.shared.times import Duration, parse

S = 1_000_000_000
NOW_NS = 1_767_225_600 * S  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("text", "ago_s"),
    [
        ("0s", 0),
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("1d12h", 129_600),
        ("1w", 604_800),
        ("1.5h", 5400),
        ("2025-12-31T22:00:00Z", 7200),
        ("2026-01-01T00:00:00+02:00", 7200),
        ("2025-12-31 22:00Z", 7200),
        ("2025-12-31T23:59:59.5Z", 0.5),
    ],
)
def test_how_long_ago_or_when(text: str, ago_s: float) -> None:
    assert parse(text, NOW_NS) == NOW_NS - int(ago_s * S)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected an age"),
        ("2", "expected an age"),
        ("yesterday", "expected an age"),
        ("2h ago", "expected an age"),
        ("-2h", "expected an age"),
        ("٢h", "expected an age"),
        ("2026-01-01T00:00:00", "time zone"),
        ("9999w", "before 1970"),
        ("1969-01-01T00:00:00Z", "before 1970"),
        ("2026-13-01T00:00:00Z", "expected an age"),
        ("x" * 9999, "^'x{100}': expected an age"),
        (f"2026-01-01T00:00:00.{'0' * 9999}", r"^'2026-01-01T00:00:00\.0{80}': no time zone"),
    ],
)
def test_what_is_no_time_says_what_is_one(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(text, NOW_NS)


@pytest.mark.parametrize(
    ("text", "expected", "said"),
    [
        ("90s", 90.0, ""),
        ("30m", 1800.0, ""),
        ("1.5h", 5400.0, ""),
        ("1h30m", 5400.0, ""),
        ("2d", 172_800.0, ""),
        ("1w", 604_800.0, ""),
        ("0.001s", 0.001, ""),
        ("0", 0.0, ""),
        ("0s", 0.0, ""),
        ("90", 90.0, "warning: --x 90: a number without a unit means seconds: write 90s\n"),
        (".5", 0.5, "warning: --x .5: a number without a unit means seconds: write 0.5s\n"),
        ("5.", 5.0, "warning: --x 5.: a number without a unit means seconds: write 5s\n"),
    ],
)
def test_durations(text: str, expected: float, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    option = click.Option(["--x"])
    assert Duration(0, 3650 * 86_400).convert(text, option, None) == expected
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    "text",
    ["", "0", "0s", "m", "-1m", "1 m", "3651d", "9" * 30, "9" * 400, "1e3", "nan", "inf", "٣s", "s", "."],
)
def test_no_durations(text: str) -> None:
    limits = r"expected a duration such as 10s, 5m or 2h \(0\.001s to 3650d\)"
    with pytest.raises(click.BadParameter, match=limits):
        Duration(0.001, 3650 * 86_400).convert(text, click.Option(["--x"]), None)


def test_an_error_shows_the_beginning_of_a_long_duration() -> None:
    with pytest.raises(click.BadParameter, match=r"^'x{100}': expected a duration"):
        Duration(0, 1).convert("x" * 9999, click.Option(["--x"]), None)
