"""`explain` over a saved topology."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hyperscout_cli.errors import CliError
from hyperscout_cli.paths import explained, shortest_path
from hyperscout_collector.topology import Link, LinkTable, Topology
from hyperscout_collector.topology_json import to_json
from support.command_line import CommandLine
from support.topologies import leaves, two_leaves


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
