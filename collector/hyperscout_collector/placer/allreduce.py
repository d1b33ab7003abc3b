"""What a placement is worth: predicted time of an all-reduce over it, from what each tier measured.

The alpha-beta model: a message of b bytes over a tier takes alpha + b * beta.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hyperscout_collector.placer.forest import Forest


@dataclass(frozen=True, slots=True)
class TierSpeed:
    """`latency_us`: one way. `bandwidth_gbps`: of one worker's share. `measured`: else a default by tier."""

    latency_us: float
    bandwidth_gbps: float
    measured: bool


@dataclass(frozen=True, slots=True)
class Predicted:
    """Seconds of one all-reduce of `message_bytes` over all ranks; `measured`: nothing of it is a default."""

    ring_s: float
    tree_s: float
    message_bytes: int
    measured: bool


def predict(
    forest: Forest, speeds: Sequence[TierSpeed], nodes: Sequence[str], message_bytes: int
) -> Predicted:
    """`nodes`: by rank. `speeds`: within a node first, then tier 1, ..., the last one is between islands."""
    raise NotImplementedError
