"""The tables of docs/accuracy.md, and how they get between its markers."""

from collections.abc import Callable, Sequence
from pathlib import Path

from bench.accuracy.measure import Outcome
from hyperscout_sim.uneven.case import KINDS
from hyperscout_sim.uneven.faults import FAULTS

BINS = ((0.0, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.01))
CAUSES = range(1, 21)
_OF_FAULTS = {
    11: ("uplinks exchanged", "all uplinks of two leaves exchanged"),
    16: ("loop cable", "stray cable"),
}


def tables(healthy: Sequence[Outcome], faulty: Sequence[Outcome]) -> dict[str, str]:
    """Marker -> table in Markdown."""
    return {
        "kinds": _kinds(healthy, faulty),
        "causes": _causes(healthy, faulty),
        "faults": _faults(faulty),
        "confidence": _confidence([*healthy, *faulty]),
    }


def write(path: Path, found: dict[str, str]) -> None:
    """Replace the text between `<!-- NAME -->` and `<!-- end of NAME -->`. Raises ValueError without them."""
    text = path.read_text()
    for name, table in found.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        if start not in text or end not in text:
            raise ValueError(f"{path}: expected the markers of {name}: {start.strip()} and {end}")
        before, _, rest = text.partition(start)
        text = before + start + table + "\n" + end + rest.partition(end)[2]
    path.write_text(text)


def _kinds(healthy: Sequence[Outcome], faulty: Sequence[Outcome]) -> str:
    def row(name: str) -> Sequence[object]:
        return _row(name, healthy, faulty, lambda o: name in o.traits)

    everything = _row("all", healthy, faulty, lambda _: True)
    return _table(("trait or shape", *_COLUMNS), [*map(row, dict.fromkeys(KINDS)), everything])


def _causes(healthy: Sequence[Outcome], faulty: Sequence[Outcome]) -> str:
    def row(cause: int) -> Sequence[object]:
        planted = _OF_FAULTS.get(cause, ())
        return _row(
            str(cause), healthy, faulty, lambda o: cause in o.causes or any(o.planted[p] for p in planted)
        )

    return _table(("cause", *_COLUMNS), [row(cause) for cause in CAUSES])


_COLUMNS = (
    "healthy fabrics",
    "tree right",
    "accused",
    "faulty fabrics",
    "tree right",
    "accused",
    "faults",
    "named",
)


def _row(
    name: str, healthy: Sequence[Outcome], faulty: Sequence[Outcome], belongs: Callable[[Outcome], bool]
) -> tuple[object, ...]:
    well, ill = [o for o in healthy if belongs(o)], [o for o in faulty if belongs(o)]
    return (name, *_counts(well), *_counts(ill), _planted(ill), _named(ill))


def _counts(found: Sequence[Outcome]) -> tuple[int, int, int]:
    return len(found), sum(o.tree_right for o in found), sum(o.accused > 0 for o in found)


def _planted(found: Sequence[Outcome]) -> int:
    return sum(o.planted.total() for o in found)


def _named(found: Sequence[Outcome]) -> int:
    return sum(o.named.total() for o in found)


def _faults(faulty: Sequence[Outcome]) -> str:
    rows = []
    for name in FAULTS:
        mine = [o for o in faulty if o.planted[name]]
        planted, named = sum(o.planted[name] for o in mine), sum(o.named[name] for o in mine)
        rows.append((name, len(mine), planted, named))
    rows.append(("all", len(faulty), _planted(faulty), _named(faulty)))
    return _table(("fault", "fabrics", "planted", "named"), rows)


def _confidence(found: Sequence[Outcome]) -> str:
    every = [pair for o in found for pair in o.accusations]
    rows = []
    for low, high in BINS:
        mine = [(confidence, real) for confidence, real in every if low <= confidence < high]
        if mine:
            mean = sum(c for c, _ in mine) / len(mine)
            share = sum(real for _, real in mine) / len(mine)
            rows.append((f"{low:g} to {min(high, 1):g}", len(mine), f"{mean:.2f}", f"{share:.2f}"))
    return _table(("confidence", "anomalies", "mean confidence", "share that is real"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
