// Draws the scene for one view. The size of a host on the screen decides what is drawn: boxes, devices and bundles of
// cables; from a larger size on single cables and names; then ports and their names.
import { STATES, type State } from "../model/conditions";
import type { Picture } from "../model/picture";
import type { MapTheme } from "./api";
import { HOST, type Spot } from "./layout";
import { sign, type Looks } from "./marks";
import { OK } from "./cables";
import type { Scene } from "./scene";
import type { BusLine } from "./buses";

/** The part of the world on a canvas: its upper left corner in world units, its size in CSS pixels. */
export interface View {
  x: number;
  y: number;
  zoom: number;
  width: number;
  height: number;
  /** Pixels at each side that are outside the view. */
  inset: number;
}

/** Pixels of a host from which on its cables are drawn one by one. */
const SINGLE_PX = 20;
const NAMES_PX = 34;
/** Pixels between two ports from which on they, and then their names, are drawn. */
const PORT_PX = 4;
const PORT_NAME_PX = 10;
const DIMMED = 0.18;
/** Maximum number of problem cables that are drawn one by one from afar; boxes and lists show the others. */
const MAX_WRONG = 2000;
const LONGEST_NAME = 120;

export const singleCables = (zoom: number): boolean => HOST * zoom >= SINGLE_PX;

export function paint(
  ctx: CanvasRenderingContext2D,
  scene: Scene,
  buses: readonly BusLine[],
  theme: MapTheme,
  looks: readonly Looks[],
  view: View,
): void {
  ctx.fillStyle = theme.background;
  ctx.fillRect(0, 0, view.width, view.height);
  ctx.textBaseline = "middle";
  paintBoxes(ctx, scene, theme, looks, view);
  if (singleCables(view.zoom)) paintCables(ctx, scene, theme, looks, view);
  else paintBuses(ctx, buses, theme, looks, view);
  paintLabels(ctx, scene, theme, looks, view);
  paintSpots(ctx, scene, theme, looks, view);
  paintWrong(ctx, scene, looks, view);
}

function paintBoxes(
  ctx: CanvasRenderingContext2D,
  scene: Scene,
  theme: MapTheme,
  looks: readonly Looks[],
  view: View,
): void {
  scene.layout.boxes.forEach((box, i) => {
    const x = (box.x - view.x) * view.zoom;
    const y = (box.y - view.y) * view.zoom;
    const w = box.w * view.zoom;
    const h = box.h * view.zoom;
    if (x > view.width || y > view.height || x + w < 0 || y + h < 0) return;
    const code = scene.boxState[i] as number;
    const { colour, dash } = looks[code] as Looks;
    ctx.globalAlpha = 1;
    ctx.fillStyle = box.depth % 2 === 0 ? theme.domain : theme.domainInner;
    ctx.fillRect(x, y, w, h);
    ctx.globalAlpha = scene.boxDimmed[i] === 1 ? DIMMED : 1;
    ctx.strokeStyle = code === OK ? theme.border : colour;
    ctx.lineWidth = code === OK ? 1 : 2;
    ctx.setLineDash(dash as number[]);
    ctx.strokeRect(Math.round(x) + 0.5, Math.round(y) + 0.5, Math.round(w), Math.round(h));
    ctx.setLineDash([]);
  });
  ctx.globalAlpha = 1;
}

function paintLabels(
  ctx: CanvasRenderingContext2D,
  scene: Scene,
  theme: MapTheme,
  looks: readonly Looks[],
  view: View,
): void {
  scene.layout.boxes.forEach((box, i) => {
    const x = (box.x - view.x) * view.zoom;
    const y = (box.y - view.y) * view.zoom;
    const w = box.w * view.zoom;
    const header = box.header * view.zoom;
    if (header < 7 || w < 40 || x > view.width || y > view.height || x + w < 0 || y + header < 0) return;
    const code = scene.boxState[i] as number;
    ctx.globalAlpha = scene.boxDimmed[i] === 1 ? DIMMED : 1;
    const font = Math.min(14, Math.max(9, header * 0.55));
    ctx.font = `${font}px ${theme.font}`;
    // The name of a box that is wider than the screen stays visible.
    const left = Math.max(x, Math.min(view.inset, x + w - 200)) + 6;
    const middle = y + header / 2;
    let from = left;
    if (code !== OK) {
      ctx.lineWidth = 1.5;
      ctx.strokeStyle = (looks[code] as Looks).colour;
      sign(ctx, STATES[code] as State, from + font / 2, middle, font * 0.42);
      from += font + 4;
    }
    ctx.fillStyle = theme.text;
    ctx.fillText(fit(labelOf(scene.picture, box.id, box.label), x + w - from - 4, font), from, middle);
  });
  ctx.globalAlpha = 1;
}

/** The label of a domain that is not inferred from wires names the source and the confidence. */
function labelOf(picture: Picture, id: string, label: string): string {
  const hypernode = picture.hypernodes.get(label);
  if (!id.startsWith("hypernode:") || hypernode === undefined) return label;
  const nodes = `${hypernode.nodes.length} node${hypernode.nodes.length === 1 ? "" : "s"}`;
  const inferred = hypernode.source === "wires" ? "" : `, by ${hypernode.source} (${hypernode.confidence.toFixed(2)})`;
  return `${label}   ${hypernode.tierName || `tier ${hypernode.tier}`}, ${nodes}${inferred}`;
}

/** Cut a text to the free width. It uses the width of an average letter, because measuring thousands of texts is slow. */
export function fit(text: string, room: number, font: number): string {
  const letters = Math.min(LONGEST_NAME, Math.floor(room / (font * 0.56)));
  if (text.length <= letters) return text;
  return letters < 3 ? "" : `${text.slice(0, letters - 1)}…`;
}

/** Cut a device's name at the beginning, because the end distinguishes it: "…-0123". */
function fitEnd(text: string, room: number, font: number): string {
  const letters = Math.min(LONGEST_NAME, Math.floor(room / (font * 0.56)));
  if (text.length <= letters) return text;
  return letters < 3 ? "" : `…${text.slice(text.length - letters + 1)}`;
}

function paintBuses(
  ctx: CanvasRenderingContext2D,
  buses: readonly BusLine[],
  theme: MapTheme,
  looks: readonly Looks[],
  view: View,
): void {
  for (const bus of buses) {
    const x1 = Math.round((bus.x1 - view.x) * view.zoom);
    const x2 = Math.round((bus.x2 - view.x) * view.zoom);
    const y1 = Math.round((bus.y1 - view.y) * view.zoom);
    const y2 = Math.round((bus.y2 - view.y) * view.zoom);
    if (Math.max(x1, x2) < 0 || Math.min(x1, x2) > view.width) continue;
    if (Math.max(y1, y2) < 0 || Math.min(y1, y2) > view.height) continue;
    const thick = Math.min(4, Math.max(1, Math.round(Math.log10(bus.count + 1) * 4 * view.zoom)));
    // The line is horizontal or vertical, so a filled rectangle is enough, which takes a tenth of the time of a stroke.
    ctx.fillStyle = bus.state === OK ? theme.cable : (looks[bus.state] as Looks).colour;
    ctx.fillRect(Math.min(x1, x2), Math.min(y1, y2), Math.max(thick, Math.abs(x2 - x1)), Math.max(thick, Math.abs(y2 - y1)));
  }
}

function paintCables(
  ctx: CanvasRenderingContext2D,
  scene: Scene,
  theme: MapTheme,
  looks: readonly Looks[],
  view: View,
): void {
  const { a, b, state, dimmed, all } = scene.cables;
  // Of hosts, between switches, uncertain, dimmed.
  const shown = [new Path2D(), new Path2D(), new Path2D(), new Path2D()];
  const { spots } = scene.layout;
  for (let i = 0; i < all.length; i += 1) {
    if (state[i] !== OK || !inView(scene, a[i] as number, b[i] as number, view)) continue;
    const at = scene.cables.lineOf(i);
    const lines = scene.cables.lines;
    const isUplink = spots[a[i] as number]?.kind === "switch" && spots[b[i] as number]?.kind === "switch";
    const path = shown[dimmed[i] === 1 ? 3 : all[i]?.link?.note ? 2 : Number(isUplink)] as Path2D;
    path.moveTo(((lines[at] as number) - view.x) * view.zoom, ((lines[at + 1] as number) - view.y) * view.zoom);
    path.lineTo(((lines[at + 2] as number) - view.x) * view.zoom, ((lines[at + 3] as number) - view.y) * view.zoom);
  }
  ctx.strokeStyle = theme.cable;
  ctx.lineWidth = 1;
  ctx.globalAlpha = 0.65;
  ctx.stroke(shown[0] as Path2D);
  ctx.globalAlpha = 0.45;
  ctx.stroke(shown[1] as Path2D);
  ctx.globalAlpha = 0.65;
  ctx.setLineDash((looks[STATES.indexOf("unknown")] as Looks).dash as number[]);
  ctx.stroke(shown[2] as Path2D);
  ctx.setLineDash([]);
  ctx.globalAlpha = DIMMED / 2;
  ctx.stroke(shown[3] as Path2D);
  ctx.globalAlpha = 1;
}

/** Whether the rectangle between two devices touches the view. The line in it may not. */
function inView(scene: Scene, a: number, b: number, view: View): boolean {
  const one = scene.layout.spots[a];
  const other = scene.layout.spots[b];
  if (one === undefined || other === undefined) return false;
  const right = view.x + view.width / view.zoom;
  const bottom = view.y + view.height / view.zoom;
  return (
    (one.x <= right || other.x <= right) &&
    (one.y <= bottom || other.y <= bottom) &&
    (one.x + one.w >= view.x || other.x + other.w >= view.x) &&
    (one.y + one.h >= view.y || other.y + other.h >= view.y)
  );
}

function paintSpots(
  ctx: CanvasRenderingContext2D,
  scene: Scene,
  theme: MapTheme,
  looks: readonly Looks[],
  view: View,
): void {
  for (let i = 0; i < scene.layout.spots.length; i += 1) {
    ctx.globalAlpha = scene.spotDimmed[i] === 1 ? DIMMED : 1;
    paintSpot(ctx, scene, i, theme, looks, view);
  }
  ctx.globalAlpha = 1;
}

/** Draw a device, and its sign, name and ports if it is large enough. */
export function paintSpot(
  ctx: CanvasRenderingContext2D,
  scene: Scene,
  index: number,
  theme: MapTheme,
  looks: readonly Looks[],
  view: View,
): void {
  const spot = scene.layout.spots[index] as Spot;
  const { zoom } = view;
  const x = Math.round((spot.x - view.x) * zoom);
  const y = Math.round((spot.y - view.y) * zoom);
  const w = Math.max(2, Math.round(spot.w * zoom));
  const h = Math.max(2, Math.round(spot.h * zoom));
  if (x > view.width || y > view.height || x + w < 0 || y + h < 0) return;
  const code = scene.spotState[index] as number;
  const { colour, dash } = looks[code] as Looks;
  const hollow = STATES[code] === "missing" || STATES[code] === "unknown";
  ctx.fillStyle = code === OK ? (spot.kind === "node" ? theme.ok : theme.device) : hollow ? theme.background : colour;
  ctx.fillRect(x, y, w, h);
  if (hollow || (code !== OK && h >= 12)) {
    ctx.strokeStyle = colour;
    ctx.lineWidth = 1;
    ctx.setLineDash(hollow ? (dash as number[]) : []);
    ctx.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
    ctx.setLineDash([]);
  }
  if (code !== OK && h >= 5) {
    ctx.strokeStyle = hollow ? colour : theme.background;
    ctx.lineWidth = Math.max(1, h / 10);
    // Beside the name, if it is drawn.
    const isNamed = h >= NAMES_PX || (spot.kind === "switch" && h >= 12);
    const r = Math.min(8, h * 0.3);
    const aside = spot.kind === "switch" ? y + h / 2 : y + r + 6;
    sign(ctx, STATES[code] as State, isNamed ? x + w - r - 4 : x + w / 2, isNamed ? aside : y + h / 2, r);
  }
  const signRoom = code !== OK && spot.kind === "switch" ? Math.min(24, h) : 0;
  if (h >= NAMES_PX || (spot.kind === "switch" && h >= 12)) {
    paintName(ctx, spot, theme, hollow, x, y, w - signRoom, h);
  }
  if (w / 12 >= PORT_PX && spot.kind !== "endpoint") paintPorts(ctx, scene, index, theme, x, y, w, h);
}

function paintName(
  ctx: CanvasRenderingContext2D,
  spot: Spot,
  theme: MapTheme,
  hollow: boolean,
  x: number,
  y: number,
  w: number,
  h: number,
): void {
  const font = Math.min(13, Math.max(8, h * 0.28));
  const isWhole = spot.label.length * font * 0.56 <= w - 4;
  const text = isWhole ? spot.label : fitEnd(spot.short, w - 4, font);
  if (text === "") return;
  ctx.font = `${font}px ${theme.font}`;
  ctx.fillStyle = hollow ? theme.text : theme.background;
  ctx.textAlign = "center";
  // Below the names of its ports, if they are drawn.
  ctx.fillText(text, x + w / 2, spot.kind === "switch" || w < 12 * PORT_PX ? y + h / 2 : y + 0.78 * h);
  ctx.textAlign = "left";
}

function paintPorts(
  ctx: CanvasRenderingContext2D,
  scene: Scene,
  spot: number,
  theme: MapTheme,
  x: number,
  y: number,
  w: number,
  h: number,
): void {
  const ports = scene.cables.portsOf(spot);
  const pitch = w / (ports.size + 1);
  if (pitch < PORT_PX) return;
  const half = Math.min(5, pitch / 4);
  ctx.font = `9px ${theme.font}`;
  for (const port of ports.values()) {
    const px = x + port.offset * w;
    const edge = port.atTop ? y : y + h;
    ctx.fillStyle = theme.text;
    ctx.fillRect(px - half, edge - half, 2 * half, 2 * half);
    if (pitch < PORT_NAME_PX) continue;
    ctx.save();
    ctx.translate(px, port.atTop ? edge + half + 3 : edge - half - 3);
    ctx.rotate(port.atTop ? Math.PI / 2 : -Math.PI / 2);
    ctx.fillStyle = theme.background;
    ctx.fillText(fit(port.label, h / 2 - 8, 9), 0, 0);
    ctx.restore();
  }
}

/** Draw missing cables above everything and at every zoom, because an operator must see them at once. */
function paintWrong(ctx: CanvasRenderingContext2D, scene: Scene, looks: readonly Looks[], view: View): void {
  const { wrong, a, b, state, dimmed, all } = scene.cables;
  for (const i of wrong.slice(0, MAX_WRONG)) {
    if (!inView(scene, a[i] as number, b[i] as number, view)) continue;
    const at = scene.cables.lineOf(i);
    const [x1, y1, x2, y2] = [0, 1, 2, 3].map((n) => {
      const world = scene.cables.lines[at + n] as number;
      return (world - (n % 2 === 0 ? view.x : view.y)) * view.zoom;
    }) as [number, number, number, number];
    const { colour, dash } = looks[state[i] as number] as Looks;
    ctx.globalAlpha = dimmed[i] === 1 ? DIMMED : 1;
    ctx.strokeStyle = colour;
    ctx.lineWidth = view.zoom < 1 ? 1.5 : 2;
    ctx.beginPath();
    if (all[i]?.link === null) {
      broken(ctx, x1, y1, x2, y2);
    } else {
      ctx.setLineDash(dash as number[]);
      ctx.moveTo(x1, y1);
      ctx.lineTo(x2, y2);
      ctx.stroke();
      ctx.setLineDash([]);
    }
  }
  ctx.globalAlpha = 1;
}

/** Two ends that do not meet, and a cross between them. */
function broken(ctx: CanvasRenderingContext2D, x1: number, y1: number, x2: number, y2: number): void {
  const length = Math.hypot(x2 - x1, y2 - y1);
  const r = Math.min(6, 0.08 * length + 1.5);
  const gap = Math.min(0.3, (2 * r) / Math.max(length, 1));
  const at = (share: number): [number, number] => [x1 + (x2 - x1) * share, y1 + (y2 - y1) * share];
  ctx.setLineDash(length > 30 ? [5, 4] : []);
  ctx.moveTo(x1, y1);
  ctx.lineTo(...at(0.5 - gap));
  ctx.moveTo(x2, y2);
  ctx.lineTo(...at(0.5 + gap));
  ctx.stroke();
  ctx.setLineDash([]);
  const [x, y] = at(0.5);
  ctx.beginPath();
  ctx.moveTo(x - r, y - r);
  ctx.lineTo(x + r, y + r);
  ctx.moveTo(x - r, y + r);
  ctx.lineTo(x + r, y - r);
  ctx.stroke();
}
