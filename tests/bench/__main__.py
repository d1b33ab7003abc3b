"""Run every benchmark in a process of its own, and print one table of what they measured.

Each `bench_*.py` prints rows `what | measured | floor or peer | ratio | budget`; what else it prints is shown
only when it fails. A missed budget is said, and is no error: machines differ. A crash or a time-out is one.

    .venv/bin/python tests/bench [NAME...] [OPTION...]    only the benchmarks whose names contain a NAME

With options, which begin with "-", the benchmarks get them, and their whole output is shown.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
TIMEOUT_S: Final = 900.0
COLUMNS: Final = ("what", "measured", "floor or peer", "ratio", "budget")

# unit -> (what it measures, factor to its base unit)
UNITS: Final[dict[str, tuple[str, float]]] = {
    "x": ("ratio", 1),
    "%": ("share", 1),
    "KiB": ("bytes", 2**10),
    "MiB": ("bytes", 2**20),
    "GiB": ("bytes", 2**30),
    "KB": ("bytes", 1e3),
    "MB": ("bytes", 1e6),
    "GB": ("bytes", 1e9),
    "us": ("seconds", 1e-6),
    "ms": ("seconds", 1e-3),
    "s": ("seconds", 1),
    "min": ("seconds", 60),
}
_QUANTITY = re.compile(rf"(\d+(?:[.,]\d+)*)\s*({'|'.join(sorted(UNITS, key=len, reverse=True))})(?![\w/])")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; cells are texts, as the benchmark printed them."""

    what: str
    measured: str
    peer: str
    ratio: str
    budget: str

    @property
    def verdict(self) -> str:
        """ "kept", "MISSED", "" where there is no budget, "?" where the cells cannot be compared with it."""
        limits = _quantities(self.budget)
        if not limits:
            return ""
        found = _quantities(self.ratio) | _quantities(self.measured)
        if not limits.keys() & found.keys():
            return "?"
        over = any(found[kind] > limit for kind, limit in limits.items() if kind in found)
        return "MISSED" if over else "kept"


def _quantities(cell: str) -> dict[str, float]:
    """Kind -> value in its base unit, for every quantity in a cell ("7.2 x, 310 MiB")."""
    found = {}
    for number, unit in _QUANTITY.findall(cell):
        kind, factor = UNITS[unit]
        found[kind] = float(number.replace(",", "")) * factor
    return found


def rows_in(output: str) -> list[Row]:
    """The table rows in a benchmark's output; headers, rulers and other lines are left out."""
    rows = []
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == len(COLUMNS) + 2:  # framed by bars, as in Markdown
            cells = cells[1:-1]
        if len(cells) != len(COLUMNS) or cells[0].lower() == "what" or not cells[0].strip("-: "):
            continue
        rows.append(Row(*cells))
    return rows


def table(rows: list[Row]) -> str:
    """The rows in aligned columns, with the verdict on each budget."""
    lines = [(*COLUMNS, ""), *((r.what, r.measured, r.peer, r.ratio, r.budget, r.verdict) for r in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    text.insert(1, "-|-".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in text)


def run(script: Path, options: Sequence[str] = ()) -> tuple[int | None, str]:
    """Exit status (None: it ran past TIMEOUT_S and was ended, with its children) and standard output."""
    environment = os.environ | {"PYTHONPATH": str(HERE.parent)}
    process = subprocess.Popen(
        [sys.executable, str(script), *options],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return None, output
    return process.returncode, output


def main(arguments: list[str]) -> int:
    first = next((i for i, text in enumerate(arguments) if text.startswith("-")), len(arguments))
    names, options = arguments[:first], arguments[first:]
    if not names and {"-h", "--help"} & set(options):
        print(__doc__)
        return 0
    scripts = [s for s in sorted(HERE.glob("bench_*.py")) if not names or any(n in s.stem for n in names)]
    if not scripts:
        print("no such benchmark; there are:", *(s.stem for s in sorted(HERE.glob("bench_*.py"))), sep="\n  ")
        return 2
    rows: list[Row] = []
    failed: list[str] = []
    for number, script in enumerate(scripts, 1):
        print(f"[{number}/{len(scripts)}] {script.stem} ...", flush=True)
        started_s = time.monotonic()
        status, output = run(script, options)
        rows += rows_in(output)
        broken = status != 0 or not rows_in(output)
        if broken:
            why = f"ran past {TIMEOUT_S:.0f} s" if status is None else f"exit status {status}, or no rows"
            failed.append(f"{script.stem}: {why}")
        if broken or options:
            print(output)
        print(f"[{number}/{len(scripts)}] {script.stem}: {time.monotonic() - started_s:.0f} s", flush=True)
    print(f"\n{table(rows)}\n")
    for row in rows:
        if row.verdict == "MISSED":
            print(f"budget missed: {row.what}: {row.measured} ({row.ratio}), budget {row.budget}")
        elif row.verdict == "?":
            print(f"not comparable with its budget: {row.what}")
    for failure in failed:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
