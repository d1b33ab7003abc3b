// Keeps the view in the address after the "#": a link to the map leads to the same view, and the browser's back and
// forward work. The address never contains secrets or measured values.

export type Tab = "wrong" | "filters" | "path" | "place";

export interface Camera {
  readonly x: number;
  readonly y: number;
  readonly zoom: number;
}

export interface View {
  readonly tab: Tab;
  /** Id of the selected object. */
  readonly selected: string | null;
  /** Host list of the nodes that a search has marked. */
  readonly marked: string;
  /** Chosen values of each filter; none chosen = all. */
  readonly fabrics: readonly string[];
  readonly rails: readonly string[];
  readonly clusters: readonly string[];
  readonly tiers: readonly string[];
  readonly conditions: readonly string[];
  /** The time that is shown (ms since 1970); null = live. */
  readonly at: number | null;
  /** The two nodes whose path is explained; an empty text if one is not picked yet. */
  readonly path: readonly [string, string] | null;
  readonly camera: Camera | null;
}

export const EMPTY: View = {
  tab: "wrong",
  selected: null,
  marked: "",
  fabrics: [],
  rails: [],
  clusters: [],
  tiers: [],
  conditions: [],
  at: null,
  path: null,
  camera: null,
};

const LISTS = ["fabrics", "rails", "clusters", "tiers", "conditions"] as const;
const TABS: readonly string[] = ["wrong", "filters", "path", "place"];
const MAX_VALUES = 200; // limit of each list in an address, which may come from outside

/** The part of an address after "#"; "" for the empty view. */
export function toHash(view: View): string {
  const found = new URLSearchParams();
  if (view.tab !== EMPTY.tab) found.set("tab", view.tab);
  if (view.selected !== null) found.set("select", view.selected);
  if (view.marked) found.set("mark", view.marked);
  for (const key of LISTS) for (const value of view[key]) found.append(key, value);
  if (view.at !== null) found.set("at", new Date(view.at).toISOString());
  if (view.path) for (const node of view.path) found.append("path", node);
  if (view.camera) {
    const { x, y, zoom } = view.camera;
    found.set("camera", [x, y, zoom].map((n) => Number(n.toPrecision(6))).join(","));
  }
  return found.toString();
}

/** Parse the view of an address; invalid parts are ignored. */
export function fromHash(hash: string): View {
  const found = new URLSearchParams(hash.replace(/^#/, ""));
  const tab = found.get("tab") ?? "";
  const at = Date.parse(found.get("at") ?? "");
  const ends = found.getAll("path");
  const camera = (found.get("camera") ?? "").split(",").map(Number);
  const [x, y, zoom] = camera;
  const sane = camera.length === 3 && camera.every(Number.isFinite) && (zoom ?? 0) > 0;
  const list = (key: string): string[] => found.getAll(key).slice(0, MAX_VALUES);
  return {
    tab: (TABS.includes(tab) ? tab : EMPTY.tab) as Tab,
    selected: found.get("select"),
    marked: found.get("mark") ?? "",
    fabrics: list("fabrics"),
    rails: list("rails"),
    clusters: list("clusters"),
    tiers: list("tiers"),
    conditions: list("conditions"),
    at: Number.isNaN(at) ? null : at,
    path: ends.length ? [ends[0] ?? "", ends[1] ?? ""] : null,
    camera: sane ? { x: x ?? 0, y: y ?? 0, zoom: zoom ?? 1 } : null,
  };
}

export type Listener = (view: View, before: View) => void;

/** Keeps the view and the address equal. */
export class Views {
  #view: View;
  readonly #listeners: Listener[] = [];

  constructor(private readonly window: Window) {
    this.#view = fromHash(window.location.hash);
    window.addEventListener("popstate", () => this.#set(fromHash(window.location.hash)));
  }

  get now(): View {
    return this.#view;
  }

  /** "push" adds an entry to the browser's history; else the last entry is replaced. */
  change(what: Partial<View>, how: "push" | "replace" = "push"): void {
    const next = { ...this.#view, ...what };
    const [before, after] = [toHash(this.#view), toHash(next)];
    if (before !== after) {
      const address = after ? `#${after}` : this.window.location.pathname + this.window.location.search;
      if (how === "push") this.window.history.pushState(null, "", address);
      else this.window.history.replaceState(null, "", address);
    }
    this.#set(next);
  }

  listen(listener: Listener): void {
    this.#listeners.push(listener);
  }

  #set(view: View): void {
    const before = this.#view;
    this.#view = view;
    for (const listener of this.#listeners) listener(view, before);
  }
}
