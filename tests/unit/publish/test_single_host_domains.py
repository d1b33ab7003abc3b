"""Accelerator domains of one host: outputs with and without them."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_placer.cluster.answer import Placement
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Group, Request, Workers
from hyperscout_placer.solve.place import place
from hyperscout_publish.hypernodes.wanted import wanted
from hyperscout_publish.nodes.label_keys import key_templates, keys_of_tiers
from hyperscout_publish.nodes.node_labels import NodeLabelsPublisher
from hyperscout_publish.nodes.tier_labels import own_key, tier_labels, without_single_hosts
from hyperscout_publish.slurm.live import layout_of
from hyperscout_publish.slurm.text import SlurmOptions, slurm_block, slurm_tree, slurm_yaml
from hyperscout_sim.fabric.racks import racks
from hyperscout_topology.gaps import single_host_domains
from hyperscout_topology.topology import HyperNode, Topology
from support.fake_kube import FakeKube
from support.rack_inputs import inferred_racks

OMIT = SlurmOptions(single_hosts=False)


def domain(
    name: str, tier: int, parent: str | None, nodes: str, children: str = "", switches: tuple[str, ...] = ()
) -> HyperNode:
    names = ("nvlink", "leaf", "pod")
    return HyperNode(
        name, tier, names[tier - 1], parent, tuple(children.split()), tuple(nodes.split()), switches
    )


# A leaf with a rack and two hosts alone, one with hosts alone, and a rack that lost all hosts but one.
MIXED = Topology(
    1,
    (
        domain("rack", 1, "leaf-a", "a1 a2"),
        domain("b1-x", 1, "leaf-a", "b1"),
        domain("b2-x", 1, "leaf-a", "b2"),
        domain("c1-x", 1, "leaf-b", "c1"),
        domain("c2-x", 1, "leaf-b", "c2"),
        domain("leaf-a", 2, "pod", "a1 a2 b1 b2", "b1-x b2-x rack", ("s1",)),
        domain("leaf-b", 2, "pod", "c1 c2", "c1-x c2-x", ("s2",)),
        domain("pod", 3, None, "a1 a2 b1 b2 c1 c2", "leaf-a leaf-b", ("s3",)),
    ),
)
ALONE = {"b1-x": "leaf-a", "b2-x": "leaf-a", "c1-x": "leaf-b", "c2-x": "leaf-b"}


def changed(topology: Topology, name: str, **fields: object) -> Topology:
    one = next(h for h in topology.hypernodes if h.name == name)
    others = tuple(h for h in topology.hypernodes if h is not one)
    return replace(topology, hypernodes=(replace(one, **fields), *others))  # type: ignore[arg-type]


def test_which_domains_are_meant() -> None:
    assert single_host_domains(MIXED) == ALONE
    assert "b1-x" not in single_host_domains(changed(MIXED, "b1-x", switches=("s9",))), "it is a leaf too"
    assert "b1-x" not in single_host_domains(changed(MIXED, "b1-x", parent=None)), "nothing else has its host"
    assert "b1-x" not in single_host_domains(changed(MIXED, "b1-x", tier_name="leaf"))
    assert set(single_host_domains(changed(MIXED, "b1-x", tier_name="xgmi"))) == set(ALONE)


def test_hypernodes_keep_one_depth() -> None:
    """Volcano needs it, so no setting changes them."""
    assert {w.name for w in wanted(MIXED)} >= ALONE.keys()


# Labels


def test_labels_without_them() -> None:
    found = tier_labels(MIXED, keys=without_single_hosts(MIXED, own_key))
    assert found["b1"] == {"hyperscout.io/leaf": "leaf-a", "hyperscout.io/pod": "pod"}
    assert found["a1"] == {"hyperscout.io/nvlink": "rack", **found["b1"]}
    assert tier_labels(MIXED)["b1"]["hyperscout.io/nvlink"] == "b1-x", "the default"


def test_labels_under_other_keys_without_them() -> None:
    keys = without_single_hosts(MIXED, keys_of_tiers(MIXED, key_templates(["x.com/tier-{tier}"])))
    assert tier_labels(MIXED, keys=keys)["b1"] == {"x.com/tier-2": "leaf-a", "x.com/tier-3": "pod"}


def test_a_node_that_is_selected_by_its_label_keeps_it() -> None:
    """HyperNodes cannot name a node with more than 63 characters."""
    long = "n" * 70
    topology = changed(MIXED, "b1-x", nodes=(long,))
    found = tier_labels(topology, keys=without_single_hosts(topology, own_key))
    assert found[long]["hyperscout.io/nvlink"] == "b1-x"


async def test_the_publisher_removes_and_returns_them() -> None:
    fake = FakeKube()
    for node in ("a1", "b1"):
        fake.add_node(node, {})
    for single_hosts, label in ((True, "b1-x"), (False, None), (True, "b1-x")):
        nodes = fake.nodes()
        publisher = NodeLabelsPublisher(fake.kube(), nodes, "on", print, single_hosts=single_hosts)
        await publisher.publish(MIXED)
        assert fake.labels("b1").get("hyperscout.io/nvlink") == label
        assert fake.labels("a1")["hyperscout.io/nvlink"] == "rack"


# Slurm


def test_a_slurm_tree_without_them() -> None:
    assert "".join(slurm_tree(MIXED, OMIT)) == (
        "SwitchName=rack Nodes=a[1-2]\n"
        "SwitchName=leaf-a-hosts Nodes=b[1-2]\n"
        "SwitchName=leaf-a Switches=leaf-a-hosts,rack\n"
        "SwitchName=leaf-b Nodes=c[1-2]\n"
        "SwitchName=pod Switches=leaf-a,leaf-b\n"
    )
    assert "SwitchName=b1-x Nodes=b1\n" in "".join(slurm_tree(MIXED))


def test_no_switch_has_the_name_of_a_domain() -> None:
    new = {"leaf-b": "leaf-a-hosts"}
    topology = replace(
        MIXED,
        hypernodes=tuple(
            replace(
                h,
                name=new.get(h.name, h.name),
                parent=new.get(h.parent or "", h.parent),
                children=tuple(new.get(child, child) for child in h.children),
            )
            for h in MIXED.hypernodes
        ),
    )
    lines = "".join(slurm_tree(topology, OMIT)).splitlines()
    assert "SwitchName=leaf-a-hosts- Nodes=b[1-2]" in lines
    assert len({line.split()[0] for line in lines}) == len(lines)


def test_slurm_blocks_without_them() -> None:
    text = "".join(slurm_block(MIXED, OMIT))
    assert "BlockName=rack Nodes=a[1-2]\nBlockSizes=2\n" in text
    assert text.count("BlockName") == 1
    assert 'no accelerator fabric joins them to another host: "b1", "b2", "c1", "c2"' in text


def test_a_slurm_yaml_without_them_has_all_hosts_in_its_tree() -> None:
    tree, block = "".join(slurm_yaml(MIXED, OMIT)).split("- topology: block")
    assert "nodes: c[1-2]" in tree
    assert "nodes: b[1-2]" in tree
    assert "b1" not in block
    assert "block: rack" in block


def test_the_live_layout_follows() -> None:
    layout = layout_of(MIXED, "tree", OMIT)
    assert layout.units["b1"] == "default:pod:leaf-a:leaf-a-hosts"
    assert layout.units["c1"] == "default:pod:leaf-b"


def test_a_host_alone_with_a_name_that_slurm_refuses_is_left_out_as_always() -> None:
    topology = changed(MIXED, "b1-x", nodes=("b 1",))
    assert "b 1" not in "".join(line for line in slurm_tree(topology, OMIT) if not line.startswith("#"))


# Placer


def placed(workers: int, *, single_hosts: bool, avoid: frozenset[str] = frozenset()) -> Placement:
    forest = Forest.of(MIXED, single_hosts=single_hosts)
    free: Mapping[str, Mapping[str, int]] = {node: {"workers": 1} for node in forest.nodes}
    request = Request(Group(1, (Workers(workers, (("workers", 1),)),)), avoid=avoid)
    found = place(Capacity(forest, free), request)
    assert isinstance(found, Placement)
    return found


def test_no_answer_names_them() -> None:
    avoid = frozenset({"rack", "leaf-b"})
    with_them, without = (placed(1, single_hosts=x, avoid=avoid) for x in (True, False))
    assert (with_them.tier, with_them.hypernode) == (1, "b1-x")
    assert (without.tier, without.hypernode) == (2, "leaf-a")
    assert with_them.nodes == without.nodes == ("b1",)
    assert placed(2, single_hosts=False).hypernode == "rack"


def test_texts_name_the_domain_above() -> None:
    forest = Forest.of(MIXED, single_hosts=False)
    assert forest.names(1) == ("leaf-a", "leaf-a", "rack", "leaf-b", "leaf-b")
    assert Forest.of(MIXED).names(1) == ("b1-x", "b2-x", "rack", "c1-x", "c2-x")


# The setting


def test_kueue_needs_all_labels() -> None:
    with pytest.raises(ValueError, match="single_host_domains: Kueue ignores nodes"):
        CollectorSettings(kubernetes="publish", kueue_topology="x", single_host_domains="omit")


def test_on_an_inferred_fabric() -> None:
    cluster = racks(2, 1, trays=4, hgx=3)
    topology = inferred_racks(cluster)
    alone = {h.nodes[0] for h in topology.hypernodes if h.name in single_host_domains(topology)}
    assert len(alone) == 3
    labels = tier_labels(topology, keys=without_single_hosts(topology, own_key))
    assert {node for node, mine in labels.items() if "hyperscout.io/nvlink" not in mine} == alone
