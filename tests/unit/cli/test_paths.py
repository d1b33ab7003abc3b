"""`explain` over a saved topology."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.show.paths import explained, shortest_path
from hyperscout_topology.json_objects import to_json
from hyperscout_topology.topology import Link, LinkTable, Topology
from support.command_line import CommandLine
from support.topologies import leaves, measured, two_leaves


def linked(*cables: str) -> Topology:
    """A topology with these cables (`a-b`); s... are switches, n... nodes with themselves as adapters."""
    base = two_leaves()
    links = [Link(*(x for end in c.split("-") for x in (end, "1")), "f", ("lldp",)) for c in cables]
    adapters = tuple(x._replace(id=x.node) for x in base.adapters)
    return replace(base, links=LinkTable.of(links), adapters=adapters, anomalies=())


@pytest.mark.parametrize(
    ("cables", "expected"),
    [
        (["n01-s1", "n02-s1"], ["n01", "s1"]),
        (["n01-s1", "s1-s9", "s9-s2", "s2-n02", "s1-s2"], ["n01", "s1", "s2"]),
        (["n01-s1", "s1-n03", "n03-s2", "s2-n02"], []),  # hosts do not forward
        (["n01-s1", "n02-s2"], []),
        (["n01-n02"], ["n01"]),
        (["n02-s9", "n02-s1", "n01-s9", "n01-s1"], ["n01", "s1"]),  # of two, the first by its links
    ],
)
def test_the_shortest_path_goes_through_switches(cables: list[str], expected: list[str]) -> None:
    assert [hop.near for hop in shortest_path(linked(*cables), "n01", "n02")] == expected


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (
            ("n01", "n02"),
            [
                "are leaf neighbours: both are in leaf-a, tier 1.",
                "2 cables: n01 mlx5_0 1 -> leaf-a 1 = leaf-a 2 -> n02 mlx5_0 1.",
            ],
        ),
        (
            ("n02", "n04"),
            ["are core neighbours: both are in core, tier 2.", "has 4 cables: n02 mlx5_0 1 -> "],
        ),
        (("n01", "n01"), ["n01 is one node."]),
        (("n01", "n09"), ["share no HyperNode.", "No evidence shows a way between them."]),
        (("n01", "n03"), ["No evidence shows", "MissingLink: no cable from n03/1 to leaf-b/1"]),
    ],
)
def test_explained_in_sentences(nodes: tuple[str, str], words: list[str]) -> None:
    text = "\n".join(explained(two_leaves(), *nodes))
    assert all(word in text for word in words), text


def test_an_unknown_node_is_named(run: CommandLine, tmp_path: Path) -> None:
    with pytest.raises(CliError, match="no node 'x'"):
        explained(leaves(("a",)), "a", "x")
    path = tmp_path / "t.json"
    path.write_text(json.dumps(to_json(two_leaves())))
    assert run("explain", "n01", "n02", "--topology", path).out.startswith("n01 and n02 are leaf neighbours")
    assert run("explain", "n01", "nx", "--topology", path).code == 1


def test_explained_with_what_was_measured() -> None:
    text = "\n".join(explained(measured(), "n03", "n04"))
    assert "Measured in leaf-b: latency median 6.1 us.\n" in text  # recalled: the median alone
    assert "Measured in leaf-b: bandwidth median 4.25 Gbit/s, p1 9.5 Gbit/s, 128 samples" in text
    assert "Measured in core: latency median 7 us, p99 7.5 us, 2 samples." in "\n".join(
        explained(measured(), "n01", "n04")
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
