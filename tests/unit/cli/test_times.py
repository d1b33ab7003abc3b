"""Times on the command line: how long ago, or when."""

import pytest
from hyperscout_cli.shared.times import parse

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
    ],
)
def test_what_is_no_time_says_what_is_one(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(text, NOW_NS)
