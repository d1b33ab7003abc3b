"""Which changes the lines of a watching kubectl show."""

from types import ModuleType

import pytest
from hyperscout_cli.loadtest.link_schedule import Change
from support.modules import module_of
from support.real import ROOT

UNIT_OF = {"node-0001": 0, "node-0002": 0, "node-0051": 1}
LINKS = ["node-0001", "node-0001", "node-0002", "node-0051"]  # of each link, its host


def line(is_degraded: str, reason: str, message: str) -> str:
    """A line as of kubectl 1.36: columns are at least three spaces apart."""
    start = ("leaf-u01-r-f8", "1", "leaf", "50", "True", is_degraded, reason, "9s")
    return "   ".join((*start, "AllNodesReady", "True", "False", message)) + "\n"


def degraded(down: int, *hosts: str) -> str:
    """A message names three links at most."""
    named = (f"{host}/eth0 -> leaf-u01-r0/swp2, seen by lldp, since 2026-11-28T19:52:20Z" for host in hosts)
    return line("True", "LinksDown", f"{down} of 205 host links down: {'; '.join(named)} and 3 more")


HEALTHY = line("False", "LinksHealthy", "no link or switch is missing, slow or erroring")
NEW = "leaf-u02-r-13   1     leaf   50                      0s                      \n"


@pytest.fixture
def bench() -> ModuleType:
    return module_of(ROOT / "tests" / "bench" / "bench_kubectl.py", "bench_kubectl")


@pytest.mark.parametrize(
    ("text", "down", "hosts"),
    [
        (HEALTHY, 0, set()),
        (NEW, 0, set()),
        (degraded(4, "node-0001", "node-0002"), 4, {"node-0001", "node-0002"}),
    ],
)
def test_a_line_is_read(bench: ModuleType, text: str, down: int, hosts: set[str]) -> None:
    assert bench.parsed(text) == bench.Line(down, frozenset(hosts))


def test_a_change_is_shown_once_and_in_its_own_domain(bench: ModuleType) -> None:
    domains = bench.Domains(UNIT_OF, LINKS)
    pending = {3: (True, 1), 0: (True, 2), 2: (True, 3)}  # the watched domain has links 0 to 2

    def shown(text: str) -> list[int]:
        found = domains.shown(bench.parsed(text), pending)
        assert found == [Change(change.link, down=True) for change in found]
        for change in found:
            del pending[change.link]
        return [change.link for change in found]

    assert shown(HEALTHY) == []
    assert shown(degraded(2, "node-0001")) == [0], "the older one of two in this domain"
    assert shown(degraded(2, "node-0001")) == []
    assert shown(degraded(4, "node-0001", "node-0002")) == [2]
    assert list(pending) == [3]


def test_one_line_may_show_several_changes(bench: ModuleType) -> None:
    domains = bench.Domains(UNIT_OF, LINKS)
    found = domains.shown(bench.parsed(degraded(4, "node-0001")), {1: (True, 1), 0: (True, 2)})
    assert [change.link for change in found] == [1, 0]


def test_a_change_from_before_is_not_counted_again(bench: ModuleType) -> None:
    domains = bench.Domains(UNIT_OF, LINKS)
    assert domains.shown(bench.parsed(degraded(2, "node-0001")), {}) == [], "it is not measured"
    assert domains.shown(bench.parsed(degraded(2, "node-0001")), {1: (True, 1)}) == []
    found = domains.shown(bench.parsed(degraded(4, "node-0001")), {1: (True, 1)})
    assert [change.link for change in found] == [1]
