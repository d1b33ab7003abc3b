"""What each agent adds to replicas with PostgreSQL, and what a large cluster needs. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

NODES = 100_000
_NOISE = 1e-9  # of computing with floats
Figures = Mapping[str, Any]  # of one size, by tests/bench/bench_replicas.py


class Line(NamedTuple):
    """y = base + slope * agents."""

    base: float
    slope: float

    def at(self, agents: int) -> float:
        return self.base + self.slope * agents


class Quantity(NamedTuple):
    """A figure, and how it is written: `small` for each agent, `large` for a cluster, with their units."""

    name: str
    value: Callable[[Figures], float]
    small: tuple[float, str]
    large: tuple[float, str]


def _memory(place: str) -> Callable[[Figures], float]:
    return lambda one: float(one["memoryMib"][place]) * 2**20


def _cores(place: str) -> Callable[[Figures], float]:
    return lambda one: float(one["cores"][place])


def _figure(name: str) -> Callable[[Figures], float]:
    return lambda one: float(one[name])


_MEMORY = (2**-10, "KiB"), (2**-30, "GiB")
_CORES = (1e6, "us/s"), (1.0, "cores")
_TRAFFIC = (1.0, "B/s"), (1e-6, "MB/s")
QUANTITIES = (
    Quantity("memory of the leader", _memory("leader"), *_MEMORY),
    Quantity("memory of a standby", _memory("standby"), *_MEMORY),
    Quantity("memory of PostgreSQL", _memory("postgresql"), *_MEMORY),
    Quantity("processor time of the leader at rest", _cores("leader"), *_CORES),
    Quantity("processor time of a standby at rest", _cores("standby"), *_CORES),
    Quantity("processor time of PostgreSQL at rest", _cores("postgresql"), *_CORES),
    Quantity("size of the database", _figure("databaseBytes"), *_MEMORY),
    Quantity("rows written at rest", _figure("rowsPerS"), (1.0, "/s"), (1.0, "/s")),
    Quantity("WAL at rest, without images of pages", _figure("walBytesPerS"), *_TRAFFIC),
    Quantity("TCP to the replicas at rest", _figure("toReplicasBytesPerS"), *_TRAFFIC),
    Quantity("the same with headers", _figure("toReplicasWithHeadersBytesPerS"), *_TRAFFIC),
    Quantity("TCP from the replicas at rest", _figure("fromReplicasBytesPerS"), *_TRAFFIC),
    Quantity("the same with headers", _figure("fromReplicasWithHeadersBytesPerS"), *_TRAFFIC),
)


def line(points: Sequence[tuple[float, float]]) -> Line:
    """The line of least squares through two points or more."""
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return Line(mean_y - slope * mean_x, slope)


def lines(sizes: Sequence[Figures]) -> list[tuple[Quantity, Line]]:
    """How each quantity grows with the agents."""
    return [(x, line([(one["agents"], x.value(one)) for one in sizes])) for x in QUANTITIES]


def _short(value: float) -> str:
    value = value if abs(value) > _NOISE else 0.0
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}"


def table(sizes: Sequence[Figures]) -> str:
    """What each agent adds and what `NODES` need, as a table in Markdown."""
    rows = [f"| | each agent adds | without agents | {NODES:,} nodes |", "|---|---|---|---|"]
    for what, found in lines(sizes):
        (small, unit), (large, large_unit) = what.small, what.large
        cells = (
            f"{_short(found.slope * small)} {unit}",
            f"{_short(found.base * large)} {large_unit}",
            f"{_short(found.at(NODES) * large)} {large_unit}",
        )
        rows.append(f"| {what.name} | {' | '.join(cells)} |")
    return "\n".join(rows)
