"""The part of a topology that one of several clusters gets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random

import pytest
from hyperscout_formats.text.reporters import cluster_of, name_in_cluster, node_in
from hyperscout_inference.fabric.identify import announced_names
from hyperscout_inference.fabric.inputs import InferOptions
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.hierarchy.conditions import ConditionFacts, with_conditions
from hyperscout_kubernetes.nodes import Nodes
from hyperscout_publish.clusters.cut import cut_to
from hyperscout_publish.clusters.publisher import ClusterPart, ClusterPublisher, Earlier
from hyperscout_publish.hypernodes.checks import broken_rules
from hyperscout_publish.hypernodes.wanted import wanted
from hyperscout_publish.publisher.base import Publisher, PublishError
from hyperscout_runtime.errors import StartError
from hyperscout_runtime.units import NS
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.racks import racks
from hyperscout_topology.objects import to_json
from hyperscout_topology.proto import topology_from_proto, topology_to_proto
from hyperscout_topology.topology import Adapter, Endpoint, HyperNode, Link, LinkTable, Switch, Topology
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import anomaly, hypernode
from support.fake_kube import FakeKube
from support.inference import inputs_of
from support.rack_inputs import seen

FABRIC = shapes.clos3(2, 2, 3, 2, 1)
HOSTS = FABRIC.hosts
NAMES = ("", "east", "west")
CLUSTERS = st.lists(st.sampled_from(NAMES), min_size=len(HOSTS), max_size=len(HOSTS))


def inferred(nodes: Mapping[str, str]) -> Topology:
    """`nodes`: the node that each host is."""
    inputs = replace(inputs_of(FABRIC), node_names=announced_names(nodes.values()))
    return infer(inputs, InferOptions(cluster_nodes=frozenset(nodes.values())))


def leaf_of(topology: Topology) -> dict[str, HyperNode]:
    return {node: h for h in topology.hypernodes if not h.children for node in h.nodes}


@settings(max_examples=40, deadline=None)
@given(CLUSTERS, st.sets(st.sampled_from(HOSTS)), st.sets(st.sampled_from(HOSTS)))
def test_each_cluster_gets_a_valid_tree_of_its_own_nodes(
    clusters: list[str], down: set[str], stale: set[str]
) -> None:
    nodes = {host: node_in(cluster, host) for host, cluster in zip(HOSTS, clusters, strict=True)}
    facts = ConditionFacts({nodes[x]: "NotReady" for x in down}, {nodes[x]: 5 for x in stale})
    whole = with_conditions(inferred(nodes), facts)
    above = {h.name: h for h in whole.hypernodes}
    placed = leaf_of(whole)
    for cluster in NAMES:
        part = cut_to(whole, cluster)
        own = {node for node in nodes.values() if cluster_of(node) == cluster}
        lowest = [mine for h in whole.hypernodes if h.tier == 1 and (mine := own.intersection(h.nodes))]
        is_whole = any(len(mine) > 1 for mine in lowest)
        assert leaf_of(part).keys() == set(map(name_in_cluster, own)), "all nodes of the cluster, once"
        for node in own:
            domain = leaf_of(part)[name_in_cluster(node)].name
            assert node in above[domain].nodes, "in a domain that it is in"
            assert domain == placed[node].name or not is_whole
        tree = list(wanted(part))
        assert {w.name for w in tree} == {h.name for h in part.hypernodes}, "no domain is empty"
        assert list(broken_rules(tree)) == []
        for h in part.hypernodes:
            mine = {name_in_cluster(x) for x in above[h.name].nodes if cluster_of(x) == cluster}
            assert set(h.nodes) == mine
            assert (h.tier_name, h.switches) == (above[h.name].tier_name, above[h.name].switches)
            ready, _, _, old = h.conditions
            if not h.children:
                assert set(ready.nodes) == {name_in_cluster(nodes[x]) for x in down} & set(h.nodes)
                assert set(old.nodes) == {name_in_cluster(nodes[x]) for x in stale} & set(h.nodes)
        tiers = sorted({h.tier for h in part.hypernodes})
        assert tiers == list(range(1, len(tiers) + 1))
        assert len(tiers) < 2 or any(len(h.nodes) > 1 for h in part.hypernodes if h.tier == 1)
        others = set(nodes.values()) - own - {name_in_cluster(x) for x in own}
        text = str(to_json(part))
        assert not [x for x in others if f"'{x}'" in text]
        assert cut_to(part, "").hypernodes == part.hypernodes, "a part is its own part"


def test_the_own_cluster_alone_gets_the_tree_as_it_is() -> None:
    whole = inferred({host: host for host in HOSTS})
    part = cut_to(whole, "")
    assert part is whole


RACKS = racks(2, 2, trays=4, pods=2, hgx=4)
TRAYS = frozenset(tray for rack in RACKS.racks for tray in rack.trays)


def shape(topology: Topology) -> list[tuple[object, ...]]:
    return [(h.name, h.tier, h.tier_name, h.parent, h.children, h.nodes) for h in topology.hypernodes]


@pytest.mark.parametrize("cluster", ["", "west"])
def test_racks_of_another_cluster_change_no_tier(cluster: str) -> None:
    """Single nodes are not in NVLink domains of their own because other clusters have racks."""
    names = {host: node_in("east" if host in TRAYS else cluster, host) for host in RACKS.fabric.hosts}
    told = seen(RACKS)

    def of(hosts: Iterable[str]) -> Topology:
        mine = {host: names[host] for host in hosts}
        inputs = replace(
            told,
            node_names=announced_names(mine.values()),
            gpus={mine[host]: x for host, x in told.gpus.items() if host in mine},
            infiniband={mine[host]: x for host, x in told.infiniband.items() if host in mine},
        )
        return infer(inputs, InferOptions(cluster_nodes=frozenset(mine.values())))

    alone, whole = of(names.keys() - TRAYS), of(names)
    assert {h.tier_name for h in whole.hypernodes} == {"nvlink", "leaf", "pod", "core"}
    assert [h.tier_name for h in alone.hypernodes] == ["leaf", "pod", "core"], "a tier may group nothing"
    assert shape(cut_to(whole, cluster)) == shape(cut_to(alone, cluster))
    assert shape(cut_to(whole, "east"))[-1][:3] == (alone.hypernodes[-1].name, 4, "core")


LEAF = ("east/n1", "west/n1", "n2")
WHOLE = Topology(
    7,
    (
        hypernode("leaf", LEAF, parent="pod", switches=("s1",)),
        hypernode("pod", LEAF, children=("leaf",), switches=("s2",)),
    ),
    (Switch("s1", "leaf-01", 1), Switch("s2", "spine-01", 2)),
    (
        Adapter("a1", "east/n1", "mlx5_0"),
        Adapter("west/n1", "west/n1", "eth0"),
        Adapter("a2", "n2", "mlx5_0"),
    ),
    LinkTable.of(
        [
            Link("a1", "1", "s1", "1", "ib", ("sweep",)),
            Link("west/n1", "eth0", "s1", "2", "eth", ("lldp",), "a note"),
            Link("a2", "1", "s1", "3", "ib", ("sweep",)),
            Link("s1", "9", "s2", "1", "ib", ("sweep",)),
        ]
    ),
    (
        anomaly(
            "MissingLink", Endpoint("a1", "east/n1", "1"), Endpoint("s1", "leaf-01", "1"), hypernode="leaf"
        ),
        anomaly(
            "SlowLink",
            Endpoint("west/n1", "west/n1", "eth0"),
            Endpoint("s1", "leaf-01", "2"),
            message="west/n1/eth0 is slow",
            hypernode="leaf",
        ),
        anomaly(
            "MissingLink", Endpoint("s1", "leaf-01", "9"), Endpoint("s2", "spine-01", "1"), hypernode="leaf"
        ),
        anomaly("SlowLink", Endpoint("east/n1", "east/n1"), Endpoint("west/n1", "west/n1"), hypernode="leaf"),
    ),
    ("east/n8", "west/n9"),
    ("storage",),
)


def test_findings_and_links_of_other_clusters_are_left_out() -> None:
    west = cut_to(with_conditions(WHOLE), "west")
    assert [(h.name, h.tier) for h in west.hypernodes] == [("pod", 1)], "the leaf has one node"
    assert (west.hypernodes[0].nodes, west.hypernodes[0].parent) == (("n1",), None)
    assert list(west.adapters) == [Adapter("n1", "n1", "eth0")]
    assert [(x.a_device, x.b_device, x.note) for x in west.links] == [
        ("n1", "s1", "a note"),
        ("s1", "s2", ""),
    ]
    assert [(x.kind, x.subject.name, x.message) for x in west.anomalies] == [
        ("SlowLink", "n1", "n1/eth0 is slow"),
        ("MissingLink", "leaf-01", ""),
    ]
    assert west.nodes_without_evidence == ("n9",)
    assert {(x.hypernode, x.tier) for x in west.anomalies} == {("pod", 1)}, "in the nearest domain above"
    assert "1 host link slow" in west.hypernodes[0].conditions[1].message, "none of other clusters"
    assert "east" not in str(to_json(west))


def test_a_condition_that_is_as_it_was_keeps_its_time() -> None:
    whole = with_conditions(WHOLE, ConditionFacts({"east/n1": "cordoned"}, failing="inference fails"))
    dated = tuple(
        replace(h, conditions=tuple(replace(c, since_ns=9) for c in h.conditions)) for h in whole.hypernodes
    )
    whole = replace(whole, hypernodes=dated)
    east, west = (cut_to(whole, cluster).hypernodes[0].conditions for cluster in ("east", "west"))
    assert [(c.status, c.since_ns) for c in (east[0], west[0])] == [("False", 9), ("True", 9)]
    for stale in (east[3], west[3]):
        assert (stale.status, stale.reason, stale.since_ns) == ("True", "InferenceFailed", 9)
        assert stale.message == "inference fails"


def test_reasons_and_times_of_own_nodes_remain() -> None:
    nodes = ("east/n1", "east/n2", "east/n3", "n4")
    topology = Topology(
        1,
        (
            hypernode("mixed", nodes, parent="pod", switches=("s1",)),
            hypernode("own", ("east/n5", "east/n6"), parent="pod"),
            hypernode("pod", (*nodes, "east/n5", "east/n6"), children=("mixed", "own")),
        ),
        (Switch("s1", "leaf-01", 1),),
        nodes_without_evidence=("east/n2",),
    )
    facts = ConditionFacts(
        {"east/n1": "NotReady: KubeletNotReady", "n4": "cordoned", "east/n6": "cordoned"},
        {"east/n3": 5 * NS},
        {"s1": 9 * NS},
    )
    mixed, own, _ = cut_to(with_conditions(topology, facts), "east").hypernodes
    assert mixed.conditions[0].message == (
        "1 of 3 nodes ready; not ready: n1 (NotReady: KubeletNotReady), n2 (no fabric shows it)"
    )
    assert mixed.conditions[3].message == (
        "evidence of 1 of 3 nodes is older than its limit: n3 last seen 1970-01-01T00:00:05Z; "
        "evidence of 1 of 1 switches is older than its limit: leaf-01 last seen 1970-01-01T00:00:09Z"
    )
    assert own.conditions[0].message == "1 of 2 nodes ready; not ready: n6 (cordoned)"
    assert own.conditions[0].nodes == ("n6",)


def test_no_reason_and_no_time_is_lost_of_many_nodes() -> None:
    """The messages of the whole topology name three nodes at most, here those of `east`."""
    nodes = [node_in(cluster, f"n{i}") for cluster in ("east", "west") for i in range(4)]
    topology = Topology(
        1,
        (hypernode("leaf", nodes, switches=[f"s{i}" for i in range(4)]),),
        tuple(Switch(f"s{i}", f"leaf-{i}", 1) for i in range(4)),
        nodes_without_evidence=("east/n3", "west/n3"),
    )
    facts = ConditionFacts(
        {node: f"why {node[-2:]}" for node in nodes if node[-1] != "3"},
        {node: int(node[-1]) * NS for node in nodes},
        {f"s{i}": i * NS for i in range(1, 4)},
    )
    whole = with_conditions(topology, facts)
    reread = topology_from_proto(topology_to_proto(whole))
    for part in (cut_to(whole, cluster) for cluster in ("east", "west")):
        ready, _, _, stale = part.hypernodes[0].conditions
        assert ready.message == (
            "0 of 4 nodes ready; not ready: n0 (why n0), n1 (why n1), n2 (why n2) and 1 more"
        )
        assert ready.details == ("why n0", "why n1", "why n2", "no fabric shows it")
        seen = tuple(f"1970-01-01T00:00:0{i}Z" for i in range(1, 4))
        assert (stale.nodes, stale.switches) == (("n0", "n1", "n2", "n3"), ("s1", "s2", "s3"))
        assert stale.details == ("", *seen, *seen)
        assert f"n2 last seen {seen[1]}" in stale.message
    assert cut_to(reread, "west").hypernodes == cut_to(whole, "west").hypernodes


def test_a_topology_without_details_is_cut() -> None:
    """One that an earlier version wrote, or a damaged one."""
    facts = ConditionFacts({"east/n1": "cordoned"}, {"east/n1": 5 * NS, "n2": 5 * NS})
    whole = with_conditions(WHOLE, facts)
    for details in ((), ("no time",)):
        bare = tuple(
            replace(h, conditions=tuple(replace(c, details=details) for c in h.conditions))
            for h in whole.hypernodes
        )
        ready, _, _, stale = cut_to(replace(whole, hypernodes=bare), "east").hypernodes[0].conditions
        assert (ready.nodes, stale.nodes) == (("n1",), ("n1",))
        assert stale.details == ()


def test_messages_name_own_nodes_without_prefix() -> None:
    both = anomaly("UnknownHost", Endpoint("x", "x"), message="st/g1, east/g1, st/g1.x and st/g1/eth0.")
    both = replace(both, nodes=("st/g1",))
    part = cut_to(Topology(1, (hypernode("leaf", ("st/g1", "east/g1", "st/g1.x")),), anomalies=(both,)), "st")
    assert part.anomalies[0].message == "g1, east/g1, g1.x and g1/eth0."


class Kept(Publisher):
    """Keeps what it is to publish."""

    name = "kept"

    def __init__(self) -> None:
        super().__init__()
        self.notice: str | None = "a notice"
        self.topologies: list[Topology] = []

    async def publish(self, topology: Topology) -> None:
        self.topologies.append(topology)


@pytest.mark.parametrize(("cluster", "name"), [("west", "west/kept"), ("", "kept")])
async def test_publishers_of_a_cluster_get_its_part(cluster: str, name: str) -> None:
    part, kept = ClusterPart(cluster), (Kept(), Kept())
    woken: list[str] = []
    for one in kept:
        publisher = ClusterPublisher(one, part)
        publisher.wake.subscribe(lambda: woken.append("woken"))
        assert (publisher.name, publisher.notice) == (name, "a notice")
        await publisher.publish(WHOLE)
        one.wake()
    assert woken == ["woken", "woken"]
    assert kept[0].topologies[0] is kept[1].topologies[0], "it is cut once"
    assert kept[0].topologies[0].hypernodes == cut_to(WHOLE, cluster).hypernodes


@dataclass
class Api:
    """The HyperNodes of a cluster, and the time."""

    tree: Topology | None = None
    problem: str = ""
    now_s: float = 0.0

    async def recall(self) -> Topology | None:
        if self.problem:
            raise StartError(self.problem)
        return self.tree

    def part(self) -> ClusterPart:
        return ClusterPart("east", Earlier(self.recall, 0.2, 600.0, lambda: self.now_s))


WITHOUT = replace(WHOLE, hypernodes=(hypernode("leaf", ("n2",)),))


async def test_nothing_is_published_before_the_cluster_answers() -> None:
    api, kept = Api(problem="status 403"), Kept()
    publisher = ClusterPublisher(kept, api.part())
    for topology in (WITHOUT, WHOLE):
        with pytest.raises(PublishError, match="status 403"):
            await publisher.publish(topology)
    api.problem = ""
    await publisher.publish(WHOLE)
    await publisher.publish(WITHOUT)
    assert [len(topology.hypernodes) for topology in kept.topologies] == [1, 0], "now it has lost them"


@pytest.mark.parametrize(
    ("published", "found", "waits"),
    [
        (["n1"], ["n1"], False),
        ([], [], False),
        (["n1"], [], True),
        (["n1", "n2"], ["n2"], False),
        (["n1", "n2", "n3", "n4"], ["n1"], True),
        (["n1", "n2"], ["n1", "n2", "n3"], False),
    ],
)
async def test_what_is_published_waits_for_the_evidence_of_its_nodes(
    published: list[str], found: list[str], waits: bool
) -> None:
    """After a start while the API server was away, agents of the cluster return one by one."""
    api, kept = Api(Topology(0, (hypernode("leaf", published),) if published else ())), Kept()
    publisher = ClusterPublisher(kept, api.part())
    nodes = [f"east/{node}" for node in found]
    offered = Topology(1, (hypernode("leaf", ("n1", *nodes)),))
    if waits:
        with pytest.raises(PublishError, match="HyperNodes stay as they are"):
            await publisher.publish(offered)
        assert kept.topologies == []
        api.now_s = 600.0
    await publisher.publish(offered)
    assert [h.nodes for topology in kept.topologies for h in topology.hypernodes] == (
        [tuple(found)] if found else []
    )


async def test_a_problem_of_a_watch_is_a_notice() -> None:
    kept, watch = Kept(), Nodes(FakeKube().kube(), "", rng=Random(1)).reflector
    kept.notice = None
    publisher = ClusterPublisher(kept, ClusterPart("east"), [watch])
    assert publisher.notice is None
    watch.problem = "status 403"
    assert publisher.notice == "status 403"
