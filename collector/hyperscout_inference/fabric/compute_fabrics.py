"""Find the InfiniBand fabrics that do not compute, where several are swept (a storage fabric).

The planes and rails of one compute fabric are aligned: the hosts that share a leaf on one share a leaf on the
others. Aligned fabrics belong together; the number of ports does not matter, because one miswired cable joins
rails to one fabric. A host computes on those where it has most of its ports. A fabric on which half of its
hosts do not compute, or more, does not shape the hierarchy.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np

from hyperscout_inference.fabric.part import Part

# The share of the cables of hosts on both fabrics that follows the plan, at least: some may be miswired.
_ALIGNED = 0.75


class _Fabric(NamedTuple):
    """`leaves`: for each host its switches, sorted, one for each port. `gbps`: of all hosts' ports."""

    number: int
    leaves: Mapping[str, tuple[int, ...]]
    ports: int
    gbps: float


def other_fabrics(part: Part) -> list[int]:
    """Return the indexes of the fabrics that do not compute."""
    groups: list[list[_Fabric]] = []
    for fabric in sorted(_fabrics(part), key=lambda f: (-f.ports, -f.gbps, f.number)):
        for group in groups:
            if _are_aligned(group[0], fabric):
                group.append(fabric)
                break
        else:
            groups.append([fabric])
    if len(groups) == 1 and groups[0][0].ports:  # the usual case
        return []
    groups.sort(key=lambda g: (-sum(f.ports for f in g), -sum(f.gbps for f in g)))
    # For each host the group on which it has most ports; of equal ones the larger, then the faster one.
    ports = [_ports_of_hosts(group) for group in groups]
    best: dict[str, int] = {}
    for rank, mine in enumerate(ports):
        for host, count in mine.items():
            if count > ports[best.setdefault(host, rank)][host]:
                best[host] = rank
    return sorted(
        fabric.number
        for rank, group in enumerate(groups)
        for fabric in group
        if 2 * sum(best[host] != rank for host in ports[rank]) >= len(ports[rank])
    )


def _ports_of_hosts(group: Iterable[_Fabric]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for fabric in group:
        for host, switches in fabric.leaves.items():
            found[host] += len(switches)
    return found


def _fabrics(part: Part) -> Iterable[_Fabric]:
    leaves: list[dict[str, list[int]]] = [defaultdict(list) for _ in part.fabrics]
    hosts = part.hosts
    is_host = np.fromiter((host is not None for host in hosts), np.bool_, len(hosts))
    rows = np.flatnonzero(is_host[part.a] | is_host[part.b])
    a, b, fabrics = part.a[rows], part.b[rows], part.fabric[rows]
    ends = np.where(is_host[a], (a, b), (b, a)).tolist()
    for host, switch, fabric in zip(*ends, fabrics.tolist(), strict=True):
        leaves[fabric][hosts[host] or ""].append(switch)
    gbps = np.bincount(fabrics, part.rate_gbps[rows], len(part.fabrics)).tolist()
    for index, by_host in enumerate(leaves):
        own = {
            host: tuple(sorted(switches) if len(switches) > 1 else switches)
            for host, switches in by_host.items()
        }
        yield _Fabric(index, own, sum(map(len, own.values())), gbps[index])


def _are_aligned(one: _Fabric, other: _Fabric) -> bool:
    shared = [host for host in one.leaves if host in other.leaves]
    if not shared or 2 * len(shared) < min(len(one.leaves), len(other.leaves)):
        return False
    return _follow(one, other, shared) and _follow(other, one, shared)


def _follow(one: _Fabric, other: _Fabric, hosts: Sequence[str]) -> bool:
    """Return whether the hosts of each leaf of a fabric are together on the other one.

    One leaf stands for all leaves of a host there, because each missing cable changes the set of all.
    """
    mine = [one.leaves[host] for host in hosts]
    there = map(repeat, [other.leaves[host][0] for host in hosts], map(len, mine))
    pairs = Counter(zip(chain.from_iterable(mine), chain.from_iterable(there), strict=True))
    most: dict[int, int] = {}
    for (leaf, _), count in pairs.items():
        most[leaf] = max(most.get(leaf, 0), count)
    return sum(most.values()) >= _ALIGNED * pairs.total()
