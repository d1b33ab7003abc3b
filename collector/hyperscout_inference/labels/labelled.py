"""Place hosts without wired evidence by the labels that their cloud sets on their nodes.

A cloud names the domains of a machine, from the outermost to the innermost, and nothing of its switches.
Wired evidence wins: no wired host moves, and a labelled domain with wired hosts is the wired domain. A host
with labels and cables that disagree becomes a `SourcesDisagree` finding.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from hyperscout_formats.text.counts import first_few
from hyperscout_topology.topology import Endpoint

from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.fabric.network import Network
from hyperscout_inference.grouping.grouping import Longs
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.grouping.opaque import alone, beside

SOURCE = "labels"
Labels = Mapping[str, tuple[str, ...]]

# A labelled tier is inside the lowest wired tier in which this share of the hosts with both agrees.
_INSIDE = 0.75
_ENOUGH = 3  # wired hosts that are needed for a majority
_WITNESSES = 2  # wired hosts that are needed to place the others of a label: one may have a wrong label
_SHARED = 0.25  # of the hosts that name a tier, this share must be with others: else a few labels make a tier
_NAMED = 3


def with_labels(net: Network, layers: Sequence[Layer], labels: Labels) -> list[Layer]:
    """Return the layers with the hosts that only labels place. Wired domains keep their numbers."""
    tiers, paths = _tiers(net, labels)
    wired = layers[0].domain >= 0
    if not tiers or not (~wired & (tiers[0] >= 0)).any():
        return list(layers)
    sure = [np.ones(len(names)) for names in paths]
    found = beside(net, layers, sure, tiers, _WITNESSES) if wired.any() else alone(net, sure, tiers)
    return [
        _told(layer, tiers[min(t, len(tiers) - 1)], paths[min(t, len(tiers) - 1)])
        for t, layer in enumerate(found)
    ]


def against_wires(net: Network, layers: Sequence[Layer], labels: Labels) -> list[Suspicion]:
    """Return hosts that labels and cables put with different hosts. `layers`: from wires alone."""
    tiers, paths = _tiers(net, labels)
    named: set[int] = set()
    found: list[Suspicion] = []
    for labelled, names in zip(tiers, paths, strict=True):
        both = (labelled >= 0) & (layers[0].domain >= 0)
        outer = _around(labelled, layers, both)
        if outer is None:
            continue
        for domain in np.unique(labelled[both]).tolist():
            mine = np.flatnonzero(both & (labelled == domain))
            votes = np.bincount(outer.domain[mine])
            home = int(votes.argmax())
            if len(mine) < _ENOUGH or 2 * votes[home] <= len(mine):
                continue
            others = mine[outer.domain[mine] == home].tolist()
            for host in mine[outer.domain[mine] != home].tolist():
                if host not in named:
                    named.add(host)
                    found.append(_disagreement(net, layers, outer, host, others, names[domain]))
    return found


def _tiers(net: Network, labels: Labels) -> tuple[list[Longs], list[list[tuple[str, ...]]]]:
    """Return the innermost tier first: by tier (hosts,) the domain of each, -1 = none, and the domains'
    paths.

    A host with fewer domains is in its innermost one at all tiers below. A tier that groups few of the hosts
    that name it, or that joins no more than one host to a domain of the tier below, is left out.
    """
    known = {i: path for i, host in enumerate(net.hosts) if (path := labels.get(host))}
    depth = max(map(len, known.values()), default=0)
    tiers: list[Longs] = []
    paths: list[list[tuple[str, ...]]] = []
    inner: dict[int, tuple[str, ...]] = {}
    for length in range(depth, 0, -1):
        of_host = {i: path[:length] for i, path in known.items()}
        names = sorted(set(of_host.values()))
        size = Counter(path for path in of_host.values() if len(path) == length)
        shared = sum(hosts for hosts in size.values() if hosts > 1)
        groups_few = length > 1 and shared < _SHARED * size.total()
        if groups_few or (paths and not _joins(of_host, inner)):
            continue
        inner = of_host
        number = {name: n for n, name in enumerate(names)}
        column = np.full(len(net.hosts), -1, np.int64)
        column[list(of_host)] = [number[name] for name in of_host.values()]
        tiers.append(column)
        paths.append(names)
    return tiers, paths


def _joins(outer: Mapping[int, tuple[str, ...]], inner: Mapping[int, tuple[str, ...]]) -> bool:
    """Return whether domains join several hosts to others than those of the tier below. Of few hosts, one
    counts: of many, it may have a wrong label. `outer`, `inner`: the domain of each host."""
    together: dict[tuple[str, ...], int] = {}
    for (domain, _), hosts in Counter((outer[i], inner[i]) for i in outer).items():
        together[domain] = max(together.get(domain, 0), hosts)
    joined = len(outer) - sum(together.values())
    return joined > 1 or joined >= max(1, _SHARED * len(outer))


def _told(layer: Layer, labelled: Longs, names: Sequence[tuple[str, ...]]) -> Layer:
    """Return the layer with its new domains named by the cloud's labels."""
    founders = list(layer.founders) or [()] * layer.count
    for domain in layer.confidence:
        inside = labelled[layer.domain == domain]
        founders[domain] = names[int(inside.max())]
    return replace(layer, founders=founders, confidence={}, labelled=frozenset(layer.confidence))


def _around(
    labelled: Longs, layers: Sequence[Layer], both: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> Layer | None:
    """Return the lowest wired tier with domains that contain those of a labelled tier, or None."""
    hosts = np.flatnonzero(both)
    for layer in layers:
        width = max(layer.count, 1)
        key, votes = np.unique(labelled[hosts] * width + layer.domain[hosts], return_counts=True)
        most = np.zeros(int(labelled.max(initial=-1)) + 1, np.int64)
        np.maximum.at(most, key // width, votes)
        if len(hosts) and most.sum() >= _INSIDE * len(hosts):
            return layer
    return None


def _disagreement(
    net: Network,
    layers: Sequence[Layer],
    outer: Layer,
    host: int,
    others: Sequence[int],
    path: tuple[str, ...],
) -> Suspicion:
    name = net.hosts[host]
    with_hosts = first_few([net.hosts[i] for i in others], _NAMED)
    text = (
        f"by the labels of its node {name} is in {path[-1]} with {with_hosts}; its cables lead to "
        f"{outer.say_switches(net, int(outer.domain[host]))}, theirs to "
        f"{outer.say_switches(net, int(outer.domain[others[0]]))}"
    )
    where = 0, int(layers[0].domain[host])
    return Suspicion("SourcesDisagree", Endpoint(name, name), None, *where, 0.7, text, (SOURCE,))
