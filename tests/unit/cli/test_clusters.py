"""`--cluster`: what one of several clusters gets of a topology."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hyperscout.v1 import placement_pb2 as pb
from hyperscout_cli.place.place_cluster import chosen_cluster
from hyperscout_formats.text.reporters import CLUSTER_LABEL
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import Topology
from support.builders import hypernode
from support.command_line import CommandLine
from support.placement_service import placed, refused

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
        (["--cluster", "east"], ["n1", "n2"]),
        (["--cluster", ""], ["n1"]),
        (["--cluster", "west", "-l", "leaf=leaf-b"], ["n1"]),
    ],
)
def test_nodes_of_a_cluster(run: CommandLine, saved: Path, flags: list[str], names: list[str]) -> None:
    ran = run("get", "nodes", *flags, "-o", "name", "--topology", saved)
    assert (ran.code, ran.out.split()) == (0, [f"node/{name}" for name in names])


def test_the_tree_of_a_cluster_in_all_formats(run: CommandLine, saved: Path) -> None:
    ran = run("tree", "--cluster", "east", "-o", "json", "--topology", saved)
    (only,) = json.loads(ran.out)["hypernodes"]
    assert (only["name"], only["nodes"]) == ("leaf-a", ["n1", "n2"])
    assert "n[1-2]" in run("tree", "--cluster", "east", "-o", "slurm-tree", "--topology", saved).out


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
        (["get", "hypernodes", "-w", "--cluster", "east", "--topology"], 2, "without --at and --cluster"),
        (["place", "--workers", "1", "--cluster", "east", "--topology"], 2, "--any-cluster need a collector"),
    ],
)
def test_what_no_cluster_has(
    run: CommandLine, saved: Path, words: list[str], code: int, message: str
) -> None:
    ran = run(*words, saved)
    assert ran.code == code
    assert message in ran.err


def test_a_gang_has_one_cluster(run: CommandLine) -> None:
    ran = run("place", "--workers", "1", "--cluster", "east", "--any-cluster")
    assert (ran.code, "give one of them" in ran.err) == (2, True)


class FakePlacer:
    """Answers dry runs with the placement of each cluster."""

    def __init__(self, answers: dict[str, pb.Placement]) -> None:
        self.answers = answers

    def topology(self) -> Topology:
        return TREE

    def place(self, request: pb.PlaceRequest) -> pb.Placement:
        assert request.dry_run
        (cluster,) = {worker.node_selector[CLUSTER_LABEL] for worker in workers_of(request.parts)}
        return self.answers[cluster]

    def explain(self, request: pb.PlaceRequest, limit: int) -> pb.ExplainPlacementResponse:
        raise AssertionError("nothing is explained")


def workers_of(parts: Iterable[pb.Part]) -> Iterator[pb.Workers]:
    for part in parts:
        if part.HasField("group"):
            yield from workers_of(part.group.parts)
        else:
            yield part.workers


def at(top: int, nodes: int, left: int) -> pb.Placement:
    """`left`: workers that would still fit."""
    cost = pb.PlacementCost(top=top, domains=[1] * (top - 1), nodes=nodes, fragmentation=[left])
    return placed("", "n1", cost=cost)


COMPACT, FRAGMENTS = pb.PACKING_COMPACT, pb.PACKING_FRAGMENTS


@pytest.mark.parametrize(
    ("packing", "answers", "cluster"),
    [
        (COMPACT, {"": at(2, 2, 0), "east": at(1, 4, 9), "west": at(3, 1, 0)}, "east"),
        (COMPACT, {"": refused(), "east": refused(), "west": at(3, 1, 0)}, "west"),
        (COMPACT, {"": at(1, 2, 5), "east": at(1, 2, 5), "west": at(1, 2, 4)}, "west"),
        (COMPACT, {"": at(1, 2, 5), "east": at(1, 2, 5), "west": at(1, 2, 5)}, ""),
        (COMPACT, {"": at(1, 3, 5), "east": at(1, 2, 9), "west": at(1, 3, 0)}, "east"),
        (FRAGMENTS, {"": at(1, 3, 5), "east": at(1, 2, 9), "west": at(1, 3, 0)}, "west"),
    ],
)
def test_the_cluster_where_a_gang_costs_least(
    packing: "pb.Packing.ValueType", answers: dict[str, pb.Placement], cluster: str
) -> None:
    worker = pb.Part(workers=pb.Workers(count=1))
    group = pb.Part(group=pb.Group(count=2, parts=[worker]))
    request = pb.PlaceRequest(parts=[worker, group], packing=packing)
    assert chosen_cluster(FakePlacer(answers), request) == cluster
    assert not any(worker.node_selector for worker in workers_of(request.parts)), "only a copy is restricted"
