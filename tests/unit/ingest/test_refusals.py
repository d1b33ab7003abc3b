"""Refusals are counted one by one, and logged in few lines, whatever the caller and the number of tries."""

import logging
from collections import Counter

import pytest
from hyperscout_collector.ingest.refusals import AGAIN_S, MAX_LINES, Refusals

WHY = "these are the credentials of node 'n1', and Hello names node 'n2'"


class World:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now_s = 0.0
        self.counts: Counter[str] = Counter()
        self.refusals = Refusals(self.counts, lambda: self.now_s)
        self._caplog = caplog
        caplog.set_level(logging.INFO)

    def tries(
        self, peer: str = "ipv4:10.0.0.7:40000", claimed: str = "n2", reason: str = "another_name"
    ) -> None:
        self.refusals.note(reason, peer, claimed, WHY)

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records]


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> World:
    return World(caplog)


def test_one_line_names_the_caller_and_the_name_it_gave(world: World) -> None:
    world.tries()
    assert world.lines == [f"refused: ipv4:10.0.0.7:40000, which calls itself 'n2': {WHY}"]


def test_again_and_again_from_other_ports_under_other_names_is_one_line(world: World) -> None:
    for i in range(1000):
        world.now_s += 0.1
        world.tries(f"ipv4:10.0.0.7:{40000 + i}", f"n{i}")
    assert (len(world.lines), world.counts["another_name"]) == (1, 1000)
    world.now_s = AGAIN_S + 1
    world.tries()
    assert world.lines[1].endswith("(999 more since the last such line)")


def test_each_address_and_each_reason_is_said(world: World) -> None:
    world.tries("ipv6:%5Bfd00::7%5D:1")
    world.tries("ipv6:%5Bfd00::8%5D:1")
    world.tries("ipv6:%5Bfd00::8%5D:2", reason="unknown_caller")
    world.tries("unix:")
    assert len(world.lines) == 4


def test_behind_one_address_each_is_told_apart_by_its_credentials(world: World) -> None:
    """A node's port or a load balancer may give all of them its own address."""
    for i in range(100):
        for node in ("node a", "node b"):
            world.refusals.note("another_name", f"ipv4:10.244.2.1:{40_000 + i}", f"n{i}", WHY, node)
    assert (len(world.lines), world.counts["another_name"]) == (2, 200)


def test_ten_thousand_at_once_are_few_lines_a_minute(world: World) -> None:
    for i in range(10_000):
        world.tries(f"ipv4:10.{i // 256}.{i % 256}.1:40000")
    assert (len(world.lines), world.counts["another_name"]) == (MAX_LINES, 10_000)
    world.now_s = 61.0
    world.tries("ipv4:10.200.0.1:40000")
    assert world.lines[-1].endswith(f"({10_000 - MAX_LINES} more since the last such line)")


@pytest.mark.slow
def test_what_is_remembered_is_bounded(world: World) -> None:
    for i in range(10_000):
        world.now_s += 60.0
        world.tries(f"ipv4:10.{i // 256}.{i % 256}.1:40000")
    assert len(world.refusals._lines._logged_s) <= 4096


def test_a_long_story_is_cut(world: World) -> None:
    world.refusals.note("unknown_caller", "ipv4:10.0.0.7:1", "x" * 253, "y" * 10_000)
    assert len(world.lines[0]) < 1000
