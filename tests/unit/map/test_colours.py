"""Colours of the map that people can tell from what is behind them, in both themes.

WCAG 2.2, 1.4.3: text has 4.5 : 1; 1.4.11: what is drawn has 3 : 1. Computed from the stylesheet itself.
"""

import re
from collections.abc import Iterator

import pytest
from support.real import ROOT

CSS = (ROOT / "collector/map/src/ui/tokens.css").read_text()
STATES = ("ok", "degraded", "not-ready", "missing", "inconsistent", "stale", "unknown")
SURFACES = ("bg", "panel", "raised")
TONES = ("accent-soft", "degraded-soft", "bad-soft", "past-soft")
GROUND = ("bg", "domain", "domain-inner")
TEXT = {
    "text": (*SURFACES, *TONES, *GROUND),
    "muted": (*SURFACES, *TONES, *GROUND),
    "accent": (*SURFACES, *TONES),
    "on-accent": ("accent",),
    "past": ("past-soft",),
    **dict.fromkeys(STATES, ("panel",)),
}
TEXT_ON_ITS_TONE = [("degraded", "degraded-soft"), ("not-ready", "bad-soft"), ("missing", "bad-soft")]
DRAWN = {
    "focus": SURFACES,
    "device": ("domain", "domain-inner"),
    **dict.fromkeys((*STATES, "selected", "path", "placed"), GROUND),
}


def theme(selector: str) -> dict[str, str]:
    block = CSS.split(f"{selector} {{", 1)[1].split("}", 1)[0]
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance of sRGB."""
    found = []
    for i in (1, 3, 5):
        c = int(colour[i : i + 2], 16) / 255
        found.append(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4)
    r, g, b = found
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: str, b: str) -> float:
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def pairs() -> Iterator[tuple[str, str, float]]:
    for least, table in ((4.5, TEXT), (3.0, DRAWN)):
        yield from ((x, on, least) for x, grounds in table.items() for on in grounds)
    yield from ((x, on, 4.5) for x, on in TEXT_ON_ITS_TONE)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("selector", [":root", ':root[data-theme="dark"]'])
def test_everything_stands_out_from_what_is_behind_it(selector: str) -> None:
    colours = theme(selector)
    found = {(x, on): contrast(colours[x], colours[on]) for x, on, _ in pairs()}
    low = [f"{x} on {on}: {found[x, on]:.2f}" for x, on, least in pairs() if found[x, on] < least]
    assert not low


def test_both_themes_have_the_same_colours() -> None:
    assert set(theme(":root")) == set(theme(':root[data-theme="dark"]'))
