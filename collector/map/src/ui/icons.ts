// Each state has its own shape, so that it is recognizable without colours. The canvas draws the same shapes.

import type { State } from "../model/conditions";
import { svg } from "./dom";

/** The name of each state, and the path of a 16 x 16 icon. Filled shapes are readable when small. */
export const STATE_WORDS: Readonly<Record<State, string>> = {
  missing: "Missing",
  notReady: "Not ready",
  degraded: "Degraded",
  inconsistent: "Inconsistent",
  stale: "Stale",
  unknown: "Unknown",
  ok: "Healthy",
};

const SHAPES: Readonly<Record<State, readonly string[]>> = {
  missing: ["M3 3 13 13", "M13 3 3 13"],
  notReady: ["M5.2 1.5h5.6l3.7 3.7v5.6l-3.7 3.7H5.2L1.5 10.8V5.2z", "M5 8h6"],
  degraded: ["M8 1.8 15 14H1z", "M8 6.2v3.6", "M8 11.4v1"],
  inconsistent: ["M2.5 5.5h11", "M2.5 10.5h11", "M11 2 5 14"],
  stale: ["M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13z", "M8 4.5V8l2.5 2"],
  unknown: ["M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13z", "M6.2 6.3a1.9 1.9 0 1 1 2.6 1.8c-.6.3-.8.7-.8 1.4", "M8 11v.9"],
  ok: ["M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13z", "M5 8.2l2.1 2.1L11 6.2"],
};

/** Beside a word, hidden from screen readers; alone, with `label`. */
export function stateIcon(state: State, label = false): SVGElement {
  return icon(SHAPES[state], `is-${state}`, label ? STATE_WORDS[state] : "");
}

export function icon(paths: readonly string[], kind = "", label = ""): SVGElement {
  const hidden = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return svg(
    "svg",
    { class: `icon ${kind}`.trim(), viewBox: "0 0 16 16", ...hidden },
    ...paths.map((d) => svg("path", { d, "stroke-linecap": "round", "stroke-linejoin": "round" })),
  );
}

export const ICONS = {
  well: ["M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13z", "M5 8.2l2.1 2.1L11 6.2"],
  brand: ["M8 1.5v3", "M8 4.5 3.5 8M8 4.5 12.5 8", "M3.5 8v3M12.5 8v3", "M2 11h3v3.5H2zM11 11h3v3.5h-3z", "M6.5 1h3v3h-3z"],
  close: ["M3.5 3.5 12.5 12.5", "M12.5 3.5 3.5 12.5"],
  plus: ["M8 3v10", "M3 8h10"],
  minus: ["M3 8h10"],
  fit: ["M2 6V2h4", "M10 2h4v4", "M14 10v4h-4", "M6 14H2v-4"],
  back: ["M10.5 3 5.5 8l5 5"],
  forth: ["M5.5 3l5 5-5 5"],
  play: ["M4.5 2.5v11L13 8z"],
  pause: ["M5 3v10", "M11 3v10"],
  sun: ["M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6z", "M8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1"],
  moon: ["M13.5 9.6A6 6 0 0 1 6.4 2.5a6 6 0 1 0 7.1 7.1z"],
  auto: ["M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13z", "M8 1.5v13", "M8 4.5h4.5M8 8h6M8 11.5h4.5"],
} as const;
