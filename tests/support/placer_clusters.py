"""Large clusters for the placer's benchmarks: leaves in pods under one core, taken in several ways."""

import random
from collections.abc import Callable, Mapping
from typing import Final

from hyperscout_topology.topology import Anomaly, Endpoint, HyperNode, Switch, Topology

LEAF_NODES: Final = 32
POD_LEAVES: Final = 32

Free = Mapping[str, int]  # workers by node


def cluster(
    nodes: int,
    *,
    leaf_nodes: int = LEAF_NODES,
    pod_leaves: int = POD_LEAVES,
    degraded_share: float = 0.0,
    seed: int = 0,
) -> Topology:
    """Three tiers: leaf, pod, core. `degraded_share`: of nodes, and of leaves, with a degraded link."""
    rng = random.Random(seed)
    names = [f"node-{i:06}" for i in range(nodes)]
    leaves = [names[i : i + leaf_nodes] for i in range(0, nodes, leaf_nodes)]
    pods = [range(i, min(i + pod_leaves, len(leaves))) for i in range(0, len(leaves), pod_leaves)]
    hypernodes = [
        HyperNode(f"leaf-{i:05}", 1, "leaf", f"pod-{i // pod_leaves:04}", (), tuple(members), (f"s{i}",))
        for i, members in enumerate(leaves)
    ]
    for i, members in enumerate(pods):
        below = tuple(node for leaf in members for node in leaves[leaf])
        children = tuple(f"leaf-{leaf:05}" for leaf in members)
        hypernodes.append(HyperNode(f"pod-{i:04}", 2, "pod", "core", children, below, ()))
    children = tuple(f"pod-{i:04}" for i in range(len(pods)))
    hypernodes.append(HyperNode("core", 3, "core", None, children, tuple(names), ()))
    sick = []
    for i, members in enumerate(leaves):
        ends = [Endpoint(node, node, "1") for node in members if rng.random() < degraded_share]
        ends += [Endpoint("spine", "spine", str(i))] * (rng.random() < degraded_share)
        for port, end in enumerate(ends):
            other = Endpoint(f"s{i}", f"leaf-{i:05}", str(port))
            what = "SlowLink", end, other, 1, ("ibnetdiscover",), 0.9, "slow for a benchmark", f"leaf-{i:05}"
            sick.append(Anomaly(*what))
    switches = [Switch(f"s{i}", f"leaf-{i:05}", 1) for i in range(len(leaves))]
    return Topology(1, tuple(hypernodes), (*switches, Switch("spine", "spine", 2)), anomalies=tuple(sick))


def at_random(names: tuple[str, ...], most: int, rng: random.Random) -> Free:
    """Of one worker a node 60 % are taken; of several, each number is as likely as another."""
    if most == 1:
        return {name: int(rng.random() >= 0.6) for name in names}
    return {name: rng.randint(0, most) for name in names}


def all_equal(names: tuple[str, ...], most: int, rng: random.Random) -> Free:
    """Each leaf like every other: the first two fifths of its nodes are free, or all nodes half."""
    del rng
    if most == 1:
        return {name: int(i % LEAF_NODES < LEAF_NODES * 2 // 5) for i, name in enumerate(names)}
    return dict.fromkeys(names, most // 2)


def near_equal(names: tuple[str, ...], most: int, rng: random.Random) -> Free:
    """Against a solver that prunes by sums and skips what is alike: leaves have nearly equal sums, pods
    just as much, and no two are alike."""
    found: dict[str, int] = {}
    step = LEAF_NODES
    sums = {1: LEAF_NODES * 2 // 5}.get(most, LEAF_NODES * most // 2)
    for first in range(0, len(names), step):
        # One more in one leaf, one less in the next, so that a pod's sum tells nothing.
        wanted = sums + (1, -1, 0, 2, -2, 0)[first // step % 6]
        members = list(names[first : first + step])
        free = [0] * len(members)
        for _ in range(min(wanted, most * len(members))):
            open_ = [i for i, n in enumerate(free) if n < most]
            free[rng.choice(open_)] += 1
        found.update(zip(members, free, strict=True))
    return found


TAKEN: Final[dict[str, Callable[[tuple[str, ...], int, random.Random], Free]]] = {
    "at random": at_random,
    "all alike": all_equal,
    "nearly alike": near_equal,
}
