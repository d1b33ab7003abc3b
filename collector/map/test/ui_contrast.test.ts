// Colours that people can tell from what is behind them: WCAG 2.2, 1.4.3 (text, 4.5 : 1) and 1.4.11 (marks, 3 : 1),
// in both themes, computed from the stylesheet itself.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const css = readFileSync(new URL("../src/ui/tokens.css", import.meta.url), "utf8");

function theme(selector: string): Map<string, string> {
  const begin = css.indexOf(`${selector} {`);
  expect(begin).toBeGreaterThanOrEqual(0);
  const block = css.slice(begin, css.indexOf("}", begin));
  return new Map([...block.matchAll(/--([a-z-]+): (#[0-9a-f]{6});/g)].map((x) => [x[1] ?? "", x[2] ?? ""]));
}

function luminance(hex: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((i) => {
    const c = parseInt(hex.slice(i, i + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string): number {
  const [light = 0, dark = 0] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (light + 0.05) / (dark + 0.05);
}

const SURFACES = ["bg", "panel", "raised"];
const TEXT: [string, string[]][] = [
  ["text", [...SURFACES, "accent-soft", "degraded-soft", "bad-soft", "past-soft", "domain", "domain-inner"]],
  ["muted", [...SURFACES, "accent-soft", "degraded-soft", "bad-soft", "past-soft", "domain", "domain-inner"]],
  ["accent", [...SURFACES, "accent-soft", "degraded-soft", "bad-soft", "past-soft"]],
  ["on-accent", ["accent"]],
  ["past", ["past-soft"]],
  ...["ok", "degraded", "not-ready", "missing", "inconsistent", "stale", "unknown"].map((x): [string, string[]] => [x, ["panel"]]),
  ["degraded", ["degraded-soft"]],
  ["not-ready", ["bad-soft"]],
  ["missing", ["bad-soft"]],
];
const MARKS: [string, string[]][] = [
  ["focus", SURFACES],
  ["device", ["domain", "domain-inner"]],
  ...["degraded", "not-ready", "missing", "inconsistent", "stale", "unknown", "ok", "selected", "path", "placed"].map(
    (x): [string, string[]] => [x, ["bg", "domain", "domain-inner"]],
  ),
];

describe.each([":root", ':root[data-theme="dark"]'])("%s", (selector) => {
  const colours = theme(selector);
  const pairs = [
    ...TEXT.flatMap(([x, on]) => on.map((y) => [x, y, 4.5] as const)),
    ...MARKS.flatMap(([x, on]) => on.map((y) => [x, y, 3] as const)),
  ];
  it.each(pairs)("%s on %s is at least %s : 1", (x, y, least) => {
    const [a, b] = [colours.get(x), colours.get(y)];
    expect([x, a], "no such colour").not.toContain(undefined);
    expect([y, b], "no such colour").not.toContain(undefined);
    expect(contrast(a ?? "#000000", b ?? "#000000")).toBeGreaterThanOrEqual(least);
  });
});
