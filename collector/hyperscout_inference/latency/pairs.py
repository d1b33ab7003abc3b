"""Join what nodes measured of each other into columns: one row for each pair of nodes and each of its rails.

Each pair is measured from both ends. The two ends must agree, or the pair is dropped. An end with a stepped
clock or false times can therefore not make a host seem near.

- Ends may differ by 1 us or 30 %, whichever is more. One switch hop is 1.5 us there and back, so the bound
  does not admit another tier. Burst minima of loaded hosts differ by less (docs/latency.md).
- Of two ends that agree, the longer round trip counts. Noise only adds to a round trip, so the shorter one
  may be closer to the truth. But other pairs correct a value that is too long, and none corrects one that is
  too short.
- Round trips are those of UDP. RDMA adds bandwidth to the same row. A pair without UDP gets a row for its
  RDMA round trip under a rail of its own ("mlx5_0/rdma"), because the two are not comparable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hyperscout_formats.facts.facts import LatencyPort, LatencyResult
from hyperscout_formats.text.latency_csv import LatencyRow

from hyperscout_inference.latency.bursts import COUNTS, PairHistory, agreed_bursts, columns_of

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NOISE_US = 1.0
NOISE_SHARE = 0.3
MIN_RTT_US, MAX_RTT_US = 0.1, 1e6  # light needs 0.1 us for 15 m and back; a cluster never needs a second
MAX_GBPS = 1e5
MAX_SAMPLES = 1_000_000
RDMA = "/rdma"  # suffix of the rail of a pair that has only RDMA round trips

_MAX_TIME_NS = 1 << 62
_MAX_NAMES = 1 << 20  # distinct names after which the reader clears its state
_METHODS = {"udp": 0, "rdma": 1}
_COLUMNS = attrgetter(
    "peer", "peer_interface", "method", "at_ns", "sent", "received", "min_us", "jitter_us", "bandwidth_gbps"
)


@dataclass(frozen=True, slots=True, eq=False)
class PairTable:
    """`a`, `b`: (pairs,) index into `nodes`, a < b; sorted by (a, b, rail). Times in microseconds.

    `rtt_us`: robust minimum of the round trip. `jitter_us`: -1 = unknown. `bandwidth_gbps`: 0 = not measured.
    `at_ns`: Unix ns of the newest burst by the collector's clock, 0 = unknown. `samples`: pings answered.
    """

    nodes: Sequence[str]  # sorted
    rails: Sequence[str]  # sorted
    a: Ints
    b: Ints
    rail: Ints
    rtt_us: Floats
    jitter_us: Floats
    bandwidth_gbps: Floats
    samples: Ints
    at_ns: Longs
    disagreeing: int = 0  # pairs that were dropped because their ends do not agree
    history: PairHistory | None = None  # None = only the newest bursts are known

    def __len__(self) -> int:
        return len(self.a)


def _empty(disagreeing: int = 0) -> PairTable:
    ints, floats = np.zeros(0, np.int32), np.zeros(0, np.float64)
    longs = np.zeros(0, np.int64)
    return PairTable((), (), ints, ints, ints, floats, floats, floats, ints, longs, disagreeing)


NO_PAIRS = _empty()


def pairs_of_rows(rows: Sequence[LatencyRow]) -> PairTable:
    """Return the pairs of a table from another tool. Of several rows of one pair the shortest round trip
    counts, because noise only adds."""
    names = sorted({name for row in rows for name in row[:2] if row.node_a != row.node_b})
    if not names:
        return NO_PAIRS
    index = {name: number for number, name in enumerate(names)}
    rows = [row for row in rows if row.node_a != row.node_b]
    ends = np.array([(index[row.node_a], index[row.node_b]) for row in rows], np.int32)
    a, b = ends.min(axis=1), ends.max(axis=1)
    rtt_us = np.array([row.rtt_us for row in rows], np.float64)
    samples = np.array([min(row.samples, MAX_SAMPLES) for row in rows], np.int32)
    order = np.lexsort((-samples, rtt_us, b, a))
    a, b = a[order], b[order]
    first = np.r_[True, (a[1:] != a[:-1]) | (b[1:] != b[:-1])]
    chosen, count = order[first], int(first.sum())
    return PairTable(
        tuple(names),
        ("table",),
        a[first],
        b[first],
        np.zeros(count, np.int32),
        rtt_us[chosen],
        np.full(count, -1.0),
        np.zeros(count),
        samples[chosen],
        np.zeros(count, np.int64),
    )


class Clock(NamedTuple):
    """Clock of the agent that reported a port. `offset_ns`: its clock minus the collector's. `until_ns`: when
    it reported, by its own clock; no measurement is later."""

    offset_ns: int = 0
    until_ns: int = _MAX_TIME_NS


_OURS = Clock()


class PairReader:
    """Joins the ports of all nodes to pairs. A repeated call reads only changes.

    A node with the same object of ports as before is not read again. Without any change the last table is
    returned. Not thread-safe.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._names = _Ids()
        self._interfaces = _Ids()
        self._table = NO_PAIRS

    def read(
        self,
        ports: Mapping[str, Sequence[LatencyPort]],
        clocks: Mapping[str, Sequence[Clock]] | None = None,
    ) -> PairTable:
        """Return the pairs on which both ends agree. Keys are node names; `clocks`: one for each port, where
        known.

        A pair is left out if only one end has measured it, or if its ends differ by more than noise.
        """
        if len(self._names) + len(self._interfaces) > _MAX_NAMES:
            self._nodes, self._names, self._interfaces = {}, _Ids(), _Ids()
        changed = len(ports) != len(self._nodes)
        for name, seen in ports.items():
            clock = clocks.get(name, ()) if clocks else ()
            known = self._nodes.get(name)
            if known is None or known.ports is not seen or known.clocks != clock:
                self._nodes[name] = self._read(name, seen, clock)
                changed = True
        if changed:
            for gone in self._nodes.keys() - ports.keys():
                del self._nodes[gone]
            self._table = self._join()
        return self._table

    def _read(self, name: str, ports: Sequence[LatencyPort], clocks: Sequence[Clock]) -> "_Node":
        """Read the usable results of a node."""
        node = _Node(self._names[name], ports, clocks)
        rows: list[tuple[Any, ...]] = []
        known: list[LatencyResult] = []
        counts: list[int] = []
        for port in ports:
            results = [x for x in port.results if not x.failure and x.method in _METHODS]
            found = [_COLUMNS(x) for x in results]
            rows += found
            known += results
            counts.append(len(found))
        if not rows:
            return node
        peer, peer_interface, method, at_ns, sent, received, *floats = zip(*rows, strict=True)
        ids = (
            map(self._names.__getitem__, peer),
            map(self._interfaces.__getitem__, peer_interface),
            map(_METHODS.__getitem__, method),
        )
        node.ids = np.zeros((6, len(rows)), np.int32)
        node.ids[_OWN] = node.id
        node.ids[_OWN_INTERFACE] = np.repeat([self._interfaces[port.interface] for port in ports], counts)
        node.ids[_PEER : _METHOD + 1] = np.fromiter(chain(*ids), np.int32, 3 * len(rows)).reshape(3, -1)
        answered, asked = _longs(received), _longs(sent)
        node.ids[_RECEIVED] = np.where(answered <= asked, _held(answered, 0, MAX_SAMPLES), 0)
        at = [clocks[i] if i < len(clocks) else _OURS for i in range(len(ports))]
        offset_ns, until_ns = (np.repeat(_longs(column), counts) for column in zip(*at, strict=True))
        node.at_ns = _held(np.minimum(_longs(at_ns), until_ns) - offset_ns, 0, _MAX_TIME_NS)
        node.floats = np.concatenate((np.array(floats, np.float64), columns_of(known)))
        good = _good(node)
        if not good.all():
            node.ids, node.at_ns, node.floats = node.ids[:, good], node.at_ns[good], node.floats[:, good]
        return node

    def _join(self) -> PairTable:
        """Match both ends of all results."""
        nodes = [node for node in self._nodes.values() if node.ids.size]
        if not nodes:
            return NO_PAIRS
        ids = np.concatenate([node.ids for node in nodes], axis=1)
        at_ns = np.concatenate([node.at_ns for node in nodes])
        floats = np.concatenate([node.floats for node in nodes], axis=1)
        names, rank = _ranked(self._names, ids[[_OWN, _PEER]])
        interfaces, interface_rank = _ranked(self._interfaces, ids[[_OWN_INTERFACE, _PEER_INTERFACE]])
        own, peer = rank[ids[_OWN]], rank[ids[_PEER]]
        here, there = interface_rank[ids[_OWN_INTERFACE]], interface_rank[ids[_PEER_INTERFACE]]
        back = own > peer
        pair = np.where(back, peer * len(names) + own, own * len(names) + peer)
        rail = np.where(back, there * len(interfaces) + here, here * len(interfaces) + there)
        which = (rail * 2 + ids[_METHOD]) * 2 + back
        order = np.lexsort((which, pair))
        again = (which[order][1:] == which[order][:-1]) & (pair[order][1:] == pair[order][:-1])
        if again.any():
            # Two reports of one end (the project's agents send only one): the newest counts.
            order = np.lexsort((floats[_RTT], at_ns, which, pair))
            order = order[np.append(~again, True)]
        pair, which = pair[order], which[order]
        one = np.flatnonzero((pair[1:] == pair[:-1]) & (which[1:] // 2 == which[:-1] // 2))
        x, y = order[one], order[one + 1]
        both = _Both(
            pair[one],
            which[one] // 4,
            which[one] // 2 % 2,
            np.minimum(ids[_RECEIVED, x], ids[_RECEIVED, y]),
            np.maximum(at_ns[x], at_ns[y]),
            *_agreed(floats[:, x], floats[:, y]),
            agreed_bursts(floats[_BURSTS:, x], floats[_BURSTS:, y]),
        )
        return _table(both, names, interfaces)


_OWN, _OWN_INTERFACE, _PEER, _PEER_INTERFACE, _METHOD, _RECEIVED = range(6)
_RTT, _JITTER, _RATE, _BURSTS = range(4)


class _Ids(dict[str, int]):
    """Numbers for names, from 0, in the order of first use."""

    def __missing__(self, name: str) -> int:
        self[name] = found = len(self)
        return found


@dataclass(slots=True)
class _Node:
    """The results of one node. `ids`: (6, results), rows as `_OWN` and the following; `floats`: (3 + COUNTS,
    results), rows as `_RTT` and the following, then those of `columns_of`."""

    id: int
    ports: Sequence[LatencyPort]
    clocks: Sequence[Clock]
    ids: Ints = field(default_factory=lambda: np.zeros((6, 0), np.int32))
    at_ns: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    floats: Floats = field(default_factory=lambda: np.zeros((_BURSTS + COUNTS, 0)))


def _longs(numbers: Sequence[int]) -> Longs:
    """Return a column of integers, clipped to +-2^62."""
    try:
        return _held(np.array(numbers, np.int64), -_MAX_TIME_NS, _MAX_TIME_NS)
    except OverflowError:
        held = [min(max(x, -_MAX_TIME_NS), _MAX_TIME_NS) for x in numbers]
        return np.array(held, np.int64)


def _held(values: Longs, low: int, high: int) -> Longs:
    """Clip values. np.clip takes five times as long for a hundred values."""
    return np.minimum(np.maximum(values, low), high)


def _good(node: _Node) -> Bools:
    """Return which results are usable. In place, unusable values become 0, or -1 for jitter."""
    rtt_us, jitter_us, gbps = node.floats[:_BURSTS]
    answered = (node.ids[_RECEIVED] > 0) & (rtt_us >= MIN_RTT_US) & (rtt_us <= MAX_RTT_US)
    jitter_us[~((jitter_us >= 0) & (jitter_us <= MAX_RTT_US))] = -1.0
    gbps[~((gbps > 0) & (gbps <= MAX_GBPS) & (node.ids[_METHOD] == 1))] = 0.0
    rtt_us[~answered] = 0.0
    return np.asarray(answered | (gbps > 0))


def ends_agree(low_us: float, high_us: float) -> bool:
    """Return whether two ends' round trips, in microseconds, differ by no more than noise."""
    return high_us - low_us <= max(NOISE_US, NOISE_SHARE * low_us)


def _agreed(x: Floats, y: Floats) -> tuple[Floats, Floats, Floats, Ints]:
    """Return round trip, jitter and bandwidth of pairs from both ends, and how many values the ends disagree
    on.

    The round trip is -1 where they disagree and 0 where an end has none. The bandwidth is 0 in both cases.
    """
    low, high = np.minimum(x, y), np.maximum(x, y)
    known = low > 0
    agree = high[_RTT] - low[_RTT] <= np.maximum(NOISE_US, NOISE_SHARE * low[_RTT])
    alike = low[_RATE] >= (1 - NOISE_SHARE) * high[_RATE]
    wrong = (known[_RTT] & ~agree).astype(np.int32) + (known[_RATE] & ~alike)
    rtt_us = np.where(known[_RTT], np.where(agree, high[_RTT], -1.0), 0.0)
    return rtt_us, high[_JITTER], np.where(known[_RATE] & alike, low[_RATE], 0.0), wrong


class _Both(NamedTuple):
    """What both ends have measured, sorted by pair, rail and method. `pair` and `rail` encode names as
    numbers.

    `rtt_us`: -1 where they disagree, 0 = none.
    """

    pair: Longs
    rail: Longs
    method: Longs
    samples: Ints
    at_ns: Longs
    rtt_us: Floats
    jitter_us: Floats
    gbps: Floats
    wrong: Ints
    bursts: Floats


def _table(both: _Both, names: Sequence[str], interfaces: Sequence[str]) -> PairTable:
    """Return one row for each pair and rail."""
    disagreeing = int(both.wrong.sum())
    n, m = len(names), len(interfaces)
    begins = np.ones(len(both.pair), bool)
    begins[1:] = (both.pair[1:] != both.pair[:-1]) | (both.rail[1:] != both.rail[:-1])
    slot = np.cumsum(begins) - 1
    udp = both.method == 0
    has_udp = np.zeros(int(begins.sum()), bool)
    has_udp[slot[udp]] = True
    gbps = np.zeros(len(has_udp))
    gbps[slot[~udp]] = both.gbps[~udp]
    chosen = (both.rtt_us > 0) & (udp | ~has_udp[slot])
    if not chosen.any():
        return _empty(disagreeing)
    pair, slot = both.pair[chosen], slot[chosen]
    # Sort the rails that occur by their names.
    which = both.rail[chosen] * 2 + both.method[chosen]
    used, rail = np.unique(which, return_inverse=True)
    labels = [_label(int(x), interfaces, m) for x in used.tolist()]
    rails = sorted(set(labels))
    index = {label: i for i, label in enumerate(rails)}
    place = np.array([index[label] for label in labels], np.int32)[rail]
    seen, ends = np.unique(np.concatenate((pair // n, pair % n)), return_inverse=True)
    a, b = np.split(ends.astype(np.int32), 2)
    order = np.lexsort((place, b, a))
    return PairTable(
        tuple(names[i] for i in seen.tolist()),
        tuple(rails),
        a[order],
        b[order],
        place[order],
        both.rtt_us[chosen][order],
        both.jitter_us[chosen][order],
        gbps[slot][order],
        both.samples[chosen][order].astype(np.int32),
        both.at_ns[chosen][order],
        disagreeing,
        PairHistory(*both.bursts[:, chosen][:, order]),
    )


def _label(rail: int, interfaces: Sequence[str], m: int) -> str:
    here, there = interfaces[rail // 2 // m], interfaces[rail // 2 % m]
    return (here if here == there else f"{here}~{there}") + (RDMA if rail % 2 else "")


def _ranked(ids: _Ids, used: Ints) -> tuple[list[str], Longs]:
    """Return the names that are used, sorted, and by number the place of each among them."""
    names = list(ids)
    numbers = sorted(np.unique(used).tolist(), key=names.__getitem__)
    rank = np.full(len(names), -1, np.int64)
    rank[numbers] = np.arange(len(numbers))
    return [names[i] for i in numbers], rank
