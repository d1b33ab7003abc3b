"""The table and the picture of docs/placement-quality.md."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.quality.measures import Figures
from support.svg_plot import COLOURS, svg

HEADS = (
    *("placer", "top tier", "above lowest", "leaves", "pods", "all-reduce", "costs more", "slower in"),
    *("wait mean, p95", "wait of gangs", "never placed", "busy", "scattered", "largest leaf, pod"),
    "decision mean, p99",
)
_FIRST = 8  # columns of the first of two tables, which keep the lines of the page short
WIDTH, NAMES, GAP, BAR, STEP, HEAD = 1000, 140, 22, 14, 20, 46


@dataclass(frozen=True, slots=True)
class Block:
    """One cluster and mode: the figures of each placer, the exact one first. `worse`: by placer, the share of
    decisions where it would have paid more on the exact placer's own states (about gangs, about jobs of one
    node). `slower`: in how many of the `traces` its gangs had the slower all-reduce."""

    title: str
    rows: Sequence[Figures]
    worse: dict[str, tuple[float, float]]
    slower: dict[str, int]
    traces: int


COLUMNS: Sequence[tuple[str, Callable[[Figures], float], Callable[[float], str]]] = (
    ("mean top tier of gangs", lambda f: f.top, lambda v: f"{v:.2f}"),
    ("gangs higher than needed", lambda f: 100 * f.above, lambda v: f"{v:.0f} %"),
    ("predicted all-reduce, 1 GiB", lambda f: f.ring_ms, lambda v: f"{v:.0f} ms"),
    ("free GPUs in used leaves", lambda f: 100 * f.scattered, lambda v: f"{v:.1f} %"),
    ("mean wait", lambda f: f.wait_s / 60, lambda v: f"{v:.1f} min"),
)


def table(block: Block) -> str:
    """Two tables in Markdown; both begin with the placer."""
    rows = [HEADS, *_cells(block)]
    parts = [row[:_FIRST] for row in rows], [(row[0], *row[_FIRST:]) for row in rows]
    return "\n\n".join(map(_markdown, parts))


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


def _cells(block: Block) -> Iterator[tuple[str, ...]]:
    for f in block.rows:
        gangs, others = block.worse.get(f.placer, (0.0, 0.0))
        more = f"{100 * gangs:.1f} %, {100 * others:.0f} %" if f.placer in block.worse else "-"
        slower = "-" if f.placer not in block.slower else f"{block.slower[f.placer]} of {block.traces}"
        yield (
            f.placer,
            f"{f.top:.2f}",
            f"{100 * f.above:.1f} %",
            f"{f.leaves:.2f}",
            f"{f.pods:.2f}",
            f"{f.ring_ms:.0f} ms",
            more,
            slower,
            f"{f.wait_s / 60:.1f}, {f.wait95_s / 60:.0f} min",
            f"{f.gang_wait_s / 60:.0f} min",
            f"{f.waiting}",
            f"{100 * f.busy:.1f} %",
            f"{100 * f.scattered:.1f} %",
            f"{f.leaf_gang:.0f}, {f.pod_gang:.0f} GPUs",
            f"{f.took_us / 1e3:.2f}, {f.took99_us / 1e3:.2f} ms",
        )


def drawing(blocks: Sequence[Block], caption: str) -> str:
    """An SVG: a row of bars for each placer, a column for each figure."""
    panel = (WIDTH - NAMES - GAP * len(COLUMNS)) / len(COLUMNS)
    height = 52 + sum(HEAD + STEP * len(block.rows) for block in blocks) + 12
    parts = []
    top = 52
    for block in blocks:
        parts.append(f'<text x="16" y="{top + 18}" font-weight="bold">{block.title}</text>')
        for column, (what, value, say) in enumerate(COLUMNS):
            left = NAMES + column * (panel + GAP)
            parts.append(f'<text x="{left:.0f}" y="{top + 38}" class="soft" font-size="11">{what}</text>')
            most = max(value(row) for row in block.rows) or 1.0
            for i, row in enumerate(block.rows):
                y, length = top + HEAD + i * STEP, value(row) / most * (panel - 58)
                parts.append(
                    f'<rect x="{left:.1f}" y="{y}" width="{max(length, 1):.1f}" height="{BAR}" '
                    f'fill="{COLOURS[i]}"/>'
                )
                parts.append(
                    f'<text x="{left + length + 5:.1f}" y="{y + 11}" font-size="11">{say(value(row))}</text>'
                )
        for i, row in enumerate(block.rows):
            parts.append(f'<text x="16" y="{top + HEAD + i * STEP + 11}">{row.placer}</text>')
        top += HEAD + STEP * len(block.rows)
    heading = "Same jobs, five placers: shorter bars are better"
    return svg(WIDTH, height, f"The exact placer beside others. {caption}", heading, caption, parts)
