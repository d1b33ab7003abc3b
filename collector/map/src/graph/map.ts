// The drawn map behind the interface of api.ts: two canvases, one for the scene and one for what moves with the mouse.
// The scene is drawn somewhat larger than the view and kept as a picture. A drag or zoom moves this picture; it is
// drawn again when it no longer covers the view, or when the gesture ends.
import { kindOf, type ItemId } from "../model/ids";
import { Picture, type Change } from "../model/picture";
import type { Camera, Highlight, MapEvents, MapFilter, MapTheme, MapView, Picked, Preview, Stats } from "./api";
import { busLines, type BusLine } from "./buses";
import { fitting, gestures, type Gestures } from "./gestures";
import { HOST } from "./layout";
import { looksOf, type Looks } from "./marks";
import { neighbour } from "./neighbours";
import { paintOverlay, type Marks } from "./overlay";
import { paint, type View } from "./paint";
import { pick, placeOf } from "./pick";
import { Scene } from "./scene";

/** How much larger than the view the kept picture is, to each side. */
const MARGIN = 0.2;
/** Maximum factor by which the kept picture is stretched while zooming. */
const MAX_STRETCH = 1.6;
const REST_MS = 120;
const SLICE_MS = 4;
/** Size of a host in pixels when the view moves to an object. */
const READABLE_PX = 48;
const PLAIN: MapTheme = {
  background: "#ffffff",
  text: "#111111",
  muted: "#666666",
  domain: "#f2f2f2",
  domainInner: "#e6e6e6",
  border: "#999999",
  device: "#555555",
  cable: "#888888",
  ok: "#3b75af",
  degraded: "#b25d00",
  notReady: "#b00020",
  inconsistent: "#7a3e9d",
  stale: "#6b6b6b",
  unknown: "#8a8a8a",
  selected: "#000000",
  path: "#005f73",
  placed: "#0a7d4f",
  font: "sans-serif",
};

type Listeners = { [K in keyof MapEvents]: Set<(value: MapEvents[K]) => void> };

export function createMap(container: HTMLElement): MapView {
  return new CanvasMap(container);
}

class CanvasMap implements MapView {
  private readonly front = document.createElement("canvas");
  private readonly overlay = document.createElement("canvas");
  private readonly kept = document.createElement("canvas");
  private readonly listeners: Listeners = { pick: new Set(), hover: new Set(), camera: new Set(), painted: new Set() };
  private readonly hands: Gestures;
  private readonly observer: ResizeObserver;
  private readonly marks: Marks = { selected: null, hovered: null, highlight: null, preview: null };
  private scene = new Scene(new Picture());
  private buses: BusLine[] = [];
  private theme = PLAIN;
  private looks: Looks[] = looksOf(PLAIN);
  private width = 1;
  private height = 1;
  /** The view of the kept picture; null = it must be drawn again. */
  private keptView: View | null = null;
  private wantsFrame = 0;
  private preparing = 0;
  private lastMoved = 0;
  private wasFitted = false;
  private frames = 0;
  private drawMs = 0;

  constructor(private readonly container: HTMLElement) {
    for (const canvas of [this.front, this.overlay]) {
      canvas.className = "map-canvas";
      canvas.setAttribute("aria-hidden", "true"); // the panels have the same as text
      canvas.style.position = "absolute";
      canvas.style.inset = "0";
      container.append(canvas);
    }
    container.style.touchAction = "none";
    this.hands = gestures(container, (camera) => {
      this.lastMoved = performance.now();
      this.ask();
      this.emit("camera", camera);
    });
    container.addEventListener("click", this.clicked);
    container.addEventListener("pointermove", this.pointed);
    container.addEventListener("pointerleave", this.left);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(container);
    this.resize();
  }

  setPicture(picture: Picture): void {
    this.scene.setPicture(picture);
    this.rebuilt();
    if (!this.wasFitted && this.scene.layout.boxes.length > 0) {
      this.fit(false);
      this.wasFitted = true;
    }
  }

  applyChange(change: Change): void {
    this.scene.apply(change);
    this.rebuilt();
  }

  private rebuilt(): void {
    this.buses = busLines(this.scene.layout, this.scene.bundles);
    this.hands.setBounds(this.scene.layout.bounds, this.width, this.height);
    this.redraw();
    clearTimeout(this.preparing);
    this.prepare(0);
  }

  /** Computes the ends of cables before a zoom shows them, in slices that are short enough to delay no frame. */
  private prepare(from: number): void {
    this.preparing = window.setTimeout(() => {
      const until = performance.now() + SLICE_MS;
      const next = this.scene.cables.prepare(from, () => performance.now() < until);
      if (next < this.scene.cables.all.length) this.prepare(next);
    });
  }

  setFilter(filter: MapFilter): void {
    this.scene.setFilter(filter);
    this.redraw();
  }

  select(id: ItemId | null): void {
    this.marks.selected = id;
    this.ask();
  }

  setHighlight(highlight: Highlight | null): void {
    this.marks.highlight = highlight === null ? null : { kind: highlight.kind, ids: new Set(highlight.ids) };
    this.ask();
  }

  setPreview(preview: Preview | null): void {
    this.marks.preview = preview;
    this.ask();
  }

  setTheme(theme: MapTheme): void {
    this.theme = theme;
    this.looks = looksOf(theme);
    this.redraw();
  }

  focus(ids: Iterable<ItemId>, animate = false): void {
    const places = [...ids].flatMap((id) => placeOf(this.scene, id) ?? []);
    if (places.length === 0) return;
    const x = Math.min(...places.map((p) => p.x));
    const y = Math.min(...places.map((p) => p.y));
    const w = Math.max(...places.map((p) => p.x + p.w)) - x;
    const h = Math.max(...places.map((p) => p.y + p.h)) - y;
    this.hands.move(fitting({ x, y, w, h }, this.width, this.height, READABLE_PX / HOST), animate);
  }

  fit(animate = false): void {
    this.hands.move(fitting(this.scene.layout.bounds, this.width, this.height), animate);
  }

  zoomBy(factor: number): void {
    this.hands.zoomBy(factor);
  }

  panBy(dx: number, dy: number): void {
    this.hands.panBy(dx, dy);
  }

  camera(): Camera {
    return this.hands.camera();
  }

  setCamera(camera: Camera): void {
    this.wasFitted = true;
    this.hands.move(camera, false);
  }

  screenPositionOf(id: ItemId): { x: number; y: number } | null {
    const place = placeOf(this.scene, id);
    if (place === null) return null;
    const view = this.view(0);
    // Only the name of a domain belongs to the domain: the rest of its box belongs to other objects.
    const box = this.scene.layout.boxes[this.scene.layout.boxOf.get(id) ?? -1];
    const y = box === undefined ? place.y + place.h / 2 : box.y + box.header / 2;
    return { x: (place.x + place.w / 2 - view.x) * view.zoom, y: (y - view.y) * view.zoom };
  }

  neighbour(id: ItemId, direction: "up" | "down" | "left" | "right"): ItemId | null {
    return neighbour(this.scene.layout, id, direction);
  }

  stats(): Stats {
    const { picture, layout } = this.scene;
    return {
      generation: picture.generation,
      frames: this.frames,
      drawMs: this.drawMs,
      nodes: layout.spots.filter((spot) => spot.kind === "node").length,
      switches: picture.switches.size,
      links: picture.cables.size,
    };
  }

  on<K extends keyof MapEvents>(event: K, listener: (value: MapEvents[K]) => void): () => void {
    this.listeners[event].add(listener);
    return () => this.listeners[event].delete(listener);
  }

  destroy(): void {
    cancelAnimationFrame(this.wantsFrame);
    clearTimeout(this.preparing);
    this.observer.disconnect();
    this.hands.destroy();
    this.container.removeEventListener("click", this.clicked);
    this.container.removeEventListener("pointermove", this.pointed);
    this.container.removeEventListener("pointerleave", this.left);
    this.front.remove();
    this.overlay.remove();
  }

  // --- drawing ---------------------------------------------------------------------------------------------------

  private resize(): void {
    const { clientWidth, clientHeight } = this.container;
    [this.width, this.height] = [Math.max(1, clientWidth), Math.max(1, clientHeight)];
    const ratio = devicePixelRatio;
    for (const canvas of [this.front, this.overlay]) {
      canvas.width = Math.round(this.width * ratio);
      canvas.height = Math.round(this.height * ratio);
      canvas.style.width = `${this.width}px`;
      canvas.style.height = `${this.height}px`;
    }
    this.kept.width = Math.round(this.width * (1 + 2 * MARGIN) * ratio);
    this.kept.height = Math.round(this.height * (1 + 2 * MARGIN) * ratio);
    this.hands.setBounds(this.scene.layout.bounds, this.width, this.height);
    this.redraw();
  }

  private redraw(): void {
    this.keptView = null;
    this.ask();
  }

  private ask(): void {
    if (this.wantsFrame === 0) this.wantsFrame = requestAnimationFrame(this.frame);
  }

  /** `margin`: of the view's size, to each side. */
  private view(margin: number): View {
    const { x, y, zoom } = this.hands.camera();
    const [width, height] = [this.width * (1 + 2 * margin), this.height * (1 + 2 * margin)];
    return { x: x - width / 2 / zoom, y: y - height / 2 / zoom, zoom, width, height, inset: margin * this.width };
  }

  private readonly frame = (): void => {
    this.wantsFrame = 0;
    const view = this.view(0);
    const isMoving = performance.now() - this.lastMoved < REST_MS;
    if (this.keptView === null || !this.serves(this.keptView, view, isMoving)) this.paintKept();
    const kept = this.keptView as View;
    const front = this.front.getContext("2d", { alpha: false }) as CanvasRenderingContext2D;
    const stretch = view.zoom / kept.zoom;
    front.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    if (stretch < 1) {
      front.fillStyle = this.theme.background;
      front.fillRect(0, 0, this.width, this.height);
    }
    const [x, y] = [(kept.x - view.x) * view.zoom, (kept.y - view.y) * view.zoom];
    front.drawImage(this.kept, x, y, kept.width * stretch, kept.height * stretch);
    const above = this.overlay.getContext("2d") as CanvasRenderingContext2D;
    above.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    paintOverlay(above, this.scene, this.marks, this.theme, this.looks, view);
    this.frames += 1;
    if (stretch !== 1) this.ask(); // draw a sharp picture when the gesture pauses
    this.emit("painted", this.stats());
  };

  private serves(kept: View, view: View, isMoving: boolean): boolean {
    const stretch = view.zoom / kept.zoom;
    if (stretch !== 1 && (!isMoving || stretch > MAX_STRETCH || stretch < 1 / MAX_STRETCH)) return false;
    const covers =
      view.x >= kept.x &&
      view.y >= kept.y &&
      view.x + view.width / view.zoom <= kept.x + kept.width / kept.zoom &&
      view.y + view.height / view.zoom <= kept.y + kept.height / kept.zoom;
    return covers || stretch !== 1;
  }

  private paintKept(): void {
    const started = performance.now();
    const view = this.view(MARGIN);
    // Whole pixels, so that the picture is moved without being smeared.
    const device = view.zoom * devicePixelRatio;
    view.x = Math.round(view.x * device) / device;
    view.y = Math.round(view.y * device) / device;
    const ctx = this.kept.getContext("2d", { alpha: false }) as CanvasRenderingContext2D;
    ctx.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    paint(ctx, this.scene, this.buses, this.theme, this.looks, view);
    this.keptView = view;
    this.drawMs = performance.now() - started;
  }

  // --- the mouse -------------------------------------------------------------------------------------------------

  private at(event: MouseEvent): Picked | null {
    const area = this.container.getBoundingClientRect();
    const [x, y] = [event.clientX - area.x, event.clientY - area.y];
    const view = this.view(0);
    const id = pick(this.scene, view.x + x / view.zoom, view.y + y / view.zoom, view.zoom);
    return id === null ? null : { id, x, y };
  }

  private readonly clicked = (event: MouseEvent): void => this.emit("pick", this.at(event));

  private readonly pointed = (event: PointerEvent): void => {
    if (event.buttons !== 0) return;
    const found = this.at(event);
    const id = found?.id ?? null;
    if (id === this.marks.hovered && id === null) return;
    this.container.style.cursor = id === null || kindOf(id) === "hypernode" ? "" : "pointer";
    if (id !== this.marks.hovered) {
      this.marks.hovered = id;
      this.ask();
    }
    this.emit("hover", found);
  };

  private readonly left = (): void => {
    this.marks.hovered = null;
    this.ask();
    this.emit("hover", null);
  };

  private emit<K extends keyof MapEvents>(event: K, value: MapEvents[K]): void {
    for (const listener of this.listeners[event]) listener(value);
  }
}
