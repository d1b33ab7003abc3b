"""-o everywhere alike: a walk over all commands, and what each prints as JSON and as YAML."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from hyperscout.v1 import measurement_pb2, placement_pb2
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_cli.main import COMMANDS, cli
from hyperscout_cli.shared.command import Command, Group
from hyperscout_topology.objects import to_json
from hyperscout_topology.proto import hypernode_to_proto, topology_to_proto
from support.command_line import CommandLine
from support.measurement_service import FakeMeasurementService, serving_measurement
from support.placement_service import FakePlacementService, placed, serving_placements
from support.topologies import two_leaves
from support.topology_service import FakeTopologyService

# What shows nothing: processes, what writes a file or a script, a play.
PARSING_THEMSELVES = {"agent dra-plugin", "agent lldp-listener", "agent pod-resources-relay"}
SILENT = PARSING_THEMSELVES | {
    "agent",
    "collector",
    "demo",
    "completion",
    "snapshot save",
}
# What these tests cannot ask here: other tests run them against a cluster, a host, a history.
ELSEWHERE = {"crd columns", "doctor", "history", "loadtest"}
STREAMS = {"watch", "placements watch"}


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by its whole name."""
    if isinstance(command, click.Group):
        if command.invoke_without_command:
            yield " ".join(path), command
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from leaves(found, (*path, name))
    else:
        yield " ".join(path), command


ALL = dict(leaves(cli))

# Arguments with which a command has something to show; SAVED is a saved topology.
ASKED: dict[str, Sequence[object]] = {
    "infer": ("--lldp", "LLDP"),
    "place": ("--workers", 2),
    "explain-placement": ("--workers", 2),
    "hostfile": ("train",),
    "placements list": (),
    "placements queue": (),
    "placements watch": (),
    "placements release": ("train",),
    "placements repair": ("train", "--failed", "n01"),
    "placements resize": ("train", "--workers", 2),
    "placements improve": ("train",),
    "placements defragment": ("--workers", 2),
    "status": (),
    "tree": (),
    "get": ("nodes",),
    "describe": ("node", "n[01-02]"),
    "explain": ("n01", "n02", "--topology", "SAVED"),
    "watch": (),
    "diff": ("OTHER",),
    "snapshot load": ("SAVED",),
    "approve": (8,),
    "measure status": (),
    "measure pause": (),
    "measure resume": (),
    "measure nccl": ("n01",),
    "crd show": (),
    "version": (),
}


@pytest.fixture
def asked(run: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CommandLine]:
    """The command line with a collector that has something to tell, and files of it."""
    topology = FakeTopologyService(topology=two_leaves(), held=8)
    topology.events = [
        pb.WatchTopologyResponse(snapshot=topology_to_proto(two_leaves(), omit_links=True)),
        pb.WatchTopologyResponse(
            delta=pb.TopologyDelta(
                generation=8,
                hypernodes=[hypernode_to_proto(two_leaves().hypernodes[2])],
                removed_hypernodes=["leaf-a"],
            )
        ),
    ]
    gangs = FakePlacementService(held={"train": placed("train", "n01", "n02")})
    gangs.repaired = placement_pb2.RepairResponse(placement=placed("train", "n03", "n02"))
    gangs.resized = placement_pb2.ResizeResponse(placement=placed("train", "n01", "n02"))
    gangs.improved = placement_pb2.ImproveResponse(better=True, placement=placed("train", "n01"))
    gangs.plan = placement_pb2.DefragmentResponse(placement=placed("", "n01"))
    gangs.waiting = [placement_pb2.WaitingGang(gang="ns/Job/waits", workers=2)]
    gangs.explanation = placement_pb2.ExplainPlacementResponse(placement=placed("", "n01"))
    gangs.events = [placement_pb2.WatchPlacementsResponse(snapshot=True, placements=[placed("a", "n01")])]
    measuring = FakeMeasurementService(measuring=measurement_pb2.GetMeasuringResponse(probes=7))
    (tmp_path / "SAVED").write_text(json.dumps(to_json(two_leaves())))
    (tmp_path / "OTHER").write_text(json.dumps(to_json(two_leaves()) | {"anomalies": []}))
    (tmp_path / "LLDP").write_text('{"lldp": {}}')
    monkeypatch.chdir(tmp_path)
    with serving_placements(gangs, topology) as served, serving_measurement(measuring) as measured:
        monkeypatch.setenv("HYPERSCOUT_COLLECTOR", served.address)
        monkeypatch.setenv("MEASURING", measured.address)
        yield run


def test_the_table_has_every_command() -> None:
    assert ASKED.keys() | SILENT | ELSEWHERE >= ALL.keys()
    assert not ASKED.keys() - ALL.keys()
    assert {name.split()[0] for name in ALL} == set(COMMANDS)


@pytest.mark.parametrize("name", sorted(ALL.keys() - SILENT))
def test_every_command_takes_the_same_words(name: str) -> None:
    options = {p.name: p for p in ALL[name].params if isinstance(p, click.Option)}
    assert isinstance(ALL[name], Command)
    output, color = options["output"], options["color"]
    assert output.opts == ["-o", "--output"]
    context = click.Context(ALL[name])
    for word in ("table", "text", "json", "yaml"):
        taken = output.type.convert(word, output, context)
        assert taken == (output.default if word in {"table", "text"} else word)
    assert set(color.type.to_info_dict()["choices"]) == {"auto", "always", "never"}


@pytest.mark.parametrize("name", sorted(SILENT - PARSING_THEMSELVES))
def test_what_shows_nothing_has_help_all_the_same(name: str) -> None:
    assert isinstance(ALL[name], Command | Group)


def ends_well(run: CommandLine, name: str, *more: object) -> str:
    arguments = [*name.split(), *ASKED[name], *more]
    if name.startswith("measure"):
        import os

        arguments += ["--collector", os.environ["MEASURING"]]
    ran = run(*arguments)
    assert ran.code in ({1} if name in STREAMS else {3} if name in {"diff", "infer"} else {0}), ran.err
    return ran.out


@pytest.mark.parametrize("name", sorted(ASKED.keys() - STREAMS))
def test_json_and_yaml_are_the_same_object(asked: CommandLine, name: str) -> None:
    as_json: Any = json.loads(ends_well(asked, name, "-o", "json"))
    if name in {"approve", "placements release"}:  # it is done, and cannot be done again
        assert as_json
        return
    as_yaml = yaml.safe_load(ends_well(asked, name, "-o", "yaml"))
    if name == "version":
        assert as_json["hyperscout"]
    assert as_yaml == as_json
    assert as_json
    assert ends_well(asked, name, "-o", "text") == ends_well(asked, name)


def test_what_is_done_is_told_as_yaml_too(asked: CommandLine) -> None:
    assert yaml.safe_load(ends_well(asked, "approve", "-o", "yaml")) == {"generation": 8}
    assert yaml.safe_load(ends_well(asked, "placements release", "-o", "yaml")) == {"released": ["train"]}


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_a_stream_is_a_line_of_json_or_a_document_of_yaml_a_change(asked: CommandLine, name: str) -> None:
    lines = ends_well(asked, name, "-o", "json").splitlines()
    documents = list(yaml.safe_load_all(ends_well(asked, name, "-o", "yaml")))
    assert [json.loads(line) for line in lines] == documents
    assert documents


def test_watch_tells_what_changed_and_what_went(asked: CommandLine) -> None:
    first, second = map(json.loads, ends_well(asked, "watch", "-o", "json").splitlines())
    assert first == {
        "generation": 7,
        "hypernodes": to_json(two_leaves())["hypernodes"],
        "removedHypernodes": [],
    }
    assert second == {"generation": 8, "hypernodes": [], "removedHypernodes": ["leaf-a"]}
    ran = asked("get", "hn", "-w", "leaf-[a]", "core", "-o", "name")
    assert ran.code == 2
    ran = asked("get", "hn", "-w", "leaf-a", "-o", "name")
    assert ran.out.splitlines() == ["hypernode/leaf-a"] * 2


def test_describe_is_the_object_of_get_and_what_belongs_to_it(asked: CommandLine) -> None:
    node, other = json.loads(asked("describe", "node", "n[03-04]", "-o", "json").out)
    assert (node["name"], node["hypernodes"], node["links"]) == ("n03", ["leaf-b", "core"], [])
    assert [x["kind"] for x in node["anomalies"]] == ["MissingLink"]
    assert node["findings"] == []
    assert [x["b"]["name"] for x in other["links"]] == ["leaf-b"]
    (leaf,) = json.loads(asked("describe", "hn", "leaf-b", "-o", "json").out)
    assert len(leaf["anomalies"]) == 1
    (switch,) = json.loads(asked("describe", "sw", "spine", "-o", "json").out)
    assert (switch["id"], len(switch["links"])) == ("s9", 2)
    assert asked("describe", "no", "n[01-02]", "-o", "name").out == "node/n01\nnode/n02\n"
    text = asked("describe", "nodes", "n[01-02]").out
    assert text.index("Name:     n01") < text.index("\n\nName:     n02")


def test_place_names_nodes(asked: CommandLine) -> None:
    assert asked("place", "--workers", 2, "-o", "name").out == "node/n01\nnode/n02\n"


def test_a_difference_is_an_object(asked: CommandLine) -> None:
    (found,) = json.loads(asked("diff", "OTHER", "-o", "json").out)["differences"]
    assert (found["change"], found["what"]) == ("added", "anomaly")
    assert found["message"].startswith("MissingLink n03/1")
    assert json.loads(asked("diff", "SAVED", "-o", "json").out) == {"differences": []}


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["get", "nodes", "n[01-03]", "-o", "name"], 0, ["node/n01", "node/n02", "node/n03"]),
        (["get", "no", "n[01,04],n09", "-o", "name"], 0, ["node/n01", "node/n04", "node/n09"]),
        (["get", "hn", "leaf-a,core", "-o", "name"], 0, ["hypernode/leaf-a", "hypernode/core"]),
        (["get", "sw", "leaf-a", "spine", "-o", "name"], 0, ["switch/leaf-a", "switch/spine"]),
        (["get", "no", "n[04-05]", "-o", "name"], 1, ["node/n04"]),
        (["get", "no", "n[1-", "-o", "name"], 2, []),
        (["get", "fi", "n[01-999999]", "-o", "name"], 2, []),
        (["explain", "n[01-02]", "--topology", "SAVED"], 0, None),
        (["explain", "n[01-03]", "--topology", "SAVED"], 2, []),
        (["place", "--workers", 1, "--avoid", "n[01-"], 2, []),
        (["place", "--workers", 1, "--avoid", "n[01-02]", "n03", "-o", "name"], 0, ["node/n01", "node/n02"]),
        (["placements", "repair", "train", "--failed", "n[1-"], 2, []),
        (["measure", "nccl", "n[01-03]"], 2, []),
    ],
)
def test_nodes_are_named_as_host_lists(
    asked: CommandLine, arguments: list[object], code: int, expected: list[str] | None
) -> None:
    ran = asked(*arguments)
    assert ran.code == code, ran.err
    if expected is not None:
        assert ran.out.splitlines() == expected
    if code == 2:
        assert "Error: " in ran.err


def test_a_name_that_is_there_wins_over_a_host_list(run: CommandLine, service: FakeTopologyService) -> None:
    odd = topology_to_proto(two_leaves())
    for switch in odd.switches:
        switch.name = switch.name.replace("spine", "spine, [1-2]")
    service.topology = _read(odd)
    assert run("get", "sw", "spine, [1-2]", "-o", "name").out == "switch/spine, [1-2]\n"
    assert run("get", "sw", '"spine, [1-2]"', "-o", "name").out == "switch/spine, [1-2]\n"


def _read(message: pb.Topology) -> Any:
    from hyperscout_topology.proto import topology_from_proto

    return topology_from_proto(message)


def test_findings_of_many_nodes_are_asked_for_at_once(run: CommandLine, service: FakeTopologyService) -> None:
    from hyperscout.v1 import finding_pb2

    service.findings = [
        pb.StoredFinding(
            finding=finding_pb2.Finding(key=finding_pb2.FindingKey(node=f"n{i:02}", probe="lldp"))
        )
        for i in range(1, 31)
    ]
    for names, count in (("n[01-03]", 3), ("n[05-28]", 24), ("n[25-60]", 6)):
        ran = run("get", "fi", names, "-o", "name")
        assert len(ran.out.splitlines()) == count
    assert "named n[31-60]: expected" in ran.err


def test_snapshot_load_takes_one_of_its_two_ways(asked: CommandLine, tmp_path: Path) -> None:
    ran = asked("snapshot", "load", "SAVED", "--data-dir", tmp_path / "d", "-o", "json")
    assert (ran.code, ran.out) == (2, "")
    assert "give one of them" in ran.err
    assert not (tmp_path / "d").exists()
