"""Draws how the time of a placement grows with the cluster: docs/images/placer-growth.svg.

    python tests/bench/plot_placer.py [--seeds 5] [-o FILE]      # also `make plot-placer`; some minutes

A gang of 1,000 workers is placed on three tiers of 5,000 to 200,000 nodes, however they are taken
(tests/support/placer_clusters.py), beside n log n. Prints the figures that docs/placer.md shows.
"""

import argparse
import math
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_placer import GROWTH, growth, n_log_n

OUTPUT = Path(__file__).resolve().parents[2] / "docs/images/placer-growth.svg"
COLOURS = {"at random": "#1b9e77", "all alike": "#d95f02", "nearly alike": "#7570b3"}
FONT = 'font-family="sans-serif" font-size="13"'
STYLE = (
    "text{fill:#24292f} .grid{stroke:#8c959f;stroke-opacity:.35} .soft{fill:#57606a} "
    ".floor{stroke:#57606a;stroke-dasharray:5 4;fill:none} "
    "@media (prefers-color-scheme: dark){text{fill:#e6edf3} .soft{fill:#9da7b3} .floor{stroke:#9da7b3}}"
)
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
    """An SVG with both axes logarithmic, that can be read on light and on dark ground."""
    sizes = sorted(next(iter(lines.values())))
    # n log n through the slowest line at its largest size: whatever is above it further left grows less.
    most = max(line[sizes[-1]] for line in lines.values())
    floor = {n: most * n_log_n(n) / n_log_n(sizes[-1]) for n in sizes}
    values = [s * 1000 for line in (*lines.values(), floor) for s in line.values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def x(nodes: int) -> float:
        share = math.log(nodes / sizes[0]) / math.log(sizes[-1] / sizes[0])
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(ms: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(ms) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT} role="img">',
        "<title>Time of a placement against nodes of the cluster, beside n log n</title>",
        f"<style>{STYLE}</style>",
        f'<text x="{LEFT}" y="20" font-weight="bold">Milliseconds to place a gang, by nodes</text>',
        f'<text x="{LEFT}" y="38" class="soft" font-size="11">{CAPTION}</text>',
    ]
    for power in range(low, high + 1):
        at, label = y(10**power), f"{10**power:g}"
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end" class="soft">{label}</text>')
    for nodes in sizes:
        at, base = x(nodes), HEIGHT - BOTTOM
        parts.append(f'<line class="grid" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{base}"/>')
        text = f"{nodes // 1000}k"
        parts.append(f'<text x="{at:.1f}" y="{base + 18}" text-anchor="middle" class="soft">{text}</text>')
    middle = f'x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle"'
    parts.append(f'<text {middle} class="soft">nodes</text>')

    def path(line: Mapping[int, float]) -> str:
        return " ".join(f"{x(n):.1f},{y(s * 1000):.1f}" for n, s in sorted(line.items()))

    parts.append(f'<polyline class="floor" points="{path(floor)}"/>')
    labels = []
    for key, line in lines.items():
        dash = "" if key[1] == 1 else ' stroke-dasharray="7 3"'
        look = f'stroke="{COLOURS[key[0]]}" stroke-width="2"'
        parts.append(f'<polyline points="{path(line)}" fill="none" {look}{dash}/>')
        parts += [
            f'<circle cx="{x(n):.1f}" cy="{y(s * 1000):.1f}" r="3" fill="{COLOURS[key[0]]}"/>'
            for n, s in line.items()
        ]
        labels.append((y(line[sizes[-1]] * 1000) + 4, name_of(key), COLOURS[key[0]]))
    last = 0.0
    for wanted, text, colour in sorted(labels):
        last = max(wanted, last + 14)
        at = WIDTH - RIGHT + 8
        parts.append(f'<text x="{at}" y="{last:.1f}" font-size="11" style="fill:{colour}">{text}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


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
