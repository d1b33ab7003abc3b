// Keyboard shortcuts. Keys with Control or Alt belong to the browser; no shortcut works in a text field.

import { hypernodeId, type ItemId } from "../model/ids";
import type { App } from "./app";
import { STATE_WORDS } from "./icons";
import { isSeen } from "./stage";
import { TABS } from "./tabs";
import { anomalyId, kindWord, label, onMap, stateOf, worstFirst } from "./things";

const WALK = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" } as const;
type Arrow = keyof typeof WALK;
const PAN: Readonly<Record<Arrow, readonly [number, number]>> = { ArrowUp: [0, -80], ArrowDown: [0, 80], ArrowLeft: [-80, 0], ArrowRight: [80, 0] };

export interface Actions {
  search(): void;
  help(): void;
  theme(): void;
  live(): void;
  step(direction: 1 | -1): void;
  /** The focused object on the map was chosen, as by a click. */
  pick(id: ItemId): void;
}

export function keyboard(app: App, canvas: HTMLElement, actions: Actions): void {
  const simple: Record<string, () => void> = {
    "/": actions.search,
    "?": actions.help,
    t: actions.theme,
    l: actions.live,
    ",": () => actions.step(-1),
    ".": () => actions.step(1),
    "+": () => app.map.zoomBy(1.5),
    "=": () => app.map.zoomBy(1.5),
    "-": () => app.map.zoomBy(1 / 1.5),
    "0": () => app.map.fit(true),
    n: () => wrong(app, 1),
    p: () => wrong(app, -1),
    Escape: () => release(app),
  };
  TABS.forEach((tab, i) => (simple[String(i + 1)] = () => app.views.change({ tab })));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const action = simple[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const selected = app.views.now.selected;
    if (event.key === "Enter" && selected !== null) actions.pick(selected);
    else if (event.key in WALK && event.shiftKey) app.map.panBy(...PAN[event.key as Arrow]);
    else if (event.key in WALK) walk(app, event.key as Arrow);
    else return;
    event.preventDefault();
  });
}

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  const typed = ["text", "search", "password", "number", ""];
  return target instanceof HTMLSelectElement || (target instanceof HTMLInputElement && typed.includes(target.type));
}

/** Select the next object in this direction; without a selection, the root. */
function walk(app: App, arrow: Arrow): void {
  const picture = app.picture();
  const selected = app.views.now.selected;
  const from = selected === null ? null : onMap(picture, selected);
  const root = [...picture.hypernodes.values()].find((x) => x.parent === null);
  const next = from === null ? (root ? hypernodeId(root.name) : null) : app.map.neighbour(from, WALK[arrow]);
  if (next === null) return app.say("Nothing lies there");
  app.views.change({ selected: next }, "replace");
  if (!isSeen(app, next)) app.moveTo([next]);
  app.say(`${kindWord(next)} ${label(picture, next)}, ${STATE_WORDS[stateOf(picture, next)].toLowerCase()}`);
}

function wrong(app: App, by: 1 | -1): void {
  const all = worstFirst(app.picture().anomalies).map(anomalyId);
  if (!all.length) return app.say("Nothing is wrong");
  const here = all.indexOf(app.views.now.selected ?? "");
  const next = all[here < 0 && by < 0 ? all.length - 1 : (here + by + all.length) % all.length];
  if (next) app.go(next);
}

/** Clear one of the selection, the search and the path, in this order. */
function release(app: App): void {
  const { selected, marked, path } = app.views.now;
  if (selected !== null) app.views.change({ selected: null });
  else if (marked) app.views.change({ marked: "" });
  else if (path) app.views.change({ path: null });
}
