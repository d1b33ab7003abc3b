"""Damping by script: what is observed at which second, and what is then shown when."""

import pytest
from hyperscout_collector.decisions.publication.damping import Damper, DampingSettings
from hyperscout_runtime.units import NS

SETTINGS = DampingSettings(quiet_s=60, hold_down_s=10, hold_down_max_s=300, remembered=10)

# Letters are items of one thing: "" = clear, "d" = down, "s" = slow. At most one change a second.
SCRIPTS: list[tuple[str, dict[int, str], dict[int, str]]] = [
    ("the first change at once", {100: "d"}, {100: "d"}),
    ("a quiet minute, and the all-clear is at once too", {100: "d", 161: ""}, {100: "d", 161: ""}),
    ("an all-clear within the minute waits", {100: "d", 105: ""}, {100: "d", 115: ""}),
    ("a blip while clear is on its way is not shown", {100: "d", 105: "", 108: "d"}, {100: "d"}),
    ("the wait doubles with each flap", {100: "d", 102: "", 104: "d", 106: ""}, {100: "d", 146: ""}),
    ("and is bounded", {t: "d" if t % 2 else "" for t in range(101, 141)}, {101: "d", 440: ""}),
    (
        "bad news waits for the hold-down only",
        {100: "d", 105: "", 116: "d", 120: "", 122: "d", 210: ""},
        {100: "d", 115: "", 125: "d", 210: ""},
    ),
    ("worse at once after a quiet minute", {100: "s", 170: "ds"}, {100: "s", 170: "ds"}),
    ("another kind waits like an all-clear", {100: "s", 105: "d"}, {100: "s", 115: "d"}),
    (
        "a minute is not quiet for one that waits longer",
        {**{t: "d" if t % 2 else "" for t in range(101, 141)}, 220: "d", 221: ""},
        {101: "d", 521: ""},
    ),
    ("quiet again, news again", {100: "d", 105: "", 200: "d"}, {100: "d", 115: "", 200: "d"}),
]


@pytest.mark.parametrize(("name", "observed", "shown"), SCRIPTS, ids=[x[0] for x in SCRIPTS])
def test_scripts(name: str, observed: dict[int, str], shown: dict[int, str]) -> None:
    damper: Damper[str, str, str] = Damper(SETTINGS)
    seen: dict[int, str] = {}
    last, items = "", ""
    for second in range(100, 700):
        items = observed.get(second, items)
        damper.observe({"link": dict.fromkeys(items, "")}, second * NS)
        damper.show(second * NS)
        now = "".join(sorted(i for _, i, _ in damper.shown()))
        if now != last:
            seen[second] = last = now
    assert seen == shown
    assert damper.next_due_ns() is None


def test_next_due_is_when_something_is_shown() -> None:
    damper: Damper[str, str, str] = Damper(SETTINGS)
    damper.observe({"a": {"d": ""}}, 100 * NS)
    damper.show(100 * NS)
    damper.observe({}, 103 * NS)
    assert damper.next_due_ns() == 113 * NS
    damper.show(113 * NS - 1)
    assert [i for _, i, _ in damper.shown()] == ["d"]
    damper.show(113 * NS)
    assert list(damper.shown()) == []


def test_words_alone_wait_a_minute_and_ride_along_for_free() -> None:
    damper: Damper[str, str, str] = Damper(SETTINGS)
    damper.observe({"a": {"d": "1 error"}}, 100 * NS)
    damper.show(100 * NS)
    damper.observe({"a": {"d": "2 errors"}}, 130 * NS)
    assert damper.next_due_ns() == 160 * NS
    damper.show(140 * NS)
    assert list(damper.shown()) == [("a", "d", "2 errors")]
    damper.observe({"a": {"d": "3 errors"}}, 150 * NS)
    assert damper.next_due_ns() == 200 * NS, "a minute since words were shown"


def test_what_is_shown_already_is_clear_only_when_it_stands() -> None:
    damper: Damper[str, str, str] = Damper(SETTINGS, {"a": {"d": ""}}, 100 * NS)
    assert damper.next_due_ns() is None
    damper.observe({}, 101 * NS)
    assert damper.next_due_ns() == 111 * NS
    assert list(damper.waiting()) == []
    damper.observe({"a": {"d": "", "s": "slow"}}, 102 * NS)
    assert list(damper.waiting()) == ["slow"]


def test_forgets_what_was_quiet_and_bounds_the_rest() -> None:
    damper: Damper[int, str, str] = Damper(SETTINGS)
    for second in range(100):
        damper.observe({second: {"d": ""}}, second * NS)
    assert len(damper) == SETTINGS.remembered + 1
    damper.observe({}, 1000 * NS)
    damper.observe({}, 1061 * NS)
    assert len(damper) == 0
