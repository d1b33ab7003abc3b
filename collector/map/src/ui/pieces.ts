// Elements of the panels: sections, pairs of name and value, cards of a condition or an anomaly.

import type { State } from "../model/conditions";
import type { App } from "./app";
import { h, type Child } from "./dom";
import { stateIcon } from "./icons";
import { visible, words } from "./text";
import { ago, clock, parseTime, span } from "./times";

export function section(title: Child, ...children: Child[]): HTMLElement {
  return h("section", { class: "section" }, h("h3", {}, title), ...children);
}

/** Pairs of name and value; unknown values are left out. */
export function pairs(...facts: readonly [string, Child][]): HTMLElement {
  const known = facts.filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "");
  return h("dl", { class: "pairs" }, ...known.flatMap(([key, value]) => [h("dt", {}, key), h("dd", {}, value)]));
}

/** The first items, and the number of the others. */
export function some<T>(all: readonly T[], most: number, render: (x: T) => Child): Child[] {
  const left = all.length - most;
  return [...all.slice(0, most).map(render), left > 0 && h("span", { class: "muted" }, `and ${left.toLocaleString("en")} more`)];
}

export function card(app: App, state: State, title: Child, reason: string, message: string, since: string | undefined, more = ""): HTMLElement {
  const at = parseTime(since);
  const tone = state === "ok" ? "" : state === "notReady" || state === "missing" ? " bad" : " degraded";
  return h(
    "div",
    { class: `card${tone}` },
    stateIcon(state, true),
    h("strong", {}, title, reason && ` · ${visible(words(reason))}`),
    message && h("span", { class: "more" }, visible(message, 1000)),
    at !== null && h("span", { class: "small" }, "Since ", time(at, app.nowMs())),
    more && h("span", { class: "small" }, more),
  );
}

/** A time, or the duration since then. `keepTimes` updates it while it is shown. */
export function time(atMs: number, nowMs: number, form: "when" | "for" = "when"): HTMLElement {
  const at = new Date(atMs).toISOString();
  return h("time", { datetime: at, title: at, "data-form": form }, timeText(atMs, nowMs, form));
}

function timeText(atMs: number, nowMs: number, form: string): string {
  return form === "for" ? `for ${span(nowMs - atMs)}` : `${clock(atMs, nowMs)} (${ago(atMs, nowMs)})`;
}

const TICK_MS = 5000;

export function keepTimes(app: App): void {
  setInterval(() => {
    for (const found of document.querySelectorAll("time[data-form]")) {
      const at = Date.parse(found.getAttribute("datetime") ?? "");
      found.textContent = timeText(at, app.nowMs(), found.getAttribute("data-form") ?? "");
    }
  }, TICK_MS);
}
