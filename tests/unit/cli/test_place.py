"""`hyperscout place` on files: what it answers, field by field, and every way in which input can be wrong."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hyperscout.v1 import placement_pb2 as pb
from hyperscout_cli.place.placement_text import placement_text
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import HyperNode, Topology
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.command_line import CommandLine, Ran
from support.kube_objects import node, node_affinity, preferred_affinity
from support.topologies import hypernode, leaves, measured, pods, two_leaves

GPU = "nvidia.com/gpu"


class Files:
    """Files of one test, and `place` on them."""

    def __init__(self, run: CommandLine, folder: Path) -> None:
        self._run = run
        self.folder = folder

    def write(self, name: str, data: object) -> Path:
        """A topology, a text, or anything else as JSON."""
        path = self.folder / name
        if isinstance(data, Topology):
            data = to_json(data)
        path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
        return path

    def place(
        self,
        topology: object,
        *flags: object,
        capacity: object = None,
        request: object = None,
        nodes: object = None,
    ) -> Ran:
        more: list[object] = []
        if nodes is not None:
            more += ["--nodes", self.write("nodes.json", nodes)]
        if capacity is not None:
            more += ["--capacity", self.write("free.json", capacity)]
        if request is not None:
            more += ["--request", self.write("job.json", request)]
        return self._run("place", "--topology", self.write("t.json", topology), *more, *flags)

    def placed(self, topology: object, *flags: object, **files: object) -> dict[str, Any]:
        """The answer of one that has a place."""
        ran = self.place(topology, *flags, "-o", "json", **files)
        assert ran.code == 0, ran.err
        answer: dict[str, Any] = json.loads(ran.out)
        assert answer["placed"] is True
        return answer


@pytest.fixture
def files(run: CommandLine, tmp_path: Path) -> Files:
    return Files(run, tmp_path)


def nodes_of(answer: Mapping[str, Any]) -> list[str]:
    return [x["node"] for x in answer["assignments"]]


def test_json_has_every_field_of_the_contract(files: Files) -> None:
    answer = files.placed(pods(2, 3), "--workers", 8)
    predicted = answer.pop("predicted")
    assert answer == {
        "placed": True,
        "tier": 2,
        "hypernode": "pod0",
        "assignments": [{"rank": i, "node": f"n{i:04}", "role": "worker"} for i in range(8)],
        "domains": {"1": 2, "2": 1, "3": 1},
        "nodes": 8,
        "cost": {
            "top": 2,
            "domains": [2],
            "nodes": 8,
            "degraded": 0,
            "fragmentation": [0, 0, 0],
            "above": [12],
            "whole": 3,
            "widths": [],
            "unpreferred": 0,
        },
        "exact": True,
        "reason": "",
    }
    assert set(predicted) == {"ringS", "treeS", "messageBytes", "measured", "sources", "hops"}
    assert 0 < predicted["ringS"] < 60
    assert predicted["measured"] is False
    assert predicted["sources"] == "latency and bandwidth assumed"
    assert [x["tierName"] for x in predicted["hops"]] == ["leaf", "pod"]


def test_a_table_for_people(files: Files) -> None:
    ran = files.place(pods(2, 3), "--workers", 8)
    assert (ran.code, ran.err) == (0, "")
    summary, _, table = ran.out.partition("\n\n")
    facts = dict(line.split(":", 1) for line in summary.splitlines())
    assert {key: value.strip() for key, value in facts.items() if key != "All-reduce"} == {
        "Workers": "8",
        "Within": "tier 2 (pod), pod0",
        "Domains": "2 of tier 1 (leaf)",
        "Nodes": "8",
        "Degraded": "0 links",
        "Left free": "0 in tier 2 (pod), 0 in tier 1 (leaf), 0 in its nodes",
        "Proof": "nothing is better by tier, domains, nodes, degraded links, capacity left",
    }
    assert [line.split() for line in table.splitlines()] == [
        ["RANKS", "HYPERNODE", "NODES"],
        ["0-3", "pod0-l00", "n[0000-0003]"],
        ["4-7", "pod0-l01", "n[0004-0007]"],
    ]


def test_a_table_says_how_sure_it_is_and_what_was_relaxed() -> None:
    cost = pb.PlacementCost(top=3, domains=[2, 5], nodes=9, degraded=1, fragmentation=[7, 6, 5, 4])
    bound = pb.PlacementCost(top=3, domains=[2, 4], nodes=8)
    predicted = pb.AllReduce(ring_s=2.5e-6, tree_s=1.25, message_bytes=1 << 20, sources="as measured")
    placement = pb.Placement(
        placed=True,
        tier=3,
        hypernode="core",
        assignments=[pb.Assignment(rank=rank, node="a", role="worker") for rank in range(2)],
        nodes=9,
        cost=cost,
        bound=bound,
        predicted=predicted,
        reason="no spread",
    )
    chain = (
        HyperNode("l1", 1, "leaf", "m1", (), ("a",), ()),
        HyperNode("m1", 2, "", "core", ("l1",), ("a",), ()),
        HyperNode("core", 3, "core", None, ("m1",), ("a",), ()),
    )
    text = "".join(placement_text(placement, Topology(1, chain)))
    for line in (
        "Domains:      2 of tier 2, 5 of tier 1 (leaf)\n",
        "Left free:    7 in tier 3 (core), 6 in tier 2, 5 in tier 1 (leaf), 4 in its nodes\n",
        "Degraded:     1 link\n",
        "All-reduce:   1 MiB in 2.5 us (ring), 1.25 s (tree), as measured\n",
        "Proof:        not proven: the lower bound is tier 3, 2/4 domains, 8 nodes\n",
        "Relaxed:      no spread\n",
    ):
        assert line in text


@pytest.mark.parametrize(
    ("flags", "lines", "without"),
    [
        (["--workers", 1], ["Within:       a, in tier 1 (leaf), l1"], "All-reduce:"),
        (
            ["--workers", 2],
            ["All-reduce:   1 GiB in", "Proof:        nothing is better by tier, domains"],
            "a, in",
        ),
        (["--workers", 2, "--prefer-group", "2:node"], ["better by tier, preferences, domains"], "in 0 ns"),
        (["--workers", 2, "--prefer-spread", "1:leaf"], ["better by tier, preferences, domains"], "in 0 ns"),
    ],
)
def test_lines_of_a_summary(files: Files, flags: list[object], lines: list[str], without: str) -> None:
    out = files.place(leaves(("a", "b"), ("c", "d")), *flags).out
    assert all(line in out for line in lines), out
    assert without not in out


def test_what_was_measured_is_what_is_predicted_with(files: Files) -> None:
    flags = ("--workers", 3, "--use-down")
    measured_one, plain = (files.placed(t, *flags)["predicted"] for t in (measured(), two_leaves()))
    assert measured_one != plain
    explained = files.placed(measured(), *flags, "--explain")
    assert explained["predicted"] == measured_one
    assert explained["explanation"]["candidates"][0]["predicted"] == measured_one


def test_a_thousand_workers_are_a_line_a_domain(files: Files) -> None:
    capacity = {f"n{i:04}": 4 for i in range(320)}
    ran = files.place(pods(8, 2, nodes=32), "--workers", 1000, capacity=capacity)
    assert ran.code == 0
    rows = [line.split() for line in ran.out.partition("\n\n")[2].splitlines()]
    assert rows[1] == ["0-127", "pod0-l00", "n[0000-0031]:4"]
    assert len(rows) == 9
    assert max(map(len, ran.out.splitlines())) < 110


def test_roles_have_a_column(files: Files) -> None:
    request = {
        "parts": [
            {
                "group": {
                    "count": 2,
                    "tier": "leaf",
                    "parts": [{"workers": {"count": 1, "role": "leader"}}, {"workers": {"count": 3}}],
                }
            }
        ]
    }
    topology = pods(2, 3)
    rows = files.place(topology, request=request).out.partition("\n\n")[2].splitlines()
    assert rows[0].split() == ["RANKS", "HYPERNODE", "ROLES", "NODES"]
    assert "1 leader, 3 worker" in rows[1]
    answer = files.placed(topology, request=request)
    roles = [x["role"] for x in answer["assignments"]]
    assert roles == ["leader", "worker", "worker", "worker"] * 2
    assert answer["domains"]["1"] == 2


def test_no_placement_exits_3(files: Files) -> None:
    ran = files.place(pods(2, 3), "--workers", 21)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.count("\n") == 1
    assert ran.err.strip()
    ran = files.place(pods(2, 3), "--workers", 21, "-o", "json")
    assert (ran.code, ran.err) == (3, "")
    answer = json.loads(ran.out)
    assert answer["reason"]
    del answer["reason"]
    assert answer == {
        "placed": False,
        "tier": None,
        "hypernode": None,
        "assignments": [],
        "domains": {},
        "nodes": 0,
        "cost": None,
        "exact": True,
        "predicted": None,
    }


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--workers", 4], (1, 1)),
        (["--workers", 5], (2, 2)),
        (["--workers", 9, "--highest-tier-allowed", "pod"], (2, 3)),
        (["--workers", 13], (3, 4)),
        (["--workers", 13, "--highest-tier-allowed", "2"], None),
        (["--workers", 13, "--highest-tier-allowed", "2", "--mode", "soft"], (3, 4)),
        (["--workers", 4, "--spread", "2:leaf"], (2, 2)),
        (["--workers", 4, "--spread", "3:pod"], (3, 2)),
        (["--workers", 4, "--prefer-spread", "2:leaf"], (1, 1)),
        (["--workers", 6, "--prefer-spread", "3:leaf"], (2, 2)),
        (["--workers", 9, "--group-size", 3, "--group-tier", "leaf"], (2, 3)),
        (["--workers", 4, "--avoid", "n0000", "pod1"], (1, 1)),
        (["--workers", 8, "--avoid", "n0000", "--avoid", "pod1"], None),
    ],
)
def test_flags_reach_the_placer(files: Files, flags: list[object], expected: tuple[int, int] | None) -> None:
    topology = pods(2, 3)
    if expected is None:
        assert files.place(topology, *flags).code == 3
    else:
        answer = files.placed(topology, *flags)
        assert (answer["tier"], answer["domains"]["1"]) == expected


def test_nodes_whose_link_is_down_are_used_only_when_asked(files: Files) -> None:
    topology = two_leaves()  # n03's cable is missing
    assert "n03" not in nodes_of(files.placed(topology, "--workers", 3))
    assert files.place(topology, "--workers", 4).code == 3
    assert "n03" in nodes_of(files.placed(topology, "--workers", 4, "--use-down"))


def test_islands(files: Files) -> None:
    a, b, _ = two_leaves().hypernodes
    topology = Topology(1, (replace(a, parent=None), replace(b, parent=None)))
    assert files.place(topology, "--workers", 3).code == 3
    answer = files.placed(topology, "--workers", 3, "--mode", "soft")
    assert (answer["tier"], answer["hypernode"], answer["cost"]["top"]) == (None, None, 2)
    assert answer["cost"]["domains"][0] == 2
    text = files.place(topology, "--workers", 3, "--mode", "soft").out
    assert "Within:       no HyperNode: it spans islands\n" in text
    assert "Domains:      2 of tier 1 (leaf)\n" in text
    assert "in all islands" in text


@pytest.mark.parametrize(
    ("capacity", "flags", "expected"),
    [
        pytest.param(None, ["--workers", 2], ["a", "b"], id="one a node"),
        pytest.param({"b": 2}, ["--workers", 2], ["b", "b"], id="free workers"),
        pytest.param({"b": 1}, ["--workers", 2], None, id="not enough"),
        pytest.param({}, ["--workers", 1], None, id="nothing is free"),
        pytest.param({"a": 0, "c": 1}, ["--workers", 1], ["c"], id="none free"),
        pytest.param(
            {"b": 2}, ["--workers", 2, "--gpus-per-worker", 4], ["b", "b"], id="free workers with GPUs"
        ),
        pytest.param(
            {"a": {"nvidia.com/gpu": 7}, "c": {"nvidia.com/gpu": "8"}},
            ["--workers", 2, "--gpus-per-worker", 4],
            ["c", "c"],
            id="GPUs",
        ),
        pytest.param(
            {"a": {"nvidia.com/gpu": 4}, "b": 1},
            ["--workers", 2, "--gpus-per-worker", 4],
            ["a", "b"],
            id="both in one file",
        ),
    ],
)
def test_capacity(files: Files, capacity: object, flags: list[object], expected: list[str] | None) -> None:
    topology = leaves(("a", "b"), ("c", "d"))
    if expected is None:
        assert files.place(topology, *flags, capacity=capacity).code == 3
    else:
        assert nodes_of(files.placed(topology, *flags, capacity=capacity)) == expected


def test_quantities_of_a_request_are_counted_as_kubernetes_writes_them(files: Files) -> None:
    topology = leaves(("a", "b"), ("c", "d"))
    request = {"parts": [{"workers": {"count": 3, "resources": {"cpu": "500m", "memory": "1Gi"}}}]}
    capacity = {"a": {"cpu": 1, "memory": "2.5Gi"}, "c": {"cpu": "1.5", "memory": 3 << 30}}
    assert nodes_of(files.placed(topology, capacity=capacity, request=request)) == ["c"] * 3


def test_free_workers_are_such_as_the_request_asks_for(files: Files) -> None:
    topology = leaves(("a", "b"), ("c", "d"))
    request = {"parts": [{"workers": {"count": 3, "resources": {"cpu": "500m"}}}]}
    assert nodes_of(files.placed(topology, capacity={"d": 3}, request=request)) == ["d"] * 3


def test_nodes_outside_the_topology_are_said_and_not_used(files: Files) -> None:
    ran = files.place(leaves(("a", "b")), "--workers", 1, capacity={"z": 5, "b": 1})
    assert ran.code == 0
    assert "b" in ran.out
    assert "free.json: 'z' is in no HyperNode and is not used" in ran.err


def test_gpus_that_inference_saw_are_shared_out(files: Files) -> None:
    topology = replace(leaves(("a", "b"), ("c", "d")), devices={"a": {GPU: 8}, "b": {GPU: 3}, "c": {GPU: 4}})
    answer = files.placed(topology, "--workers", 3, "--gpus-per-worker", 4)
    assert nodes_of(answer) == ["a", "a", "c"]
    ran = files.place(topology, "--workers", 3, "--gpus-per-worker", 4)
    assert ran.err == "warning: no GPU is known of 'd': it is not used\n"
    assert files.place(topology, "--workers", 4, "--gpus-per-worker", 4).code == 3
    assert nodes_of(files.placed(topology, "--workers", 4)) == ["a", "b", "c", "d"]


def test_one_numa_zone_needs_agents_that_report_the_zones(files: Files) -> None:
    topology = replace(leaves(("a", "b")), devices={"a": {GPU: 8}, "b": {GPU: 8}})
    ran = files.place(topology, "--workers", 1, "--gpus-per-worker", 4, "--single-numa")
    assert (ran.code, "--single-numa needs a collector: a file has no zones" in ran.err) == (2, True)
    workers = {"count": 1, "resources": {GPU: "4"}, "singleNuma": True}
    ran = files.place(topology, request={"parts": [{"workers": workers}]})
    assert (ran.code, "job.json: singleNuma: needs a collector" in ran.err) == (2, True)


def test_gpus_that_no_host_reported_are_said_to_be_assumed(files: Files) -> None:
    ran = files.place(leaves(("a", "b")), "--workers", 2, "--gpus-per-worker", 8)
    assert ran.code == 0
    assert "warning: the topology has no numbers of GPUs: one worker on each node" in ran.err
    assert files.place(leaves(("a", "b")), "--workers", 3, "--gpus-per-worker", 8).code == 3


def test_parts_of_gpus_that_inference_saw_are_shared_out(files: Files) -> None:
    part = "nvidia.com/mig-1g.10gb"
    topology = replace(leaves(("a", "b")), devices={"a": {GPU: 7, part: 2}, "b": {GPU: 8}})
    request = {"parts": [{"workers": {"count": 2, "resources": {part: "1"}}}]}
    assert nodes_of(files.placed(topology, request=request)) == ["a", "a"]
    request["parts"][0]["workers"]["count"] = 3  # type: ignore[index]
    assert files.place(topology, request=request).code == 3


@pytest.mark.parametrize("resource", ["rdma/hca", "nvidia.com/gpu"])
def test_a_resource_that_no_file_tells_of_is_said(files: Files, resource: str) -> None:
    request = {"parts": [{"workers": {"count": 1, "resources": {resource: "1"}}}]}
    ran = files.place(leaves(("a", "b")), request=request)
    assert ran.code == 3
    warning, *_ = ran.err.splitlines()
    assert warning == f"warning: the amount of {resource!r} on nodes is unknown: give --capacity"


def stdin_is(path: Path) -> bytes:
    return path.read_bytes()


def test_one_of_the_files_may_come_on_stdin(files: Files, run: CommandLine) -> None:
    t, c = files.write("t.json", leaves(("a", "b"))), files.write("c.json", {"b": 1})
    r = files.write("r.json", {"parts": [{"workers": {"count": 1}}]})
    one = ("--workers", 1, "-o", "json")
    expected = run("place", "--topology", t, "--capacity", c, *one).out
    assert nodes_of(json.loads(expected)) == ["b"]
    assert run("place", "--topology", "-", "--capacity", c, *one, stdin=stdin_is(t)).out == expected
    assert run("place", "--topology", t, "--capacity", "-", *one, stdin=stdin_is(c)).out == expected
    ran = run("place", "--topology", t, "--capacity", c, "--request", "-", "-o", "json", stdin=stdin_is(r))
    assert ran.out == expected
    ran = run("place", "--topology", "-", "--capacity", "-", "--workers", 1)
    assert (ran.code, "stdin (-) can be read only once" in ran.err) == (2, True)


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--workers"],
        ["--workers", 0],
        ["--workers", -3],
        ["--workers", 1_000_001],
        ["--workers", 10**30],
        ["--workers", "many"],
        ["--workers", 4, "--gpus-per-worker", 0],
        ["--workers", 4, "--mode", "firm"],
        ["--workers", 4, "--group-size", 3, "--group-tier", 1],
        ["--workers", 4, "--group-size", 2],
        ["--workers", 4, "--group-tier", 1],
        ["--workers", 4, "--packing", "loose"],
        ["--workers", 4, "--node-selector", "gpu"],
        ["--workers", 4, "--node-selector", "gpu=a b"],
        ["--workers", 4, "--node-selector", "gpu=a,gpu=b"],
        ["--workers", 4, "--toleration", "a:Maybe"],
        ["--workers", 4, "--toleration", "=x"],
        ["--workers", 4, "--priority", 2**31],
        ["--workers", 4, "--nodes", "nothing.json"],
        ["--workers", 4, "--highest-tier-allowed", "-1"],
        ["--workers", 4, "--highest-tier-allowed", "rack"],
        ["--workers", 4, "--highest-tier-allowed", "leaf", "--group-size", 2, "--group-tier", "core"],
        ["--workers", 4, "--group-size", 2, "--group-tier", "core", "--spread", "1:node:2", "stray"],
        ["--workers", 4, "--spread", "2:rack"],
        ["--workers", 4, "--avoid", "node-99"],
        ["--workers", 4, "--gang", "g"],
        ["--workers", 4, "--reserve"],
        ["--workers", 4, "--expires", "30m"],
        ["--workers", 4, "--collector", "127.0.0.1:1"],
        ["--workers", 4, "-o", "dot"],
    ],
)
def test_wrong_usage_exits_2_and_says_why(files: Files, flags: list[object]) -> None:
    ran = files.place(leaves(("a", "b"), ("c", "d")), *flags)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err
    assert "Traceback" not in ran.err


def test_what_is_wrong_with_a_field_is_said_of_its_flag(files: Files) -> None:
    topology = leaves(("a", "b"), ("c", "d"))
    flags = ("--workers", 4, "--group-size", 2, "--group-tier")
    assert files.place(topology, *flags, "rack").err.startswith(
        "error: --group-tier of --group-size 2: no tier 'rack': the tiers are 0 (node), 1 (leaf), 2 (core)"
    )
    assert files.place(topology, *flags, "leaf", "--prefer-group", "2:core").err.startswith(
        "error: --prefer-group 2: tier 2 (core): expected at most tier 1 (leaf), "
    )
    assert files.place(topology, "--workers", 4, "--avoid", "node-99").err.startswith(
        "error: --avoid: 'node-99': unknown: expected the name of a node or HyperNode"
    )


@pytest.mark.parametrize("flags", [["--reserve"], ["--expires", "1h"], ["--capacity", "c.json"]])
def test_what_a_collector_needs_besides(run: CommandLine, flags: list[object]) -> None:
    assert run("place", "--workers", 4, "--collector", "127.0.0.1:1", *flags).code == 2


def _changed(at: int, **fields: object) -> Topology:
    hypernodes = list(leaves(("a", "b"), ("c", "d")).hypernodes)
    hypernodes[at] = replace(hypernodes[at], **fields)  # type: ignore[arg-type]
    return Topology(1, tuple(hypernodes))


def _more(*more: HyperNode) -> Topology:
    return Topology(1, (*leaves(("a", "b"), ("c", "d")).hypernodes, *more))


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"[1,\n2,,]", "t.json:2: not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"generation": ' + b"9" * 5000 + b', "hypernodes": []}', "not JSON"),
        (b"[]", "topology: expected an object"),
        (b"{}", "hypernodes: missing"),
        ({"hypernodes": [{"name": 3}]}, "hypernodes[0].name: expected str"),
        ({"hypernodes": [{"name": "x", "tier": "1e9"}]}, "hypernodes[0].tier: expected int"),
        ({"hypernodes": [], "devices": {"a": {"g": "many"}}}, "devices.a.g: expected int"),
        ({"hypernodes": [], "devices": {"a": 3}}, "devices.a: expected Mapping"),
        ({"hypernodes": [], "devices": [3]}, "devices: expected Mapping"),
        (_changed(1, name="l1"), "l1"),
        (_changed(1, nodes=("c", "d", "b")), "HyperNode l2: node b is in l1 too"),
        (_changed(0, children=("core",)), "HyperNode l1"),
        (_changed(2, children=("l1", "l2", "l3")), "HyperNode core: its child l3 does not exist"),
        (_changed(2, children=("l1", "core")), "HyperNode core"),
        (_changed(2, children=("l1", "l1", "l2")), "l1"),
        (_changed(2, tier=3), "HyperNode core: tier 3"),
        (_changed(0, tier=0), "HyperNode l1: tier 0"),
        (_changed(0, tier=10**18), "HyperNode l1: tier 1000000000000000000"),
        (_changed(0, parent="l2"), "HyperNode l1: parent l2"),
        (
            _more(hypernode("top", ("a", "b"), children=("l1",), tier_name="core")),
            "HyperNode l1: two parents",
        ),
        (_more(hypernode("l3", ("e",))), "HyperNode l3: no parent"),
    ],
)
def test_topologies_that_are_none_exit_2_and_name_file_and_field(
    files: Files, topology: object, words: str
) -> None:
    ran = files.place(topology, "--workers", 1)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {files.folder}/t.json:")
    assert words in ran.err
    assert ran.err.count("\n") == 1


def test_amounts_that_no_column_holds(files: Files) -> None:
    topology = leaves(("a", "b"))
    ran = files.place({**to_json(topology), "devices": {"a": {GPU: -1}}}, "--workers", 1)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {files.folder}/t.json: node a: nvidia.com/gpu: -1")
    request = {"parts": [{"workers": {"count": 1, "resources": {"memory": "4000000000000000000"}}}]}
    ran = files.place(topology, capacity={"a": 1_000_000}, request=request)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {files.folder}/free.json: node a: memory: 4")


def test_no_file_exits_2(files: Files, run: CommandLine) -> None:
    ran = run("place", "--topology", files.folder / "none.json", "--workers", 1)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"error: {files.folder}/none.json: No such file or directory: check the path\n"


def test_a_topology_of_nothing_has_no_place(files: Files) -> None:
    ran = files.place({"hypernodes": []}, "--workers", 1)
    assert (ran.code, "no HyperNodes: check `hyperscout status`" in ran.err) == (3, True)


@pytest.mark.parametrize(
    ("capacity", "words"),
    [
        (b"", "empty: expected free capacity"),
        (b"{\n'a': 1}", ":2: not JSON"),
        (b"\xff", "not JSON: not UTF-8 at byte 0"),
        (b"[" * 100_000, "recursion"),
        (b'{"a": ' + b"9" * 5000 + b"}", "4300 digits"),
        (b'{"a": 1, "a": 2}', "'a': duplicate key"),
        (b'{"a": {"cpu": 1, "cpu": 1}}', "'cpu': duplicate key"),
        ([1], 'expected {"node": free workers}, found a list'),
        ({"a": -1}, "'a': -1: expected 0 to 1000000 workers"),
        ({"a": 1_000_001}, "'a': 1000001: expected 0 to 1000000"),
        ({"a": 10**100}, "'a': a number with too many digits"),
        ({"a": 1.5}, "'a': expected free workers (a whole number) or quantities by resource, found 1.5"),
        ({"a": True}, "'a': expected free workers"),
        ({"a": None}, "'a': expected free workers"),
        ({"a": "2"}, "'a': expected free workers"),
        ({"a": [2]}, "'a': expected free workers"),
        ({"a": {"cpu": "-1"}}, "'a': cpu: '-1': expected 0 or more"),
        ({"a": {"NUMA zone of 4 nvidia.com/gpu": 2}}, "'a'.NUMA zone of 4 nvidia.com/gpu: expected the name"),
        ({"a": {"cpu": "much"}}, "'a': cpu: 'much': expected a quantity"),
        ({"a": {"cpu": []}}, "'a'.cpu: expected a quantity"),
        ({"a": {"cpu": True}}, "'a'.cpu: expected a quantity"),
        ({"a": {"cpu": -1}}, "'a': cpu: '-1': expected 0 or more"),
        ({"a": {"cpu": 10**30}}, "'a': cpu: "),
        (b'{"a": {"cpu": 1e999}}', "'a': cpu: 'inf'"),
        (b'{"a": {"cpu": NaN}}', "'a': cpu: 'nan'"),
        ({"a\x1b[2J": "x"}, "a\\x1b[2J"),
    ],
)
def test_capacities_that_are_none_exit_2_and_name_file_and_field(
    files: Files, capacity: object, words: str
) -> None:
    ran = files.place(leaves(("a", "b")), "--workers", 1, capacity=capacity)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {files.folder}/free.json:")
    assert words in ran.err
    assert ran.err.count("\n") == 1
    assert len(ran.err) < 700


GROUP_OF_NONE = {
    "parts": [{"group": {"tier": "leaf", "parts": [{"workers": {"count": 2}}]}}],
    "spread": {"most": 2, "tier": "1"},
}


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (b"", "empty: expected a request"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "recursion"),
        ([1], "not a request"),
        ([], "parts: 0: expected 1 to 64"),
        (GROUP_OF_NONE, "parts[0].group.count: 0: expected 1"),
        ({}, "parts"),
        ({"part": []}, "no field 'part' in a PlaceRequest: expected gang, mode"),
        ({"parts": 3}, "parts"),
        ({"parts": [{}]}, "parts[0]: expected workers or a group"),
        ({"parts": [{"workers": {"count": 0}}]}, "parts[0].workers.count: 0: expected 1"),
        ({"parts": [{"workers": {"count": -1}}]}, "parts.count: Value out of range: -1"),
        ({"parts": [{"workers": {"count": "three"}}]}, "parts.count: 'three': expected a whole number"),
        (b"parts: 1", "not a request: not JSON: Expecting value: line 1 column 1"),
        ({"packing": "fragments"}, "packing: 'fragments': expected PACKING_COMPACT or PACKING_FRAGMENTS"),
        ({"parts": [{"workers": {}, "group": {}}]}, "parts: give one of workers, group"),
        (
            {"parts": [{"workers": {"nodeSelector": {"gpu": 1}}}]},
            'parts.nodeSelector: expected a text, such as "8", not a value of type int',
        ),
        ({"parts": [{"workers": {"count": 2_000_000}}]}, "parts[0].workers.count: 2000000"),
        ({"parts": [{"workers": {"count": 1}}] * 65}, "parts: at most 64"),
        ({"parts": [{"workers": {"count": 1, "resources": {"cpu": "x"}}}]}, "resources['cpu']"),
        ({"parts": [{"workers": {"count": 1, "resources": {"cpu": "0"}}}]}, "resources"),
        (
            {"parts": [{"workers": {"count": 1, "resources": {"NUMA zone of 4 x.io/y": "1"}}}]},
            "parts[0].workers.resources['NUMA zone of 4 x.io/y']: expected the name of a resource",
        ),
        (
            {"parts": [{"workers": {"count": 1, "resources": {"cpu": 8}}}]},
            'parts.resources: expected a text, such as "8"',
        ),
        (
            {"parts": [{"workers": {"count": 1}}], "mode": "hard"},
            "mode: 'hard': expected PLACEMENT_MODE_HARD or PLACEMENT_MODE_SOFT",
        ),
        ({"parts": [{"workers": {"count": 1}}], "mode": 7}, "mode: 7: expected hard or soft"),
        ({"parts": [{"workers": {"count": 1}}], "highestTierAllowed": "x"}, "highest_tier_allowed: no tier"),
        ({"parts": [{"workers": {"count": 1}}], "avoid": ["x"]}, "avoid[0]: 'x'"),
        ({"parts": [{"workers": {"count": 1}}], "spread": {}}, "spread.tier: missing"),
        (b'{"gang": "a", "gang": "b"}', "duplicate key gang"),
    ],
)
def test_requests_that_are_none_exit_2_and_name_file_and_field(
    files: Files, request_: object, words: str
) -> None:
    ran = files.place(leaves(("a", "b")), request=request_)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {files.folder}/job.json:")
    assert words in ran.err
    assert ran.err.count("\n") == 1
    assert len(ran.err) < 700


GOOD = {
    "topology": json.dumps(to_json(leaves(("a", "b"), ("c", "d")))),
    "capacity": json.dumps({"a": 1, "b": {"workers": "1", "nvidia.com/gpu": "8"}, "c": 2}),
    "request": json.dumps(
        {
            "parts": [
                {"group": {"count": 1, "tier": "leaf", "parts": [{"workers": {"count": 2}}]}},
                {"workers": {"count": 1, "role": "x", "resources": {"workers": "1"}}},
            ],
            "spread": {"most": 2, "tier": "1"},
            "avoid": ["d"],
        }
    ),
}
PIECES = [
    "{}",
    "[]",
    "null",
    "-1",
    "1e99",
    '"x"',
    "true",
    '""',
    "9" * 40,
    "[[[",
    '{"a": 1}',
    "\\u0000",
    '"\\ud800"',
]


@st.composite
def accidents(draw: st.DrawFn) -> dict[str, str]:
    """Good files, one of which had accidents: bytes lost, or a value that is another."""
    which = draw(st.sampled_from(sorted(GOOD)))
    text = GOOD[which]
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        to = min(len(text), at + draw(st.integers(0, 12)))
        text = text[:at] + draw(st.sampled_from(["", *PIECES])) + text[to:]
    return {**GOOD, which: text}


def _values(data: Any) -> list[tuple[Any, Any]]:
    """Every container and key that holds a value."""
    found: list[tuple[Any, Any]] = []
    pairs = list(data.items()) if isinstance(data, dict) else list(enumerate(data))
    for key, value in pairs:
        found.append((data, key))
        if isinstance(value, dict | list):
            found += _values(value)
    return found


@st.composite
def other_values(draw: st.DrawFn) -> dict[str, str]:
    """Good files, one value of which is of another kind, or gone."""
    which = draw(st.sampled_from(sorted(GOOD)))
    data = json.loads(GOOD[which])
    for _ in range(draw(st.integers(1, 2))):
        if places := _values(data):
            container, key = draw(st.sampled_from(places))
            junk = st.sampled_from(
                [None, True, -1, 0, 3, 2.5, 10**25, "", "x", "a", "core", "1", [], {}, ["a"]]
            )
            if draw(st.booleans()):
                container[key] = draw(junk)
            else:
                del container[key]
    return {**GOOD, which: json.dumps(data)}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.one_of(accidents(), other_values()), more=st.sampled_from([(), ("--explain",)]))
def test_whatever_is_in_the_files_it_answers_or_says_what_is_wrong(
    files: Files, run: CommandLine, data: dict[str, str], more: tuple[str, ...]
) -> None:
    flags = [
        x
        for name, text in data.items()
        for x in (f"--{name}", files.write(f"{name}.json", text.encode("utf-8", "surrogatepass")))
    ]
    ran = run("place", *flags, *more, "-o", "json")
    assert ran.code in (0, 2, 3), ran.err
    if ran.code == 2:
        assert ran.out == ""
        assert ran.err.startswith(f"error: {files.folder}/")
        assert ran.err.count("\n") == 1 or "warning: " in ran.err
    else:
        assert json.loads(ran.out)["placed"] is (ran.code == 0)


def listed(name: str, **fields: Any) -> dict[str, Any]:
    """As `kubectl get nodes -o json` lists it."""
    return {"kind": "Node", **node(name, **fields)}


TOPOLOGY = leaves(("a", "b", "c"), ("d", "e", "f"))
SPOT = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
CLUSTER = {
    "kind": "List",
    "items": [
        listed("a", labels={"gpu": "h100"}),
        listed("b", labels={"gpu": "h100"}, spec={"taints": [SPOT]}),
        listed("c", labels={"gpu": "h100"}, spec={"unschedulable": True}),
        listed("d", labels={"gpu": "a100", "rack": "1"}),
        listed("e", labels={"gpu": "a100", "rack": "2"}),
        listed("f", labels={"gpu": "a100", "rack": "2"}, ready="False"),
    ],
}


@pytest.mark.parametrize(
    ("flags", "nodes"),
    [
        (["--workers", 1, "--node-selector", "gpu=h100"], ["a"]),
        (["--workers", 2, "--node-selector", "gpu=h100", "--toleration", "spot"], ["a", "b"]),
        (["--workers", 2, "--node-selector", "gpu=h100", "--toleration", "spot=yes:NoSchedule"], ["a", "b"]),
        (["--workers", 1, "--node-selector", "gpu=a100,rack=2"], ["e"]),
        (["--workers", 2, "--toleration", "spot=yes", "--highest-tier-allowed", "leaf"], ["a", "b"]),
        (["--workers", 3, "--node-selector", "gpu=h100", "--toleration", "spot"], None),
        (["--workers", 2, "--node-selector", "gpu=h100", "--toleration", "spot=no"], None),
        (["--workers", 1, "--node-selector", "gpu=b200"], None),
        (["--workers", 6, "--priority", -3], ["a", "b", "c", "d", "e", "f"]),  # no demands: all nodes
    ],
)
def test_labels_and_taints_come_from_kubectl(
    files: Files, flags: list[object], nodes: list[str] | None
) -> None:
    ran = files.place(TOPOLOGY, *flags, "-o", "json", nodes=CLUSTER)
    assert (ran.code, "Traceback" in ran.err) == (0 if nodes else 3, False)
    assert nodes_of(json.loads(ran.out)) == (nodes or [])
    assert nodes or json.loads(ran.out)["reason"]


def test_a_request_has_the_fields_of_a_pod(files: Files) -> None:
    rack = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["2"]}]}
    worker: dict[str, Any] = {"count": 1, **preferred_affinity((7, rack))}
    assert nodes_of(files.placed(TOPOLOGY, nodes=CLUSTER, request={"parts": [{"workers": worker}]})) == ["e"]
    worker["affinity"]["nodeAffinity"] |= node_affinity(
        {"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["a100"]}]}
    )["affinity"]["nodeAffinity"]
    request = {"parts": [{"workers": worker}], "priority": 2**31 - 1}
    answer = files.placed(TOPOLOGY, nodes=CLUSTER, request=request)
    assert (nodes_of(answer), answer["cost"]["unpreferred"]) == (["a"], 7)
    ran = files.place(TOPOLOGY, nodes=CLUSTER, request=request)
    assert "Affinity:     nodes lack preferences of weight 7\n" in ran.out
    assert "nothing is better by tier, domains, nodes, preferred affinity, degraded links" in ran.out


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        ({"parts": [{"workers": {"count": 1, "nodeSelector": {"a": "b"}}}]}, 3, "unknown: give --nodes"),
        ({"parts": [{"workers": {"count": 6, "tolerations": [{"operator": "Exists"}]}}]}, 3, "give --nodes"),
        ({"parts": [{"workers": {"count": 7}}], "highestTierAllowed": "pod"}, 3, "there is no tier pod"),
        ({"parts": [{"workers": {"count": 2}}], "even": "7"}, 3, "there is no tier 7, nor one above it"),
        (
            {"parts": [{"workers": {"count": 7}}], "packing": "PACKING_FRAGMENTS"},
            3,
            "7 workers are requested",
        ),
        ({"parts": [{"workers": {"count": 2}}], "packing": "PACKING_LOOSE"}, 2, "packing"),
        ({"parts": [{"workers": {"count": 2}}], "packing": 7}, 2, "packing: 7"),
        ({"parts": [{"workers": {"count": 2}}], "priority": 2**31}, 2, "priority"),
        ({"parts": [{"workers": {"count": 2}}], "priority": "high"}, 2, "priority"),
        ({"parts": [{"workers": {"count": 2, "nodeSelector": {"a": 1}}}]}, 2, "nodeSelector"),
        ({"parts": [{"workers": {"count": 2, "nodeSelector": {"a": "x y"}}}]}, 2, "node_selector['a']"),
        ({"parts": [{"workers": {"count": 2, "affinity": {"podAffinity": {}}}}]}, 2, "podAffinity"),
        ({"parts": [{"workers": {"count": 2, "tolerations": [{"key": "a", "effect": "X"}]}}]}, 2, "effect"),
        ({"parts": [{"workers": {"count": 2}}], "highestTierAllowed": "rack"}, 2, "no tier 'rack'"),
    ],
)
def test_the_exit_code_of_what_is_impossible_and_of_what_is_wrong(
    files: Files, request_: object, code: int, words: str
) -> None:
    ran = files.place(TOPOLOGY, request=request_)
    assert (ran.code, words in ran.err, "Traceback" in ran.err) == (code, True, False), ran.err
    if code == 3 or "rack" in words:
        empty = files.place(Topology(1), request=request_)
        assert (empty.code, "no HyperNodes" in empty.err) == (3, True), empty.err


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ("[]", "no JSON object; expected the output of `kubectl get nodes -o json`"),
        ({"items": []}, "no node; expected the output of `kubectl get nodes -o json`"),
        ({"items": [{"kind": "Pod", "metadata": {"name": "a"}}]}, "no node; expected"),
    ],
)
def test_a_file_of_nodes_that_is_none(files: Files, nodes: object, words: str) -> None:
    ran = files.place(TOPOLOGY, "--workers", 1, "--node-selector", "gpu=h100", nodes=nodes)
    assert (ran.code, words in ran.err) == (2, True), ran.err


def test_nodes_with_odd_fields_are_left_out(files: Files) -> None:
    odd = [
        {**listed("b", labels={"gpu": "h100"}), "spec": {"taints": [{"key": ["x"]}]}},
        {**listed("c", labels={"gpu": "h100"}), "status": {"conditions": {"type": "Ready"}}},
        {**listed("d", labels={"gpu": "h100"}), "status": None, "spec": 7},
    ]
    nodes = {"items": [CLUSTER["items"][0], *odd]}
    ran = files.place(TOPOLOGY, "--workers", 1, "--node-selector", "gpu=h100", "-o", "name", nodes=nodes)
    assert (ran.code, ran.out) == (0, "node/a\n")
    assert "node 'b': expected lists of taints and conditions with texts" in ran.err
    ran = files.place(TOPOLOGY, "--workers", 2, "--node-selector", "gpu=h100", nodes=nodes)
    assert ran.code == 3


def test_fragments_are_used_if_asked_for(files: Files) -> None:
    topology, capacity = leaves(("a", "b", "c"), ("d", "e")), {"a": 2, "b": 2, "c": 2, "d": 1, "e": 1}
    assert nodes_of(files.placed(topology, "--workers", 2, capacity=capacity)) == ["a", "a"]
    ran = files.place(topology, "--workers", 2, "--packing", "fragments", capacity=capacity)
    assert "d-e" in ran.out or "d e" in ran.out
    assert "nothing is better by tier, capacity left, domains, nodes, degraded links\n" in ran.out


@pytest.mark.parametrize("output", ["name", "hostlist"])
def test_outputs_of_nodes_alone_say_what_differs_from_the_request(files: Files, output: str) -> None:
    flags = ("--workers", 9, "--min-workers", 2, "--highest-tier-allowed", "nvlink", "-o", output)
    ran = files.place(leaves(("a", "b", "c")), *flags)
    assert ran.code == 0
    assert ran.err == (
        "3 workers placed, fewer than the maximum; there is no tier nvlink: tier 1 (leaf) is used, "
        "the lowest above it\n"
    )
    assert files.place(leaves(("a", "b", "c")), "--workers", 3, "-o", output).err == ""


def test_nodes_without_effect_are_said(files: Files) -> None:
    nodes = {"items": [listed("a")]}
    ran = files.place(leaves(("a", "b")), "--workers", 2, nodes=nodes)
    assert (ran.code, "--nodes has no effect" in ran.err) == (0, True)
    assert (
        "no effect"
        not in files.place(leaves(("a", "b")), "--workers", 1, "--toleration", "x", nodes=nodes).err
    )
