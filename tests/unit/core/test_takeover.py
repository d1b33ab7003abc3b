"""When a new leader begins to infer: tables over who was heard."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hyperscout_collector.core.takeover import NS, Takeover
from hyperscout_collector.topology import Condition, Topology
from support.topologies import leaves, two_leaves

START = 10**18
SWITCHES = [["s1", "s2", "s9"]]


@pytest.mark.parametrize(
    ("heard", "down", "sweeps", "after_s", "ended"),
    [
        pytest.param([], [], [], 0, False, id="at the start"),
        pytest.param(
            ["n01", "n02", "n03", "n04"], [], SWITCHES, 1, True, id="all were heard, and a sweep came"
        ),
        pytest.param(["n01", "n02", "n03"], [], SWITCHES, 29, False, id="one is missing"),
        pytest.param(["n01", "n02", "n03", "n04"], [], [], 29, False, id="the sweep is missing"),
        pytest.param(["n01", "n02", "n03", "n04"], [], [["t1"]], 29, False, id="a sweep of another fabric"),
        pytest.param(["n01", "n02", "n03"], ["n04"], SWITCHES, 1, True, id="the missing one is down"),
        pytest.param([], [], [], 30, True, id="the time is up"),
        pytest.param(
            ["n01", "n02", "n03", "n04"], [], [["s9"]], 1, True, id="the rest of a fabric that came apart"
        ),
    ],
)
def test_ends(
    heard: Sequence[str], down: Sequence[str], sweeps: Sequence[Sequence[str]], after_s: int, ended: bool
) -> None:
    takeover = Takeover(two_leaves(), 30.0, START)
    for node in heard:
        takeover.full_state(node)
    assert takeover.ended(START + after_s * NS, down, sweeps, {}) == ended
    assert takeover.active != ended
    assert takeover.ended(START, [], [], {}) == ended, "it does not begin again"


def test_the_last_agent_is_news() -> None:
    takeover = Takeover(leaves(("n1", "n2")), 30.0, START)
    assert [takeover.full_state(node) for node in ("n1", "n1", "other", "n2")] == [False, False, False, True]
    assert takeover.ended(START, [], [], {}), "no sweep showed anything of it, so none is waited for"


def test_a_fabric_at_a_time() -> None:
    first = two_leaves()
    second = [replace(x, a_device=f"t{i}", b_device="t9", fabric="ib-2") for i, x in enumerate(first.links)]
    switches = (*first.switches, *(replace(first.switches[0], id=f"t{i}") for i in (0, 9)))
    takeover = Takeover(replace(first, links=(*first.links, *second), switches=switches), 30.0, START)
    nodes = ["n01", "n02", "n03", "n04"]
    assert not takeover.ended(START, nodes, [["s1"]], {})
    assert takeover.waits_for() == "a sweep of ib-2"
    assert takeover.ended(START, [], [["t9"]], {})


def test_what_it_waits_for() -> None:
    takeover = Takeover(two_leaves(), 30.0, START)
    assert takeover.waits_for() == "agents of 4 nodes (n01, n02, n03 and 1 more) and a sweep of ib"


def stale_leaves(message: str, *, above: bool) -> Topology:
    tree = leaves(("n1", "n2", "n10"), ("n3",))
    stale = Condition("Stale", "True", "EvidenceStale", message, START)
    first, second, core = tree.hypernodes
    core = replace(core, conditions=(stale,)) if above else core
    return replace(tree, hypernodes=(replace(first, conditions=(stale,)), second, core))


@pytest.mark.parametrize(
    ("message", "above", "stale"),
    [
        (
            "evidence of 1 of 3 nodes is older than its limit: n10 last seen 2026-01-01T00:00:00Z",
            False,
            ["n10"],
        ),
        ("somebody rewrote this", False, ["n1"]),
        ("evidence of 3 of 3 nodes is older than its limit: n1, n10 and 1 more", True, ["n1", "n2", "n10"]),
    ],
)
def test_who_was_stale_stays_so_until_heard(message: str, above: bool, stale: list[str]) -> None:
    takeover = Takeover(stale_leaves(message, above=above), 30.0, START)
    assert list(takeover.stale()) == stale
    for node in stale:
        takeover.full_state(node)
    assert set(takeover.stale()).isdisjoint(stale)


def test_a_clock_that_is_set_back_makes_it_no_longer() -> None:
    takeover = Takeover(two_leaves(), 30.0, START)
    back = START - 3600 * 10**9
    assert not takeover.ended(START + 5 * 10**9, (), [], {})
    assert not takeover.ended(back, (), [], {})
    assert not takeover.ended(back + 29 * 10**9, (), [], {})
    assert takeover.ended(back + 30 * 10**9, (), [], {})
