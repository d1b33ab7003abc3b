"""Small topologies made by hand, for writers and the command line."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hyperscout_topology.topology import (
    Adapter,
    Anomaly,
    Condition,
    Endpoint,
    HyperNode,
    Link,
    LinkTable,
    Measured,
    Rate,
    Switch,
    Tier,
    Topology,
)

from support.builders import anomaly, hypernode

SINCE_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
# Ends of cables of `two_leaves`.
HOST, SECOND = Endpoint("a03", "n03", "1"), Endpoint("a03", "n03", "2")
LEAF, SPINE = Endpoint("s2", "leaf-b", "1"), Endpoint("s9", "spine", "2")


def _switched(name: str, nodes: Iterable[str], **more: Any) -> HyperNode:
    """A HyperNode with one switch, named after it."""
    return hypernode(name, nodes, switches=(f"sw-{name}",), **more)


def on_leaf_b(kind: str, subject: Endpoint, peer: Endpoint | None = LEAF, **more: Any) -> Anomaly:
    """An anomaly of leaf-b in `two_leaves`."""
    return anomaly(kind, subject, peer, **({"hypernode": "leaf-b", "since_ns": SINCE_NS} | more))


def healthy_leaves() -> Topology:
    """`two_leaves` without its anomaly."""
    return replace(two_leaves(), anomalies=())


def two_leaves() -> Topology:
    """Two leaves of two hosts under one core; leaf-b has a cable down since 2026."""
    down = "1 of 4 links down: n03/p1 -> leaf-b/p3, seen by ibnetdiscover, since 2026-01-01T00:00:00Z"
    b = (
        Condition("Ready", "False", "NodeDown", "1 of 2 nodes ready: n03 is cut off", SINCE_NS, ("n03",)),
        Condition("Degraded", "True", "LinksDown", down, SINCE_NS),
        Condition("Consistent", "True", "SourcesAgree", "all sources agree", SINCE_NS),
    )
    a = (
        Condition("Ready", "True", "AllNodesReady", "2 of 2 nodes ready", SINCE_NS),
        Condition("Degraded", "False", "LinksUp", "4 of 4 links up", SINCE_NS),
    )
    return Topology(
        generation=7,
        hypernodes=(
            _switched("leaf-a", ("n01", "n02"), parent="core", conditions=a),
            _switched("leaf-b", ("n03", "n04"), parent="core", conditions=b),
            _switched("core", ("n01", "n02", "n03", "n04"), tier_name="core", children=("leaf-a", "leaf-b")),
        ),
        switches=(Switch("s1", "leaf-a", 1), Switch("s2", "leaf-b", 1), Switch("s9", "spine", 2)),
        adapters=tuple(Adapter(f"a0{i}", f"n0{i}", "mlx5_0") for i in range(1, 5)),
        links=LinkTable.of(
            [
                Link("a01", "1", "s1", "1", "ib", ("ibnetdiscover",), speed_gbps=400.0, width=4),
                Link("a02", "1", "s1", "2", "ib", ("ibnetdiscover",)),
                Link("a04", "1", "s2", "2", "ib", ("ibnetdiscover", "lldp")),
                Link("s1", "9", "s9", "1", "ib", ("ibnetdiscover",)),
                Link("s2", "9", "s9", "2", "ib", ("ibnetdiscover",)),
            ]
        ),
        anomalies=(on_leaf_b("MissingLink", HOST, message="no cable from n03/1 to leaf-b/1"),),
        nodes_without_evidence=("n09",),
        foreign_endpoints=("storage-1",),
    )


def measured() -> Topology:
    """The two leaves, the first of which latency alone shows, with numbers of all kinds."""
    topology = two_leaves()
    near, far = Measured(4.25, 9.5, 128, SINCE_NS), Measured(7.0, 7.5, 2)
    a, b, core = topology.hypernodes
    return replace(
        topology,
        hypernodes=(
            replace(a, source="latency", confidence=0.93, latency_us=near),
            replace(b, source="nvlink", latency_us=Measured(6.1, 0.0, 0), bandwidth_gbps=near),
            replace(core, latency_us=far),
        ),
        tiers=(Tier(1, "leaf", near, near), Tier(2, "core", far)),
    )


def leaves(*nodes: tuple[str, ...], generation: int = 1) -> Topology:
    """Leaves l1, l2, ... of these nodes under one core."""
    names = tuple(f"l{i}" for i in range(1, len(nodes) + 1))
    below = [_switched(name, n, parent="core") for name, n in zip(names, nodes, strict=True)]
    everything = tuple(sorted(n for row in nodes for n in row))
    core = _switched("core", everything, tier=2, tier_name="core", children=names)
    return Topology(generation, (*below, core))


def pods(*blocks: int, nodes: int = 4) -> Topology:
    """One core over pods of so many leaves each, every leaf of `nodes` hosts."""
    rows: list[HyperNode] = []
    tops: list[HyperNode] = []
    n = 0
    for p, count in enumerate(blocks):
        pod = f"pod{p}"
        for leaf in range(count):
            hosts = tuple(f"n{n + i:04}" for i in range(nodes))
            n += nodes
            rows.append(_switched(f"{pod}-l{leaf:02}", hosts, parent=pod))
        mine = [r for r in rows if r.parent == pod]
        hosts_of_pod = (x for r in mine for x in r.nodes)
        tops.append(_switched(pod, hosts_of_pod, parent="core", children=(r.name for r in mine), tier=2))
    core = _switched("core", (x for t in tops for x in t.nodes), tier=3, children=(t.name for t in tops))
    return Topology(1, (*rows, *tops, core))


Places = dict[str, tuple[str, ...]]  # by node: its leaf, and the pod above it


def placed(places: Places) -> Topology:
    """One core over these pods over these leaves."""
    pod_of = dict(places.values())
    rows = []
    for leaf, pod in pod_of.items():
        rows.append(hypernode(leaf, (n for n, (mine, _) in places.items() if mine == leaf), parent=pod))
    for pod in set(pod_of.values()):
        nodes = (n for n, (_, mine) in places.items() if mine == pod)
        children = (leaf for leaf, mine in pod_of.items() if mine == pod)
        rows.append(hypernode(pod, nodes, tier=2, parent="core", children=children))
    return Topology(1, (*rows, hypernode("core", places, tier=3, children=set(pod_of.values()))))


def cabled(topology: Topology, usual: Rate, **slower: tuple[Rate, ...]) -> Topology:
    """`leaves` or `pods` with cables: each node on its leaf, each switch below that of its parent.

    `slower`: the rates of the cables upwards, by node or HyperNode (`_` for `-`); () = no cable. All others
    have one cable of the usual rate.
    """
    up = {node: f"sw-{h.name}" for h in topology.hypernodes if h.tier == 1 for node in h.nodes}
    up |= {f"sw-{h.name}": f"sw-{h.parent}" for h in topology.hypernodes if h.parent}
    links = []
    for below, above in up.items():
        rates = slower.get(below.removeprefix("sw-").replace("-", "_"), (usual,))
        links += [
            Link(below, f"{i}", above, f"{below}-{i}", "infiniband", ("ibnetdiscover",), "", *rate)
            for i, rate in enumerate(rates)
        ]
    adapters = tuple(Adapter(name, name, "mlx5_0") for name in up if not name.startswith("sw-"))
    switches = tuple(Switch(s, s, h.tier) for h in topology.hypernodes for s in h.switches)
    return replace(topology, adapters=adapters, links=LinkTable.of(links), switches=switches)


def towers(first: str, *others: str) -> Topology:
    """Tiers of these names: n1 and n2 are in the domain `near` of the first one, n3 is in `alone`. Each other
    tier is one domain, called as the tier."""
    every, children, rows = ("n1", "n2", "n3"), ("alone", "near"), []
    for name, nodes in (("near", every[:2]), ("alone", every[2:])):
        rows.append(hypernode(name, nodes, tier_name=first, parent=others[0]))
    for name, parent in zip(others, (*others[1:], None), strict=True):
        tier = rows[-1].tier + 1
        rows.append(hypernode(name, every, children=children, tier=tier, tier_name=name, parent=parent))
        children = (name,)
    return Topology(1, tuple(rows))
