"""Two API servers whose nodes are on one simulated fabric, and a collector that serves both."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from hyperscout_formats.text.reporters import cluster_of, name_in_cluster, node_in
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import clos3

from support.collector_process import CollectorProcess, collector_process
from support.kubernetes import Cluster
from support.published import Object, Published, status_at

EAST = "east"
FLAGS = ("--settle-s", "1.5", "--hold-down-s", "0.1", "--restart-grace-s", "0", "--node-labels", "on")


def shared_fabric(other: str = "") -> SimFabric:
    """Two pods of two leaves with four hosts each. Every second host is a node of `east`, and so is the last
    leaf. The rest are of `other`. The first node of each cluster has the same name."""
    fabric = clos3(2, 2, 4, 2, 1)
    hosts = fabric.hosts
    name = {host: node_in(EAST if i % 2 or i >= 12 else other, host) for i, host in enumerate(hosts)}
    name[hosts[1]] = node_in(EAST, hosts[0])
    adapters = tuple(
        replace(x, host=name[x.host], description=f"{name_in_cluster(name[x.host])} {x.device}")
        for x in fabric.adapters
    )
    return replace(fabric, adapters=adapters)


def nodes_of(fabric: SimFabric, cluster: str) -> list[str]:
    return [name_in_cluster(host) for host in fabric.hosts if cluster_of(host) == cluster]


def members(hypernodes: Mapping[str, Object]) -> set[str]:
    """The nodes that HyperNodes name."""
    return {
        member["selector"]["exactMatch"]["name"]
        for h in hypernodes.values()
        for member in h["spec"].get("members", ())
        if member["type"] == "Node"
    }


async def whole(seen: Published, nodes: list[str]) -> None:
    """Until exactly these nodes are in healthy leaves."""
    await seen.until(
        lambda now: (
            members(now) == set(nodes)
            and all(status_at(now, n, kind)[0] == good for n in nodes for kind, good in GOOD.items())
        ),
        "a healthy tree",
    )


GOOD = {"Ready": "True", "Degraded": "False", "Consistent": "True"}


@asynccontextmanager
async def collector_of_two(
    kube: Cluster, east: Cluster, folder: Path, *flags: str, account: str = ""
) -> AsyncIterator[CollectorProcess]:
    """`account`: its service account in both clusters, in the namespace `default`; "" = the administrator."""
    here, there = (x.kubeconfig_of(account) if account else x.kubeconfig for x in (kube, east))
    own = ("--kubernetes", "publish", "--kubeconfig", str(here))
    others = ("--clusters", f"{EAST}={there}")
    async with collector_process(folder, *own, *others, *FLAGS, *flags) as process:
        yield process
