"""Draws how memory, restart and the cost of one change grow with the agents: docs/images/scale-growth.svg.

    python tests/bench/plot_scale.py [--most-agents N] [--save FILE] [-o FILE]    # half an hour
    python tests/bench/plot_scale.py --from FILE [-o FILE]                        # draw saved figures again

Also `make plot-scale`. It runs the load test in plaintext at five sizes, each twice as large as the one
before: 1,000 to 16,000 agents. Links change one after the other, so slowly that each change has an inference
of its own. Prints the table that docs/scale.md shows.

The cost of a change is what the collector used more than at rest. At rest it infers twice a minute, and
changes take the place of that: at 30 changes a minute the cost is too low by at most a fifteenth.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hyperscout_cli.loadtest.run import run
from hyperscout_cli.loadtest.settings import LoadTestSettings
from hyperscout_cli.remote.open_files import check_open_files, raise_open_files
from support.svg_plot import COLOURS, LogAxes, powers, svg

OUTPUT = Path(__file__).resolve().parents[2] / "docs/images/scale-growth.svg"
MOST_AGENTS = 16_000
STEPS = 5
CHANGES, PER_MINUTE = 60, 30
TIMEOUT_S = 900.0
LEAST = CHANGES << (STEPS - 1)  # of the largest size: no link changes twice
CAPTION = "one collector, agents in plaintext; dashed lines begin at the smallest size"
WIDTH, HEIGHT, TOP, BOTTOM = 760, 330, 84, 48
LEFT, GAP = 62, 60  # before the first panel, and between two

Figures = Mapping[str, Any]  # the object of `hyperscout loadtest -o json`

# Heading, value, and the power of the number of agents to compare with.
PANELS: Sequence[tuple[str, Callable[[Figures], float], int]] = (
    ("memory, MiB", lambda one: one["memoryMib"]["withAgents"], 1),
    ("restart, s", lambda one: one["restart"]["acknowledgedS"], 1),
    ("processor time of a change, ms", lambda one: one["changes"]["collectorCpuPerChangeMs"], 0),
)


def measured(agents: int) -> Figures:
    """One load test, with a restart of the collector."""
    settings = LoadTestSettings(
        agents, changes=CHANGES, changes_per_minute=PER_MINUTE, timeout_s=TIMEOUT_S, tls=False, restart=True
    )
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(settings, Path(folder), lambda text: print(text, file=sys.stderr))).data()


def merged(sizes: Sequence[Figures]) -> Iterator[str]:
    """Warnings: changes that may have shared an inference with the next one, so that they cost less."""
    for one in sizes:
        changes = one["changes"]
        slowest_s = changes["changeToWatcherS"]["max"]
        if slowest_s is None or slowest_s > 60 / PER_MINUTE or changes["seen"] < changes["made"]:
            yield f"{one['agents']} agents: a change was not published before the next one: {changes}"


def table(sizes: Sequence[Figures]) -> str:
    """A table in Markdown."""
    heads = (
        *("agents", "memory", "KiB an agent", "restart", "processor time of the restart"),
        *("processor time of a change", "load at rest", "change to watcher"),
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for one in sizes:
        memory, restart, changes = one["memoryMib"], one["restart"], one["changes"]
        cells = (
            f"{one['agents']:,}",
            f"{memory['withAgents']:,.0f} MiB",
            f"{(memory['withAgents'] - memory['empty']) * 1024 / one['agents']:.0f}",
            f"{restart['acknowledgedS']:.1f} s",
            f"{restart['collectorCpuS']:.1f} s",
            f"{changes['collectorCpuPerChangeMs']:.0f} ms",
            f"{changes['collectorLoadAtRest'] * 100:.0f} %",
            f"{changes['changeToWatcherS']['p50']:.2f} s",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def growth(sizes: Sequence[Figures]) -> str:
    """By which factor each figure grew from the smallest to the largest size."""
    first, last = sizes[0], sizes[-1]
    factors = (f"{name.partition(',')[0]} {value(last) / value(first):.1f}" for name, value, _ in PANELS)
    agents = first["agents"], last["agents"]
    return f"From {agents[0]:,} to {agents[1]:,} agents ({agents[1] / agents[0]:g} x): " + ", ".join(factors)


def drawing(sizes: Sequence[Figures]) -> str:
    """An SVG with a panel for each figure. All panels have the same scale, so equal growth looks equal."""
    agents = [one["agents"] for one in sizes]
    curves = [dict(zip(agents, map(value, sizes), strict=True)) for _, value, _ in PANELS]
    floors = [
        {n: curve[agents[0]] * (n / agents[0]) ** power for n in agents}
        for curve, (_, _, power) in zip(curves, PANELS, strict=True)
    ]
    bounds = [powers([*a.values(), *b.values()]) for a, b in zip(curves, floors, strict=True)]
    decades = max(high - low for low, high in bounds)
    width = (WIDTH - LEFT - 16 - GAP * (len(PANELS) - 1)) // len(PANELS)
    parts = []
    for i, (heading, _, power) in enumerate(PANELS):
        left, low = LEFT + i * (width + GAP), bounds[i][0]
        axes = LogAxes(left, left + width, TOP, HEIGHT - BOTTOM, agents, low, low + decades)
        parts.append(f'<text x="{left}" y="{TOP - 12}" font-size="12">{heading}</text>')
        parts += axes.grid("agents")
        parts.append(axes.floor(floors[i]))
        # Beside the end of the line, on the side where the curve is expected not to be.
        name, beside = ("linear", -8) if power else ("flat", 16)
        at = f'x="{axes.right - 20}" y="{axes.y(floors[i][agents[-1]]) + beside:.1f}" text-anchor="end"'
        parts.append(f'<text {at} class="soft" font-size="11">{name}</text>')
        parts += axes.curve(curves[i], COLOURS[i])
    title = "Memory, restart and cost of a change against the number of agents, beside linear growth"
    return svg(WIDTH, HEIGHT, title, "Growth of the collector with the number of agents", CAPTION, parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--most-agents", type=int, default=MOST_AGENTS, help="largest size (default 16000)")
    parser.add_argument("--save", type=Path, help="write the figures of the load tests to this file, as JSON")
    parser.add_argument("--from", type=Path, dest="saved", help="measure nothing, and draw these figures")
    parser.add_argument(
        "-o", "--output", type=Path, default=OUTPUT, help="image (default docs/images/scale-growth.svg)"
    )
    chosen = parser.parse_args()
    if chosen.most_agents < LEAST:
        parser.error(f"--most-agents: at least {LEAST}, so that the smallest size has links enough")
    sizes: list[Figures] = []
    if chosen.saved:
        sizes = json.loads(chosen.saved.read_text())
    else:
        check_open_files(
            chosen.most_agents, raise_open_files(), process="the collector", flag="--most-agents"
        )
        for step in reversed(range(STEPS)):
            sizes.append(measured(chosen.most_agents >> step))
            if chosen.save:
                chosen.save.write_text(json.dumps(sizes, indent=1))
    for warning in merged(sizes):
        print(warning, file=sys.stderr)
    print(table(sizes), growth(sizes), sep="\n\n")
    chosen.output.write_text(drawing(sizes))


if __name__ == "__main__":
    main()
