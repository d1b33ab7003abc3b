"""What `diff` says: two topologies, and hand-written HyperNodes beside the wires."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hyperscout_cli.show.differences import differences
from hyperscout_publish.hypernodes.yaml_text import hypernodes_yaml
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import LinkTable, Topology
from support.command_line import CommandLine
from support.topologies import leaves, pods, two_leaves


def test_equal_topologies_do_not_differ() -> None:
    assert list(differences(two_leaves(), two_leaves())) == []


def test_every_sort_of_difference_is_named() -> None:
    before = two_leaves()
    a, b, core = before.hypernodes
    moved = replace(a, name="leaf-c", nodes=("n01",))
    grown = replace(b, nodes=("n02", "n03", "n04"), switches=("sw-x",), conditions=b.conditions[:1])
    after = replace(
        before,
        hypernodes=(moved, grown, replace(core, parent="top", tier_name="pod", source="latency")),
        links=LinkTable.of(list(before.links)[1:]),
        anomalies=(),
    )
    assert list(differences(before, after)) == [
        "- hypernode leaf-a  tier 1 leaf  n[01-02]",
        "+ hypernode leaf-c  tier 1 leaf  n01",
        "~ hypernode core: tier 2 core -> tier 2 pod; source wires -> latency; parent none -> top",
        "~ hypernode leaf-b: + nodes n02; + switches sw-x; - switches sw-leaf-b",
        "- link n01 mlx5_0/1 -- leaf-a/1",
        "- anomaly MissingLink n03/1 -> leaf-b/1: no cable from n03/1 to leaf-b/1",
    ]
    flipped = replace(b, conditions=(replace(b.conditions[0], status="True", reason="Back"),))
    assert list(differences(replace(before, hypernodes=(b,)), replace(before, hypernodes=(flipped,)))) == [
        "~ hypernode leaf-b: Ready False -> True (Back)"
    ]


@pytest.fixture
def compare(run: CommandLine, tmp_path: Path) -> Callable[[str, Topology], tuple[int, list[str]]]:
    """Exit code and lines of `diff --hypernodes`."""

    def compare(text: str, topology: Topology) -> tuple[int, list[str]]:
        (tmp_path / "t.json").write_text(json.dumps(to_json(topology)))
        (tmp_path / "mine.yaml").write_text(text)
        ran = run("diff", "--hypernodes", tmp_path / "mine.yaml", "--topology", tmp_path / "t.json")
        return ran.code, (ran.out or ran.err).splitlines()

    return compare


def written(topology: Topology) -> str:
    return "".join(hypernodes_yaml(topology))


@pytest.mark.parametrize("topology", [two_leaves(), pods(2, 3), leaves(("a", "x" * 64), ("y" * 70,))])
def test_what_we_write_ourselves_agrees(
    compare: Callable[[str, Topology], tuple[int, list[str]]], topology: Topology
) -> None:
    assert compare(written(topology), topology) == (0, NOTHING)


NOTHING = ["nothing differs"]
PATTERN = 'regexMatch: {pattern: "%s"}'
LABEL = "labelMatch: {matchLabels: {%s}}"


def member(name: str, kind: str = "Node", how: str = "exactMatch: {name: %s}") -> str:
    return f"  - {{type: {kind}, selector: {{{how % name}}}}}\n"


def hypernode_yaml(name: str, tier: int, *members: str) -> str:
    return (
        "---\napiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\n"
        f"metadata: {{name: {name}}}\nspec:\n  tier: {tier}\n  members:\n{''.join(members)}"
    )


def child(name: str) -> str:
    return member(name, "HyperNode")


ROOT = hypernode_yaml("top", 2, child("r1"), child("r2"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            hypernode_yaml("r1", 1, member("a"), member("b"), member("d"))
            + hypernode_yaml("r2", 1, member("c"), member("e"), member("f"))
            + ROOT,
            [
                "d: written in r1 (by its wires l1), plugged into l2",
                "c: written in r2 (by its wires l2), plugged into l1",
            ],
            id="two nodes swapped",
        ),
        pytest.param(
            hypernode_yaml("r1", 1, member("a"), member("b"), member("c"))
            + hypernode_yaml("r2", 1, member("d"), member("e"), member("z"))
            + ROOT,
            ["in the file, but in no fabric: z", "in the fabric, but not in the file: f"],
            id="unknown and forgotten nodes",
        ),
        pytest.param(
            hypernode_yaml("r1", 1, member("^[abc]$", how=PATTERN))
            + hypernode_yaml("r2", 1, member("[def]", how=PATTERN))
            + ROOT,
            [],
            id="patterns",
        ),
        pytest.param(
            hypernode_yaml("r1", 1, member("a"))
            + hypernode_yaml("r3", 1, member("b"), member("c"))
            + hypernode_yaml("r2", 1, member("d"), member("e"), member("f"))
            + hypernode_yaml("top", 2, child("r1"), child("r2"), child("r3")),
            ["r1, r3: written apart, one domain by the wires (l1)"],
            id="one leaf written as two",
        ),
        pytest.param(
            hypernode_yaml("r1", 1, *map(member, "abc")) + hypernode_yaml("r2", 1, *map(member, "def")),
            ["written in 1 tier, wired in 2"],
            id="a tier too few",
        ),
        pytest.param(
            hypernode_yaml("r1", 1, *map(member, "abc"))
            + hypernode_yaml("r2", 1, *map(member, "cdef"))
            + ROOT,
            [
                "c is in 2 leaves (r1, r2): used twice",
                "c: written in r2 (by its wires l2), plugged into l1",
            ],
            id="a node in two leaves",
        ),
        pytest.param(
            hypernode_yaml("r1", 1, *map(member, "abc"))
            + hypernode_yaml("r2", 1, *map(member, "def"))
            + ROOT
            + hypernode_yaml("top2", 2, child("r2")),
            [
                "r2 has several parents (top, top2): the scheduler stops all topology jobs",
                "top, top2: written apart, one domain by the wires (core)",
            ],
            id="two parents",
        ),
        pytest.param(
            hypernode_yaml("r1", 1, *map(member, "abc"), child("top"))
            + hypernode_yaml("r2", 1, *map(member, "def"), child("r9"))
            + ROOT,
            [
                "r1 -> top -> r1 is a cycle: the scheduler stops all topology jobs",
                "r1 (tier 1) is not above top (tier 2)",
                "r2 has the child r9, which does not exist",
            ],
            id="a cycle and an absent child",
        ),
        pytest.param(
            hypernode_yaml("r1", 1, *map(member, "abc"))
            + hypernode_yaml("r2", 1, *map(member, "def"))
            + hypernode_yaml("top", 1, child("r1"), child("r2")),
            [
                "top (tier 1) is not above r1 (tier 1)",
                "top (tier 1) is not above r2 (tier 1)",
                "written in 1 tier, wired in 2",
                "d,e,f: written in top (by its wires l1), plugged into l2",
                "r1, top: written apart, one domain by the wires (l1)",
            ],
            id="a parent of its children's tier",
        ),
        pytest.param(
            hypernode_yaml("r1", 1, *map(member, "abc"), member("rack: one", how=LABEL))
            + hypernode_yaml("r2", 1, *map(member, "def"), member("x", "HyperNode", PATTERN))
            + ROOT,
            [
                "r1 selects nodes by label rack=one: not compared, since labels are unknown",
                "r2: a HyperNode member without exactMatch is ignored by the scheduler",
            ],
            id="what a file cannot tell",
        ),
    ],
)
def test_handwritten(
    compare: Callable[[str, Topology], tuple[int, list[str]]], text: str, expected: list[str]
) -> None:
    topology = leaves(("a", "b", "c"), ("d", "e", "f"))
    assert compare(text, topology) == (3 if expected else 0, expected or NOTHING)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no HyperNode found"),
        ("kind: Pod\n", "no HyperNode found"),
        ("a: [1\nb: 2", "mine.yaml:2: not YAML"),
        ("\0", "not YAML"),
        ("kind: HyperNode\n", "document 1: metadata.name: expected a string"),
        ("kind: HyperNode\nmetadata: {name: a}\nspec: {tier: x}\n", "'a': spec.tier: expected an integer"),
        (hypernode_yaml("r1", 1, member("(", how=PATTERN)), "bad pattern"),
    ],
)
def test_bad_yaml_is_one_clear_line(
    compare: Callable[[str, Topology], tuple[int, list[str]]], text: str, words: str
) -> None:
    code, found = compare(text, leaves(("a",)))
    assert code == 2
    assert len(found) == 1
    assert words in found[0]


def test_a_list_of_kubectl_is_read(compare: Callable[[str, Topology], tuple[int, list[str]]]) -> None:
    topology = leaves(("a", "b"))
    import yaml

    items = list(yaml.safe_load_all(written(topology)))
    assert compare(yaml.safe_dump({"kind": "List", "items": items}), topology) == (0, NOTHING)
