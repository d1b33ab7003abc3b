"""Placing at a collector: `place`, `explain-placement` and `placements`, against a real gRPC server in this
process."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from hyperscout.v1 import placement_pb2 as pb
from hyperscout_cli.place.placements import changes
from hyperscout_runtime.units import NS
from hyperscout_topology.objects import to_json
from support.command_line import CommandLine
from support.findings import stamp
from support.placement_service import FakePlacementService, placed, refused, serving_placements
from support.topologies import two_leaves
from support.topology_service import FakeTopologyService


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, run: CommandLine) -> Iterator[FakePlacementService]:
    topology = FakeTopologyService(topology=two_leaves())
    with serving_placements(FakePlacementService(), topology) as fake:
        monkeypatch.setenv("HYPERSCOUT_COLLECTOR", fake.address)
        yield fake


def columns(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_place_is_a_dry_run_unless_it_is_said_to_reserve(
    run: CommandLine, service: FakePlacementService
) -> None:
    ran = run("place", "--workers", 2, "--gpus-per-worker", 8, "--avoid", "n03", "n04")
    assert (ran.code, ran.err) == (0, "")
    assert "Within:       tier 1 (leaf), leaf-a" in ran.out
    assert columns(ran.out)[-1] == ["0-1", "leaf-a", "n[01-02]"]
    assert "Reserved" not in ran.out
    (asked,) = service.asked
    assert asked == pb.PlaceRequest(
        mode=pb.PLACEMENT_MODE_HARD,
        parts=[pb.Part(workers=pb.Workers(count=2, resources={"nvidia.com/gpu": "8"}))],
        avoid=["n03", "n04"],
        dry_run=True,
    )
    assert service.held == {}


def test_files_ask_no_collector(run: CommandLine, service: FakePlacementService, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps(to_json(two_leaves())))
    assert run("place", "--topology", file, "--workers", 2).code == 0
    assert run("explain-placement", "--topology", file, "--workers", 2).code == 0
    assert service.asked == []


def test_reserve(run: CommandLine, service: FakePlacementService) -> None:
    before = time.time()
    ran = run("place", "--workers", 2, "--gang", "t7", "--reserve", "--expires", "30m", "-o", "json")
    assert ran.code == 0
    (asked,) = service.asked
    assert (asked.gang, asked.dry_run, asked.expires_in) == ("t7", False, Duration(seconds=1800))
    answer = json.loads(ran.out)
    assert answer["gang"] == "t7"
    assert answer["expiresAt"] > answer["reservedAt"]
    assert before <= service.held["t7"].reserved_at.ToSeconds() + 1
    assert (
        "Reserved:     until it is released" in run("place", "--workers", 2, "--gang", "u", "--reserve").out
    )
    text = run("place", "--workers", 2, "--gang", "v", "--reserve", "--expires", "1h").out
    assert "Gang:         v\n" in text
    assert "Reserved:     until 20" in text


def test_a_request_may_name_its_gang_and_never_reserves_by_itself(
    run: CommandLine, service: FakePlacementService, tmp_path: Path
) -> None:
    file = tmp_path / "r.json"
    data = {"gang": "g", "parts": [{"workers": {"count": 1}}], "expiresIn": "60s", "dryRun": False}
    file.write_text(json.dumps(data))
    assert run("place", "--request", file).code == 0
    assert run("place", "--request", file, "--reserve").code == 0
    assert [(x.gang, x.dry_run, x.expires_in.seconds) for x in service.asked] == [
        ("g", True, 60),
        ("g", False, 60),
    ]
    ran = run("place", "--request", file, "--gang", "h")
    assert (ran.code, len(service.asked)) == (2, 2)
    assert "--gang h: the request has the name 'g'" in ran.err


def test_no_placement(run: CommandLine, service: FakePlacementService) -> None:
    service.answer = refused("no leaf has room for 9 \x1b[2J")
    ran = run("place", "--workers", 9, "--gang", "g", "--reserve")
    assert (ran.code, ran.out, ran.err) == (3, "", "no leaf has room for 9 \\x1b[2J\n")
    assert json.loads(run("place", "--workers", 9, "-o", "json").out)["placed"] is False


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            (
                grpc.StatusCode.INVALID_ARGUMENT,
                "highest_tier_allowed: no tier 'x': the tiers are 0 (node), 1 (leaf)",
            ),
            2,
            "error: --highest-tier-allowed: no tier 'x': the tiers are 0 (node), 1 (leaf)\n",
        ),
        ((grpc.StatusCode.ALREADY_EXISTS, "gang 'g' holds nodes already"), 1, "error: gang 'g' holds nodes"),
        ((grpc.StatusCode.FAILED_PRECONDITION, "there is no topology yet"), 1, "error: there is no topology"),
        ((grpc.StatusCode.PERMISSION_DENIED, "you may not reserve"), 1, "error: you may not reserve ("),
        ((grpc.StatusCode.UNIMPLEMENTED, "x"), 1, "is not a collector, or has another version"),
    ],
)
def test_what_a_collector_refuses(
    run: CommandLine, service: FakePlacementService, error: tuple[grpc.StatusCode, str], code: int, words: str
) -> None:
    service.error = error
    for command in (["place"], ["explain-placement"], ["placements", "defragment"]):
        ran = run(*command, "--workers", 2, "--highest-tier-allowed", "x")
        assert (ran.code, ran.out) == (code, "")
        assert words in ran.err


def test_a_gap_where_the_collector_should_be(run: CommandLine) -> None:
    ran = run("place", "--workers", 2, "--collector", "127.0.0.1:1")
    assert ran.code == 1
    assert "cannot reach the collector at 127.0.0.1:1" in ran.err


def candidates() -> pb.ExplainPlacementResponse:
    cost = pb.PlacementCost(top=2, domains=[3], nodes=5, degraded=1, fragmentation=[4, 1, 0])
    cost.MergeFrom(pb.PlacementCost(above=[9], whole=2, widths=[1], unpreferred=3))
    return pb.ExplainPlacementResponse(
        placement=placed("", "n01", "n02"),
        candidates=[
            pb.PlacementCandidate(
                hypernode="core",
                tier=2,
                free=9,
                cost=cost,
                predicted=pb.AllReduce(ring_s=0.0421, tree_s=0.05, message_bytes=1 << 30),
            ),
            pb.PlacementCandidate(hypernode="leaf-b", tier=1, free=1, why="1 worker fits of 2"),
        ],
        considered=12,
        text="core holds it.\nleaf-b is \x1b[1mfull.",
    )


def test_explain_placement(run: CommandLine, service: FakePlacementService) -> None:
    service.explanation = candidates()
    ran = run("explain-placement", "--workers", 2, "--limit", 2)
    assert (ran.code, ran.err) == (0, "")
    assert columns(ran.out)[1][-1] == "chosen"
    assert [row[:8] for row in columns(ran.out)] == [
        ["HYPERNODE", "TIER", "FREE", "DOMAINS", "NODES", "DEGRADED", "ALLREDUCE", "WHY"],
        ["core", "2", "9", "3", "5", "1", "42.1", "ms"],
        ["leaf-b", "1", "1", "-", "-", "-", "-", "1"],
        ["...", "and", "10", "more"],
        [],
        ["core", "holds", "it."],
        ["leaf-b", "is", "\\x1b[1mfull."],
    ]
    (asked,) = service.asked
    assert (asked.limit, asked.request.parts[0].workers.count, asked.gang) == (2, 2, "")


def test_explain_placement_as_json(run: CommandLine, service: FakePlacementService) -> None:
    service.explanation = candidates()
    answer = json.loads(run("explain-placement", "--workers", 2, "-o", "json").out)
    assert list(answer) == ["placement", "candidates", "considered", "text"]
    assert answer["placement"]["placed"] is True
    assert answer["considered"] == 12
    assert answer["candidates"][0] == {
        "hypernode": "core",
        "tier": 2,
        "free": 9,
        "cost": {
            "top": 2,
            "domains": [3],
            "nodes": 5,
            "degraded": 1,
            "fragmentation": [4, 1, 0],
            "above": [9],
            "whole": 2,
            "widths": [1],
            "unpreferred": 3,
        },
        "predicted": {
            "ringS": 0.0421,
            "treeS": 0.05,
            "messageBytes": 1 << 30,
            "measured": False,
            "sources": "",
            "hops": [],
        },
        "why": "",
    }
    assert answer["candidates"][1]["cost"] is answer["candidates"][1]["predicted"] is None


def test_explain_a_gang_that_holds_nodes(run: CommandLine, service: FakePlacementService) -> None:
    service.held["g"] = placed("g", "n01")
    service.explanation = pb.ExplainPlacementResponse(placement=refused("full"), text="full")
    ran = run("explain-placement", "--gang", "g")
    assert (ran.code, ran.out, ran.err) == (3, "full\n", "full\n")
    assert service.asked[0] == pb.ExplainPlacementRequest(gang="g", limit=10)
    ran = run("explain-placement", "--gang", "h")
    assert (ran.code, ran.err) == (1, "error: gang 'h' holds nothing\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain-placement"],
        ["explain-placement", "--gang", "g", "--workers", 3],
        ["explain-placement", "--gang", "g", "--topology", "t.json"],
        ["explain-placement", "--workers", 3, "--capacity", "c.json"],
        ["explain-placement", "--workers", 3, "--limit", 0],
        ["placements"],
        ["placements", "nonesuch"],
        ["placements", "release"],
        ["placements", "repair", "--failed", "n01"],
        ["placements", "repair", "--clear", "n01"],
        ["placements", "improve"],
        ["placements", "defragment"],
        ["placements", "defragment", "--workers", 3, "--most-moves", 0],
    ],
)
def test_wrong_usage_exits_2(run: CommandLine, arguments: list[object]) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "") or "Usage: hyperscout placements" in ran.out + ran.err
    assert ran.code == 2


def test_place_with_candidates(run: CommandLine, service: FakePlacementService) -> None:
    service.explanation = candidates()
    text = run("place", "--workers", 2, "--explain").out
    assert text.index("RANKS") < text.index("WHY") < text.index("core holds it.")
    answer = json.loads(run("place", "--workers", 2, "--explain", "-o", "json").out)
    assert answer["explanation"]["considered"] == 12
    assert {type(x) for x in service.asked} == {pb.ExplainPlacementRequest}
    run("place", "--workers", 2, "--explain", "--gang", "g", "--reserve")
    assert "g" in service.held


def test_list(run: CommandLine, service: FakePlacementService) -> None:
    ran = run("placements", "list")
    assert (ran.code, ran.out, ran.err) == (0, "", "no gang holds nodes\n")
    assert json.loads(run("placements", "list", "-o", "json").out) == []
    now = time.time_ns()
    service.held = {
        "z": placed("z", "n01", "n01", holder="Job", reserved_at=stamp(now - 90 * NS)),
        "a": placed(
            "a", "n02", holder="api", reserved_at=stamp(now - NS), expires_at=stamp(now + 3600 * NS - 1)
        ),
    }
    heading, a, z = columns(run("placements", "list").out)
    assert heading == ["GANG", "HOLDER", "WORKERS", "NODES", "TIER", "HYPERNODE", "AGE", "EXPIRES"]
    assert a[:6] == ["a", "api", "1", "1", "1", "leaf-a"]
    assert a[7:] == ["in", "59m"]
    assert z[:6] == ["z", "Job", "2", "1", "1", "leaf-a"]
    assert z[6].startswith("1m3")
    assert z[7] == "-"
    found = json.loads(run("placements", "list", "-o", "json").out)
    assert [(x["gang"], x["holder"], "expiresAt" in x) for x in found] == [
        ("a", "api", True),
        ("z", "Job", False),
    ]
    service.held["a"].failed_nodes.add(node="n03", reported_at=stamp(NS))
    service.held["a"].failed_nodes.add(node="n04", reported_at=stamp(NS), down_at=stamp(2 * NS))
    heading, a, z = columns(run("placements", "list", "-o", "wide").out)
    assert (heading[-1], a[-1], z[-1]) == ("FAILED", "n[03-04]", "-")
    found = json.loads(run("placements", "list", "-o", "json").out)
    assert found[0]["failedNodes"] == [
        {"node": "n03", "reportedAt": "1970-01-01T00:00:01Z", "downAt": None},
        {"node": "n04", "reportedAt": "1970-01-01T00:00:01Z", "downAt": "1970-01-01T00:00:02Z"},
    ]
    assert "failedNodes" not in found[1]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["-o", "name"], ["placement/t2", "placement/t10", "placement/u"]),
        (["t*", "-o", "name"], ["placement/t2", "placement/t10"]),
        (["u", "t2", "-o", "name"], ["placement/t2", "placement/u"]),
        (["-l", "holder=api", "--sort-by", "workers", "-o", "name"], ["placement/u", "placement/t2"]),
        (["t10", "-o", "hostlist"], ["n[09-10],n[01-02],login"]),
        (["-l", "holder=api", "-o", "hostlist"], ["n[01-03]", "n07"]),
    ],
)
def test_some_gangs_are_listed(
    run: CommandLine, service: FakePlacementService, flags: list[str], expected: list[str]
) -> None:
    service.held = {
        "t10": placed("t10", "n09", "n09", "n10", "n01", "n02", "login", holder="Job"),
        "t2": placed("t2", "n01", "n02", "n03", holder="api"),
        "u": placed("u", "n07", holder="api"),
    }
    assert run("placements", "list", *flags).out.splitlines() == expected


def test_a_gang_that_holds_nothing_is_named(run: CommandLine, service: FakePlacementService) -> None:
    service.held = {"g": placed("g", "n01")}
    ran = run("placements", "list", "g", "h", "--no-headers")
    assert (ran.code, ran.out.split()[0]) == (1, "g")
    assert "no placement named 'h': expected the name of a gang" in ran.err
    assert "`hyperscout placements list` lists all" in ran.err


def test_the_nodes_of_a_gang_for_slurm(run: CommandLine, service: FakePlacementService) -> None:
    service.answer = placed("", "n10", "n01", "n01", "n02", "n03", "n05", "n01")
    ran = run("place", "--workers", 7, "-o", "hostlist")
    assert (ran.code, ran.out, ran.err) == (0, "n10,n[01-03,05]\n", "")
    service.answer = refused()
    ran = run("place", "--workers", 7, "-o", "hostlist")
    assert (ran.code, ran.out, ran.err) == (3, "", "no leaf has room\n")


def test_release(run: CommandLine, service: FakePlacementService) -> None:
    service.held = {"g": placed("g", "n01"), "h": placed("h", "n02")}
    ran = run("placements", "release", "g", "h")
    assert (ran.code, ran.out) == (0, "released g\nreleased h\n")
    assert service.held == {}
    ran = run("placements", "release", "g")
    assert (ran.code, ran.out, ran.err) == (1, "", "error: gang 'g' holds nothing\n")


def test_one_that_holds_nothing_does_not_keep_the_others(
    run: CommandLine, service: FakePlacementService
) -> None:
    service.held = {"g": placed("g", "n01"), "h": placed("h", "n02")}
    ran = run("placements", "release", "x", "g", "y", "h")
    assert (ran.code, ran.out) == (1, "released g\nreleased h\n")
    assert ran.err == "error: gang 'x' holds nothing\ngang 'y' holds nothing\n"
    service.error = (grpc.StatusCode.UNAVAILABLE, "the disk is full")
    ran = run("placements", "release", "x", "g")
    assert (ran.code, ran.err) == (1, "error: the disk is full\n")
    assert [asked.gang for asked in service.asked] == ["x", "g", "y", "h", "x"]  # that is the end of it


def test_a_gang_that_was_taken_for_a_node(run: CommandLine, service: FakePlacementService) -> None:
    ran = run("placements", "repair", "--failed", "n01", "g")
    assert (ran.code, service.asked) == (2, [])
    assert "give it before --failed" in ran.err


MOVES = [pb.Move(rank=1, source="n03", target="n02")]


def test_repair(run: CommandLine, service: FakePlacementService) -> None:
    service.held["g"] = placed("g", "n01", "n03")
    service.repaired = pb.RepairResponse(placement=placed("g", "n01", "n02"), moves=MOVES, kept_tier=True)
    ran = run("placements", "repair", "g", "--failed", "n03", "n04", "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    assert columns(ran.out)[:2] == [["RANK", "FROM", "TO"], ["1", "n03", "n02"]]
    assert "wider" not in ran.out
    assert "leaf-a" in ran.out
    assert "Failed nodes" not in ran.out
    assert service.asked[0] == pb.RepairRequest(gang="g", failed_nodes=["n03", "n04"], dry_run=True)
    service.repaired.placement.failed_nodes.add(node="n03")
    ran = run("placements", "repair", "g", "--failed", "n03", "--clear", "n[01-02]", "n04")
    assert "Failed nodes: n03\n" in ran.out
    assert service.asked[-1] == pb.RepairRequest(
        gang="g", failed_nodes=["n03"], cleared_nodes=["n01", "n02", "n04"]
    )
    assert run("placements", "repair", "g").code == 0
    assert service.asked[-1] == pb.RepairRequest(gang="g"), "with the nodes that the gang remembers"
    service.repaired.kept_tier = False
    assert (
        "The gang spans a higher tier than before." in run("placements", "repair", "g", "--failed", "n03").out
    )
    answer = json.loads(run("placements", "repair", "g", "--failed", "n03", "-o", "json").out)
    assert answer["moves"] == [{"rank": 1, "source": "n03", "target": "n02"}]
    assert (answer["keptTier"], answer["placement"]["nodes"]) == (False, 2)
    assert service.asked[-1].dry_run is False


def test_a_repair_that_cannot_be_or_need_not_be(run: CommandLine, service: FakePlacementService) -> None:
    service.held["g"] = placed("g", "n01")
    service.repaired = pb.RepairResponse(placement=refused("nothing is free"))
    ran = run("placements", "repair", "g", "--failed", "n01")
    assert (ran.code, ran.out, ran.err) == (3, "", "nothing is free\n")
    ran = run("placements", "repair", "g", "--failed", "n01", "-o", "json")
    assert ran.code == 3
    assert json.loads(ran.out)["placement"]["reason"] == "nothing is free"
    service.repaired = pb.RepairResponse(placement=placed("g", "n01"), kept_tier=True)
    assert run("placements", "repair", "g", "--failed", "n09").out == "no rank has to move\n"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("failed_nodes: 'n9': no such node", "--failed: 'n9': no such node"),
        (
            "cleared_nodes: 'n1' is in failed_nodes, too: give it in one of them",
            "--clear: 'n1' is in --failed, too: give it in one of them",
        ),
    ],
)
def test_a_wrong_node_of_a_repair_names_the_option(
    run: CommandLine, service: FakePlacementService, said: str, shown: str
) -> None:
    service.error = (grpc.StatusCode.INVALID_ARGUMENT, said)
    ran = run("placements", "repair", "g", "--failed", "n9")
    assert (ran.code, ran.out) == (2, "")
    assert f"error: {shown}\n" in ran.err


def test_resize(run: CommandLine, service: FakePlacementService) -> None:
    service.held["g"] = placed("g", "n01")
    elastic = pb.ElasticPart(count=2, min_count=1, max_count=4, size=1, role="worker")
    some = placed("g", "n01", "n02", elastic=[elastic], min_workers=1, max_workers=4, exact=False)
    some.reason = "2 of 3 workers have a place: nothing is free"
    service.resized = pb.ResizeResponse(placement=some, before=1)
    ran = run("placements", "resize", "g", "--workers", "3")
    assert (ran.code, ran.err) == (0, "")
    assert "Before: 1 worker\n" in ran.out
    assert "Workers:      2 (at least 1, at most 4)\n" in ran.out
    assert f"Relaxed:      {some.reason}\n" in ran.out
    assert "Proof:        none: ranks that stay do not move\n" in ran.out
    ran = run("placements", "resize", "g", "--workers", "3", "--dry-run", "-o", "json")
    assert (ran.code, ran.err) == (0, f"{some.reason}\n")
    answer = json.loads(ran.out)
    assert service.asked[-1] == pb.ResizeRequest(gang="g", workers=3, dry_run=True)
    parts = [{"count": 2, "minCount": 1, "maxCount": 4, "size": 1, "role": "worker"}]
    assert (answer["before"], answer["placement"]["elastic"]) == (1, parts)
    service.resized = pb.ResizeResponse(placement=refused("nothing is free"))
    ran = run("placements", "resize", "g", "--workers", "3")
    assert (ran.code, ran.out, ran.err) == (3, "", "nothing is free\n")


def test_improve(run: CommandLine, service: FakePlacementService) -> None:
    service.held["g"] = placed("g", "n01")
    ran = run("placements", "improve", "g")
    assert (ran.code, ran.out, ran.err) == (3, "", "g: no better placement exists\n")
    ran = run("placements", "improve", "g", "-o", "json")
    assert ran.code == 3
    assert json.loads(ran.out) == {"better": False, "gain": "", "price": "", "moves": [], "placement": None}
    service.improved = pb.ImproveResponse(
        better=True, moves=MOVES, placement=placed("g", "n02"), gain="1 link fewer", price="1 worker moves"
    )
    ran = run("placements", "improve", "g")
    assert ran.code == 0
    assert "Gain: 1 link fewer\nPrice: 1 worker moves\n" in ran.out
    assert ["1", "n03", "n02"] in columns(ran.out)
    answer = json.loads(run("placements", "improve", "g", "-o", "json").out)
    assert (answer["better"], answer["placement"]["placed"]) == (True, True)


def test_defragment(run: CommandLine, service: FakePlacementService) -> None:
    service.plan = pb.DefragmentResponse(placement=refused("no such plan within 5 moves"))
    ran = run("placements", "defragment", "--workers", 2, "--most-moves", 5)
    assert (ran.code, ran.out, ran.err) == (3, "", "no such plan within 5 moves\n")
    assert service.asked[0].most_moves == 5
    assert service.asked[0].request.parts[0].workers.count == 2
    service.plan = pb.DefragmentResponse(
        placement=placed("", "n01", "n02"), gangs=[pb.GangMoves(gang="small", moves=MOVES)], moved=1
    )
    ran = run("placements", "defragment", "--workers", 2)
    assert ran.code == 0
    assert columns(ran.out)[:2] == [["GANG", "RANK", "FROM", "TO"], ["small", "1", "n03", "n02"]]
    assert ran.out.index("Then:") < ran.out.index("RANKS")
    answer = json.loads(run("placements", "defragment", "--workers", 2, "-o", "json").out)
    assert answer["gangs"] == [{"gang": "small", "moves": [{"rank": 1, "source": "n03", "target": "n02"}]}]
    assert (answer["moved"], answer["placement"]["placed"]) == (1, True)


def test_the_plan_of_the_schedule(run: CommandLine, service: FakePlacementService) -> None:
    service.plan = pb.DefragmentResponse(
        placement=placed("ns/Job/large", "n01", "n02"),
        gangs=[pb.GangMoves(gang="small", moves=MOVES)],
        moved=1,
        planned_at=stamp(time.time_ns() - 180 * NS),
    )
    ran = run("placements", "defragment", "--last")
    assert (ran.code, service.asked[0]) == (0, pb.DefragmentRequest(last=True))
    assert ran.out.startswith("Planned: 3m")
    assert "Gang:         ns/Job/large" in ran.out
    assert "plannedAt" in json.loads(run("placements", "defragment", "--last", "-o", "json").out)
    assert run("placements", "defragment", "--last", "--workers", 2).code == 2
    service.error = (grpc.StatusCode.NOT_FOUND, "there is no plan: gates are off")
    ran = run("placements", "defragment", "--last")
    assert (ran.code, ran.out, ran.err) == (3, "", "there is no plan: gates are off\n")


def test_the_queue(run: CommandLine, service: FakePlacementService) -> None:
    assert run("placements", "queue").err == "no gang waits for nodes\n"
    now_ns = time.time_ns()
    kept = pb.KeptDomain(tier=2, hypernode="pod-2", nodes=100, fits=12, workers=39, since=stamp(now_ns))
    service.waiting = [
        pb.WaitingGang(
            gang="a/Job/x", priority=5, workers=40, reason="full", waits_since=stamp(now_ns), kept=kept
        ),
        pb.WaitingGang(gang="a/Pod/y", holder="Pod", workers=1, waits_since=stamp(now_ns - 3600 * NS)),
    ]
    ran = run("placements", "queue", "-o", "wide")
    assert ran.code == 0
    heads, first, second = ran.out.splitlines()
    assert heads.split() == ["GANG", "PRIORITY", "WORKERS", "WAITS", "KEPT", "REASON", "HOLDER"]
    assert "pod-2 (12 of 39 fit)" in first
    assert second.split() == ["a/Pod/y", "0", "1", "1h", "-", "-", "Pod"]
    listed = json.loads(run("placements", "queue", "-o", "json").out)
    assert [x["gang"] for x in listed] == ["a/Job/x", "a/Pod/y"]
    assert (listed[0]["kept"]["hypernode"], listed[0]["kept"]["fits"]) == ("pod-2", 12)
    assert "kept" not in listed[1]
    assert run("placements", "queue", "-o", "name").out == "gang/a/Job/x\ngang/a/Pod/y\n"


def test_watch(run: CommandLine, service: FakePlacementService) -> None:
    service.events = [
        pb.WatchPlacementsResponse(placements=[placed("g", "n01"), placed("f", "n02")], snapshot=True),
        pb.WatchPlacementsResponse(placements=[placed("h", "n03")]),
        pb.WatchPlacementsResponse(released=["g", "x\x1b"]),
    ]
    ran = run("placements", "watch")
    assert ran.code == 1  # the stream ended
    assert "ended the stream" in ran.err
    assert [(row[0], row[-1]) for row in columns(ran.out)] == [
        ("GANG", "EXPIRES"),
        ("f", "-"),
        ("g", "-"),
        ("h", "-"),
        ("g", "released"),
        ("x\\x1b", "released"),
    ]
    lines = list(map(json.loads, run("placements", "watch", "-o", "json").out.splitlines()))
    assert [(x["snapshot"], [p["gang"] for p in x["placements"]]) for x in lines] == [
        (True, ["f", "g"]),
        (False, ["h"]),
        (False, []),
    ]
    assert lines[2]["released"] == ["g", "x\x1b"]


def test_watch_of_nothing_shows_what_columns_will_come() -> None:
    assert next(changes([pb.WatchPlacementsResponse(snapshot=True)])).startswith("GANG   HOLDER")


@pytest.mark.parametrize(
    "name", ["list", "queue", "watch", "release", "repair", "resize", "improve", "defragment"]
)
def test_each_has_help_with_examples(run: CommandLine, name: str) -> None:
    ran = run("placements", name, "--help")
    assert ran.code == 0
    assert "Examples:" in ran.out
