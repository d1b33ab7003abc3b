"""Damping by script: what is observed at which second, and what is then shown when."""

import pytest
from hyperscout_collector.decisions.publication.damping import Damper, DampingSettings, FirstSeen, Flapping
from hyperscout_runtime.units import NS

SETTINGS = DampingSettings(quiet_s=60, hold_down_s=10, hold_down_max_s=300, remembered=10)

# Letters are items of one thing: "" = clear, "d" = down, "s" = slow. At most one change a second.
SCRIPTS: list[tuple[str, dict[int, str], dict[int, str]]] = [
    ("the first change at once", {100: "d"}, {100: "d"}),
    ("a quiet minute, and the all-clear is at once too", {100: "d", 161: ""}, {100: "d", 161: ""}),
    ("an all-clear within the minute waits", {100: "d", 105: ""}, {100: "d", 115: ""}),
    ("a blip while clear is on its way is not shown", {100: "d", 105: "", 108: "d"}, {100: "d"}),
    ("the wait doubles with each change", {100: "d", 102: "", 104: "d", 106: ""}, {100: "d", 146: ""}),
    ("and is bounded", {t: "d" if t % 2 else "" for t in range(101, 141)}, {101: "d", 440: ""}),
    (
        "bad news waits for the hold-down only",
        {100: "d", 105: "", 116: "d", 120: "", 122: "d", 210: ""},
        {100: "d", 115: "", 125: "d", 210: ""},
    ),
    ("worse at once after a quiet minute", {100: "s", 170: "ds"}, {100: "s", 170: "ds"}),
    ("another kind waits for the hold-down only", {100: "s", 105: "d"}, {100: "s", 110: "ds", 120: "d"}),
    (
        "a kind that comes later keeps no other one",
        {100: "d", 102: "", 104: "d", 106: "", 130: "e"},
        {100: "d", 130: "de", 146: "e"},
    ),
    (
        "a kind that comes and goes meanwhile is not shown, and keeps no other one",
        {100: "d", 102: "", 104: "d", 106: "s", 108: ""},
        {100: "d", 146: ""},
    ),
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


# What is observed at which second, and what is then told of "d": flaps, gone since, shown until.
Told = tuple[int, int, int]
TWICE: dict[int, Told | None] = {103: (1, 102, 112), 104: None, 110: (2, 106, 146)}
HELD_BACK: list[tuple[str, dict[int, str], dict[int, Told | None]]] = [
    ("a first all-clear is told, too", {100: "d", 105: ""}, {106: (1, 105, 115)}),
    ("one that is shown at once is not", {100: "d", 165: ""}, {}),
    ("the second one is told later", {100: "d", 102: "", 104: "d", 106: ""}, TWICE),
    (
        "gone again: what was told is withdrawn at once",
        {100: "d", 102: "", 104: "d", 106: "", 118: "d", 140: ""},
        TWICE | {118: None, 150: (3, 140, 300)},
    ),
    (
        "back soon: the new time is told when it stood still",
        {100: "d", 102: "", 104: "d", 106: "", 118: "d", 119: ""},
        TWICE | {118: None, 129: (3, 119, 279)},
    ),
    ("one that never stands still tells nothing", {t: "d" if t % 2 else "" for t in range(101, 400)}, {}),
    ("what stays tells nothing", {100: "ds", 102: "s", 104: "ds", 106: "s"}, TWICE),
]


@pytest.mark.parametrize(("name", "observed", "told"), HELD_BACK, ids=[x[0] for x in HELD_BACK])
def test_what_is_told_of_an_all_clear_that_is_held_back(
    name: str, observed: dict[int, str], told: dict[int, Told | None]
) -> None:
    damper: Damper[str, str, str] = Damper(SETTINGS, tell=True)
    seen: dict[int, Told | None] = {}
    last, items = None, ""
    for second in range(100, 500):
        items = observed.get(second, items)
        damper.observe({"link": dict.fromkeys(items, "")}, second * NS)
        due_ns = damper.next_due_ns()
        if due_ns is None or due_ns > second * NS:
            continue
        damper.show(second * NS)
        shown = {i for _, i, _ in damper.shown()}
        now = told_of(damper.flapping("link"), shown, items)
        if last is not None and shown == set(items) and "d" not in items:
            assert second == last[2], "shown until the time that was told"
        elif now != last:
            seen[second] = now
        last = now
    assert seen == told
    assert damper.next_due_ns() is None


def told_of(flapping: Flapping[str] | None, shown: set[str], items: str) -> Told | None:
    if flapping is None or not flapping.clears_ns:
        return None
    assert flapping.gone == shown - set(items)
    return flapping.flaps, flapping.changed_ns // NS, flapping.clears_ns // NS


def test_a_damper_that_tells_nothing_is_not_due_for_it() -> None:
    damper: Damper[str, str, str] = Damper(SETTINGS)
    for second, items in {100: "d", 102: "", 104: "d", 106: ""}.items():
        damper.observe({"link": dict.fromkeys(items, "")}, second * NS)
        damper.show(second * NS)
    assert damper.next_due_ns() == 146 * NS


@pytest.mark.parametrize("restart", [117, 125, 145])
@pytest.mark.parametrize("gap", [0, 3])
def test_a_restart_goes_on_with_the_same_times(restart: int, gap: int) -> None:
    """`gap`: seconds in which nothing is known. Gone once more, the link flaps as often as it did."""
    damper = flapped(restart)
    flapping = damper.flapping("link")
    assert flapping == Flapping(2, 106 * NS, frozenset("d"), 146 * NS)
    items = {i: x for _, i, x in damper.shown()}
    again: Damper[str, str, str] = Damper(
        SETTINGS, {"link": items}, restart * NS, flapping={"link": flapping}, tell=True
    )
    again.observe({"link": items}, restart * NS, unknown={"link"})
    assert again.next_due_ns() is None
    again.show(restart * NS)
    assert again.flapping("link") == flapping
    again.observe({}, (restart + gap) * NS)
    assert again.next_due_ns() == 146 * NS
    again.show(145 * NS)
    assert again.flapping("link") == flapping
    for second, some in {147: items, 148: {}}.items():
        for one in (damper, again):
            one.observe({"link": some}, second * NS)
            one.show(second * NS)
    assert damper.next_due_ns() == again.next_due_ns()
    for one in (damper, again):
        one.show(160 * NS)
    assert damper.flapping("link") == again.flapping("link")


def test_a_restart_while_it_is_gone_forgets_no_flap() -> None:
    damper = flapped(112)
    damper.observe({"link": {"d": ""}}, 113 * NS)
    damper.show(113 * NS)
    flapping = damper.flapping("link")
    assert flapping == Flapping(2, 113 * NS)
    again: Damper[str, str, str] = Damper(
        SETTINGS, {"link": {"d": ""}}, 114 * NS, flapping={"link": flapping}, tell=True
    )
    for one in (damper, again):
        one.observe({}, 120 * NS)
        one.show(130 * NS)
    assert damper.flapping("link") == again.flapping("link")
    assert damper.next_due_ns() == again.next_due_ns() == 280 * NS


def flapped(until: int) -> Damper[str, str, str]:
    damper: Damper[str, str, str] = Damper(SETTINGS, tell=True)
    observed = {100: "d", 102: "", 104: "d", 106: ""}
    items = ""
    for second in range(100, until + 1):
        items = observed.get(second, items)
        damper.observe({"link": dict.fromkeys(items, "")}, second * NS)
        damper.show(second * NS)
    return damper


def test_a_member_is_seen_first_once_until_it_is_forgotten() -> None:
    both, one = frozenset({"a", "b"}), frozenset({"b"})
    first = FirstSeen()
    assert first.of(both, ["b"], []) == {"a"}
    assert first.of(both, [], []) == {"b"}
    assert first.of(one, [], both) == set()
    assert first.of(frozenset(both), [], both) == set(), "it was still published"
    assert first.of(one, [], one) == set()
    assert first.of(frozenset(both), [], one) == {"a"}
