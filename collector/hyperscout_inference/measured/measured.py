"""Compute latency and bandwidth of every tier and domain, and find what is out of line.

Latency is the UDP round trip as measured, with the hosts' own parts. Where no pair has one, it is that of
RDMA. Of pairs within a rail and pairs across rails, the more numerous kind counts. Bandwidth is that of NCCL
between two nodes at 64 MiB and above where it was run (all rails together), else what `ib_send_bw` gave for a
port.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_formats.facts.facts import NcclRun
from hyperscout_topology.topology import Endpoint, HyperNode, Measured, Tier

from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.latency.pairs import Floats, Longs, PairTable
from hyperscout_inference.measured.pair_rows import PairRows, common, pair_rows
from hyperscout_inference.measured.slow_domains import slow_domains
from hyperscout_inference.measured.slow_hosts import slow_hosts
from hyperscout_inference.measured.slow_paths import slow_paths
from hyperscout_inference.measured.slow_tiers import slow_tiers
from hyperscout_inference.measured.weak_paths import Weights, weak_paths

MAX_SUSPICIONS = 200  # a longer list does not help: everything is slow then
_LARGE_BYTES = 64 << 20
_GBITS = 8.0  # Gbit per GB; NCCL reports GB/s
_DECIMALS = 3  # of a figure: a nanosecond, a megabit per second


@dataclass(frozen=True, slots=True)
class Measurements:
    """`latency_us`, `bandwidth_gbps`: by layer and domain. `tiers`: by layer, (latency, bandwidth)."""

    latency_us: Sequence[Sequence[Measured | None]]
    bandwidth_gbps: Sequence[Sequence[Measured | None]]
    tiers: Sequence[tuple[Measured | None, Measured | None]]
    suspicions: Sequence[Suspicion]

    def on(self, hypernodes: Sequence[HyperNode], names: Sequence[Sequence[str]]) -> list[HyperNode]:
        """Return the HyperNodes with their figures. `names`: by layer and domain."""
        figures = {
            (depth + 1, name): both
            for depth, row in enumerate(names)
            for name, *both in zip(row, self.latency_us[depth], self.bandwidth_gbps[depth], strict=True)
            if any(both)
        }
        if not figures:
            return list(hypernodes)
        nothing = [None, None]
        return [
            replace(h, latency_us=both[0], bandwidth_gbps=both[1])
            for h in hypernodes
            for both in [figures.get((h.tier, h.name), nothing)]
        ]

    def as_tiers(self, layers: Sequence[Layer]) -> tuple[Tier, ...]:
        """Return the tiers of all layers, or () if nothing was measured."""
        if not any(map(any, self.tiers)):
            return ()
        return tuple(
            Tier(depth + 1, layer.name, *both)
            for depth, (layer, both) in enumerate(zip(layers, self.tiers, strict=True))
        )


def measure(
    hosts: Sequence[str], layers: Sequence[Layer], pairs: PairTable, nccl: Mapping[str, Sequence[NcclRun]]
) -> Measurements:
    """Return figures and suspicions. `hosts`: names, as `layers` index them. Takes about 0.3 s for 36,000
    pairs."""
    if not len(pairs) and not nccl:
        nothing: list[list[Measured | None]] = [[None] * layer.count for layer in layers]
        return Measurements(nothing, nothing, [(None, None)] * len(layers), ())
    rows = pair_rows(hosts, layers, pairs)
    timed = rows.of(pairs.rtt_us[rows.row] > 0)
    shown = timed.of(_most(timed))
    by_latency = _Figures(layers, shown.layer, shown.domain).read(
        pairs.rtt_us[shown.row], pairs.at_ns[shown.row], 0.99
    )
    collective, ports = _nccl_weights(hosts, layers, nccl), _port_weights(rows, pairs)
    by_nccl, by_port = (
        _Figures(layers, w.layer, w.domain).read(w.gbps, w.at_ns, 0.01) for w in (collective, ports)
    )
    bandwidth = [_first(*found) for found in zip(by_nccl[0], by_port[0], strict=True)]
    suspicions = [
        *_slow(hosts, layers, timed, pairs),
        *weak_paths(hosts, collective),
        *weak_paths(hosts, ports),
    ]
    return Measurements(
        by_latency[0],
        bandwidth,
        list(zip(by_latency[1], _first(by_nccl[1], by_port[1]), strict=True)),
        _merged(suspicions)[:MAX_SUSPICIONS],
    )


def _merged(suspicions: Sequence[Suspicion]) -> list[Suspicion]:
    """Join suspicions with the same ends, because an anomaly is identified by its ends."""
    found: dict[tuple[Endpoint, Endpoint | None], Suspicion] = {}
    for x in suspicions:
        if (same := found.get((x.subject, x.peer))) is None:
            found[x.subject, x.peer] = x
            continue
        found[x.subject, x.peer] = replace(
            same,
            message=f"{same.message}; {x.message}",
            figures=same.figures + x.figures,
            confidence=max(same.confidence, x.confidence),
            sources=tuple(sorted({*same.sources, *x.sources})),
        )
    return list(found.values())


def _slow(
    hosts: Sequence[str], layers: Sequence[Layer], timed: PairRows, pairs: PairTable
) -> Iterator[Suspicion]:
    """Yield domains before hosts, tiers and paths. What a larger unit explains is not reported again."""
    for kind in np.unique(timed.kind).tolist():
        rows = timed.of(timed.kind == kind)
        found, good = slow_domains(hosts, layers, rows, pairs)
        yield from found
        rows = rows.of(good)
        found, good = slow_hosts(hosts, layers, rows, pairs)
        yield from found
        rows = rows.of(good)
        for suspicion in slow_tiers(hosts, layers, rows, pairs):
            yield suspicion
            rows = rows.of((rows.layer != suspicion.layer) | (rows.domain != suspicion.domain))
        yield from slow_paths(hosts, layers, rows, pairs)


def _first(x: Sequence[Measured | None], y: Sequence[Measured | None]) -> list[Measured | None]:
    return [a or b for a, b in zip(x, y, strict=True)]


def _most(rows: PairRows) -> Longs:
    """Return the rows of the kind to show: UDP before RDMA, then the more numerous one."""
    if not len(rows):
        return np.zeros(0, np.int64)
    count = np.bincount(rows.kind, minlength=4)
    first = 0 if count[:2].any() else 2
    return np.flatnonzero(rows.kind == first + int(count[first : first + 2].argmax()))


class _Figures:
    """Figures of every domain and tier, from rows with a layer and a domain."""

    def __init__(self, layers: Sequence[Layer], layer: Longs, domain: Longs) -> None:
        self._counts = [x.count for x in layers]
        self._layer = layer
        self._starts = np.cumsum([0, *self._counts])
        self._group = self._starts[layer] + domain

    def read(
        self, values: Floats, at_ns: Longs, worse: float
    ) -> tuple[list[list[Measured | None]], list[Measured | None]]:
        """Return figures by layer and domain, and by layer. `worse`: the quantile of the bad end, 0 to 1."""
        flat = _measured(self._group, values, at_ns, int(self._starts[-1]), worse)
        ends = zip(self._starts[:-1].tolist(), self._starts[1:].tolist(), strict=True)
        tiers = _measured(self._layer, values, at_ns, len(self._counts), worse)
        return [flat[start:end] for start, end in ends], tiers


def _measured(group: Longs, values: Floats, at_ns: Longs, count: int, worse: float) -> list[Measured | None]:
    """Return for each group the median, the percentile by nearest rank, the count and the newest time."""
    found: list[Measured | None] = [None] * count
    size = np.bincount(group, minlength=count).astype(np.int64)
    start = np.cumsum(size) - size
    some = np.flatnonzero(size)
    ordered = values[np.lexsort((values, group))]
    low, high = start[some] + (size[some] - 1) // 2, start[some] + size[some] // 2
    rank = np.clip(np.ceil(size[some] * worse).astype(np.int64) - 1, 0, None)
    newest = np.zeros(count, np.int64)
    np.maximum.at(newest, group, at_ns)
    columns = (
        some,
        np.round((ordered[low] + ordered[high]) / 2, _DECIMALS),
        np.round(ordered[start[some] + rank], _DECIMALS),
        size[some],
        newest[some],
    )
    for i, *figures in zip(*(column.tolist() for column in columns), strict=True):
        found[i] = Measured(*figures)
    return found


def _port_weights(rows: PairRows, pairs: PairTable) -> Weights:
    """Return the bandwidths of single ports."""
    weighed = rows.of(pairs.bandwidth_gbps[rows.row] > 0)
    return Weights(
        weighed.a,
        weighed.b,
        weighed.layer,
        weighed.domain,
        pairs.bandwidth_gbps[weighed.row],
        pairs.at_ns[weighed.row],
        "latency",
        [pairs.rails[i] for i in weighed.rail.tolist()],
    )


def _nccl_weights(
    hosts: Sequence[str], layers: Sequence[Layer], nccl: Mapping[str, Sequence[NcclRun]]
) -> Weights:
    """Return the newest NCCL bandwidth of each pair, and of each host that is an accelerator domain."""
    at = {host: i for i, host in enumerate(hosts)}
    alone = bool(layers) and layers[0].name in KINDS
    newest: dict[tuple[int, int], tuple[int, float]] = {}
    for node, runs in nccl.items():
        for run in runs:
            one, other = at.get(node, -1), at.get(run.peer or node, -1)
            weight = _large_gbps(run)
            if one < 0 or other < 0 or (one == other and not alone) or not weight:
                continue
            key = (min(one, other), max(one, other))
            newest[key] = max(newest.get(key, (-1, 0.0)), (run.at_ns, weight))
    keys = sorted(newest)
    a, b = (np.array([key[i] for key in keys], np.int64) for i in (0, 1))
    layer, domain = common(layers, a, b)
    # The figure of a single host belongs to an accelerator domain of that host alone, not to a shared one.
    sizes = np.bincount(layers[0].domain[layers[0].domain >= 0]) if layers else np.zeros(0, np.int64)
    own = (layer == 0) & (a == b)
    good = (layer >= 0) & (~own | (sizes[np.where(own, domain, 0)] == 1) if len(sizes) else layer >= 0)
    at_ns = np.array([newest[key][0] for key in keys], np.int64)
    gbps = np.array([newest[key][1] for key in keys], np.float64)
    return Weights(a[good], b[good], layer[good], domain[good], gbps[good], at_ns[good], "nccl", ())


def _large_gbps(run: NcclRun) -> float:
    """Return the bus bandwidth in Gbit/s at the largest size, of all_reduce where it was run; 0 = not
    measured."""

    def of(operation: str) -> Iterator[tuple[int, float]]:
        return (
            (x.size_bytes, x.bus_gbytes_per_s)
            for x in run.results
            if x.operation == operation and x.size_bytes >= _LARGE_BYTES
        )

    for operation in ("all_reduce", "sendrecv"):
        found = max(of(operation), default=None)
        if found is not None and 0 < found[1] < 1e6:
            return found[1] * _GBITS
    return 0.0
