"""Domains and tiers from round trips alone: what a fabric that shows nothing else still tells."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hyperscout_collector.latency.pairs import Floats, Longs, PairTable


@dataclass(frozen=True, slots=True, eq=False)
class LatencyTiers:
    """Tiers of domains over n hosts, innermost first; the last one holds all that is connected.

    `domain`: for each tier (n,) the domain of each host, -1 = none (too little was measured). `confidence`:
    for each tier (domains,) 0 to 1. `rtt_us`: (tiers,) round trip between hosts whose lowest common domain is
    of that tier, the hosts' own parts taken out. `offset_us`: (n,) each host's own part.
    `noisy`: (n,) hosts whose measurements say nothing.
    """

    hosts: Sequence[str]  # sorted
    domain: Sequence[Longs]
    confidence: Sequence[Floats]
    rtt_us: Floats
    offset_us: Floats
    noisy: npt.NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Tiers."""
        return len(self.domain)


def tiers_of(pairs: PairTable, known_rtt_us: Sequence[float] = ()) -> LatencyTiers:
    """Tiers from any subset of pairs, in any order. `known_rtt_us`: what a wired fabric's tiers measured, by
    tier from the innermost; without it the number of tiers and their gaps are found from the data."""
    raise NotImplementedError
