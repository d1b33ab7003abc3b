"""What benchmarks print: a row of the table of `tests/bench`."""

from collections.abc import Sequence


def row(what: str, measured: str, peer: str = "", ratio: str = "", budget: str = "") -> None:
    print(" | ".join((what, measured, peer, ratio, budget)), flush=True)


def p99(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]
