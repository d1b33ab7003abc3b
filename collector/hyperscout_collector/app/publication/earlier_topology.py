"""Finds the topology that was published before this collector started.

Names, times and conditions continue from it.
"""

import asyncio
import hashlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from hyperscout_formats.text.reporters import node_in
from hyperscout_kubernetes.client import Kube
from hyperscout_kubernetes.errors import KubeError, NotFoundError
from hyperscout_kubernetes.nodes import PATH as NODES
from hyperscout_publish.clusters.cut import cut_to
from hyperscout_publish.hypernodes.from_hypernodes import topology_of
from hyperscout_publish.hypernodes.objects import COLLECTION
from hyperscout_runtime.errors import StartError
from hyperscout_topology.diff import same_members
from hyperscout_topology.topology import HyperNode, Topology

from hyperscout_collector.app.settings.settings import CollectorSettings

_log = logging.getLogger(__name__)

_ATTEMPTS = 10
_RETRY_S = 1.0
_OTHERS_S = 10.0  # for all attempts at another cluster: it may hold up no other one
Sleep = Callable[[float], Awaitable[None]]


async def published_before(
    settings: CollectorSettings,
    kube: Kube | None,
    followed: Topology | None,
    saved: Topology | None,
    clusters: Mapping[str, Kube] = MappingProxyType({}),
    *,
    sleep: Sleep = asyncio.sleep,
) -> Topology | None:
    """The best known earlier topology; None = there is none. Raises StartError.

    `clusters`: the clients of the other clusters, by name. Of one that is away, the saved part counts.

    `followed`: the topology that the former leader sent; `saved`: the topology on this replica's disk, or in
    the PostgreSQL of all replicas. Both have the number under which they were published.

    A collector without leader election uses what it saved. With leader election the disk can be old, and
    PostgreSQL lacks what the former leader published in the last moments before its end. So a replica that
    did not follow the leader reads the HyperNodes of the cluster, which contain no links.
    """
    before = followed
    if settings.store and saved is not None and before is not None and before.generation <= saved.generation:
        return saved
    own = kube if settings.kubernetes == "publish" else None
    if before is None and (own is not None or (clusters and settings.kubernetes != "dry-run")):
        if saved is not None and not settings.leader_election:
            return saved
        parts = {} if own is None else {"": await recalled(own, sleep=sleep)}
        found = await asyncio.gather(*(_recalled_soon(name, one, sleep) for name, one in clusters.items()))
        for name, (is_known, part) in zip(clusters, found, strict=True):
            if is_known or saved is not None:
                parts[name] = part if is_known or saved is None else cut_to(saved, name)
        before = _joined(parts) if clusters else parts[""]
        if before is not None and saved is not None and _is_of(saved, parts, several=bool(clusters)):
            return saved  # the same trees, and it contains the links
    if before is None:
        return saved
    highest = max(before.generation, saved.generation if saved is not None else 0)
    return replace(before, generation=highest)


async def _recalled_soon(name: str, kube: Kube, sleep: Sleep) -> tuple[bool, Topology | None]:
    """Whether the HyperNodes of another cluster could be read in time, and their tree."""
    try:
        async with asyncio.timeout(_OTHERS_S):
            return True, await recalled(kube, sleep=sleep)
    except TimeoutError:
        _log.warning("cluster %s: the published HyperNodes cannot be read within %g s", name, _OTHERS_S)
    except StartError as error:
        _log.warning("cluster %s: %s", name, error)
    return False, None


def _joined(parts: Mapping[str, Topology | None]) -> Topology | None:
    """The trees of several clusters as one: a domain has one name in all of them.

    A cluster's tree may lack the lowest tiers, so tiers are counted from the top. A domain is only above
    those of lower tiers, so there is no cycle even if one tree is old. Conditions and findings are left out:
    those of a shared domain differ between the clusters.
    """
    trees = {cluster: part.hypernodes for cluster, part in parts.items() if part is not None}
    tops = {cluster: max((h.tier for h in tree), default=0) for cluster, tree in trees.items()}
    top = max(tops.values(), default=0)
    domains: dict[str, HyperNode] = {}
    nodes: dict[str, set[str]] = {}
    above: dict[str, set[str]] = {}  # by name, the domains that contain it in a cluster
    for cluster, tree in trees.items():
        own = {h.name: h for h in tree}
        for h in tree:
            domains.setdefault(h.name, replace(h, tier=h.tier + top - tops[cluster]))
            nodes.setdefault(h.name, set()).update(node_in(cluster, node) for node in h.nodes)
            containers, at = above.setdefault(h.name, set()), h.parent
            while at is not None:
                containers.add(at)
                at = own[at].parent
    for cluster, tree in trees.items():
        for h in tree:
            if not h.children:
                _add_lowest(h, cluster, domains, nodes, above)
    # Trees may be of different times. Of several parents of a domain the lowest counts.
    parents: dict[str, str] = {}
    for name, containers in above.items():
        chain = [name, *sorted(containers, key=lambda one: (domains[one].tier, one))]
        for inner, container in itertools.pairwise(chain):
            if domains[inner].tier < domains[container].tier:
                rival = parents.get(inner, container)
                parents[inner] = min(rival, container, key=lambda one: (domains[one].tier, one))
    children: dict[str, list[str]] = {}
    for name, parent in sorted(parents.items()):
        children.setdefault(parent, []).append(name)
    found = []
    for h in sorted(domains.values(), key=lambda h: (h.tier, h.name)):
        for child in children.get(h.name, ()):
            nodes[h.name] |= nodes[child]
        below, mine = tuple(children.get(h.name, ())), tuple(sorted(nodes[h.name]))
        found.append(replace(h, parent=parents.get(h.name), children=below, nodes=mine, conditions=()))
    return Topology(0, tuple(found)) if found else None


def _add_lowest(
    h: HyperNode,
    cluster: str,
    domains: dict[str, HyperNode],
    nodes: dict[str, set[str]],
    above: dict[str, set[str]],
) -> None:
    """Add a domain for each node of `h` in the tiers below that its cluster lacks."""
    tier_names = {x.tier: x.tier_name for x in domains.values() if x.tier < domains[h.name].tier}
    for node in (node_in(cluster, node) for node in h.nodes if tier_names):
        digest = hashlib.sha256(node.encode()).hexdigest()[:8]
        chain = {f"tier-{tier}-{digest}": tier for tier in tier_names}
        for name, tier in chain.items():
            domains[name] = HyperNode(name, tier, tier_names[tier], None, (), (), ())
            nodes[name] = {node}
            above[name] = {*chain, h.name, *above[h.name]}


def _is_of(saved: Topology, parts: Mapping[str, Topology | None], *, several: bool) -> bool:
    """Whether the clusters have the trees of the saved topology."""
    return all(
        same_members(cut_to(saved, name) if several else saved, part or Topology(0))
        for name, part in parts.items()
    )


async def recalled(kube: Kube, *, sleep: Sleep = asyncio.sleep, attempts: int = _ATTEMPTS) -> Topology | None:
    """The collector's HyperNodes in the cluster as a topology; None = there are none. Raises StartError.

    A start without them could rename every domain, so a failed request is repeated, at most `attempts`
    requests in all.
    """
    for attempt in range(attempts):
        try:
            hypernodes, _ = await kube.list(COLLECTION)
            nodes, _ = await kube.list(NODES) if hypernodes else ([], "")
        except NotFoundError:
            return None  # the cluster does not define the HyperNode resource
        except KubeError as error:
            if not error.retry or attempt == attempts - 1:
                raise StartError(
                    f"the published HyperNodes cannot be read: {error}: check the API server, and that this "
                    "account may list hypernodes and nodes"
                ) from error
            _log.warning("the published HyperNodes cannot be read yet: %s", error)
            await sleep(max(_RETRY_S, error.retry_after_s))
        else:
            labels = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes}
            return topology_of(hypernodes, labels)
    raise AssertionError("the last attempt returns or raises")
