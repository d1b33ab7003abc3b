"""Look up, pair by pair, what was measured between the nodes that can be measured now."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hyperscout_inference.latency.edges import Flags
from hyperscout_inference.latency.pairs import Floats, Longs, PairTable


class Known(NamedTuple):
    """Measured pairs between nodes that can be measured: sorted keys, round trips and times."""

    nodes: int
    key: Longs  # low * nodes + high
    rtt_us: Floats
    at_ns: Longs

    def has(self, i: Longs, j: Longs) -> Flags:
        """(wanted,) whether each pair was measured."""
        return self._place(i, j)[1]

    def when(self, i: Longs, j: Longs) -> Longs:
        """(wanted,) when each pair was measured, Unix ns; -1 = never."""
        place, known = self._place(i, j)
        return np.where(known, self.at_ns[place], -1) if len(self.key) else np.full(len(i), -1)

    def _place(self, i: Longs, j: Longs) -> tuple[Longs, Flags]:
        key = np.minimum(i, j) * self.nodes + np.maximum(i, j)
        place = np.minimum(np.searchsorted(self.key, key), max(0, len(self.key) - 1))
        return place, (self.key[place] == key if len(self.key) else np.zeros(len(key), bool))

    @property
    def ends(self) -> tuple[Longs, Longs]:
        """Return each pair twice: (host, peer)."""
        a, b = self.key // self.nodes, self.key % self.nodes
        return np.concatenate((a, b)), np.concatenate((b, a))


def known_of(nodes: Sequence[str], pairs: PairTable) -> Known:
    number = {name: index for index, name in enumerate(nodes)}
    to = np.array([number.get(name, -1) for name in pairs.nodes], np.int64)
    empty = np.zeros(0, np.int64)
    if not len(pairs):
        return Known(len(nodes), empty, np.zeros(0), empty)
    a, b = to[pairs.a], to[pairs.b]
    both = (a >= 0) & (b >= 0) & (a != b)
    key = (np.minimum(a, b) * len(nodes) + np.maximum(a, b))[both]
    order = np.lexsort((pairs.at_ns[both], key))  # the newest of each pair comes last
    last = np.r_[key[order][1:] != key[order][:-1], True] if len(key) else np.zeros(0, bool)
    chosen = order[last]
    return Known(len(nodes), key[chosen], pairs.rtt_us[both][chosen], pairs.at_ns[both][chosen])


def keys_of(i: Longs, j: Longs, nodes: int) -> Longs:
    return np.minimum(i, j) * nodes + np.maximum(i, j)


def sizes_of(labels: Longs) -> Longs:
    """(nodes,) the size of each node's domain; 0 = in none."""
    count = np.bincount(labels[labels >= 0], minlength=1)
    return np.where(labels >= 0, count[labels], 0)
