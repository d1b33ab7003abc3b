"""Describes the measurements between two nodes in sentences."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_formats.facts.facts import Gpu, LatencyPort, LatencyResult, NcclRun
from hyperscout_runtime.units import rfc3339
from hyperscout_topology.figures import digits, measured_texts
from hyperscout_topology.topology import HyperNode, Topology

_MAX_LINES = 20  # two nodes with 8 rails give 16 lines
_GBITS = 8  # bits per byte; NCCL reports gigabytes
_LATENCY_BYTES = 1024  # an operation of at most this size measures latency
_BANDWIDTH_BYTES = 64 << 20  # an operation of at least this size measures bandwidth


class NodeReport(NamedTuple):
    """One finding of a node that contains speeds: pings, NCCL, or a GPU."""

    node: str
    fact: LatencyPort | NcclRun | Gpu


def sayings(topology: Topology, common: HyperNode | None) -> Iterator[str]:
    """Sentences on the source of the lowest common HyperNode, its measurements and those of its tier."""
    if common is None:
        return
    if common.source == "latency":
        yield f"{common.name} is inferred from latency alone, confidence {common.confidence:.2g}."
    if common.source == "labels":
        yield f"{common.name} is taken from the topology labels of its nodes."
    if kind := KINDS.get(common.source):
        connects = f"{kind.fabric} connects its hosts, in addition to any cables"
        yield f"{common.name} is an {kind.domain}: {connects}."
    for quantity, text in measured_texts(common):
        yield f"Measured in {common.name}: {quantity} {text}."
    tier = next((t for t in topology.tiers if t.tier == common.tier), None)
    if tier is not None and measured_texts(tier) != measured_texts(common):
        for quantity, text in measured_texts(tier):
            yield f"Measured in tier {tier.tier} as a whole: {quantity} {text}."


def between(node_a: str, node_b: str, measured: Iterable[NodeReport]) -> list[str]:
    """Sentences on the measurements between two nodes, in both directions; at most `_MAX_LINES`."""
    lines: list[str] = []
    if node_a == node_b:
        return lines
    for node, fact in measured:
        peer = node_b if node == node_a else node_a
        if isinstance(fact, NcclRun):
            if fact.peer == peer:
                lines += _run(node, fact)
        elif isinstance(fact, LatencyPort):
            lines += [_burst(node, fact.interface, x) for x in fact.results if x.peer == peer and x.received]
    return lines[:_MAX_LINES]


def latency_us(node_a: str, node_b: str, reports: Iterable[NodeReport]) -> float | None:
    """The shortest one-way latency between two nodes, half of a round trip; None = not measured."""
    pair = {node_a, node_b}
    found = [
        x.min_us / 2
        for node, fact in reports
        if isinstance(fact, LatencyPort)
        for x in fact.results
        if {node, x.peer} == pair and x.received
    ]
    return min(found, default=None)


def bandwidth_gbps(node_a: str, node_b: str, reports: Iterable[NodeReport], by_gpus: bool) -> float | None:
    """The bandwidth between two nodes: of NCCL, else the most of one port; None = not measured.

    `by_gpus`: an accelerator fabric connects the nodes, of which ports say nothing.
    """
    pair = {node_a, node_b}
    by_nccl, by_port = [], []
    for node, fact in reports:
        if isinstance(fact, NcclRun) and {node, fact.peer} == pair:
            by_nccl += [x.bus_gbytes_per_s * _GBITS for x in fact.results if x.size_bytes >= _BANDWIDTH_BYTES]
        elif isinstance(fact, LatencyPort) and not by_gpus:
            by_port += [x.bandwidth_gbps for x in fact.results if {node, x.peer} == pair and x.bandwidth_gbps]
    return max(by_nccl or by_port, default=None)


def _burst(node: str, interface: str, x: LatencyResult) -> str:
    text = f"{node} {interface} measured {x.peer} {x.peer_interface}: {digits(x.min_us, 3)} us"
    text += f" (median {digits(x.median_us, 3)} us, jitter {digits(x.jitter_us)} us, "
    text += f"{x.received} of {x.sent} answered, {x.method}, {rfc3339(x.at_ns)})"
    return text + (f", {digits(x.bandwidth_gbps, 3)} Gbit/s." if x.bandwidth_gbps else ".")


def _run(node: str, run: NcclRun) -> Iterator[str]:
    """For each operation, the time at its smallest size and the bandwidth at its largest size."""
    how = f"{run.method}, NCCL {run.nccl_version or '?'}, {run.ranks} ranks, {rfc3339(run.at_ns)}"
    for operation in sorted({x.operation for x in run.results}):
        own = sorted((x for x in run.results if x.operation == operation), key=lambda x: x.size_bytes)
        parts = []
        if own[0].size_bytes <= _LATENCY_BYTES:
            parts.append(f"{digits(own[0].time_us, 3)} us at {_size(own[0].size_bytes)}")
        if own[-1].size_bytes >= _BANDWIDTH_BYTES:
            gbps = own[-1].bus_gbytes_per_s * _GBITS
            parts.append(f"{digits(gbps, 3)} Gbit/s at {_size(own[-1].size_bytes)}")
        if parts:
            yield f"{node} ran NCCL {operation} with {run.peer}: {', '.join(parts)} ({how})."


def _size(size_bytes: int) -> str:
    for unit, length in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= length:
            return f"{size_bytes / length:g} {unit}"
    return f"{size_bytes} B"
