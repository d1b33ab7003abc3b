"""What exact placement is worth: a trace of jobs as LLM clusters get them, placed by five placers.

    python tests/bench/bench_quality.py [--full] [--seeds N] [--only NODES] [-o FILE.svg]

Prints rows for `make bench`. `--full` (ten minutes) takes the traces of docs/placement-quality.md, prints its
tables and draws its picture. Same seed, same figures, but for the times of decisions.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.quality.cluster import SHAPES
from bench.quality.measures import Figures, figures, together, worse
from bench.quality.placers import Exact, all_placers
from bench.quality.report import Block, drawing, table
from bench.quality.simulate import Simulation
from bench.quality.workload import KALOS, SEREN, Mix, trace
from hyperscout_placer.cluster.request import Mode

OUTPUT = Path(__file__).resolve().parents[2] / "docs/images/placement-quality.svg"
LOAD = 0.9
# 419 unexpected interruptions in 54 days of 2,048 servers, as published of the training of Llama 3.
FAILURES_A_DAY = 419 / 54 / 2048


Worse = dict[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Case:
    nodes: int
    mix: Mix
    stretch: int
    jobs: int
    full: int


CASES = (Case(512, SEREN, 1, 4000, 10_000), Case(5000, KALOS, 4, 2000, 4000))


def block(case: Case, mode: Mode, jobs: int, seeds: Sequence[int]) -> Block:
    traces = [rows_of(case, mode, jobs, seed) for seed in seeds]
    placers = range(len(traces[0][0]))
    rows = [together([found[i] for found, _, _ in traces]) for i in placers]
    names = traces[0][1]
    costs_more = {name: _means([worse[name] for _, worse, _ in traces]) for name in names}
    slower = {rows[i].placer: sum(f[i].ring_ms > f[0].ring_ms for f, _, _ in traces) for i in placers[1:]}
    hours = statistics.fmean(hours for _, _, hours in traces)
    each = f"{len(seeds)} traces of {jobs:,} jobs" if len(seeds) > 1 else f"{jobs:,} jobs"
    title = f"{case.nodes:,} nodes, {mode}: {each} of the {case.mix.name} mix, in {hours:.0f} h"
    return Block(title, rows, costs_more, slower, len(seeds))


def _means(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return statistics.fmean(a for a, _ in pairs), statistics.fmean(b for _, b in pairs)


def rows_of(case: Case, mode: Mode, jobs: int, seed: int) -> tuple[list[Figures], Worse, float]:
    """One trace: figures of each placer, how often others pay more on the exact one's states, its hours."""
    shape = SHAPES[case.nodes]
    jobs_of = trace(case.mix, jobs, shape.gpus, LOAD, seed, case.stretch)
    rows, costs_more = [], {}
    for placer in all_placers(shape, mode, seed):
        compared = all_placers(shape, mode, seed)[1:] if isinstance(placer, Exact) else []
        simulation = Simulation(
            shape, jobs_of, placer, mode, failures=FAILURES_A_DAY, seed=seed, compared=compared
        )
        result = simulation.run()
        if isinstance(placer, Exact):
            forest = placer.capacity.forest
            costs_more = {name: worse(result, name) for name in result.beside}
        rows.append(figures(result, forest, jobs_of.ends_s))
    return rows, costs_more, jobs_of.ends_s / 3600


def print_rows(case: Case, mode: Mode, one: Block) -> None:
    exact, others = one.rows[0], one.rows[1:]
    where = f"{case.nodes:,} nodes, {mode}, {exact.gangs} gangs"
    for other in others[:1] + others[-2:-1]:
        print(
            f"{where}: mean top tier | {exact.top:.2f} | {other.top:.2f} {other.placer} "
            f"| {other.top / exact.top:.2f} x |"
        )
        print(
            f"{where}: predicted all-reduce | {exact.ring_ms:.0f} ms | {other.ring_ms:.0f} ms {other.placer} "
            f"| {other.ring_ms / exact.ring_ms:.2f} x |"
        )
    print(f"{where}: mean wait | {exact.wait_s:.0f} s | {others[0].wait_s:.0f} s {others[0].placer} | |")
    print(f"{where}: decision, mean | {exact.took_us:.0f} us | {others[0].took_us:.0f} us | |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the traces of the docs, tables and picture")
    parser.add_argument("--seeds", type=int, help="how many traces (default 1; with --full 5)")
    parser.add_argument("--only", type=int, help="the cluster of so many nodes alone")
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT)
    chosen = parser.parse_args()
    seeds = range(1, 1 + (chosen.seeds or (5 if chosen.full else 1)))
    blocks = []
    for case in CASES:
        if chosen.only not in (None, case.nodes):
            continue
        modes: tuple[Mode, ...] = ("soft", "hard")
        for mode in modes:
            one = block(case, mode, case.full if chosen.full else case.jobs, seeds)
            blocks.append(one)
            print_rows(case, mode, one)
            if chosen.full:
                print(f"\n### {one.title}\n\n{table(one)}\n", flush=True)
    if chosen.full:
        caption = f"load {LOAD}, seeds 1 to {len(seeds)}, nodes fail; jobs as published for two LLM clusters"
        chosen.output.write_text(drawing(blocks, caption))


if __name__ == "__main__":
    main()
