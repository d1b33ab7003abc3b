"""Find the InfiniBand fabrics that do not compute, where several are swept (a storage fabric).

The planes and rails of one compute fabric are aligned: the hosts that share a leaf on one share a leaf on the
others. Aligned fabrics belong together; the number of ports does not matter, because one miswired cable joins
rails to one fabric. A host computes on those where it has most of its ports. A fabric on which half of its
hosts do not compute, or more, does not shape the hierarchy.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hyperscout_topology.link_changes import contains
from hyperscout_topology.memo import memoized

from hyperscout_inference.fabric.network import Ints, distinct
from hyperscout_inference.fabric.part import Longs, Part

# The share of the cables of hosts on both fabrics that follows the plan, at least: some may be miswired.
_ALIGNED = 0.75


class _Fabric(NamedTuple):
    """`host`, `switch`: of each port of a host, sorted. `gbps`: of all these ports."""

    number: int
    host: Longs
    switch: Longs
    gbps: float


def other_fabrics(part: Part) -> list[int]:
    """Return the indexes of the fabrics that do not compute."""
    if len(part.fabrics) < 2:
        return []
    return _others(len(part.fabrics), part.hosts, part.a, part.b, part.rate_gbps, part.fabric)


@memoized
def _others(
    count: int, hosts: Sequence[str | None], a: Ints, b: Ints, gbps: npt.NDArray[np.float32], fabric_of: Ints
) -> list[int]:
    groups: list[list[_Fabric]] = []
    fabrics = _fabrics(count, hosts, a, b, gbps, fabric_of)
    for fabric in sorted(fabrics, key=lambda f: (-len(f.host), -f.gbps, f.number)):
        for group in groups:
            if _are_aligned(group[0], fabric):
                group.append(fabric)
                break
        else:
            groups.append([fabric])
    if len(groups) == 1 and len(groups[0][0].host):  # the usual case
        return []
    groups.sort(key=lambda g: (-sum(len(f.host) for f in g), -sum(f.gbps for f in g)))
    # For each host the group on which it has most ports; of equal ones the larger, then the faster one.
    ports = np.array([np.bincount(_hosts_of(group), minlength=len(hosts)) for group in groups])
    best = ports.argmax(axis=0)
    return sorted(
        fabric.number
        for rank, group in enumerate(groups)
        for fabric in group
        if 2 * np.count_nonzero(best[ports[rank] > 0] != rank) >= np.count_nonzero(ports[rank])
    )


def _hosts_of(group: list[_Fabric]) -> Longs:
    return np.concatenate([fabric.host for fabric in group])


def _fabrics(
    count: int, hosts: Sequence[str | None], a: Ints, b: Ints, gbps: npt.NDArray[np.float32], fabric_of: Ints
) -> Iterator[_Fabric]:
    # The number of each host, -1 for devices of no host.
    numbers = {name: i for i, name in enumerate(dict.fromkeys((None, *hosts)), -1)}
    host = np.fromiter(map(numbers.__getitem__, hosts), np.int64, len(hosts))
    rows = np.flatnonzero((host[a] >= 0) | (host[b] >= 0))
    a, b, rate = a[rows], b[rows], gbps[rows]
    is_a = host[a] >= 0
    near, switch = host[np.where(is_a, a, b)], np.where(is_a, b, a).astype(np.int64)
    for number in range(count):
        mine = np.flatnonzero(fabric_of[rows] == number)
        order = mine[np.lexsort((switch[mine], near[mine]))]
        yield _Fabric(number, near[order], switch[order], float(rate[mine].sum(dtype=np.float64)))


def _are_aligned(one: _Fabric, other: _Fabric) -> bool:
    mine, theirs = distinct(one.host), distinct(other.host)
    shared = mine[contains(theirs, mine)]
    if not len(shared) or 2 * len(shared) < min(len(mine), len(theirs)):
        return False
    return _follow(one, other, shared) and _follow(other, one, shared)


def _follow(one: _Fabric, other: _Fabric, hosts: Longs) -> bool:
    """Return whether the hosts of each leaf of a fabric are together on the other one.

    One leaf stands for all leaves of a host there, because each missing cable changes the set of all.
    """
    rows = contains(hosts, one.host)
    there = other.switch[np.searchsorted(other.host, one.host[rows])]
    leaf, there = _sorted_pairs(one.switch[rows], there)
    new_leaf = np.r_[True, leaf[1:] != leaf[:-1]]
    starts = np.flatnonzero(new_leaf | np.r_[True, there[1:] != there[:-1]])
    counts = np.diff(np.r_[starts, len(leaf)])
    most = np.maximum.reduceat(counts, np.flatnonzero(new_leaf[starts]))
    return bool(most.sum() >= _ALIGNED * len(leaf))


def _sorted_pairs(one: Longs, other: Longs) -> tuple[Longs, Longs]:
    order = np.lexsort((other, one))
    return one[order], other[order]
