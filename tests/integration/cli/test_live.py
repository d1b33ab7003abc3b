"""Commands that look at a collector, against a real gRPC server in this process."""

import json
import re
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hyperscout.v1 import finding_pb2
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome, Sweep
from hyperscout_cli.shared.writers import OUTPUTS, written
from hyperscout_cli.show.watch import changes
from hyperscout_collector.app.status.event_logs import lines
from hyperscout_collector.decisions.publication.takeover import FullState, TakeoverFacts, TakeoverMachine
from hyperscout_runtime.event_log import EventLog
from hyperscout_topology.link_changes import UNREPORTED
from hyperscout_topology.objects import to_json
from hyperscout_topology.proto import hypernode_to_proto, timestamp, topology_to_proto
from hyperscout_topology.topology import Endpoint, LinkTable
from support.builders import anomaly
from support.command_line import CommandLine
from support.topologies import two_leaves
from support.topology_service import FakeTopologyService


def columns(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_get_hypernodes(run: CommandLine, service: FakeTopologyService) -> None:
    ran = run("get", "hypernodes")
    assert ran.code == 0
    heading, a, b, core = columns(ran.out)
    assert heading == ["NAME", "TIER", "TIERNAME", "NODES", "READY", "DEGRADED", "REASON", "AGE"]
    assert a[:7] == ["leaf-a", "1", "leaf", "2", "True", "False", "-"]
    assert b[:7] == ["leaf-b", "1", "leaf", "2", "False", "True", "LinksDown"]
    assert core == ["core", "2", "core", "4", "-", "-", "-", "-"]
    assert a[7].endswith("d")
    assert service.asked_links == [False]


def test_get_wide_adds_the_message(run: CommandLine, service: FakeTopologyService) -> None:
    ran = run("get", "hn", "leaf-b", "-o", "wide")
    assert "PARENT   SWITCHES   SOURCE   LATENCY   OTHER   MESSAGE" in ran.out
    assert "1 of 4 links down: n03/p1 -> leaf-b/p3" in ran.out
    assert "leaf-a" not in ran.out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["hypernodes"], ["hypernode/leaf-a", "hypernode/leaf-b", "hypernode/core"]),
        (["hn", "core"], ["hypernode/core"]),
        (["no"], ["node/n01", "node/n02", "node/n03", "node/n04", "node/n09"]),
        (["node", "n02", "n04"], ["node/n02", "node/n04"]),
        (["sw"], ["switch/leaf-a", "switch/leaf-b", "switch/spine"]),
        (["switches", "s9"], ["switch/spine"]),
        (["ln", "n04"], ["link/a04:1--s2:2"]),
        (["links", "leaf-b"], ["link/s2:9--s9:2", "link/a04:1--s2:2"]),
        (["anomalies"], ["anomaly/MissingLink:a03:1"]),
        (["an", "leaf-b"], ["anomaly/MissingLink:a03:1"]),
        (["an", "MissingLink"], ["anomaly/MissingLink:a03:1"]),
    ],
)
def test_get_names(
    run: CommandLine, service: FakeTopologyService, arguments: list[str], expected: list[str]
) -> None:
    ran = run("get", *arguments, "-o", "name")
    assert ran.code == 0
    assert ran.out.splitlines() == expected


def test_get_json_and_yaml_are_lists_of_the_contract_s_objects(
    run: CommandLine, service: FakeTopologyService
) -> None:
    expected = to_json(two_leaves())["hypernodes"]
    assert json.loads(run("get", "hn", "-o", "json").out) == expected
    assert yaml.safe_load(run("get", "hn", "-o", "yaml").out) == expected
    assert json.loads(run("get", "an", "-o", "json").out) == to_json(two_leaves())["anomalies"]
    assert json.loads(run("get", "nodes", "n09", "-o", "json").out) == [
        {"name": "n09", "hypernodes": [], "links": 0, "anomalies": 0, "evidence": False}
    ]


def test_get_links_names_devices_as_people_do(run: CommandLine, service: FakeTopologyService) -> None:
    assert "n04 mlx5_0   1      leaf-b   2" in run("get", "links", "n04").out
    (link,) = json.loads(run("get", "links", "n04", "-o", "json").out)
    assert link["a"] == {"device": "a04", "name": "n04 mlx5_0", "node": "n04", "port": "1"}
    assert link["b"] == {"device": "s2", "name": "leaf-b", "node": None, "port": "2"}


def test_get_links_wide_adds_speed_width_and_state(run: CommandLine, service: FakeTopologyService) -> None:
    topology = two_leaves()
    n01, n02, n04, *others = topology.links
    kept = replace(n04, note=UNREPORTED)
    missing = anomaly(subject=Endpoint("a02", "n02", "1"), peer=Endpoint("s1", "leaf-a", "2"))
    service.topology = replace(topology, links=[n01, n02, kept, *others], anomalies=(missing,))
    heading, *rows = columns(run("get", "links", "n0*", "-o", "wide").out)
    assert heading[6:9] == ["SPEED", "WIDTH", "STATE"]
    assert [row[:1] + row[7:10] for row in rows] == [
        ["n01", "400Gb/s", "4x", "up"],
        ["n02", "-", "-", "down"],
        ["n04", "-", "-", "-"],
    ]
    found = json.loads(run("get", "links", "n01", "-o", "json").out)
    assert [(x["speedGbps"], x["width"], x["state"]) for x in found] == [(400.0, 4, "up")]


def test_get_nodes_has_a_column_for_each_tier(run: CommandLine, service: FakeTopologyService) -> None:
    heading, n01, *_, n09 = columns(run("get", "nodes").out)
    assert heading == ["NAME", "LEAF", "CORE", "LINKS", "ANOMALIES"]
    assert n01 == ["n01", "leaf-a", "core", "1", "-"]
    assert n09 == ["n09", "-", "-", "-", "-"]


def test_get_of_an_unknown_name_fails_and_still_shows_the_known(
    run: CommandLine, service: FakeTopologyService
) -> None:
    ran = run("get", "hn", "core", "nope")
    assert ran.code == 1
    assert "core" in ran.out
    words = "expected its name; `hyperscout get hypernodes` lists all"
    assert ran.err == f"error: no hypernode named 'nope': {words}\n"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--no-headers"], ["leaf-a", "leaf-b", "core"]),
        (["--no-headers", "--sort-by", "Name"], ["core", "leaf-a", "leaf-b"]),
        (["-l", "tier=1,degraded=True"], ["NAME", "leaf-b"]),
        (["--selector", "tier notin (1)", "--no-headers"], ["core"]),
        (["leaf-*", "-l", "!reason", "--no-headers"], ["leaf-a"]),
        (["--watch", "-l", "tier=1", "--no-headers", "--sort-by", "reason"], ["leaf-b", "leaf-a"]),
    ],
)
def test_a_view_of_a_table(
    run: CommandLine, service: FakeTopologyService, flags: list[str], expected: list[str]
) -> None:
    service.events = [pb.WatchTopologyResponse(snapshot=topology_to_proto(two_leaves(), omit_links=True))]
    assert [row[0] for row in columns(run("get", "hn", *flags).out)] == expected


def test_a_view_that_selects_nothing_says_so(run: CommandLine, service: FakeTopologyService) -> None:
    ran = run("get", "nodes", "-l", "leaf=leaf-c")
    assert (ran.code, ran.out, ran.err) == (0, "", "no nodes found\n")
    assert run("get", "nodes", "-l", "leaf=leaf-c", "-o", "json").out == "[]\n"
    found = json.loads(run("get", "nodes", "-l", "leaf=leaf-b", "--sort-by", "links", "-o", "json").out)
    assert [x["name"] for x in found] == ["n04", "n03"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["get", "hn", "--sort-by", "size"], "expected one of NAME, TIER, TIERNAME, NODES"),
        (["get", "nodes", "-l", "pod=x"], "expected one of NAME, LEAF, CORE, LINKS"),
        (["get", "nodes", "-l", "a b"], "expected KEY, !KEY, KEY=VALUE"),
        (["get", "nodes", "-o", "dot"], "-o dot draws links, not nodes"),
        (["placements", "list", "-o", "dot"], "'dot' is not one of"),
    ],
)
def test_a_wrong_view_is_wrong_usage(
    run: CommandLine, service: FakeTopologyService, arguments: list[str], words: str
) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err


def test_links_and_trees_are_drawn(run: CommandLine, service: FakeTopologyService) -> None:
    drawn = run("get", "links", "n01", "-o", "dot").out
    assert '"node:n01" -- "device:s1" [taillabel="1", headlabel="1"];' in drawn
    assert "n02" not in drawn
    whole = run("tree", "-o", "dot").out
    assert '"device:s1" -- "device:s9";' in whole
    assert whole.count("subgraph") == 3


def test_the_note_of_a_link_is_shown(run: CommandLine, service: FakeTopologyService) -> None:
    links = [
        replace(x, note="port 2 is a guess" if x.a_device == "a04" else "") for x in service.topology.links
    ]
    service.topology = replace(service.topology, links=LinkTable.of(links))
    assert [x.get("note") for x in json.loads(run("get", "links", "-o", "json").out)].count(
        "port 2 is a guess"
    ) == 1
    assert "port 2 is a guess" in run("get", "links", "-o", "wide").out
    assert "port 2 is a guess" in run("describe", "node", "n04").out
    assert "NOTE" not in run("describe", "node", "n01").out


def test_get_of_nothing_says_so(run: CommandLine, service: FakeTopologyService) -> None:
    service.topology = type(service.topology)(0)
    ran = run("get", "hypernodes")
    assert (ran.code, ran.out, ran.err) == (0, "", "no hypernodes found\n")
    assert run("get", "hypernodes", "-o", "json").out == "[]\n"


def test_get_findings_turns_the_pages(run: CommandLine, service: FakeTopologyService) -> None:
    service.findings = [
        pb.StoredFinding(
            finding=finding_pb2.Finding(
                key=finding_pb2.FindingKey(node=node, probe="lldp", subject="eth0"),
                outcome=finding_pb2.OUTCOME_FAILED,
                observed_at=timestamp(time.time_ns()),
                reason="no socket",
            ),
            stale=node == "n02",
        )
        for node in ("n02", "n01", "n03")
    ]
    heading, *rows = columns(run("get", "findings").out)
    assert heading == ["NODE", "PROBE", "SUBJECT", "OUTCOME", "AGE", "STALE"]
    assert [(r[0], r[3], r[5]) for r in rows] == [
        ("n01", "failed", "-"),
        ("n02", "failed", "stale"),
        ("n03", "failed", "-"),
    ]
    ran = run("get", "fi", "n02", "n07", "-o", "name")
    assert (ran.code, ran.out) == (1, "finding/n02:lldp:eth0\n")
    assert "'n07'" in ran.err
    ran = run("get", "fi", "n0*", "-l", "stale=stale", "-o", "name")
    assert (ran.code, ran.out) == (0, "finding/n02:lldp:eth0\n")
    ran = run("get", "fi", "x*")
    assert (ran.code, ran.out) == (1, "")
    assert "begins with 'x'" in ran.err


def test_tree_in_every_output(run: CommandLine, service: FakeTopologyService) -> None:
    assert run("tree").out.startswith("core  tier 2 core  4 nodes, 1 switch\n├─ leaf-a")
    assert service.asked_links == [False]
    assert json.loads(run("tree", "-o", "json").out) == to_json(two_leaves())
    assert run("tree", "-o", "slurm-tree").out.startswith("SwitchName=leaf-a Nodes=n[01-02]\n")


@pytest.mark.parametrize("output", [name for name in OUTPUTS if name != "tree"])
def test_a_collector_gives_every_text_that_files_give(
    run: CommandLine, service: FakeTopologyService, output: str
) -> None:
    assert run("tree", "-o", output).out == "".join(written(two_leaves(), output, unnamed=False))


def test_describe(run: CommandLine, service: FakeTopologyService) -> None:
    ran = run("describe", "hypernode", "leaf-b")
    assert ran.code == 0
    assert "Nodes:    2: n[03-04]\n" in ran.out
    assert "MissingLink  n03/1 -> leaf-b/1: no cable from n03/1 to leaf-b/1" in ran.out
    assert "LinksDown" in ran.out
    node = run("describe", "node", "n03").out
    assert "tier 1 leaf  leaf-b\n" in node
    assert "Links: none\n" in node
    assert "MissingLink" in node
    assert "Findings: none\n" in node
    assert "Level:    2\n" in run("describe", "sw", "spine").out
    assert "no cable from n03/1" in run("describe", "anomaly", "MissingLink").out
    missing = run("describe", "node", "nope")
    assert (missing.code, missing.out) == (1, "")


def test_approve(run: CommandLine, service: FakeTopologyService) -> None:
    service.held = 8
    assert run("approve", 8).out == "generation 8 is published\n"
    assert service.approved == [8]
    ran = run("approve", 9)
    assert (ran.code, ran.err) == (1, "error: generation 9 is not held\n")


def test_an_event_log_is_written_for_its_owner_alone_and_replayed(
    run: CommandLine, service: FakeTopologyService, tmp_path: Path
) -> None:
    file, log = tmp_path / "events.jsonl", EventLog("takeover")
    TakeoverMachine(TakeoverFacts(0, 10, {"n0"}, {}, set(), set()), log).handle(FullState("n0"), 1)
    service.event_log = list(lines(log.kind, log.entries()))
    ran = run("status", "--event-log", file)
    assert (ran.code, ran.out, ran.err) == (0, "", f"{file}: 2 lines written\n")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().splitlines() == service.event_log
    again = run("doctor", "--replay", file)
    assert again.out == f"{file}: 1 event of 1 machine: the replay reaches the same states.\n"
    assert run("status", "--event-log", file, "--wait").code == 2


def test_an_event_log_that_is_refused_leaves_no_file(
    run: CommandLine, service: FakeTopologyService, tmp_path: Path
) -> None:
    file = tmp_path / "events.jsonl"
    service.event_log = None
    assert run("status", "--event-log", file).code == 1
    assert not file.exists()


def test_diff_shows_what_is_held(run: CommandLine, service: FakeTopologyService) -> None:
    assert (run("diff").code, run("diff").out) == (0, "")
    service.status.held.generation = 8
    service.status.held.reason = "removes 60 % of the nodes"
    service.status.held.removes_hypernodes.append("leaf-a")
    service.status.held.removes_nodes.extend(["n01", "n02"])
    ran = run("diff")
    assert ran.code == 3
    assert "generation 8 is held" in ran.out
    assert "removes 60 % of the nodes" in ran.out
    assert ran.out.endswith("- hypernode leaf-a\n- nodes n[01-02]\n")


def test_explain(run: CommandLine, service: FakeTopologyService) -> None:
    assert run("explain", "n01", "n02").err == "error: no node 'n01'\n"
    service.explanation = pb.ExplainResponse(
        tier=1, tier_name="leaf", hypernode="leaf-a", text="n01 and n02 share leaf-a.\n"
    )
    ran = run("explain", "n01", "n02")
    assert (ran.code, ran.out) == (0, "n01 and n02 share leaf-a.\n")


def test_explain_marks_findings_that_are_incomplete_failed_or_stale(
    run: CommandLine, service: FakeTopologyService
) -> None:
    keys = [
        FindingKey(node=n, probe="ibnetdiscover", subject=s)
        for n, s in (("n01", "a"), ("n01", "b"), ("n02", "a"))
    ]
    service.explanation = pb.ExplainResponse(text="n01 and n02 share leaf-a.\n", evidence=keys)
    whole, partial = Sweep(device="a"), Sweep(device="b", partial=True)
    service.findings = [
        pb.StoredFinding(finding=Finding(key=keys[0], outcome=Outcome.OUTCOME_DATA, sweep=whole)),
        pb.StoredFinding(
            finding=Finding(key=keys[1], outcome=Outcome.OUTCOME_DATA, sweep=partial), stale=True
        ),
        pb.StoredFinding(finding=Finding(key=keys[2], outcome=Outcome.OUTCOME_FAILED)),
    ]
    assert run("explain", "n01", "n02").out.splitlines()[2:] == [
        "  n01 ibnetdiscover a",
        "  n01 ibnetdiscover b (incomplete, stale)",
        "  n02 ibnetdiscover a (failed)",
    ]


def test_watch_prints_changes_line_by_line(run: CommandLine, service: FakeTopologyService) -> None:
    topology = two_leaves()
    snapshot = topology_to_proto(topology, omit_links=True)
    changed = hypernode_to_proto(topology.hypernodes[0])
    changed.conditions[1].status = "True"
    changed.conditions[1].reason = "LinksDown"
    service.events = [
        pb.WatchTopologyResponse(snapshot=snapshot),
        pb.WatchTopologyResponse(delta=pb.TopologyDelta(generation=8, hypernodes=[changed])),
        pb.WatchTopologyResponse(delta=pb.TopologyDelta(generation=9, removed_hypernodes=["leaf-b"])),
    ]
    ran = run("watch")
    rows = columns(ran.out)
    assert [row[0] for row in rows] == ["NAME", "leaf-a", "leaf-b", "core", "leaf-a", "leaf-b"]
    assert rows[4][5:7] == ["True", "LinksDown"]
    assert rows[5][-1] == "removed"
    assert ran.code == 1
    assert "ended the stream" in ran.err
    only = columns(run("get", "hn", "core", "-w").out)
    assert [row[0] for row in only] == ["NAME", "core"]


def test_status(run: CommandLine, service: FakeTopologyService) -> None:
    service.status.version = "0.1"
    service.status.agents.add(node="n01", connected=True)
    service.status.agents.add(node="n03", connected=False)
    service.status.leases.add(
        node="n01", device="mlx5_0", port=1, partial=True, partial_reason="own port down"
    )
    service.status.leases.add(node="n02", device="mlx5_1", port=1, unconfirmed=True)
    service.status.problems.append("disk full")
    ran = run("status")
    assert ran.code == 0
    assert re.search(r"n02 +mlx5_1/1 .* unconfirmed\n", ran.out)
    assert "Agents:     1 of 2 connected\n" in ran.out
    for wrong in (
        "collector: disk full",
        "1 agent not connected: n03",
        "sweep from n01 mlx5_0/1: own port down",
        "1 node without evidence: n09",
        "leaf-b: Degraded (LinksDown)",
        "leaf-b: NotReady (NodeDown)",
    ):
        assert f"  {wrong}" in ran.out
    assert len(json.loads(run("status", "-o", "json").out)["wrong"]) == 6


def test_status_says_that_a_crawler_gets_no_answer(run: CommandLine, service: FakeTopologyService) -> None:
    service.status.findings = 7
    service.status.agents.add(node="fabric/deaf", connected=True, findings=2, failed_findings=2)
    service.status.agents.add(node="fabric/partly", connected=True, findings=3, failed_findings=1)
    service.status.agents.add(node="fabric/new", connected=True)
    service.status.agents.add(node="n01", connected=True, findings=1, failed_findings=1)
    ran = run("status")
    assert "Findings:   7, 0 stale, 4 failed\n" in ran.out
    assert (
        "  fabric/deaf has only failed findings (`hyperscout get findings fabric/deaf -o wide`)\n" in ran.out
    )
    assert ran.out.count("has only failed findings") == 1


def test_status_waits_for_health_and_exits_3_without_it(
    run: CommandLine, service: FakeTopologyService
) -> None:
    ran = run("status", "--wait", "--wait-timeout", "0")
    assert ran.code == 3
    assert "the time limit of 0 s has passed: " in ran.err
    service.topology = type(service.topology)(1, two_leaves().hypernodes[:1])
    assert run("status", "--wait", "--wait-timeout", "0").code == 0


def test_a_row_that_only_grew_older_is_not_printed_again() -> None:
    event = pb.WatchTopologyResponse(snapshot=topology_to_proto(two_leaves(), omit_links=True))
    times = iter([2 * 10**18, 3 * 10**18, 4 * 10**18])
    first, second, live = (
        *changes([event, event], lambda: next(times)),
        *changes([event], lambda: next(times), live=True),
    )
    assert first.count("\n") == 4
    assert second == ""
    assert live.startswith("\x1b[H\x1b[2JNAME")


def test_an_absent_collector_is_one_clear_line(run: CommandLine) -> None:
    with socket.socket() as reserved:  # bound, not listening: no other process gets the port
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        ran = run("get", "hn", "--collector", address)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        f"error: cannot reach the collector at {address}: "
        "start it with `hyperscout collector` or set --collector, or give a saved topology: --topology FILE\n"
    )


def test_the_collector_may_be_named_before_the_command(
    run: CommandLine, service: FakeTopologyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYPERSCOUT_COLLECTOR", "127.0.0.1:1")
    assert run("--collector", service.address, "tree").code == 0
    assert run("--collector", "127.0.0.1:1", "tree", "--collector", service.address).code == 0
    assert run("tree").code == 1


def test_a_silent_collector_times_out(run: CommandLine, service: FakeTopologyService) -> None:
    service.hang = True
    ran = run("tree", "--timeout", "0.2s")
    assert (ran.code, ran.out) == (1, "")
    assert "did not answer within 0.2 s" in ran.err
