"""Writes Prometheus' text format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats).

The agent and the collector both export values that stay where they are counted, thousands of them. Each
metric family is declared once, as a constant. Tests and the metrics page can read it. The family formats
values as lines when a client requests them.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["gauge", "counter", "histogram"]
Labels = TypeVar("Labels", bound=str | tuple[str, ...])  # label values, in the order of the family's labels


@dataclass(frozen=True, slots=True)
class Family:
    """Name, type and labels of a metric. `help` contains the unit if there is one."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    def of(self, value: float) -> str:
        """Return the lines of a family without labels."""
        return f"{self.head}{self.name} {_number(value)}\n"

    def by(self, values: Mapping[Labels, float]) -> str:
        """Return lines for values keyed by their label values. A single label value may be a plain text."""
        return self.head + "".join(
            f"{self.name}{{{self.pairs(labels)}}} {_number(value)}\n" for labels, value in values.items()
        )

    @property
    def head(self) -> str:
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"

    def pairs(self, values: str | tuple[str, ...]) -> str:
        """Return the text in braces. Raises ValueError if values and labels differ in number."""
        several = (values,) if isinstance(values, str) else values
        return ",".join(f'{n}="{escaped(v)}"' for n, v in zip(self.labels, several, strict=True))


def gauge(name: str, what: str, *labels: str) -> Family:
    return Family(name, "gauge", what, labels)


def counter(name: str, what: str, *labels: str) -> Family:
    """Return a counter family. `name` ends in _total."""
    return Family(name, "counter", what, labels)


@dataclass(slots=True)
class Histogram:
    """Counts durations. `bounds_s` are the upper bounds of the buckets in seconds, ascending."""

    family: Family
    bounds_s: Sequence[float]
    sum_s: float = 0.0
    counts: list[int] = field(default_factory=list)  # by bucket; the last is for values above all bounds

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
    """Return an escaped label value. Names come from devices and may contain any character."""
    if '"' in value or "\\" in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))  # True is 1
    return repr(float(value)) if math.isfinite(value) else ("NaN" if math.isnan(value) else "+Inf")
