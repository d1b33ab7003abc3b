"""The compute fabric's switches as a graph, and the stray cables in it."""

import numpy as np

from hyperscout_inference.fabric.network import Ints, Network, order_of
from hyperscout_inference.grouping.grouping import Bools, Longs

_FEW = 2  # squares that stray cables may form


class SwitchGraph:
    """The compute fabric's switches as a graph with parallel edges. Row k is a cable from `here[k]` to
    `there[k]`; each cable has two rows, sorted by `here`. Loops are left out.

    `endpoints`: (devices,) the number of cables to endpoints. SHARP aggregation nodes are no endpoints.
    `hosts`: (devices,) the number of hosts that are connected, however many cables each has.
    `hosts_and_foreign`: (devices,) `hosts`, plus the number of cables to foreign endpoints.
    """

    def __init__(self, net: Network) -> None:
        count = len(net.ids)
        shaping = net.shapes & (net.a != net.b)
        a, b = net.a[shaping], net.b[shaping]
        sharp = net.sharp if net.sharp is not None else np.zeros(count, np.bool_)
        endpoint = ~net.is_switch & ~sharp
        self.count = count
        self.is_switch = net.is_switch
        self.mute = net.mute if net.mute is not None else np.zeros(count, np.bool_)
        self.endpoints = np.zeros(count, np.int64)
        for near, far in ((a, b), (b, a)):
            self.endpoints += np.bincount(near[endpoint[far]], minlength=count)
        between = net.is_switch[a] & net.is_switch[b]
        here = np.concatenate([a[between], b[between]])
        there = np.concatenate([b[between], a[between]])
        self.here, self.there = _sorted_pairs(here, there, count)
        self.start = np.searchsorted(self.here, np.arange(count + 1))
        self.degree = np.diff(self.start)
        hosted = net.is_switch[a] != net.is_switch[b]
        flip = net.is_switch[a[hosted]]
        switch = np.where(flip, a[hosted], b[hosted])
        host = net.host[np.where(flip, b[hosted], a[hosted])]
        self._host_switch, self._host = _sorted_pairs(switch, host, len(net.hosts))
        known = self._host >= 0
        switch, host = self._host_switch[known], self._host[known]
        again = np.r_[False, (switch[1:] == switch[:-1]) & (host[1:] == host[:-1])][: len(switch)]
        self.hosts = np.bincount(switch[~again], minlength=count)
        self.hosts_and_foreign = self.endpoints - np.bincount(switch[again], minlength=count)

    def cables_to(self, switches: Bools) -> Longs:
        """Return (devices,) the number of cables of each switch to these switches."""
        return np.bincount(self.here[switches[self.there]], minlength=self.count)

    def around(self, switch: int) -> Longs:
        """Return the other ends of a switch's cables to switches, one for each cable, sorted."""
        return self.there[self.start[switch] : self.start[switch + 1]]

    def hosts_on(self, switch: int) -> frozenset[int]:
        """Return the hosts that are connected to a switch."""
        begin, end = np.searchsorted(self._host_switch, (switch, switch + 1)).tolist()
        return frozenset(self._host[begin:end].tolist()) - {-1}


def _sorted_pairs(first: Ints, second: Ints, count: int) -> tuple[Longs, Longs]:
    """Return the pairs sorted. `second` has values from -1 to `count` - 1."""
    key = first * np.int64(count + 1) + second + 1  # much faster than to sort by two keys
    key = key[order_of(key)]
    one, other = np.divmod(key, count + 1)
    return one, other - 1


def strays(graph: SwitchGraph, rows: Bools) -> set[tuple[int, int]]:
    """Return the pairs of switches, in both orders, that cables of these rows join and that are stray."""
    squares = Squares(graph)
    pairs = set(zip(graph.here[rows].tolist(), graph.there[rows].tolist(), strict=True))
    found = {(a, b) for a, b in pairs if (a < b or (b, a) not in pairs) and squares.is_stray(a, b)}
    return found | {(other, one) for one, other in found}


class Squares:
    """Finds stray cables: those between switches that are joined to others in many squares, as leaves and
    spines are, but not so to each other. Two stray cables may form a square."""

    def __init__(self, graph: SwitchGraph) -> None:
        self._graph = graph
        self._near: dict[int, frozenset[int]] = {}
        self._best: dict[int, int] = {}  # by switch, the most squares that one cable is in, or enough

    def is_stray(self, one: int, other: int) -> bool:
        """Return whether what joins two switches is in few squares, and in less than half as many as the best
        cable of each of them. Cables of a switch that does not report them may be unknown."""
        if self._graph.mute[one] or self._graph.mute[other]:
            return False
        few = self._squares(one, other, _FEW + 1)
        return few <= _FEW and 2 * few < min(self._most(one), self._most(other))

    def _most(self, switch: int) -> int:
        if switch not in self._best:
            self._best[switch] = max(self._squares(switch, x, 2 * _FEW + 1) for x in self._around(switch))
        return self._best[switch]

    def _squares(self, a: int, b: int, enough: int) -> int:
        """Return the number of squares with two switches as neighbours; if there are `enough`, any such
        number."""
        mine, found = self._around(a) - {b}, 0
        for c in self._around(b):
            if c != a and not mine.isdisjoint(around := self._around(c)):
                found += len(mine & around)
                if found >= enough:
                    break
        return found

    def _around(self, switch: int) -> frozenset[int]:
        if switch not in self._near:
            self._near[switch] = frozenset(self._graph.around(switch).tolist())
        return self._near[switch]
