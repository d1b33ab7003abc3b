"""Prometheus' text format 0.0.4, written (prometheus.io/docs/instrumenting/exposition_formats).

Both processes show figures that live where they are counted, thousands of them: a family is declared once, as
a value that tests and the page of metrics can read too, and turns figures into lines when somebody asks.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["gauge", "counter", "histogram"]
Labels = TypeVar("Labels", bound=str | tuple[str, ...])  # the values, in the order of the family's labels


@dataclass(frozen=True, slots=True)
class Family:
    """What a metric is called, and what it says. `help` names the unit where there is one."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    def of(self, value: float) -> str:
        """The one figure of a family without labels."""
        return f"{self.head}{self.name} {_number(value)}\n"

    def by(self, values: Mapping[Labels, float]) -> str:
        """Figures by their labels' values; one label's value may stand alone."""
        return self.head + "".join(
            f"{self.name}{{{self.pairs(labels)}}} {_number(value)}\n" for labels, value in values.items()
        )

    @property
    def head(self) -> str:
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"

    def pairs(self, values: str | tuple[str, ...]) -> str:
        """What stands in braces. Raises ValueError for another number of values than there are labels."""
        several = (values,) if isinstance(values, str) else values
        return ",".join(f'{n}="{escaped(v)}"' for n, v in zip(self.labels, several, strict=True))


def gauge(name: str, what: str, *labels: str) -> Family:
    return Family(name, "gauge", what, labels)


def counter(name: str, what: str, *labels: str) -> Family:
    """`name` ends in _total."""
    return Family(name, "counter", what, labels)


@dataclass(slots=True)
class Histogram:
    """Counts how long something takes. `bounds_s`: upper ends of its buckets in seconds, ascending."""

    family: Family
    bounds_s: Sequence[float]
    sum_s: float = 0.0
    counts: list[int] = field(default_factory=list)  # by bucket; the last is of what no bound holds

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds_s) + 1)

    def observe(self, took_s: float) -> None:
        self.sum_s += took_s
        self.counts[bisect_left(self.bounds_s, took_s)] += 1

    def text(self) -> str:
        name, so_far, lines = self.family.name, 0, [self.family.head]
        for bound_s, count in zip((*self.bounds_s, math.inf), self.counts, strict=True):
            so_far += count
            lines.append(f'{name}_bucket{{le="{_number(bound_s)}"}} {so_far}\n')
        return "".join((*lines, f"{name}_sum {_number(self.sum_s)}\n{name}_count {so_far}\n"))


def histogram(name: str, what: str) -> Family:
    return Family(name, "histogram", what)


def escaped(value: str) -> str:
    """A label's value as it stands between quotes. Names come from devices, and may hold anything."""
    if '"' in value or "\\" in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))  # True is 1
    return repr(float(value)) if math.isfinite(value) else ("NaN" if math.isnan(value) else "+Inf")
