"""`--cluster`: what one of several clusters gets of a topology."""

import json
from pathlib import Path

import pytest
from hyperscout_cli.place.placement_text import placements_table
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import Topology
from support.builders import hypernode
from support.command_line import CommandLine
from support.placement_service import placed

ALL = ("east/n1", "east/n2", "n1", "west/n1")
TREE = Topology(
    3,
    (
        hypernode("leaf-a", ALL[:2], parent="pod"),
        hypernode("leaf-b", ALL[2:], parent="pod"),
        hypernode("pod", ALL, children=("leaf-a", "leaf-b")),
    ),
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(to_json(TREE)))
    return path


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ([], ["east/n1", "east/n2", "n1", "west/n1"]),
        (["east/*"], ["east/n1", "east/n2"]),
        (["--cluster", "east"], ["east/n1", "east/n2"]),
        (["--cluster", "east", "east/n2"], ["east/n2"]),
        (["--cluster", ""], ["n1"]),
        (["--cluster", "west", "-l", "pod=pod"], ["west/n1"]),
    ],
)
def test_nodes_of_a_cluster(run: CommandLine, saved: Path, flags: list[str], names: list[str]) -> None:
    ran = run("get", "nodes", *flags, "-o", "name", "--topology", saved)
    assert (ran.code, ran.out.split()) == (0, [f"node/{name}" for name in names])


def test_the_tree_of_a_cluster_in_all_formats(run: CommandLine, saved: Path) -> None:
    ran = run("tree", "--cluster", "east", "-o", "json", "--topology", saved)
    found = {h["name"]: h["nodes"] for h in json.loads(ran.out)["hypernodes"]}
    assert found == {"leaf-a": ["n1", "n2"], "pod": ["n1", "n2"]}
    for output, nodes in (("slurm-tree", "=n[1-2]"), ("tree", " east/n[1-2]"), ("dot", "node:east/n1")):
        assert nodes in run("tree", "--cluster", "east", "-o", output, "--topology", saved).out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ["get", "nodes", "--cluster", "north", "--topology"],
            1,
            "no node of cluster 'north': the clusters with nodes are \"\", east, west",
        ),
        (
            ["get", "findings", "--cluster", "east", "--topology"],
            2,
            "findings have the names of all clusters",
        ),
        (
            ["get", "nodes", "n2", "--cluster", "east", "--topology"],
            1,
            "no node named 'n2' (similar: east/n2)",
        ),
        (["describe", "node", "west/n2", "--topology"], 1, "(similar: east/n2, "),
        (["get", "hypernodes", "-w", "--cluster", "east", "--topology"], 2, "without --at and --cluster"),
    ],
)
def test_what_no_cluster_has(
    run: CommandLine, saved: Path, words: list[str], code: int, message: str
) -> None:
    ran = run(*words, saved)
    assert ran.code == code
    assert message in ran.err


PLACE = ("place", "-o", "name", "--workers")


@pytest.mark.parametrize(
    ("flags", "code", "out", "err"),
    [
        (["1"], 0, "node/n1\n", ""),
        (["2"], 3, "", "the collector's own cluster: "),
        (["2", "--clusters", "any"], 0, "node/east/n1\nnode/east/n2\n", ""),
        (["1", "--clusters", "west,east"], 0, "node/east/n1\n", ""),
        (["1", "--clusters", ",east"], 0, "node/n1\n", ""),
        (["3", "--clusters", "any"], 3, "", "cluster west: "),
        (["1", "--clusters", "any,east"], 2, "", "--clusters: any: expected no other name"),
        (["1", "--clusters", "north"], 2, "", 'expected any, or some of "", east, west'),
    ],
)
def test_a_gang_has_one_cluster(
    run: CommandLine, saved: Path, flags: list[str], code: int, out: str, err: str
) -> None:
    ran = run(*PLACE, *flags, "--topology", saved)
    assert (ran.code, ran.out) == (code, out)
    assert err in ran.err


def test_the_answer_names_the_cluster(run: CommandLine, saved: Path) -> None:
    flags = ("place", "--topology", saved, "--clusters", "any", "--workers")
    assert json.loads(run(*flags, "2", "-o", "json").out)["cluster"] == "east"
    assert "cluster" not in json.loads(run(*flags, "1", "-o", "json").out)
    assert run(*flags, "2").out.splitlines()[1].split() == ["Cluster:", "east"]
    assert run(*flags, "1").out.splitlines()[1].split() == ["Cluster:", "the", "collector's", "own"]
    explain = ("explain-placement", *flags[1:])
    assert run(*explain, "2").out.splitlines()[0] == "Cluster: east"
    assert run(*explain, "1").out.splitlines()[0] == "Cluster: the collector's own"


def test_the_list_of_gangs_has_the_cluster() -> None:
    table = placements_table([placed("a", "east/n1", cluster="east"), placed("b", "n1")], 0)
    assert (table.more, [row.more[0] for row in table.rows]) == (("CLUSTER", "FAILED"), ["east", ""])
