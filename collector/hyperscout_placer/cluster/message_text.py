"""Formats amounts, tiers and workers for messages."""

import re

from hyperscout_formats.text.counts import count

from hyperscout_placer.cluster.forest import NODE, Forest, say_tier
from hyperscout_placer.cluster.request import WORKERS

_NUMBER = re.compile(r"\btier (\d{1,4})\b(?! \()", re.ASCII)


def say_amount(resource: str, amount: int) -> str:
    """An amount in base units as text: 16 nvidia.com/gpu, 1.5 cpu, 64Gi memory."""
    if resource == WORKERS:
        return f"capacity for {many(amount)}"
    return f"{figure(resource, amount)} {resource}"


def say_cluster(name: str) -> str:
    """The name of a cluster as text."""
    return f"cluster {name}" if name else "the collector's own cluster"


def figure(resource: str, amount: int) -> str:
    """The amount as text, without the resource's name."""
    if resource == "cpu":
        return f"{amount / 1000:g}"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for unit, shift in (("Gi", 30), ("Mi", 20), ("Ki", 10)):
            if amount >= 1 << shift:
                return f"{amount / (1 << shift):.4g}{unit}"
    return str(amount)


def with_tier_names(text: str, forest: Forest) -> str:
    """The text with a name for each tier: "above tier 2" becomes "above tier 2 (pod)"."""
    return _NUMBER.sub(lambda match: say_tier(forest, int(match[1])), text)


def say_domain(forest: Forest, tier: int, domain: int) -> str:
    """A domain of a tier as text, for example: HyperNode leaf-1; node n1."""
    return f"{'HyperNode' if tier else NODE} {forest.names(tier)[domain]}"


def say_any(forest: Forest, tier: int) -> str:
    """Any domain of a tier as text, for example: HyperNode of tier 2 (pod); node."""
    return f"HyperNode of {say_tier(forest, tier)}" if tier else NODE


def many(n: int, role: str = "worker") -> str:
    workers = count(n, "worker")
    return workers if role == "worker" else f"{workers} of role {role}"


def one(role: str) -> str:
    return "worker" if role == "worker" else f"worker of role {role}"
