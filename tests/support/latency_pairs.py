"""The pairs of measurements, read once."""

from collections.abc import Mapping, Sequence

from hyperscout_formats.facts.facts import LatencyPort
from hyperscout_inference.latency.pairs import Clock, PairReader, PairTable


def pairs_of(
    ports: Mapping[str, Sequence[LatencyPort]], clocks: Mapping[str, Sequence[Clock]] | None = None
) -> PairTable:
    """What a new `PairReader` reads."""
    return PairReader().read(ports, clocks)
