"""Stable names: a domain keeps its name while nodes and switches are added and removed.

The name of a new domain is the common part of its switches' names and a hash of their ids. Later the domain
has the name of the published domain with which it shares most hosts and switches.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from hyperscout_topology.topology import HyperNode

from hyperscout_inference.fabric.network import Network
from hyperscout_inference.grouping.layer import Layer

_SLUG = 40  # characters; with the hash a name stays below the 63 of a label value
_HASH = 8


def name_domains(
    net: Network, layers: Sequence[Layer], former: Sequence[HyperNode], wanted: npt.NDArray[np.bool_]
) -> list[list[str]]:
    """Return a name for every domain, by layer and index. Names are unique over all layers.

    `former`: the published domains. `wanted`: (hosts,) those that are published.
    """
    taken: set[str] = set()
    names: list[list[str | None]] = []
    slugs = [_slugs(net, layer) for layer in layers]
    for layer in layers:
        same_tier = _of_tier(layer, len(names) + 1, former)
        kept = _survivors(net, layer, same_tier, slugs[len(names)], wanted)
        taken |= {name for name in kept if name}
        names.append(kept)
    taken |= {h.name for h in former}
    founders: list[list[tuple[str, ...]]] = []
    for depth, layer in enumerate(layers):
        founders.append(_founders(net, layer, founders[-1] if founders else None))
        for domain in range(layer.count):
            if names[depth][domain] is None:
                names[depth][domain] = _fresh(
                    slugs[depth][domain], layer.name, founders[depth][domain], taken
                )
    return [[name or "" for name in row] for row in names]


def _of_tier(layer: Layer, tier: int, former: Sequence[HyperNode]) -> list[HyperNode]:
    """Return the published domains of this tier, by its name; by its number if a file has no tier names."""
    named = [h for h in former if h.tier_name == layer.name]
    return named or [h for h in former if not h.tier_name and h.tier == tier]


def _survivors(
    net: Network,
    layer: Layer,
    former: list[HyperNode],
    slugs: Sequence[str],
    wanted: npt.NDArray[np.bool_],
) -> list[str | None]:
    """Return the former name of each domain, or None. After a split the domain with the largest overlap has
    the name; after a merge the name is that of the larger domain.

    A host may have been alone in a domain until its NVLink was ready. That name is not used for a domain with
    more hosts.
    """
    kept: list[str | None] = [None] * layer.count
    if not former:
        return kept
    of_node = {node: i for i, h in enumerate(former) for node in h.nodes}
    of_switch = {switch: i for i, h in enumerate(former) for switch in h.switches}
    overlap: Counter[tuple[int, int]] = Counter()
    for domain, host in zip(layer.domain.tolist(), net.hosts, strict=True):
        old = of_node.get(host)
        if old is not None and domain >= 0:
            overlap[domain, old] += 1
    for domain, switches in enumerate(layer.switches):
        for switch in switches:
            old = of_switch.get(net.ids[switch])
            if old is not None:
                overlap[domain, old] += 1
    if layer.founders:
        size = np.bincount(layer.domain[wanted & (layer.domain >= 0)], minlength=layer.count)
        alone = {i for i, h in enumerate(former) if len(h.nodes) == 1}
        for domain, old in [key for key in overlap if key[1] in alone]:
            of_one = former[old].name.rpartition("-")[0] != slugs[domain]
            if layer.founders[domain] and domain not in layer.labelled and size[domain] > 1 and of_one:
                del overlap[domain, old]
    used: set[int] = set()
    for (domain, old), _ in sorted(overlap.items(), key=lambda x: (-x[1], former[x[0][1]].name, x[0][0])):
        if kept[domain] is None and old not in used:
            kept[domain] = former[old].name
            used.add(old)
    return kept


def _founders(net: Network, layer: Layer, below: list[tuple[str, ...]] | None) -> list[tuple[str, ...]]:
    """Return the identities of each domain: its founders (of an NVLink domain), else the ids of its switches,
    else the identities of the domains inside it."""
    own = [tuple(net.ids[s] for s in switches) for switches in layer.switches]
    if layer.founders:
        own = [other or mine for mine, other in zip(own, layer.founders, strict=True)]
    if below is not None and not all(own):
        inside: list[list[str]] = [[] for _ in own]
        for child, domain in enumerate(layer.child.tolist()):
            inside[domain] += below[child]
        own = [mine or tuple(sorted(ids)) for mine, ids in zip(own, inside, strict=True)]
    return own


def _slugs(net: Network, layer: Layer) -> list[str]:
    """Return the common part of the names of each domain's switches, as a label value. Hosts are used instead
    if the domain has founders or no switches."""
    slugs = []
    members = _members(net, layer) if layer.founders or layer.confidence else ()
    for domain, switches in enumerate(layer.switches):
        shared = [net.own_name(s) for s in switches]
        text = _common_start(shared)
        if members and (not switches or (layer.founders and layer.founders[domain])):
            text = _whole_words(members[domain])
        elif len(shared) > 1 and len(set(shared)) > 1:
            text = re.sub(r"[0-9]+$", "", text)  # digits at the end may be a part of a number
        text = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_SLUG].strip("-")
        slugs.append(text or layer.name)
    return slugs


def _members(net: Network, layer: Layer) -> list[list[str]]:
    members: list[list[str]] = [[] for _ in range(layer.count)]
    for host, domain in zip(net.hosts, layer.domain.tolist(), strict=True):
        if domain >= 0:
            members[domain].append(host)
    return members


def _whole_words(names: Sequence[str]) -> str:
    """Return the common start of the names up to the word in which they differ: row01-rack01- for
    row01-rack01-tray07 and row01-rack01-tray11."""
    text = _common_start(names)
    if len(set(names)) > 1:
        text = re.sub(r"[^-._]*$", "", text) or re.sub(r"[0-9]+$", "", text)
    return text


def _common_start(texts: Sequence[str]) -> str:
    """Return the longest common prefix."""
    first, last = min(texts, default=""), max(texts, default="")
    same = next((i for i, (x, y) in enumerate(zip(first, last, strict=False)) if x != y), len(first))
    return first[:same]


def _fresh(slug: str, tier: str, founders: tuple[str, ...], taken: set[str]) -> str:
    for salt in range(1_000):
        text = "\n".join((tier, *founders, *([str(salt)] if salt else [])))
        name = f"{slug}-{hashlib.sha256(text.encode()).hexdigest()[:_HASH]}"
        if name not in taken:
            taken.add(name)
            return name
    raise AssertionError("a thousand domains of the same founders")  # pragma: no cover


def nodes_by_domain(net: Network, layer: Layer, wanted: npt.NDArray[np.bool_]) -> list[tuple[str, ...]]:
    """Return the wanted hosts of each domain, sorted by name."""
    hosts = np.flatnonzero((layer.domain >= 0) & wanted)
    owner = layer.domain[hosts]
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(layer.count + 1)).tolist()
    names = net.hosts
    rows = [names[h] for h in hosts[order].tolist()]
    return [tuple(rows[bounds[d] : bounds[d + 1]]) for d in range(layer.count)]
