"""Which reporters' evidence makes inference raise, and when evidence that is set aside is tried again."""

import math
from collections.abc import Callable, Collection

import pytest
from hyperscout_collector.decisions.publication.quarantine import (
    MAX_RETRY_S,
    RETRY_S,
    Missing,
    Quarantine,
    find_culprits,
    marked,
    why_lacking,
)
from hyperscout_runtime.errors import described
from hyperscout_topology.topology import Anomaly, Endpoint, HyperNode, Switch, Topology

S = 1_000_000_000
NAMES = [f"n{i:04}" for i in range(1000)]


class Trials:
    """Counts the inferences. `raises` gets the reporters whose evidence is there."""

    def __init__(self, raises: Callable[[Collection[str]], bool]) -> None:
        self.count = 0
        self._raises = raises

    async def __call__(self, reporters: Collection[str]) -> str | None:
        self.count += 1
        there = set(NAMES).difference(reporters)
        return "ValueError: planted" if self._raises(there) else None


@pytest.mark.parametrize(
    ("what", "raises", "expected"),
    [
        ("one", lambda there: "n0613" in there, {"n0613"}),
        ("the first and the last", lambda there: bool({"n0000", "n0999"} & there), {"n0000", "n0999"}),
        ("neighbours", lambda there: bool({"n0500", "n0501"} & there), {"n0500", "n0501"}),
        ("only together: the later one", lambda there: {"n0003", "n0800"} <= there, {"n0800"}),
        ("no evidence is enough", lambda there: True, set()),
        ("inference works after all", lambda there: False, set()),
        ("too many", lambda there: any(name.endswith("7") for name in there), set()),
        (
            "an innocent one, when half of the evidence raises for another reason",
            lambda there: "n0900" in there or ("n0100" in there and "n0950" not in there),
            {"n0900"},
        ),
    ],
)
async def test_culprits(what: str, raises: Callable[[Collection[str]], bool], expected: set[str]) -> None:
    trials = Trials(raises)
    found = await find_culprits(NAMES, trials, 4)
    assert found == dict.fromkeys(expected, "ValueError: planted"), what
    per_culprit = math.ceil(math.log2(len(NAMES))) + 2
    assert trials.count <= 2 + per_culprit * 4
    if len(expected) == 1:
        assert trials.count <= 2 + per_culprit * (2 if "innocent" in what else 1)


async def test_without_suspects_nothing_is_searched() -> None:
    trials = Trials(lambda there: True)
    assert await find_culprits([], trials, 4) == {}
    assert trials.count == 1


def test_the_wait_doubles_and_only_news_or_an_hour_ends_it() -> None:
    quarantine = Quarantine()
    now_ns, wait_s = 0, RETRY_S
    while wait_s < MAX_RETRY_S:
        quarantine.put("n1", "E", now_ns)
        assert quarantine.next_due_ns == now_ns + MAX_RETRY_S * S, "without news, in an hour"
        quarantine.reported({"n1", "n2"})
        assert quarantine.next_due_ns == now_ns + wait_s * S
        assert quarantine.held(now_ns + int(wait_s * S) - 1) == {"n1"}
        now_ns += int(wait_s * S)
        assert quarantine.held(now_ns) == set(), "it is tried again"
        assert quarantine.errors == {"n1": "E"}, "but not released before inference has worked with it"
        wait_s *= 2
    quarantine.keep(())
    assert quarantine.next_due_ns is None
    quarantine.put("n1", "E", 0)
    quarantine.reported({"n1"})
    assert quarantine.next_due_ns == RETRY_S * S, "the wait begins anew after a success"


def test_an_exception_is_one_short_line() -> None:
    assert described(ValueError("a\n  b")) == "ValueError: a b"
    assert len(described(ValueError("x" * 1000))) == 200


def _lost(host: str) -> Anomaly:
    return Anomaly(
        "MissingLink",
        Endpoint("s1", "leaf-1", "1"),
        Endpoint("g1", host, "mlx5_0"),
        1,
        ("lldp",),
        0.95,
        "",
        "h",
    )


def test_an_anomaly_names_the_reporter_and_what_only_it_saw_is_not_missing() -> None:
    leaf = HyperNode("h", 1, "leaf", None, (), ("n1", "n2"), ("s1",))
    topology = Topology(2, (leaf,), (Switch("s1", "leaf-1", 1),), anomalies=(_lost("n1"), _lost("n2")))
    unseen = [Missing("n1", "ValueError: x", frozenset(), has_earlier=False)]
    found = marked(topology, unseen, None).anomalies
    assert [(x.kind, x.hypernode) for x in found] == [("EvidenceSetAside", "h"), ("MissingLink", "h")]
    assert "n1" in found[0].message
    assert "ValueError: x" in found[0].message
    assert found[1].peer == Endpoint("g1", "n2", "mlx5_0")
    assert len(marked(topology, unseen, topology).anomalies) == 3, "it was missing before"
    earlier = [Missing("switch/leaf-1", "E", frozenset({"s1"}), has_earlier=True)]
    (anomaly, *losses) = marked(topology, earlier, None).anomalies
    assert (anomaly.subject, anomaly.hypernode) == (Endpoint("s1", "switch/leaf-1"), "h")
    assert len(losses) == 2
    bare = Topology(2, (leaf,))
    assert why_lacking(bare, unseen, topology) == (
        "without the evidence of n1, 1 published switches are not seen"
    )
    assert not why_lacking(topology, unseen, topology)
    assert not why_lacking(bare, earlier, topology)
