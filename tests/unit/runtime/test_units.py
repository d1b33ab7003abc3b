"""Times as text."""

import pytest
from hyperscout_runtime.units import NS, from_rfc3339, rfc3339

AT = 1_769_868_187 * NS


@pytest.mark.parametrize(
    ("ns", "timespec", "text"),
    [
        (0, "seconds", "1970-01-01T00:00:00Z"),
        (AT + 999_999_999, "seconds", "2026-01-31T14:03:07Z"),
        (AT + 1_999_999, "milliseconds", "2026-01-31T14:03:07.001Z"),
        (-1, "seconds", "1969-12-31T23:59:59Z"),
        (-62_135_596_800 * NS, "seconds", "0001-01-01T00:00:00Z"),
    ],
)
def test_a_time_is_cut_to_its_last_unit(ns: int, timespec: str, text: str) -> None:
    assert rfc3339(ns, timespec=timespec) == text


@pytest.mark.parametrize(
    "text",
    ["2026-01-31T14:03:07Z", "2026-01-31T14:03:07.9Z", "2026-01-31T15:03:07+01:00", "2026-01-31T14:03:07"],
)
def test_a_time_is_read_in_whole_seconds(text: str) -> None:
    assert from_rfc3339(text) == AT


@pytest.mark.parametrize("text", ["", "now", "2026-13-01T00:00:00Z", "NaT"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid isoformat string|month must be"):
        from_rfc3339(text)
