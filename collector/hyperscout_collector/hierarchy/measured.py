"""The hierarchy against what was measured: numbers for every tier and domain, and what is out of line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hyperscout_formats.facts import NcclRun

from hyperscout_collector.hierarchy.layer import Layer
from hyperscout_collector.hierarchy.suspicion import Suspicion
from hyperscout_collector.latency.pairs import PairTable
from hyperscout_collector.topology import Measured


@dataclass(frozen=True, slots=True)
class Measurements:
    """`latency_us`, `bandwidth_gbps`: by layer and domain; `tiers`: by layer, (latency, bandwidth)."""

    latency_us: Sequence[Sequence[Measured | None]]
    bandwidth_gbps: Sequence[Sequence[Measured | None]]
    tiers: Sequence[tuple[Measured | None, Measured | None]]
    suspicions: Sequence[Suspicion]


def measure(
    hosts: Sequence[str], layers: Sequence[Layer], pairs: PairTable, nccl: Mapping[str, Sequence[NcclRun]]
) -> Measurements:
    """`hosts`: names, as `layers` index them."""
    raise NotImplementedError
