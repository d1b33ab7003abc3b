"""Golden texts of every writer over small hand-made topologies, and what formats cannot hold."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hyperscout_cli.shared.tree import tree
from hyperscout_publish.hypernodes.wanted import unpublishable
from hyperscout_publish.hypernodes.yaml_text import hypernodes_yaml
from hyperscout_publish.slurm.text import SlurmOptions, is_empty, slurm_block, slurm_tree, slurm_yaml
from hyperscout_topology.gaps import unnamed_hosts
from hyperscout_topology.json_reader import TopologyError, from_json
from hyperscout_topology.objects import to_json, topology_json
from hyperscout_topology.topology import Adapter, LinkTable, Topology
from support.topologies import leaves, measured, pods, two_leaves

GUID = "0002c9030005f340"
WRITERS: list[Callable[[Topology], Iterator[str]]] = [
    tree,
    hypernodes_yaml,
    slurm_tree,
    slurm_block,
    slurm_yaml,
    topology_json,
]


def text(lines: Iterator[str]) -> str:
    return "".join(lines)


def documents(topology: Topology) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text(hypernodes_yaml(topology))))


def test_tree() -> None:
    assert text(tree(two_leaves())) == (
        "core  tier 2 core  4 nodes, 1 switch\n"
        "├─ leaf-a  tier 1 leaf  2 nodes, 1 switch\n"
        "│     n[01-02]\n"
        "└─ leaf-b  tier 1 leaf  2 nodes, 1 switch  NotReady (NodeDown), Degraded (LinksDown)\n"
        "      n[03-04]\n"
        "1 node without evidence: n09\n"
    )


def test_tree_is_coloured_only_when_asked() -> None:
    plain = text(tree(two_leaves()))
    assert "\x1b" not in plain
    assert "\x1b[31mDegraded\x1b[0m" in text(tree(two_leaves(), colour=True))


def test_tree_shows_control_characters_as_escapes() -> None:
    shown = text(tree(leaves(("a\x1b[2J", "b"))))
    assert "\x1b" not in shown
    assert "a\\x1b[2J" in shown


def test_hypernodes() -> None:
    docs = documents(two_leaves())
    assert [d["metadata"]["name"] for d in docs] == ["leaf-a", "leaf-b", "core"]
    assert docs[0] == {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {
            "name": "leaf-a",
            "labels": {
                "app.kubernetes.io/managed-by": "hyperscout",
                "volcano.sh/network-topology-source": "hyperscout",
            },
            "annotations": {"hyperscout.io/nodes": "2"},
        },
        "spec": {
            "tier": 1,
            "tierName": "leaf",
            "members": [
                {"type": "Node", "selector": {"exactMatch": {"name": "n01"}}},
                {"type": "Node", "selector": {"exactMatch": {"name": "n02"}}},
            ],
        },
    }
    assert docs[2]["spec"] == {
        "tier": 2,
        "tierName": "core",
        "members": [
            {"type": "HyperNode", "selector": {"exactMatch": {"name": "leaf-a"}}},
            {"type": "HyperNode", "selector": {"exactMatch": {"name": "leaf-b"}}},
        ],
    }
    assert docs[2]["metadata"]["annotations"] == {"hyperscout.io/nodes": "4"}


def test_hypernodes_tell_what_was_measured() -> None:
    annotations = [d["metadata"]["annotations"] for d in documents(measured())]
    assert annotations[0] == {
        "hyperscout.io/nodes": "2",
        "hyperscout.io/source": "latency",
        "hyperscout.io/confidence": "0.93",
        "hyperscout.io/latency-us": "4.2",
    }
    assert annotations[2] == {"hyperscout.io/nodes": "4", "hyperscout.io/latency-us": "7"}


def test_hypernodes_keep_odd_names_as_texts() -> None:
    names = ("0x1f", "1e3", "null", "on")
    (leaf, _) = documents(leaves(names))
    assert tuple(m["selector"]["exactMatch"]["name"] for m in leaf["spec"]["members"]) == names


def test_hypernodes_match_long_names_by_label() -> None:
    longest = "z" * 63
    (leaf, _) = documents(leaves((longest, "x" * 64, "y" * 65)))
    assert leaf["spec"]["members"] == [
        {"type": "Node", "selector": {"exactMatch": {"name": longest}}},
        {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"hyperscout.io/leaf": "l1"}}}},
    ]
    assert leaf["metadata"]["annotations"] == {"hyperscout.io/nodes": "3"}


def test_hypernodes_leave_out_what_no_node_can_be_called() -> None:
    topology = leaves(("GPU 1", "a"), ("B",))
    assert unpublishable(topology) == ("B", "GPU 1")
    written = text(hypernodes_yaml(topology))
    assert written.startswith("# left out, because these are not valid Kubernetes node names")
    assert '"B", "GPU 1"' in written.splitlines()[0]
    docs = documents(topology)
    assert [d["metadata"]["name"] for d in docs] == ["l1", "core"]
    assert [m["selector"]["exactMatch"]["name"] for m in docs[1]["spec"]["members"]] == ["l1"]
    assert docs[1]["metadata"]["annotations"] == {"hyperscout.io/nodes": "1"}


def test_slurm_tree() -> None:
    assert text(slurm_tree(two_leaves())) == (
        "SwitchName=leaf-a Nodes=n[01-02]\n"
        "SwitchName=leaf-b Nodes=n[03-04]\n"
        "SwitchName=core Switches=leaf-a,leaf-b\n"
        "SwitchName=no-topology Nodes=n09\n"
    )


def test_a_node_without_evidence_is_below_one_switch_only() -> None:
    """The hierarchy keeps the place of a node that is cut off."""
    topology = replace(two_leaves(), nodes_without_evidence=("n02", "n08", "a b"))
    written = text(slurm_tree(topology))
    assert "SwitchName=leaf-a Nodes=n[01-02]\n" in written
    assert written.endswith("SwitchName=no-topology Nodes=n08\n")
    assert written.startswith('# left out, because these are not valid names in Slurm: "a b"\n')
    assert "n08" not in text(slurm_block(topology))


def test_slurm_leaves_out_what_it_cannot_hold() -> None:
    assert text(slurm_tree(leaves(("a\nb", "c")))).startswith("# left out")
    written = text(slurm_tree(leaves(("a b", "c"), ("d,e",))))
    assert written == (
        '# left out, because these are not valid names in Slurm: "a b", "d,e"\n'
        "SwitchName=l1 Nodes=c\n"
        "SwitchName=core Switches=l1\n"
    )


@pytest.mark.parametrize("adapters", [(), (Adapter(GUID, GUID, ""), Adapter("a1", "n1", ""))])
@pytest.mark.parametrize("writer", [slurm_tree, slurm_block, slurm_yaml])
def test_a_host_that_only_a_guid_identifies_is_no_slurm_node(
    writer: Callable[..., Iterator[str]], adapters: Sequence[Adapter]
) -> None:
    topology = replace(leaves((GUID, "n1"), (GUID[:-1] + "f",)), adapters=adapters)
    written = text(writer(topology))
    assert f'# left out, because no source names these hosts: "{GUID}"' in written
    assert written.count(GUID) == 1
    assert GUID[:-1] + "f" in text(writer(topology, SlurmOptions(unnamed=True)))
    assert is_empty(leaves((GUID,)))
    assert not is_empty(leaves((GUID,)), SlurmOptions(unnamed=True))


@pytest.mark.parametrize("unnamed", [False, True])
@pytest.mark.parametrize(
    "names", [(), (GUID,), ("ALL",), ("a b",), (GUID, "a b"), (GUID, "n1"), ("n1", "n2")]
)
def test_what_is_empty_has_no_block(names: tuple[str, ...], *, unnamed: bool) -> None:
    """The exit code and the file are about the same hosts."""
    topology, options = leaves(names), SlurmOptions(unnamed=unnamed)
    blocks = text(slurm_block(topology, options)).count("BlockName=")
    assert is_empty(topology, options) == (not blocks)


def test_a_host_whose_name_is_sixteen_hexadecimal_digits_stays() -> None:
    topology = replace(leaves((GUID, "n1")), adapters=(Adapter("a1", GUID, ""),))
    assert unnamed_hosts(topology) == ()
    assert f"Nodes={GUID},n1" in text(slurm_tree(topology))


def test_slurm_block() -> None:
    assert text(slurm_block(two_leaves())) == (
        "BlockName=leaf-a Nodes=n[01-02]\nBlockName=leaf-b Nodes=n[03-04]\nBlockSizes=2,4\n"
    )


def test_slurm_yaml() -> None:
    written = text(slurm_yaml(two_leaves()))
    assert written.startswith("- topology: tree\n")
    assert yaml.safe_load(written) == [
        {
            "topology": "tree",
            "cluster_default": True,
            "tree": {
                "switches": [
                    {"switch": "leaf-a", "nodes": "n[01-02]"},
                    {"switch": "leaf-b", "nodes": "n[03-04]"},
                    {"switch": "core", "children": "leaf-a,leaf-b"},
                    {"switch": "no-topology", "nodes": "n09"},
                ]
            },
        },
        {
            "topology": "block",
            "cluster_default": False,
            "block": {
                "block_sizes": [2, 4],
                "blocks": [
                    {"block": "leaf-a", "nodes": "n[01-02]"},
                    {"block": "leaf-b", "nodes": "n[03-04]"},
                ],
            },
        },
        {"topology": "flat", "cluster_default": False, "flat": True},
    ]


@pytest.mark.parametrize(
    ("topology", "sizes"),
    [
        (pods(1), (4,)),
        (pods(4, 4), (4, 16, 32)),
        (pods(6, 6), (4, 8, 64)),  # runs of 4 would reach from one pod into the next
        (pods(3, 3), (4, 32)),  # no run of 2 fits in a pod
        (pods(4, 3), (4, 16, 32)),  # the last pod may be short
        (pods(4, 3, 4), (4, 64)),  # but one in the middle may not
        (pods(6), (4, 32)),
        (leaves(("a", "b", "c"), ("d", "e")), (2, 4)),  # the base is what every block reaches
    ],
)
def test_block_sizes(topology: Topology, sizes: tuple[int, ...]) -> None:
    assert text(slurm_block(topology)).endswith(f"\nBlockSizes={','.join(map(str, sizes))}\n")


RACK = tuple(f"gpu-{i:02}" for i in range(1, 19))


def test_a_rack_beside_single_hosts_keeps_its_size() -> None:
    topology = leaves(("login-1",), RACK, ("login-2",))
    assert text(slurm_block(topology)) == (
        '# left out, because their blocks have fewer than 18 nodes: "login-1", "login-2"\n'
        "BlockName=l2 Nodes=gpu-[01-18]\nBlockSizes=18\n"
    )
    (_, block, _) = yaml.safe_load(text(slurm_yaml(topology)))
    assert block["block"] == {
        "block_sizes": [18, 72],
        "blocks": [
            {"block": "l1", "nodes": "login-1"},
            {"block": "l2", "nodes": "gpu-[01-18]"},
            {"block": "l3", "nodes": "login-2"},
        ],
    }


def test_block_sizes_can_be_given() -> None:
    options = SlurmOptions(block_sizes=(2, 8))
    assert text(slurm_block(two_leaves(), options)).endswith("BlockSizes=2,8\n")
    assert "    block_sizes:\n    - 2\n    - 8\n" in text(slurm_yaml(two_leaves(), options))


def test_an_empty_block_of_the_yaml_has_no_nodes() -> None:
    (_, block, _) = yaml.safe_load(text(slurm_yaml(pods(3, 1))))
    assert block["block"]["blocks"][2:] == [
        {"block": "pod0-l02", "nodes": "n[0008-0011]"},
        {"block": "pod0-l02-empty-1"},
        {"block": "pod1-l00", "nodes": "n[0012-0015]"},
    ]


def test_switches_and_blocks_are_in_numeric_order() -> None:
    topology = leaves(*((f"n{i}",) for i in range(1, 11)))
    names = re.findall(r"^SwitchName=(l\d+)", text(slurm_tree(topology)), re.MULTILINE)
    assert names == [f"l{i}" for i in range(1, 11)]
    names = re.findall(r"^BlockName=(l\d+)", text(slurm_block(topology)), re.MULTILINE)
    assert names == [f"l{i}" for i in range(1, 11)]


def test_blocks_of_a_pod_follow_each_other() -> None:
    topology = pods(2, 2)
    shuffled = replace(topology, hypernodes=tuple(reversed(topology.hypernodes)))
    names = [line.split()[0] for line in text(slurm_block(shuffled)).splitlines()[:4]]
    assert names == [f"BlockName=pod{p}-l0{leaf}" for p in (0, 1) for leaf in (0, 1)]


@pytest.mark.parametrize("topology", [two_leaves(), measured(), pods(3, 2), Topology(3)])
def test_json_is_the_object_of_the_contract(topology: Topology) -> None:
    written = text(topology_json(topology))
    assert json.loads(written) == to_json(topology)
    assert list(json.loads(written)) == list(to_json(topology))
    assert text(topology_json(from_json(json.loads(written)))) == written


def test_json_tells_what_was_measured_and_leaves_out_what_was_not() -> None:
    data = to_json(measured())
    a, b, core = data["hypernodes"]
    assert (a["source"], a["confidence"], "bandwidthGbps" in a) == ("latency", 0.93, False)
    near = {"median": 4.25, "p99": 9.5, "samples": 128, "measuredAt": "2026-01-01T00:00:00Z"}
    assert a["latencyUs"] == b["bandwidthGbps"] == near
    assert core["latencyUs"] == {"median": 7.0, "p99": 7.5, "samples": 2}
    assert data["tiers"] == [
        {"tier": 1, "tierName": "leaf", "latencyUs": near, "bandwidthGbps": near},
        {"tier": 2, "tierName": "core", "latencyUs": core["latencyUs"]},
    ]


def test_json_of_before_there_were_measurements_is_read() -> None:
    data = to_json(two_leaves())
    del data["tiers"]
    for row in data["hypernodes"]:
        del row["source"], row["confidence"]
    assert to_json(from_json(data)) == to_json(two_leaves())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("source", 3),
        ("confidence", "1"),
        ("confidence", float("nan")),
        ("latencyUs", 4.0),
        ("latencyUs", {}),
        ("latencyUs", {"median": None}),
        ("latencyUs", {"median": True}),
        ("latencyUs", {"median": 1.0, "p99": float("inf")}),
        ("latencyUs", {"median": 1.0, "samples": 0.5}),
        ("bandwidthGbps", {"median": 1.0, "measuredAt": "soon"}),
    ],
)
def test_json_with_numbers_that_are_none_is_refused(key: str, value: object) -> None:
    data = to_json(measured())
    data["hypernodes"][1][key] = value
    with pytest.raises(TopologyError, match=rf"hypernodes\[1\]\.{key}"):
        from_json(data)


def test_json_takes_links_that_are_no_table() -> None:
    topology = two_leaves()
    assert text(topology_json(replace(topology, links=tuple(topology.links)))) == text(
        topology_json(topology)
    )


def test_json_has_the_note_of_a_link_that_has_one() -> None:
    topology = two_leaves()
    odd = replace(topology.links[1], note='port "7" is a guess')
    noted = replace(topology, links=LinkTable.of([topology.links[0], odd]))
    written = text(topology_json(noted))
    assert [row.get("note") for row in json.loads(written)["links"]] == [None, odd.note]
    assert json.loads(written) == to_json(noted)
    assert from_json(json.loads(written)).links[1] == odd
    assert noted.links[-1] == odd


def test_json_has_one_line_an_entry() -> None:
    lines = text(topology_json(two_leaves())).splitlines()
    assert sum(line.startswith('{"a": ') for line in lines) == 5
    assert sum(line.startswith('{"name": ') for line in lines) == 3


@pytest.mark.parametrize("writer", WRITERS)
def test_the_order_of_hypernodes_changes_nothing_but_json(
    writer: Callable[[Topology], Iterator[str]],
) -> None:
    topology = pods(2, 3)
    shuffled = replace(topology, hypernodes=tuple(reversed(topology.hypernodes)))
    assert writer is topology_json or text(writer(shuffled)) == text(writer(topology))


@pytest.mark.parametrize(
    ("writer", "empty"),
    [(tree, ""), (hypernodes_yaml, ""), (slurm_tree, ""), (slurm_block, ""), (slurm_yaml, "[]\n")],
)
def test_a_topology_without_hypernodes_gives_an_empty_text(
    writer: Callable[[Topology], Iterator[str]], empty: str
) -> None:
    assert text(writer(Topology(1))) == empty


def test_block_sizes_that_no_block_has_are_named() -> None:
    found = text(slurm_block(two_leaves(), SlurmOptions(block_sizes=(9,))))
    assert found.startswith("# The given sizes are not used: all blocks have fewer than 9 nodes\nBlockName=")
    assert "not used" not in text(slurm_block(two_leaves(), SlurmOptions(block_sizes=(2,))))
