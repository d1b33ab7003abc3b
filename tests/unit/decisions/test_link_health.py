"""Which ports do something wrong: rates of counters, thresholds, hysteresis, counters that begin anew."""

from collections.abc import Iterable, Sequence

import pytest
from hyperscout_collector.decisions.fabric.link_health import (
    CounterSample,
    Counts,
    HealthSettings,
    LinkHealth,
)
from hyperscout_inference.fabric.inputs import PortHealth
from hyperscout_runtime.units import NS
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

PORT = ("leaf-1", "swp1")
SETTINGS = HealthSettings(errors_per_s=1.0, discards_per_s=100.0, flaps_per_hour=5.0, window_s=300.0)


def sample(at_s: float, counts: Counts, source: str = "switch") -> CounterSample:
    return CounterSample(round(at_s * NS), {PORT: counts}, source)


class World:
    """One finding that is looked at again and again; `told`: how often something was new."""

    def __init__(self, settings: HealthSettings = SETTINGS, reporter: str = "a") -> None:
        self.machine = LinkHealth(settings)
        self.reporter = reporter
        self.last: CounterSample | None = None
        self.told = 0

    def see(self, at_s: float, counts: Counts, source: str = "switch") -> PortHealth | None:
        now = sample(at_s, counts, source)
        if self.last is not None:
            self.told += self.machine.compare(self.reporter, self.last, now)
        self.last = now
        return self.machine.health.get(PORT)

    def run(self, rows: Iterable[tuple[float, int]]) -> list[bool]:
        """Errors by time: whether the port is named after each."""
        return [self.see(at_s, Counts(errors, 0, 0)) is not None for at_s, errors in rows]


def minutes(*errors: int) -> list[tuple[float, int]]:
    return [(60.0 * i, count) for i, count in enumerate(errors)]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        pytest.param(minutes(0, 0, 0), "...", id="nothing"),
        pytest.param(minutes(70_000, 70_000, 70_000), "...", id="of-long-ago"),
        pytest.param(minutes(0, 299, 299), "...", id="under"),
        pytest.param(minutes(5, 305, 305), ".XX", id="at-the-threshold"),
        pytest.param(minutes(0, 100, 200, 300, 400), "...XX", id="slowly"),
        pytest.param(minutes(0, 300, 300, 300, 300, 300, 300, 300), ".XXXXX..", id="a-burst-is-over"),
        pytest.param(minutes(0, *range(300, 2100, 300), *[1800] * 5), ".XXXXXXXXXX.", id="clears"),
        # Half the threshold keeps what is named, and names nothing.
        pytest.param(minutes(0, *range(40, 600, 40)), "." * 15, id="between-from-below"),
        pytest.param(minutes(0, 400, *range(440, 840, 40)), "." + "X" * 11, id="between-from-above"),
        pytest.param(minutes(9000, 0, 10, 10), "....", id="reset"),
        pytest.param(minutes(9000, 400, 400), ".XX", id="reset-and-on"),
        pytest.param([(0, 0), (86_400, 86_400)], ".X", id="a-day-apart-fast"),
        pytest.param([(0, 0), (86_400, 40_000)], "..", id="a-day-apart-slow"),
        pytest.param([(i / 10, i) for i in range(400)], "." * 300 + "X" * 100, id="ten-looks-a-second"),
    ],
)
def test_errors(rows: Sequence[tuple[float, int]], named: str) -> None:
    assert "".join(".X"[x] for x in World().run(rows)) == named


def test_numbers_are_those_of_the_window() -> None:
    world = World()
    for at_s, errors in minutes(0, 600, 1200, 1800, 2400, 3000, 3600):
        found = world.see(at_s, Counts(errors, 2 * errors * 100, 0))
    assert found == PortHealth(10.0, 2000.0, 0.0, "switch")


def test_a_rate_that_stays_tells_nothing_new() -> None:
    world = World()
    world.run(minutes(*range(0, 12_000, 600)))
    told = world.told
    world.run([(60.0 * i, 600 * i + i % 7 * 40) for i in range(20, 400)])
    assert world.told == told
    assert world.machine.watched == 1


def test_each_series_has_its_own_threshold() -> None:
    world = World()
    world.see(0, Counts(0, 0, 0))
    assert world.see(60, Counts(299, 40_000, 9)) is None, "a change of carrier: none of it counts"
    assert world.see(120, Counts(598, 80_000, 9)) == PortHealth(0.0, 130.0, 0.0, "switch")
    assert world.see(180, Counts(600, 80_000, 10)) == PortHealth(0.0, 130.0, 5.0, "switch", 3691 * NS)


def test_what_a_link_counts_while_it_trains_is_no_error() -> None:
    world = World()
    world.see(0, Counts(0, 0, 2, up=True))
    assert world.see(60, Counts(90_000, 90_000, 3, up=False)) is None
    assert world.see(61, Counts(99_000, 99_000, 4, up=True)) is None
    assert world.see(121, Counts(99_000, 99_000, 4, up=True)) is None
    assert world.see(181, Counts(99_900, 99_000, 4, up=True)) == PortHealth(3.0, 0.0, 0.0, "switch")


def test_nor_where_only_the_carrier_tells() -> None:
    world = World()
    world.see(0, Counts(0, 0, None))
    assert world.see(60, Counts(90_000, 0, None, up=False)) is None
    assert world.see(120, Counts(99_000, 0, None, up=True)) is None


def test_a_look_of_earlier_is_none() -> None:
    world = World()
    world.run(minutes(0, 100, 200))
    assert world.see(100, Counts(9_000, 0, 0)) is None
    assert world.see(180, Counts(290, 0, 0)) is None
    assert world.see(240, Counts(390, 0, 0)) is not None


def test_a_window_is_kept_in_few_points() -> None:
    world = World()
    world.run((i / 10, i * i) for i in range(9_000))
    (owner,) = world.machine._owners.values()
    (rate,) = filter(None, owner.tracks[PORT]._rates)
    assert len(rate._points) <= 15


def test_flaps_are_counted_for_an_hour() -> None:
    world = World()
    changes = [0, 2, 4, 6, 8, *[10] * 56, *[10] * 20]
    named = [world.see(60.0 * i, Counts(0, 0, x)) for i, x in enumerate(changes)]
    assert [x is not None for x in named[:6]] == [False] * 5 + [True]
    assert named[5] == PortHealth(0.0, 0.0, 5.0, "switch", 3751 * NS)
    first_clear = next(i for i, x in enumerate(named) if i > 5 and x is None)
    assert 60 < first_clear <= 65, "under half of the threshold, an hour after most of them"


# Readings of the carrier changes every 10 s: the changes by second. A flap is two changes.
FLAPPING: list[tuple[str, dict[int, int]]] = [
    ("one after the other", {60: 2, 70: 2, 80: 2, 90: 2, 100: 2}),
    ("minutes apart", {60 * i: 2 for i in range(1, 12)}),
    ("once more, just before the end", {60: 10, 3640: 2}),
    ("all in one reading", {60: 10}),
    ("an odd number of changes", {60: 3, 120: 3, 2000: 5}),
]


@pytest.mark.parametrize(("name", "changes"), FLAPPING, ids=[x[0] for x in FLAPPING])
def test_a_port_that_flaps_no_more_clears_when_it_was_said(name: str, changes: dict[int, int]) -> None:
    world, total, said = World(), 0, []
    for at_s in range(0, 12_000, 10):
        total += changes.get(at_s, 0)
        found = world.see(at_s, Counts(0, 0, total))
        if found is not None:
            said.append((at_s, found.clears_ns // NS))
    (last, clears_s), end = said[-1], said[-1][0] + 10
    assert end - 10 < clears_s <= end, "the next reading after that time clears it"
    flaps = [at_s for at_s in changes if at_s >= said[0][0]]
    times = [clears_s for at_s, clears_s in said]
    assert len(set(times)) <= len(flaps), "it changes only when the port flaps"
    assert times == sorted(times)
    assert last > 3600


def test_one_more_flap_moves_the_time_and_is_no_news() -> None:
    world = World()
    changes = (0, 10, 12, 14, 14, 24)
    found = [world.see(60.0 * i, Counts(0, 0, x)) for i, x in enumerate(changes)]
    said = [(x.flaps_per_hour, x.clears_ns // NS) for x in found if x is not None]
    assert said == [(5.0, 3631), (5.0, 3671), (5.0, 3716), (5.0, 3716), (12.0, 3871)]
    assert world.told == 2


def test_flaps_where_no_reporter_counts_them() -> None:
    world = World()
    for i in range(10):
        found = world.see(60.0 * i, Counts(0, 0, None, up=i % 2 == 0))
    assert found is None
    assert world.see(600.0, Counts(0, 0, None)) == PortHealth(0.0, 0.0, 5.0, "switch", 3901 * NS)


def test_a_full_counter_leaves_what_was_said() -> None:
    world = World()
    world.run(minutes(0, 60_000))
    for i in range(2, 60):
        assert world.see(60.0 * i, Counts(None, 0, 0)), i
    assert world.see(3600, Counts(12, 0, 0)) is None, "cleared by a person: counted anew"
    assert world.see(3660, Counts(900, 0, 0)) is not None
    fresh = World()
    assert [fresh.see(60.0 * i, Counts(None, 0, 0)) for i in range(5)] == [None] * 5


def test_zero_is_never() -> None:
    world = World(HealthSettings(0, 0, 0, 300))
    assert not any(world.run(minutes(0, 10**6, 2 * 10**6)))


def test_nothing_is_kept_of_ports_at_rest() -> None:
    machine = LinkHealth(SETTINGS)
    quiet = CounterSample(0, {("n", f"eth{i}"): Counts(i, 0, 1) for i in range(1000)}, "lldp")
    assert not machine.compare("n", quiet, CounterSample(60 * NS, dict(quiet.ports), "lldp"))
    assert (machine.watched, machine.watches("n")) == (0, False)
    moved = CounterSample(120 * NS, {**quiet.ports, ("n", "eth7"): Counts(9, 0, 1)}, "lldp")
    assert not machine.compare("n", quiet, moved)
    assert (machine.watched, machine.watches("n")) == (1, True)
    for minute in range(3, 10):
        machine.compare("n", moved, CounterSample(minute * 60 * NS, moved.ports, "lldp"))
    assert (machine.watched, machine.watches("n")) == (0, False)


def test_a_reporter_that_is_gone_says_nothing() -> None:
    world = World()
    world.run(minutes(0, 1000))
    assert world.machine.forget("a")
    assert not world.machine.forget("a")
    assert world.machine.health == {}
    world = World()
    world.run(minutes(0, 1000))
    assert world.last is not None
    assert world.machine.compare("a", world.last, CounterSample(120 * NS, {}, "switch")), (
        "the port is no more"
    )
    assert world.machine.health == {}


def test_two_that_count_on_one_port() -> None:
    machine = LinkHealth(SETTINGS)
    for reporter, source, errors, flaps in (("switch/a", "switch", 600, 0), ("fabric/x", "snmp", 1200, 12)):
        was = sample(0, Counts(0, 0, 0), source)
        machine.compare(reporter, was, sample(60, Counts(errors, 0, 0), source))
        machine.compare(
            reporter, sample(60, Counts(errors, 0, 0), source), sample(120, Counts(errors, 0, flaps), source)
        )
    assert machine.health == {PORT: PortHealth(4.0, 0.0, 6.0, "snmp", 3696 * NS)}
    assert machine.forget("fabric/x")
    assert machine.health == {PORT: PortHealth(2.0, 0.0, 0.0, "switch")}


def test_the_same_look_again_is_none() -> None:
    world = World()
    world.run(minutes(0, 1000))
    assert world.last is not None
    before = world.last
    for _ in range(1000):
        assert not world.machine.compare("a", before, world.last)
    assert world.machine.health == {PORT: PortHealth(3.3, 0.0, 0.0, "switch")}


NUMBERS = st.none() | st.integers(0, 2**64 - 1)
READINGS = st.tuples(st.floats(-500, 4000), st.builds(Counts, NUMBERS, NUMBERS, NUMBERS, st.booleans()))


@examples(5)
@given(st.lists(READINGS, max_size=60), st.sampled_from([SETTINGS, HealthSettings()]))
def test_whatever_is_read(rows: Sequence[tuple[float, Counts]], limits: HealthSettings) -> None:
    """Any counters at any times: no error, rates that can be, and quiet once nothing moves any more."""
    world = World(limits)
    at_s = 0.0
    for wait_s, counts in rows:
        at_s += wait_s
        found = world.see(at_s, counts)
        if found is not None:
            assert min(found.errors_per_s, found.discards_per_s, found.flaps_per_hour) >= 0
            assert max(found.errors_per_s, found.discards_per_s, found.flaps_per_hour) > 0
    at_s += 500 * len(rows)
    for _ in range(70):
        at_s += 61
        world.see(at_s, Counts(7, 7, 7))
    assert world.machine.health == {}
    assert world.machine.watched == 0
