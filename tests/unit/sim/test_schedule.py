"""Which address each simulated agent tries first, and when it reports again."""

from collections import Counter
from itertools import islice, pairwise

import pytest
from hyperscout_sim.agents.schedule import refreshes, spread

HOSTS = [f"node-{number}" for number in range(6)]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, ("a", "b", "c")), (1, ("b", "c", "a")), (2, ("c", "a", "b")), (3, ("a", "b", "c"))],
)
def test_addresses_are_tried_in_order_from_the_own_one(number: int, expected: tuple[str, ...]) -> None:
    assert spread(HOSTS, ["a", "b", "c"])(HOSTS[number]) == expected


def test_agents_are_spread_evenly_over_the_addresses() -> None:
    hosts = [f"node-{number}" for number in range(1000)]
    order = spread(hosts, ["a", "b", "c"])
    first = Counter(order(host)[0] for host in hosts)
    assert sorted(first.values()) == [333, 333, 334]


def test_each_agent_reports_once_in_an_interval_and_all_are_evenly_spread() -> None:
    found = list(islice(refreshes(HOSTS, HOSTS, 60), 14))
    assert found[6] == (60, None)
    assert [host for _, host in found] == [*HOSTS, None] * 2
    times_s = [at_s for at_s, host in found if host is not None]
    assert times_s == pytest.approx([10 * number for number in range(12)])


def test_the_parts_of_several_processes_together_are_evenly_spread() -> None:
    parts = [HOSTS[0::2], HOSTS[1::2]]
    together = sorted(x for part in parts for x in islice(refreshes(HOSTS, part, 60), 3))
    assert together == list(islice(refreshes(HOSTS, HOSTS, 60), 6))
    assert {round(b - a) for (a, _), (b, _) in pairwise(together)} == {10}
