"""A claim that was taken, or of which nothing is kept, is noticed."""

from typing import Any

import pytest
from lab import claims
from lab.claims import ClaimError, check

DENIED = (
    "WARNING uplink: PERMISSION_DENIED: these are the credentials of node 'n1', and Hello names node 'n2'"
)
LINE = "WARNING refusals: refused: ipv4:10.0.0.1:4711, which calls itself 'n2': credentials of node 'n1'"
COUNT = 'hyperscout_collector_refused_total{reason="another_name"}'


class FakeLab:
    """A cluster that answers as told. `counts`: the metric at each look."""

    def __init__(self, **more: Any) -> None:
        told: dict[str, Any] = {"heard": DENIED, "log": LINE, "counts": [3, 4], "agents": [2, 2]}
        self._told = told | more

    def kubectl(self, *words: str, stdin: Any = None, timeout_s: float = 60, check: bool = True) -> str:
        if words[0] == "logs":
            return f"INFO something\n{self._told['log']}\n"
        if words[3] == "agent-1":
            return f"{self._told['heard']}\n"
        counts, agents = self._told["counts"], self._told["agents"]
        page = f"# HELP x\n{COUNT} {counts[0]}.0\nhyperscout_collector_agents {agents[0]}.0\n"
        self._looks = getattr(self, "_looks", 0) + 1
        if self._looks >= 2:  # both figures were read before
            self._told |= {"counts": counts[1:] or counts, "agents": agents[1:] or agents}
        return page


def tried(lab: FakeLab) -> list[str]:
    return check(lab, "hyperscout", "agent-1", "n1", "n2", "collector-1")


def test_what_came_of_it_is_told() -> None:
    said = tried(FakeLab())
    assert said[-1] == f"{COUNT} 3 -> 4"
    assert any(LINE in line for line in said)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"heard": "INFO uplink: connected"}, "hears: INFO uplink: connected"),
        ({"heard": ""}, "hears: nothing"),
        ({"counts": [3]}, "stays at 3"),
        ({"log": f"{LINE}\n{LINE}"}, "2 lines"),
        ({"log": "refused: ipv4:10.0.0.1:4711: credentials of node 'n1'"}, "1 lines"),
        ({"log": ""}, "0 lines"),
        ({"agents": [2, 2, 1]}, "2 agents were connected, and then 1"),
    ],
)
def test_what_must_not_be(more: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_TIMEOUT_S", 0.0)
    with pytest.raises(ClaimError, match=words):
        tried(FakeLab(**more))


def test_a_page_without_the_metric_is_said() -> None:
    lab = FakeLab()
    lab.kubectl = lambda *words, **more: "# nothing\n"  # type: ignore[method-assign]
    with pytest.raises(ClaimError, match="has no metric"):
        tried(lab)
