"""Events in words."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from hyperscout.v1.topology_pb2 import Cause, HistoryEvent, ListHistoryRequest, ListHistoryResponse
from hyperscout_cli.remote.client import Collector
from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.show.history import changes_in, is_known
from hyperscout_cli.show.history_text import about, cause, change, difference_line, event_row
from hyperscout_topology.proto import timestamp
from hyperscout_topology.topology import Topology
from support.command_line import CommandLine
from support.topologies import leaves, two_leaves

WHY = {
    "kind": "findings",
    "findings": [{"node": "n1", "probe": "lldp", "subject": "eth0"}],
    "findings_total": 3,
}
AT = {"at": timestamp(1_767_225_600_000_000_000), "generation": 4, "id": 9, "cause": WHY}
ENDS = {
    "subject": {"device": "g1", "name": "n1", "port": "1"},
    "peer": {"device": "g2", "name": "leaf-1", "port": "eth7"},
}
SINCE = " (since 2026-01-01T00:00:00Z, findings: n1 lldp eth0 and 2 more)"


@pytest.mark.parametrize(
    ("event", "subject", "said", "line"),
    [
        pytest.param(
            {"kind": "LinkRemoved", "hypernode": "h", "node": "n1", "message": "was removed", **ENDS},
            "n1/p1 -- leaf-1/eth7",
            "was removed",
            "- link n1/p1 -- leaf-1/eth7",
            id="link",
        ),
        pytest.param(
            {"kind": "AnomalyCleared", "what": "MissingLink", "message": "over: no cable", **ENDS},
            "n1/p1 -- leaf-1/eth7",
            "MissingLink: over: no cable",
            "- anomaly MissingLink n1/p1 -- leaf-1/eth7: no cable",
            id="anomaly",
        ),
        pytest.param(
            {
                "kind": "SwitchAdded",
                "subject": {"device": "s1", "name": "leaf-1"},
                "message": "switch leaf-1 was added",
            },
            "leaf-1",
            "switch leaf-1 was added",
            "+ switch leaf-1",
            id="switch",
        ),
        pytest.param(
            {"kind": "NodeMoved", "hypernode": "h2", "node": "n1", "message": "n1 moved from h1 to h2"},
            "n1",
            "n1 moved from h1 to h2",
            "~ node n1: n1 moved from h1 to h2",
            id="node",
        ),
        pytest.param(
            {"kind": "HyperNodeAdded", "hypernode": "h2", "message": "h2 (tier 1) was added"},
            "h2",
            "h2 (tier 1) was added",
            "+ hypernode h2: h2 (tier 1) was added",
            id="HyperNode",
        ),
        pytest.param(
            {
                "kind": "ConditionChanged",
                "hypernode": "h",
                "what": "Ready",
                "after": "False",
                "reason": "NodesNotReady",
                "message": "n1",
            },
            "h",
            "Ready unset -> False (NodesNotReady): n1",
            "~ hypernode h: Ready unset -> False (NodesNotReady)",
            id="condition",
        ),
        pytest.param(
            {"kind": "GenerationPublished", "message": "1 link removed"},
            "generation 4",
            "1 link removed",
            "~ hypernode generation 4: 1 link removed",
            id="generation",
        ),
    ],
)
def test_in_words(event: dict[str, object], subject: str, said: str, line: str) -> None:
    found = HistoryEvent(**event, **AT)  # type: ignore[arg-type]
    assert (about(found), change(found)) == (subject, said)
    assert difference_line(found) == line + SINCE
    row = event_row(found)
    assert row.cells == ("2026-01-01T00:00:00Z", event["kind"], subject, said)
    assert row.data["generation"] == 4


@pytest.mark.parametrize(
    "about",
    ["n01", "leaf-a", "spine", "s9", "n01/p1", "s2:9", "s2:9--s9:2", "s9:2--s2:9", "leaf-b/p9 -> spine/p2"],
)
def test_what_is_published_is_known_without_an_event(about: str) -> None:
    assert is_known(cast(Collector, Published()), about)


@pytest.mark.parametrize("about", ["n99", "leaf-b/p77", "leaf-b/p9 -- n99", "n[01-02]"])
def test_what_is_in_no_event_and_not_published_is_unknown(about: str) -> None:
    assert not is_known(cast(Collector, Published()), about)


class Published:
    """A collector with a published topology and no events."""

    def history(self, request: ListHistoryRequest) -> Iterator[ListHistoryResponse]:
        yield ListHistoryResponse()

    def topology(self) -> Topology:
        return two_leaves()


def test_a_kind_is_taken_in_any_case_and_an_unknown_one_lists_all(run: CommandLine) -> None:
    ran = run("history", "--kind", "LINKADDED", "--net", "--flaps")
    assert "--net and --flaps" in ran.err, "the kind is accepted"
    ran = run("history", "--kind", "LinkGone")
    assert ran.code == 2
    assert "unknown kind 'LinkGone': expected one of AnomalyAppeared, AnomalyCleared, Cond" in ran.err


@pytest.mark.parametrize(
    ("change", "clusters"),
    [
        ({"node": "east/n1", "hypernode": "l2"}, {"east"}),
        ({"node": "n1", "hypernode": "l1"}, {""}),
        ({"node": "west/gone", "hypernode": "l2"}, {"west"}),  # it is not in the tree any more
        ({"subject": {"name": "east/n1"}, "peer": {"name": "l1/1"}}, {"east"}),
        ({"subject": {"name": "s1"}, "peer": {"name": "s2"}, "hypernode": "l2"}, {"east", "west"}),
        ({"hypernode": "l1"}, {"", "east"}),
        ({"kind": "GenerationPublished"}, set()),
    ],
)
def test_changes_of_a_cluster(change: Any, clusters: set[str]) -> None:
    tree = leaves(("n1", "east/n1"), ("east/n2", "west/n1"))
    keeps = {name: changes_in(tree, name) for name in ("", "east", "west")}
    assert {name for name, keep in keeps.items() if keep(HistoryEvent(**change))} == clusters
    with pytest.raises(CliError, match="no node of cluster 'north'"):
        changes_in(tree, "north")


def test_a_cause_names_some_and_counts_the_rest() -> None:
    assert cause(Cause(kind="approved")) == "approved"
    assert cause(Cause(kind="findings", findings_total=7)) == "findings"
    several = [{"node": f"n{i}", "probe": "lldp", "subject": "e"} for i in range(5)]
    assert (
        cause(Cause(kind="restart", findings=several))
        == "restart: n0 lldp e, n1 lldp e, n2 lldp e and 2 more"
    )
