"""Finds what keeps the domains of a topology from being one tree. No anomaly and no condition says it.

Hosts that only a GUID identifies have no name that a job can use, so Slurm and the placer leave them out.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from hyperscout_formats.text.counts import are, count
from hyperscout_formats.text.host_list import fold

from hyperscout_topology.connected_parts import connected_parts
from hyperscout_topology.link_changes import mask_of, table_of
from hyperscout_topology.memo import memoized, positions
from hyperscout_topology.names import tier_level
from hyperscout_topology.topology import Adapter, HyperNode, Link, Switch, Topology

_GUID = re.compile(r"[0-9a-f]+")
_GUID_LENGTH = 16
_MAX_CHARACTERS = 2_000  # of the names in one line


@dataclass(frozen=True, slots=True)
class TreeGaps:
    """`separate_roots`: roots that cables connect, or that one sweep contains. `unused`: the number of
    switches above them that are in no tier, by level. `lines` says it in words."""

    separate_roots: tuple[str, ...] = ()
    unused: tuple[tuple[int, int], ...] = ()
    lines: tuple[str, ...] = ()


def gap_lines(topology: Topology) -> tuple[str, ...]:
    """Return the lines of `tree_gaps`, and the messages of switches that form no tree."""
    return (*tree_gaps(topology).lines, *(x.message for x in topology.anomalies if x.kind == "NotATree"))


def tree_gaps(topology: Topology) -> TreeGaps:
    """Return the gaps of the published tree. About 10 ms for 100,000 links if there are several roots."""
    return _tree_gaps(topology.links, topology.hypernodes, topology.switches)


@memoized  # several answers need them for each generation
def _tree_gaps(
    all_links: Sequence[Link], hypernodes: Sequence[HyperNode], switches: Sequence[Switch]
) -> TreeGaps:
    roots = [h for h in hypernodes if h.parent is None]
    if len(roots) < 2:
        return TreeGaps()
    links = table_of(all_links)
    root_of = {node: h.name for h in roots for node in h.nodes}
    domains = [(h.switches, root_of[h.nodes[0]]) for h in hypernodes if h.switches]
    at = positions(links.devices)
    levels = {s.id: s.level for s in switches if s.level > 0}
    ranked = mask_of(links, levels.keys())
    rows = ranked[links.a] & ranked[links.b]
    part = connected_parts(len(links.devices), links.a[rows], links.b[rows])
    of_part = _roots_by_part(domains, at, part)
    if apart := _together(of_part):
        used = {s for mine, _ in domains for s in mine}
        above = [
            level
            for s, level in levels.items()
            if level > 1 and s not in used and s in at and len(of_part.get(int(part[at[s]]), ())) > 1
        ]
        unused = sorted({level: above.count(level) for level in above}.items())
        roots_line = f"the tree has {len(apart)} roots in one connected fabric ({names_line(apart)})"
        lines = [f"{roots_line}: no switches above join them"]
        for level, n in unused:
            they = "it joins" if n == 1 else "they join"
            above_line = f"{count(n, 'switch')} of level {level} above these roots"
            lines.append(f"{above_line} {are(n)} in no tier: {they} no domains")
        return TreeGaps(tuple(sorted(apart)), tuple(unused), tuple(lines))
    # A sweep finds what cables connect, so its parts are connected, too.
    swept = np.array([name.startswith("infiniband") for name in links.fabrics], np.bool_)[links.fabric]
    fabrics, first = np.unique(links.fabric, return_index=True)
    of_fabric = links.a[first][np.searchsorted(fabrics, links.fabric[swept])]
    a, b = np.r_[links.a[swept], links.b[swept]], np.r_[of_fabric, of_fabric]
    part = connected_parts(len(links.devices), a, b)
    if apart := _together(_roots_by_part(domains, at, part)):
        line = (
            f"the tree has {len(apart)} roots in one sweep ({names_line(apart)}), and no cable joins them: "
            "switches between them may be missing, or the sweep is of several fabrics"
        )
        return TreeGaps(tuple(sorted(apart)), (), (line,))
    return TreeGaps()


def _roots_by_part(
    domains: Sequence[tuple[Sequence[str], str]], at: Mapping[str, int], part: npt.NDArray[np.int64]
) -> dict[int | str, set[str]]:
    """`domains`: the switches of each domain, and its root. `at`: the index of each device in `part`."""
    found: dict[int | str, set[str]] = {}
    for switches, root in domains:
        for switch in switches:
            found.setdefault(int(part[at[switch]]) if switch in at else switch, set()).add(root)
    return found


def _together(of_part: Mapping[int | str, set[str]]) -> set[str]:
    """Return the roots that share a part with another root."""
    return {name for mine in of_part.values() if len(mine) > 1 for name in mine}


def names_line(names: Collection[str]) -> str:
    """Return the names as a host list of at most 2,000 characters."""
    text = fold(sorted(names))
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + "... (all: -o json)"


def unnamed_hosts(topology: Topology) -> tuple[str, ...]:
    """Return the hosts in the tree that only a GUID identifies: no source names the host of that adapter.

    A topology without adapters is judged by the form of the names alone.
    """
    return _unnamed_hosts(topology.hypernodes, topology.adapters)


@memoized  # an output asks for them several times
def _unnamed_hosts(hypernodes: Sequence[HyperNode], adapters: Sequence[Adapter]) -> tuple[str, ...]:
    leaves = (h.nodes for h in hypernodes if not h.children)
    mixed = (nodes for nodes in leaves if _GUID_LENGTH in map(len, nodes))  # a fast test
    found = {n for nodes in mixed for n in nodes if len(n) == _GUID_LENGTH and _GUID.fullmatch(n)}
    if found and adapters:
        found &= {a.node for a in adapters if a.node == a.id}
    return tuple(sorted(found))


def single_host_domains(topology: Topology) -> dict[str, str]:
    """Return the domain above each accelerator domain of one host, by name.

    Such a domain is there only so that all hosts have as many tiers. A domain that stands for a leaf too, or
    that is below no other domain, is none of them.
    """
    return {
        h.name: h.parent
        for h in topology.hypernodes
        if h.parent is not None and len(h.nodes) == 1 and not h.switches and tier_level(h.tier_name) == 0
    }


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
