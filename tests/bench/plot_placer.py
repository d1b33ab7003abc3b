"""Draws how the time of a placement grows with the cluster: docs/images/placer-growth.svg.

    python tests/bench/plot_placer.py [--seeds 5] [-o FILE]      # also `make plot-placer`; some minutes

A gang of 1,000 workers is placed on three tiers of 5,000 to 200,000 nodes, however they are taken
(tests/support/placer_clusters.py), beside n log n. Prints the figures that docs/placer.md shows.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_placer import GROWTH, growth, n_log_n
from support.svg_plot import COLOURS, LogAxes, powers, svg

OUTPUT = Path(__file__).resolve().parents[2] / "docs/images/placer-growth.svg"
COLOUR = dict(zip(("at random", "all alike", "nearly alike"), COLOURS, strict=False))
CAPTION = "1,000 workers, three tiers; solid: one worker a node, dashed: 0 to 8; the grey line is n log n"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 460, 64, 150, 52, 48

Lines = Mapping[tuple[str, int], Mapping[int, float]]  # seconds by nodes


def name_of(line: tuple[str, int]) -> str:
    return f"{line[0]}, {'1' if line[1] == 1 else f'0-{line[1]}'} a node"


def figures(lines: Lines) -> str:
    """A table in Markdown, in milliseconds."""
    text = [
        "| nodes | " + " | ".join(name_of(line) for line in lines) + " |",
        "|---|" + "---|" * len(lines),
    ]
    for nodes in next(iter(lines.values())):
        cells = " | ".join(f"{line[nodes] * 1000:.2f}" for line in lines.values())
        text.append(f"| {nodes:,} | {cells} |")
    return "\n".join(text)


def drawing(lines: Lines) -> str:
    """An SVG with both axes logarithmic."""
    sizes = sorted(next(iter(lines.values())))
    # n log n through the slowest line at its largest size: whatever is above it further left grows less.
    most = max(line[sizes[-1]] for line in lines.values())
    floor = {n: most * 1000 * n_log_n(n) / n_log_n(sizes[-1]) for n in sizes}
    curves = {key: {n: s * 1000 for n, s in line.items()} for key, line in lines.items()}
    low, high = powers(value for curve in (floor, *curves.values()) for value in curve.values())
    axes = LogAxes(LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM, sizes, low, high)
    parts = [*axes.grid("nodes"), axes.floor(floor)]
    for key, curve in curves.items():
        parts += axes.curve(curve, COLOUR[key[0]], dashed=key[1] != 1)
    parts += axes.names((curve[sizes[-1]], name_of(key), COLOUR[key[0]]) for key, curve in curves.items())
    title = "Time of a placement against nodes of the cluster, beside n log n"
    return svg(WIDTH, HEIGHT, title, "Milliseconds to place a gang, by nodes", CAPTION, parts, LEFT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="of each size (default 5)")
    parser.add_argument("--most-nodes", type=int, default=GROWTH[-1])
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT)
    chosen = parser.parse_args()
    lines = growth([n for n in GROWTH if n <= chosen.most_nodes], chosen.seeds)
    chosen.output.write_text(drawing(lines))
    print(figures(lines))


if __name__ == "__main__":
    main()
