"""Formats measured values, and decides when a value has changed enough to be published again.

No two measurements are equal. A published value changes only when the change is significant.
"""

from collections.abc import Callable

from hyperscout_formats.text.counts import count
from hyperscout_runtime.units import NS, rfc3339

from hyperscout_topology.topology import Figure, HyperNode, Measured, Tier

MOVED = 0.2  # fraction of the published value; smaller changes are normal in a quiet network
MAX_AGE_NS = 3600 * NS  # newer measurements renew published values after this time


def digits(value: float, count: int = 2) -> str:
    """A value with `count` significant digits, never with an exponent: 0.34, 4.3, 12, 390."""
    text = f"{value:.{count}g}"
    return text if "e" not in text and "n" not in text else f"{float(text):.0f}"


def figures(**values: float) -> tuple[Figure, ...]:
    """The figures of a message by name, with six significant digits."""
    return tuple(Figure(name, float(f"{value:.6g}")) for name, value in values.items())


def has_moved(published: float, now: float) -> bool:
    """Whether a value differs from the published one by more than `MOVED`."""
    return abs(now - published) > MOVED * abs(published)


def have_moved(published: Measured | None, now: Measured | None) -> bool:
    """Whether a median changed by more than `MOVED`, appeared or disappeared."""
    if published is None or now is None:
        return published is not now
    return has_moved(published.median, now.median)


def measured_texts(of: HyperNode | Tier, when: Callable[[int], str] = rfc3339) -> list[tuple[str, str]]:
    """("latency", "median 6.1 us, p99 7.9 us, 128 samples, newest 5m ago"), and the same for bandwidth.

    `when` formats a time, given in Unix ns. For bandwidth the bad end is p1, the first percentile.
    """
    rows = (("latency", of.latency_us, "us", "p99"), ("bandwidth", of.bandwidth_gbps, "Gbit/s", "p1"))
    found = []
    for what, m, unit, bad in rows:
        if m is None:
            continue
        text = f"median {digits(m.median, 3)} {unit}"
        if m.samples:  # else only the median is known
            text += f", {bad} {digits(m.p99, 3)} {unit}, {count(m.samples, 'sample')}"
        if m.at_ns:
            text += f", newest {when(m.at_ns)}"
        found.append((what, text))
    return found
