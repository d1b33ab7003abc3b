"""The pictures of benchmarks as SVG: a frame for light and dark ground, and logarithmic axes."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

COLOURS = ("#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#8c959f")
_FONT = 'font-family="sans-serif" font-size="13"'
_STYLE = (
    "text{fill:#24292f} .grid{stroke:#8c959f;stroke-opacity:.35} .soft{fill:#57606a} "
    ".floor{stroke:#57606a;stroke-dasharray:5 4;fill:none} "
    "@media (prefers-color-scheme: dark){text{fill:#e6edf3} .soft{fill:#9da7b3} .floor{stroke:#9da7b3}}"
)
_LINE_HEIGHT = 14

Curve = Mapping[int, float]  # size -> value


def svg(
    width: int, height: int, title: str, heading: str, caption: str, parts: Iterable[str], left: int = 16
) -> str:
    """A picture of `parts` below a heading and a caption, which take 40 pixels and begin at `left`.

    `title`: what the picture shows, for screen readers.
    """
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {_FONT} role="img">',
            f"<title>{title}</title>",
            f"<style>{_STYLE}</style>",
            f'<text x="{left}" y="20" font-weight="bold">{heading}</text>',
            f'<text x="{left}" y="38" class="soft" font-size="11">{caption}</text>',
            *parts,
            "</svg>\n",
        ]
    )


def powers(values: Iterable[float]) -> tuple[int, int]:
    """The powers of ten around positive values: from 10**low to 10**high."""
    known = list(values)
    return math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))


@dataclass(frozen=True, slots=True)
class LogAxes:
    """Logarithmic axes in a box of pixels: ascending `sizes` from left to right, and 10**low to 10**high."""

    left: int
    right: int
    top: int
    bottom: int
    sizes: Sequence[int]
    low: int
    high: int

    def x(self, size: int) -> float:
        share = math.log(size / self.sizes[0]) / math.log(self.sizes[-1] / self.sizes[0])
        return self.left + share * (self.right - self.left)

    def y(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.bottom - share * (self.bottom - self.top)

    def grid(self, what: str) -> Iterator[str]:
        """Lines at the powers of ten and at the sizes, with their numbers. `what`: the unit of the sizes."""
        left, right, top, bottom = self.left, self.right, self.top, self.bottom
        for power in range(self.low, self.high + 1):
            at = self.y(10**power)
            yield f'<line class="grid" x1="{left}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>'
            yield (
                f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end" class="soft">{10**power:g}</text>'
            )
        for size in self.sizes:
            at, label = self.x(size), f"{size // 1000}k" if size % 1000 == 0 else f"{size}"
            yield f'<line class="grid" x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{bottom}"/>'
            yield f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle" class="soft">{label}</text>'
        middle = f'x="{(left + right) / 2}" y="{bottom + 40}" text-anchor="middle"'
        yield f'<text {middle} class="soft">{what}</text>'

    def floor(self, curve: Curve) -> str:
        """A grey line to compare with."""
        return f'<polyline class="floor" points="{self._points(curve)}"/>'

    def curve(self, curve: Curve, colour: str, *, dashed: bool = False) -> Iterator[str]:
        """A line with a dot at each size."""
        dash = ' stroke-dasharray="7 3"' if dashed else ""
        look = f'fill="none" stroke="{colour}" stroke-width="2"{dash}'
        yield f'<polyline points="{self._points(curve)}" {look}/>'
        for size, value in curve.items():
            yield f'<circle cx="{self.x(size):.1f}" cy="{self.y(value):.1f}" r="3" fill="{colour}"/>'

    def names(self, ends: Iterable[tuple[float, str, str]]) -> Iterator[str]:
        """Names to the right of the curves. `ends`: last value, name and colour of each."""
        last = 0.0
        for wanted, name, colour in sorted((self.y(value) + 4, name, colour) for value, name, colour in ends):
            last = max(wanted, last + _LINE_HEIGHT)
            at = self.right + 8
            yield f'<text x="{at}" y="{last:.1f}" font-size="11" style="fill:{colour}">{name}</text>'

    def _points(self, curve: Curve) -> str:
        return " ".join(f"{self.x(size):.1f},{self.y(value):.1f}" for size, value in sorted(curve.items()))
