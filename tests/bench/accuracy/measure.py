"""Judges what inference says about generated fabrics, one at a time, and keeps only counts."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hyperscout_sim.uneven.case import Uneven
from hyperscout_sim.uneven.files import truth_of
from support.judge import ACCUSATIONS, is_real
from support.uneven_cases import judged


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one fabric. `accused`: number of anomalies that accuse healthy parts. `silent`: hosts in no text.

    `planted`, `named`: faults by row of the report. `accusations`: confidence of each, and whether it is
    real. `error`: inference raised it.
    """

    kind: str
    traits: tuple[str, ...]
    causes: frozenset[int]
    tree_right: bool
    accused: int
    silent: int
    planted: Counter[str]
    named: Counter[str]
    accusations: tuple[tuple[float, bool], ...]
    error: str = ""


def outcome(case: Uneven) -> Outcome:
    """Infer one fabric and judge it. An exception of inference is an outcome, too."""
    planted = Counter(defect.what for defect in case.defects)
    try:
        topology, verdict = judged(case)
    except Exception as error:  # the table reports it, and the other fabrics are measured
        text = f"{type(error).__name__}: {error}"
        return Outcome(case.kind, case.traits, case.causes, False, 0, 0, planted, Counter(), (), text)
    expected = truth_of(case)
    return Outcome(
        case.kind,
        case.traits,
        case.causes,
        not verdict.tree,
        len(verdict.false),
        len(verdict.silent),
        planted,
        planted - Counter(fault["what"] for fault in verdict.unnamed),
        tuple(
            (a.confidence, is_real(a, expected, topology))
            for a in topology.anomalies
            if a.kind in ACCUSATIONS
        ),
    )


def outcomes(make: Callable[[int], Uneven], seeds: Iterable[int]) -> Iterator[Outcome]:
    for seed in seeds:
        yield outcome(make(seed))
