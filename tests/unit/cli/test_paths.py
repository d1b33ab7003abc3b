"""`explain` over a saved topology."""

import json
from pathlib import Path

import pytest
from hyperscout_collector.serve.grpc.explain import explain
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import Topology
from support.command_line import CommandLine
from support.topologies import measured, two_leaves


def explained(topology: Topology, node_a: str, node_b: str) -> str:
    return explain(topology, node_a, node_b, evidence=()).text


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (
            ("n01", "n02"),
            [
                "are leaf neighbours: both are in leaf-a, tier 1.",
                "2 cables:\n  n01 mlx5_0 1 -> leaf-a 1: 400 Gbit/s, 4 lanes\n  leaf-a 2 -> n02 mlx5_0 1\n",
            ],
        ),
        (
            ("n02", "n04"),
            ["are core neighbours: both are in core, tier 2.", "has 4 cables:\n  n02 mlx5_0 1 -> "],
        ),
        (("n01", "n01"), ["n01 is one node."]),
        (("n01", "n09"), ["share no HyperNode.", "No evidence shows a path between them."]),
        (("n01", "n03"), ["No evidence shows", "MissingLink: no cable from n03/1 to leaf-b/1"]),
    ],
)
def test_explained_in_sentences(nodes: tuple[str, str], words: list[str]) -> None:
    text = explained(two_leaves(), *nodes)
    assert all(word in text for word in words), text


def test_an_unknown_node_is_named(run: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(to_json(two_leaves())))
    assert run("explain", "n01", "n02", "--topology", path).out.startswith("n01 and n02 are leaf neighbours")
    ran = run("explain", "n01", "nx", "--topology", path)
    assert (ran.code, ran.err.startswith("error: no node 'nx'")) == (1, True)


def test_explained_with_what_was_measured() -> None:
    text = explained(measured(), "n03", "n04")
    assert "Measured in leaf-b: latency median 6.1 us.\n" in text  # recalled: the median alone
    assert "Measured in leaf-b: bandwidth median 4.25 Gbit/s, p1 9.5 Gbit/s, 128 samples" in text
    assert "Measured in core: latency median 7 us, p99 7.5 us, 2 samples." in explained(
        measured(), "n01", "n04"
    )


def test_described_with_what_was_measured(run: CommandLine, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(to_json(measured())))
    a, b = (run("describe", "hypernode", name, "--topology", str(saved)).out for name in ("leaf-a", "leaf-b"))
    assert "Source:   latency, confidence 0.93\n" in a
    assert "Latency:  median 4.25 us, p99 9.5 us, 128 samples, newest " in a
    assert a.split("newest ")[1].split("\n")[0].endswith("d ago")
    assert "Bandwidth: median 4.25 Gbit/s, p1 9.5 Gbit/s, 128 samples, newest " in b
    assert "Source:    nvlink, confidence 1\n" in b
    wide = run("get", "hypernodes", "-o", "wide", "--topology", str(saved)).out.splitlines()
    assert wide[0].split()[-5:] == ["SWITCHES", "SOURCE", "LATENCY", "OTHER", "MESSAGE"]
    assert wide[1].split()[-5:] == ["1", "latency", "4.2us", "-", "-"]
    wired = tmp_path / "wired.json"
    wired.write_text(json.dumps(to_json(two_leaves())))
    assert "Source" not in run("describe", "hypernode", "leaf-a", "--topology", str(wired)).out
