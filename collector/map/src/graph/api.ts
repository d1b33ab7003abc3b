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

/** An absent field does not filter. Objects that do not match are dimmed and cannot be picked; they keep their place. */
export interface MapFilter {
  fabrics?: ReadonlySet<string>;
  rails?: ReadonlySet<string>;
  /** Clusters of nodes; "" = the collector's own. */
  clusters?: ReadonlySet<string>;
  tiers?: ReadonlySet<number>;
  states?: ReadonlySet<State>;
}

/** "path": thick and on top, the rest dimmed; "search": outlined. Unknown names are ignored. */
export interface Highlight {
  kind: "path" | "search";
  ids: Iterable<ItemId>;
}

/** The placement that is shown: nodes, each with the text to write on it (ranks). */
export interface Preview {
  nodes: ReadonlyMap<string, string>;
}

/** CSS colours; read by the interface from its custom properties. */
export interface MapTheme {
  background: string;
  text: string;
  muted: string;
  /** Colours of the boxes of domains; they alternate with the depth. */
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
  /** Generation of the picture that is shown. */
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
  /** The clicked object; null = none. The map does not select it: call `select`. */
  pick: Picked | null;
  hover: Picked | null;
  camera: Camera;
  painted: Stats;
}

export interface MapView {
  /** Show another picture: the first one, or one of the history. The camera stays if there was one. */
  setPicture(picture: Picture): void;
  /** The same picture after `Picture.apply`. */
  applyChange(change: Change): void;
  setFilter(filter: MapFilter): void;
  select(id: ItemId | null): void;
  setHighlight(highlight: Highlight | null): void;
  setPreview(preview: Preview | null): void;
  setTheme(theme: MapTheme): void;
  /** Move the view so that these objects are visible and readable; at once unless animated. */
  focus(ids: Iterable<ItemId>, animate?: boolean): void;
  fit(animate?: boolean): void;
  zoomBy(factor: number): void;
  /** In CSS pixels. */
  panBy(dx: number, dy: number): void;
  camera(): Camera;
  setCamera(camera: Camera): void;
  /** Position of the object, in CSS pixels from the map's upper left corner; null = not drawn. */
  screenPositionOf(id: ItemId): { x: number; y: number } | null;
  /** The object that an arrow key selects from here. */
  neighbour(id: ItemId, direction: "up" | "down" | "left" | "right"): ItemId | null;
  stats(): Stats;
  on<K extends keyof MapEvents>(event: K, listener: (value: MapEvents[K]) => void): () => void;
  destroy(): void;
}
