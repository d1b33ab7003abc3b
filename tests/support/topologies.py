"""Small topologies made by hand, for writers and the command line."""

from dataclasses import replace

from hyperscout_collector.topology import (
    Adapter,
    Anomaly,
    Condition,
    Endpoint,
    HyperNode,
    Link,
    LinkTable,
    Measured,
    Switch,
    Tier,
    Topology,
)

SINCE_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z


def hypernode(
    name: str,
    tier: int,
    tier_name: str,
    parent: str | None,
    members: tuple[str, ...],
    nodes: tuple[str, ...] | None = None,
    conditions: tuple[Condition, ...] = (),
) -> HyperNode:
    """`members` are children above tier 1, nodes at tier 1; its switch is called as it is."""
    children = members if nodes is not None else ()
    return HyperNode(name, tier, tier_name, parent, children, nodes or members, (f"sw-{name}",), conditions)


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
            hypernode("leaf-a", 1, "leaf", "core", ("n01", "n02"), conditions=a),
            hypernode("leaf-b", 1, "leaf", "core", ("n03", "n04"), conditions=b),
            hypernode("core", 2, "core", None, ("leaf-a", "leaf-b"), ("n01", "n02", "n03", "n04")),
        ),
        switches=(Switch("s1", "leaf-a", 1), Switch("s2", "leaf-b", 1), Switch("s9", "spine", 2)),
        adapters=tuple(Adapter(f"a0{i}", f"n0{i}", "mlx5_0") for i in range(1, 5)),
        links=LinkTable.of(
            [
                Link("a01", "1", "s1", "1", "ib", ("ibnetdiscover",)),
                Link("a02", "1", "s1", "2", "ib", ("ibnetdiscover",)),
                Link("a04", "1", "s2", "2", "ib", ("ibnetdiscover", "lldp")),
                Link("s1", "9", "s9", "1", "ib", ("ibnetdiscover",)),
                Link("s2", "9", "s9", "2", "ib", ("ibnetdiscover",)),
            ]
        ),
        anomalies=(
            Anomaly(
                "MissingLink",
                Endpoint("a03", "n03", "1"),
                Endpoint("s2", "leaf-b", "1"),
                1,
                ("ibnetdiscover",),
                0.9,
                "no cable from n03/1 to leaf-b/1",
                "leaf-b",
                SINCE_NS,
            ),
        ),
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


def leaves(*nodes: tuple[str, ...]) -> Topology:
    """Leaves l1, l2, ... of these nodes under one core."""
    names = tuple(f"l{i}" for i in range(1, len(nodes) + 1))
    below = [hypernode(name, 1, "leaf", "core", n) for name, n in zip(names, nodes, strict=True)]
    everything = tuple(sorted(n for row in nodes for n in row))
    return Topology(1, (*below, hypernode("core", 2, "core", None, names, everything)))


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
            rows.append(hypernode(f"{pod}-l{leaf:02}", 1, "leaf", pod, hosts))
        mine = [r for r in rows if r.parent == pod]
        tops.append(
            hypernode(
                pod, 2, "pod", "core", tuple(r.name for r in mine), tuple(x for r in mine for x in r.nodes)
            )
        )
    core = hypernode(
        "core", 3, "core", None, tuple(t.name for t in tops), tuple(x for t in tops for x in t.nodes)
    )
    return Topology(1, (*rows, *tops, core))
