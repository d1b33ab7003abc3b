"""Reads from the links of a topology how fast each node reaches the other nodes of its domains.

A hop over a tier uses a link of the node to a leaf, and the links between switches up to that tier. Links
between the same two switches are one trunk. Routes are unknown, so the slowest trunk that may be used counts.
Rails of a node into one leaf share the trunks of this leaf.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from hyperscout_topology.link_changes import denied_rows, table_of
from hyperscout_topology.memo import memoized, positions
from hyperscout_topology.topology import Adapter, LinkTable, Topology

from hyperscout_placer.cluster.forest import Forest, Longs

Floats = npt.NDArray[np.float64]

ETHERNET = "ethernet"
LEAST = 1e-6  # Gbit/s, or us: a lower figure is no measurement


def node_speeds(topology: Topology, forest: Forest) -> list[Floats]:
    """Gbit/s of data that each node sends over tier 1, 2, ...: one array (nodes,) for each; 0 = not read.

    The rails of a node are added up. A rail has the speed of its slowest link on the way. Ethernet counts
    only where a node has no other fabric. A link of unknown speed counts like the slowest known link of the
    same fabric at its lower end: the node, or the switch upwards.
    """
    found = [np.zeros(len(forest.nodes)) for _ in forest.layers]
    table = table_of(topology.links)
    of_rates = np.array([rate.data_gbps for rate in table.rates])
    if not of_rates.any() or not forest.layers:
        return found
    gbps = np.where(of_rates < LEAST, np.nan, of_rates)[table.rate]  # NaN = unknown
    gbps[denied_rows(table) + down_rows(topology, table)] = 0.0
    at = positions(table.devices)
    level = np.zeros(len(table.devices), np.int64)
    for h in sorted(topology.hypernodes, key=lambda h: -h.tier):
        level[[at[switch] for switch in h.switches if switch in at]] = h.tier
    low, high, trunk_gbps = _trunks(table, gbps, level)
    owner = _owners(topology.adapters, forest.nodes, table.devices)
    node, switch, rail_gbps, ethernet = _rails(owner, table, gbps, level)
    lowest = int(level[level > 0].min(initial=len(forest.layers) + 1))  # no cables make an NVLink tier
    for tier in range(lowest, len(forest.layers) + 1):
        slowest, shared = _ways(tier, level, low, high, trunk_gbps)
        way_gbps = np.minimum(rail_gbps, slowest[switch])
        sums = [
            _sums(node[part], switch[part], way_gbps[part], shared, len(forest.nodes))
            for part in (~ethernet, ethernet)
        ]
        found[tier - 1] = np.where(sums[0] > 0, sums[0], sums[1])
    return found


def down_rows(topology: Topology, table: LinkTable) -> list[int]:
    """The rows of links that are down."""
    down = {x.ends for x in topology.anomalies if x.kind == "MissingLink" and not x.is_over}
    if not down:
        return []
    devices = {device for pair in down for device, _ in pair}
    near = np.fromiter(map(devices.__contains__, table.devices), np.bool_, len(table.devices))
    links = ((row, table[row]) for row in np.flatnonzero(near[table.a] & near[table.b]).tolist())
    return [row for row, x in links if {(x.a_device, x.a_port), (x.b_device, x.b_port)} in down]


def _trunks(table: LinkTable, gbps: Floats, level: Longs) -> tuple[Longs, Longs, Floats]:
    """(trunks,) each: the lower switch, the higher switch, the sum of their links.

    A trunk between switches of one level is there in both directions.
    """
    a, b = level[table.a], level[table.b]
    up = np.flatnonzero((a > 0) & (a <= b) & (table.a != table.b) & (gbps != 0))
    down = np.flatnonzero((b > 0) & (b <= a) & (table.a != table.b) & (gbps != 0))
    rows = np.concatenate((up, down))
    low = np.concatenate((table.a[up], table.b[down])).astype(np.int64)
    high = np.concatenate((table.b[up], table.a[down]))
    link_gbps = _filled(gbps[rows], low, table.fabric[rows])
    known = link_gbps > 0
    pairs, pair = np.unique((low * len(level) + high)[known], return_inverse=True)
    sums: Floats = np.zeros(len(pairs))
    np.add.at(sums, pair, link_gbps[known])
    return pairs // len(level), pairs % len(level), sums


@memoized
def _owners(adapters: Sequence[Adapter], nodes: Sequence[str], devices: Sequence[str]) -> Longs:
    """(devices,) the node of each; -1 = none."""
    index, at = {node: i for i, node in enumerate(nodes)}, positions(devices)
    owner = np.full(len(devices), -1, np.int64)
    for adapter in adapters:
        if adapter.id in at:
            owner[at[adapter.id]] = index.get(adapter.node, -1)
    return owner


def _rails(
    owner: Longs, table: LinkTable, gbps: Floats, level: Longs
) -> tuple[Longs, Longs, Floats, npt.NDArray[np.bool_]]:
    """(links between hosts and switches,) each: the node, the switch, the speed, whether it is Ethernet."""
    by_name = np.array([name == ETHERNET for name in table.fabrics], np.bool_)
    parts = []
    for host, switch in ((table.a, table.b), (table.b, table.a)):
        rows = np.flatnonzero((owner[host] >= 0) & (level[switch] > 0) & (gbps != 0))
        parts.append((owner[host[rows]], switch[rows].astype(np.int64), gbps[rows], table.fabric[rows]))
    node, switches, speed, fabric = (np.concatenate(column) for column in zip(*parts, strict=True))
    return node, switches, _filled(speed, node, fabric), by_name[fabric]


def _filled(gbps: Floats, end: Longs, fabric: npt.NDArray[np.int32]) -> Floats:
    """(links,) with the slowest known speed of the same end and fabric where a speed is NaN; 0 = none."""
    pairs, group = np.unique(end * (fabric.max(initial=0) + 1) + fabric, return_inverse=True)
    slowest = np.full(len(pairs), np.inf)
    np.fmin.at(slowest, group, gbps)
    slowest[np.isinf(slowest)] = 0.0
    return np.where(np.isnan(gbps), slowest[group], gbps)


def _sums(node: Longs, switch: Longs, gbps: Floats, shared: Floats, nodes: int) -> Floats:
    """(nodes,) the sums over rails; those into one switch are limited by its trunks together."""
    pairs, pair = np.unique(node * len(shared) + switch, return_inverse=True)
    by_switch = np.minimum(np.bincount(pair, gbps, len(pairs)), shared[pairs % len(shared)])
    found: Floats = np.zeros(nodes)
    np.add.at(found, pairs // len(shared), by_switch)
    return found


def _ways(tier: int, level: Longs, low: Longs, high: Longs, gbps: Floats) -> tuple[Floats, Floats]:
    """(devices,) each: of a switch the slowest trunk on a way up to the tier, and its trunks up together.

    0 = none is known. Where no switch of a level has a way up, for example in a torus, trunks within the
    level are the way.
    """
    slowest = np.where(level >= tier, np.inf, 0.0)
    together = slowest.copy()
    for below in range(tier - 1, 0, -1):
        mine = level[low] == below
        rows = mine & (level[high] > below) & (level[high] <= tier) & (slowest[high] > 0)
        if not rows.any():
            rows = mine & (level[high] == below)
            slowest[level == below] = together[level == below] = np.inf
        least, total = np.full(len(level), np.inf), np.zeros(len(level))
        np.minimum.at(least, low[rows], np.minimum(gbps[rows], slowest[high[rows]]))
        np.add.at(total, low[rows], np.minimum(gbps[rows], together[high[rows]]))
        slowest[level == below] = np.where(np.isinf(least), 0.0, least)[level == below]
        together[level == below] = total[level == below]
    return slowest, together


def usual(speeds: Floats) -> float | None:
    """The median of the known speeds."""
    known = speeds[speeds > 0]
    return float(np.median(known)) if len(known) else None
