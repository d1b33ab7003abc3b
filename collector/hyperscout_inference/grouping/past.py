"""The domains in which hosts were published before. They decide ties and keep hosts without evidence."""

from collections.abc import Collection, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

import numpy as np
from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_topology.memo import memoized
from hyperscout_topology.topology import HyperNode, Topology

from hyperscout_inference.grouping.grouping import Longs
from hyperscout_inference.grouping.layer import Layer

_FIGURES = ("conditions", "latency_us", "bandwidth_gbps")
_KEPT = [x.name for x in fields(HyperNode) if x.name not in _FIGURES]
_FORMER = attrgetter(*_KEPT)


class Past:
    """The published hierarchy as labels of hosts. `hosts`: as `Network` has them. `domains`: see
    `former_domains`."""

    def __init__(self, hosts: Sequence[str], domains: Sequence[HyperNode]) -> None:
        self._hosts = hosts
        self._by_tier: dict[str, dict[str, int]] = {}
        self._labels: dict[str, Longs] = {}  # by tier, once they were asked for
        self.confidence: dict[int, float] = {}  # by label
        self.source: dict[int, str] = {}  # by label
        for number, hypernode in enumerate(domains):
            self._by_tier.setdefault(hypernode.tier_name, {}).update(dict.fromkeys(hypernode.nodes, number))
            self.confidence[number] = hypernode.confidence
            self.source[number] = hypernode.source

    def tiers_in_use(self, domain: Longs, cluster: frozenset[str] | None) -> Collection[str]:
        """Return the names of the former tiers if hosts without a domain now were in them, else none."""
        if not self._by_tier:
            return ()
        placed = {host for host, d in zip(self._hosts, domain.tolist(), strict=True) if d >= 0}
        nodes = {node for known in self._by_tier.values() for node in known}
        lost = nodes - placed if cluster is None else (nodes & cluster) - placed
        return self._by_tier.keys() if lost else ()

    def outer_tiers(self) -> list[str]:
        """Return the names of the tiers of the fabric, innermost first (HyperNodes are sorted by tier)."""
        return [name for name in self._by_tier if name not in KINDS]

    def accelerator_tier(self) -> str | None:
        """Return the name of the former accelerator tier, which is the kind of its first domains."""
        return next((name for name in self._by_tier if name in KINDS), None)

    def labels(self, name: str) -> Longs | None:
        """Return (hosts,) the former domain in the named tier, -1 = none; None if there was no such tier."""
        known = self._by_tier.get(name)
        if not known:
            return None
        if name not in self._labels:
            labels = (known.get(host, -1) for host in self._hosts)
            self._labels[name] = np.fromiter(labels, np.int64, len(self._hosts))
        return self._labels[name]

    def labels_of_domains(self, name: str, layer: Layer) -> Longs | None:
        """Return (domains,) the former domain of most of a domain's hosts, -1 = none; None if there was no
        such tier."""
        hosts = self.labels(name)
        if hosts is None:
            return None
        known = (hosts >= 0) & (layer.domain >= 0)
        labels = np.full(layer.count, -1, np.int64)
        if known.any():
            width = int(hosts.max()) + 1
            key, votes = np.unique(layer.domain[known] * width + hosts[known], return_counts=True)
            order = np.lexsort((key, -votes))[::-1]
            labels[key[order] // width] = key[order] % width
        return labels


def former_domains(previous: Topology | None) -> tuple[HyperNode, ...]:
    """Return the published domains without conditions and figures; the same object while they are equal."""
    domains = () if previous is None else previous.hypernodes
    return _former(tuple(map(_FORMER, domains)))


@memoized
def _former(domains: tuple[tuple[Any, ...], ...]) -> tuple[HyperNode, ...]:
    return tuple(HyperNode(**dict(zip(_KEPT, values, strict=True))) for values in domains)


# `Past` compares by identity, so what takes it is kept only while it is the same object.
past_of = memoized(Past)
