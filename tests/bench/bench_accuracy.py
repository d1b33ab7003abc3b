"""How true inference is on uneven fabrics: generated ones, healthy and with planted faults, and their truth.

    python tests/bench accuracy [--seeds N] [--first SEED] [--write]

Prints the tables of docs/accuracy.md and rows for `make bench`; `--write` puts the tables into the document.
Same seeds, same figures.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.accuracy.measure import Outcome, outcomes
from bench.accuracy.report import tables, write
from hyperscout_sim.uneven.case import healthy
from hyperscout_sim.uneven.faults import faulty

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/accuracy.md"
SEEDS = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many fabrics of either kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {DOCUMENT.name}")
    chosen = parser.parse_args()
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    well, ill = list(outcomes(healthy, seeds)), list(outcomes(faulty, seeds))
    found = tables(well, ill)
    for name, table in found.items():
        print(f"\n{name}\n\n{table}")
    for error in sorted({o.error for o in (*well, *ill) if o.error}):
        print(f"\ninference failed: {error}")
    print()
    print_rows(well, ill)
    if chosen.write:
        write(DOCUMENT, found)


def print_rows(well: Sequence[Outcome], ill: Sequence[Outcome]) -> None:
    planted = sum(o.planted.total() for o in ill)
    missed = planted - sum(o.named.total() for o in ill)
    for text, wrong, total, budget in (
        ("healthy uneven fabrics: tree wrong", sum(not o.tree_right for o in well), len(well), "0 %"),
        ("healthy uneven fabrics: healthy parts accused", sum(o.accused > 0 for o in well), len(well), "0 %"),
        (
            "healthy uneven fabrics: hosts left out silently",
            sum(o.silent > 0 for o in well),
            len(well),
            "0 %",
        ),
        ("faulty uneven fabrics: tree wrong", sum(not o.tree_right for o in ill), len(ill), "0 %"),
        ("faulty uneven fabrics: healthy parts accused", sum(o.accused > 0 for o in ill), len(ill), "0 %"),
        ("faulty uneven fabrics: planted faults not named", missed, planted, "2 %"),
    ):
        print(f"{text} | {100 * wrong / max(1, total):.1f} % | {wrong} of {total} | | {budget}")


if __name__ == "__main__":
    main()
