"""Finds hosts that only a GUID identifies. No job can name them, so Slurm and the placer leave them out."""

import re
from dataclasses import replace

from hyperscout_topology.topology import Topology

_GUID = re.compile(r"[0-9a-f]{16}")


def unnamed_hosts(topology: Topology) -> tuple[str, ...]:
    """Return the hosts in the tree that only a GUID identifies: no source names the host of that adapter.

    A topology without adapters is judged by the form of the names alone.
    """
    found = {n for h in topology.hypernodes if not h.children for n in h.nodes if _GUID.fullmatch(n)}
    if found and topology.adapters:
        found &= {a.node for a in topology.adapters if a.node == a.id}
    return tuple(sorted(found))


def named_only(topology: Topology) -> Topology:
    """Return the topology without `unnamed_hosts` in its HyperNodes, and without HyperNodes that held only
    such hosts."""
    out = set(unnamed_hosts(topology))
    if not out:
        return topology
    kept = {h.name: [n for n in h.nodes if n not in out] for h in topology.hypernodes}
    hypernodes = (
        replace(h, nodes=tuple(kept[h.name]), children=tuple(c for c in h.children if kept.get(c)))
        for h in topology.hypernodes
        if kept[h.name]
    )
    return replace(topology, hypernodes=tuple(hypernodes))
