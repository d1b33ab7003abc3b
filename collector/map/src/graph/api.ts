// The interface between src/graph and src/ui: calls of the drawn map, and its events. src/ui does not use the canvas,
// and src/graph does not use panels.
import type { ItemId } from "../model/ids";
import type { Change, Picture } from "../model/picture";
import type { State } from "../model/conditions";

/** World coordinates of the view's centre, and pixels for each world unit. */
export interface Camera {
  x: number;
  y: number;
  zoom: number;
}

/** What is absent does not filter. What does not match is dimmed and cannot be picked; nothing moves. */
export interface MapFilter {
  fabrics?: ReadonlySet<string>;
  rails?: ReadonlySet<string>;
  tiers?: ReadonlySet<number>;
  states?: ReadonlySet<State>;
}

/** "path": thick and on top, the rest dimmed; "search": outlined. Names of things that are not there are ignored. */
export interface Highlight {
  kind: "path" | "search";
  ids: Iterable<ItemId>;
}

/** A placement that is looked at: nodes, each with the text to write on it (ranks). */
export interface Preview {
  nodes: ReadonlyMap<string, string>;
}

/** CSS colours; read by the interface from its custom properties. */
export interface MapTheme {
  background: string;
  text: string;
  muted: string;
  /** Boxes of domains; those inside one another alternate. */
  domain: string;
  domainInner: string;
  border: string;
  device: string;
  cable: string;
  ok: string;
  degraded: string;
  notReady: string;
  inconsistent: string;
  stale: string;
  unknown: string;
  selected: string;
  path: string;
  placed: string;
  /** CSS font family. */
  font: string;
}

export interface Picked {
  id: ItemId;
  /** In CSS pixels from the map's upper left corner. */
  x: number;
  y: number;
}

export interface Stats {
  /** Generation of the picture that is on the screen. */
  generation: number;
  /** Frames drawn so far. */
  frames: number;
  /** Milliseconds that the last full drawing took. */
  drawMs: number;
  nodes: number;
  switches: number;
  links: number;
}

export interface MapEvents {
  /** Clicked; null = nothing there. The map does not select by itself: call `select`. */
  pick: Picked | null;
  hover: Picked | null;
  camera: Camera;
  painted: Stats;
}

export interface MapView {
  /** Another picture: the first one, or one out of the history. Keeps the camera unless there was none. */
  setPicture(picture: Picture): void;
  /** The same picture after `Picture.apply`. */
  applyChange(change: Change): void;
  setFilter(filter: MapFilter): void;
  select(id: ItemId | null): void;
  setHighlight(highlight: Highlight | null): void;
  setPreview(preview: Preview | null): void;
  setTheme(theme: MapTheme): void;
  /** Moves the view so that these are seen, near enough to read; at once unless animated. */
  focus(ids: Iterable<ItemId>, animate?: boolean): void;
  fit(animate?: boolean): void;
  zoomBy(factor: number): void;
  /** In CSS pixels. */
  panBy(dx: number, dy: number): void;
  camera(): Camera;
  setCamera(camera: Camera): void;
  /** Where it is drawn, in CSS pixels from the map's upper left corner; null = nowhere. */
  screenPositionOf(id: ItemId): { x: number; y: number } | null;
  /** What an arrow key leads to from here. */
  neighbour(id: ItemId, direction: "up" | "down" | "left" | "right"): ItemId | null;
  stats(): Stats;
  on<K extends keyof MapEvents>(event: K, listener: (value: MapEvents[K]) => void): () => void;
  destroy(): void;
}
