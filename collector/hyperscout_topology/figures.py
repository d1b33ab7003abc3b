"""Measured figures: how they are written for people, and when one has moved enough to be told again.

No two measurements are the same. What is published of them changes only when it means something else.
"""

from collections.abc import Callable

from hyperscout_topology.topology import HyperNode, Measured, Tier, rfc3339

MOVED = 0.2  # of the published figure: less is what a quiet network does by itself
MAX_AGE_NS = 3600 * 1_000_000_000  # published figures are renewed when there are some this much newer


def digits(value: float, count: int = 2) -> str:
    """A figure to so many significant digits, never in exponents: 0.34, 4.3, 12, 390."""
    text = f"{value:.{count}g}"
    return text if "e" not in text and "n" not in text else f"{float(text):.0f}"


def has_moved(published: float, now: float) -> bool:
    """Whether a figure is out of the fifth around the published one."""
    return abs(now - published) > MOVED * abs(published)


def have_moved(published: Measured | None, now: Measured | None) -> bool:
    """Whether a median moved that much, came or went."""
    if published is None or now is None:
        return published is not now
    return has_moved(published.median, now.median)


def said(of: HyperNode | Tier, when: Callable[[int], str] = rfc3339) -> list[tuple[str, str]]:
    """("latency", "median 6.1 us, p99 7.9 us, 128 samples, newest 5m ago"), and the same of bandwidth.

    `when` says a time, given in Unix ns. Of bandwidth the bad end is p1, the first percentile.
    """
    rows = (("latency", of.latency_us, "us", "p99"), ("bandwidth", of.bandwidth_gbps, "Gbit/s", "p1"))
    found = []
    for what, m, unit, bad in rows:
        if m is None:
            continue
        text = f"median {digits(m.median, 3)} {unit}"
        if m.samples:  # else the median is all that is known
            text += f", {bad} {digits(m.p99, 3)} {unit}, {m.samples} sample{'s'[: m.samples > 1]}"
        if m.at_ns:
            text += f", newest {when(m.at_ns)}"
        found.append((what, text))
    return found
