// Finds the object at a position, and the position of an object.
import { portId, type ItemId } from "../model/ids";
import type { Rectangle } from "./layout";
import type { Ports } from "./ports";
import { singleCables } from "./paint";
import { OK } from "./cables";
import type { Scene } from "./scene";

/** Maximum distance in pixels from a cable that still hits it. */
const REACH_PX = 5;

/** The object at world coordinates: a port, a device, a cable, else the innermost box. Dimmed objects are not hit. */
export function pick(scene: Scene, x: number, y: number, zoom: number): ItemId | null {
  const { boxes, spots } = scene.layout;
  const reach = REACH_PX / zoom;
  for (let i = 0; i < spots.length; i += 1) {
    const spot = spots[i] as Rectangle & { id: ItemId };
    if (scene.spotDimmed[i] === 1 || !within(spot, x, y, Math.max(0, 4 / zoom - spot.h / 2))) continue;
    return portAt(scene.cables.portsOf(i), spot, x, y, zoom) ?? spot.id;
  }
  const cable = nearestCable(scene, x, y, reach, !singleCables(zoom));
  if (cable !== null) return cable;
  for (let i = boxes.length - 1; i >= 0; i -= 1) {
    const box = boxes[i] as Rectangle & { id: ItemId };
    if (within(box, x, y, 0) && scene.boxDimmed[i] !== 1 && box.id.startsWith("hypernode:")) return box.id;
  }
  return null;
}

function within(r: Rectangle, x: number, y: number, more: number): boolean {
  return x >= r.x - more && x <= r.x + r.w + more && y >= r.y - more && y <= r.y + r.h + more;
}

function portAt(ports: Ports, spot: Rectangle, x: number, y: number, zoom: number): ItemId | null {
  const pitch = (spot.w * zoom) / (ports.size + 1);
  if (pitch < 2 * REACH_PX) return null;
  for (const port of ports.values()) {
    const edge = port.atTop ? spot.y : spot.y + spot.h;
    if (Math.abs(x - spot.x - port.offset * spot.w) * zoom < REACH_PX && Math.abs(y - edge) * zoom < REACH_PX) {
      return portId(port.device, port.port);
    }
  }
  return null;
}

function nearestCable(scene: Scene, x: number, y: number, reach: number, wrongOnly: boolean): ItemId | null {
  const { a, b, all, dimmed, state, wrong, lines } = scene.cables;
  const { spots } = scene.layout;
  let best: ItemId | null = null;
  let least = reach;
  const look = (i: number): void => {
    const one = spots[a[i] as number];
    const other = spots[b[i] as number];
    if (one === undefined || other === undefined || dimmed[i] === 1) return;
    if (x < Math.min(one.x, other.x) - reach || x > Math.max(one.x + one.w, other.x + other.w) + reach) return;
    if (y < Math.min(one.y, other.y) - reach || y > Math.max(one.y + one.h, other.y + other.h) + reach) return;
    const at = scene.cables.lineOf(i);
    const [x1, y1, x2, y2] = [0, 1, 2, 3].map((n) => lines[at + n] as number) as [number, number, number, number];
    // A cable with a problem is hit before a healthy cable at the same distance.
    const distance = toSegment(x, y, x1, y1, x2, y2) * (state[i] === OK ? 1 : 0.5);
    if (distance < least) {
      least = distance;
      best = all[i]?.id ?? null;
    }
  };
  if (wrongOnly) for (const i of wrong) look(i);
  else for (let i = 0; i < all.length; i += 1) look(i);
  return best;
}

function toSegment(x: number, y: number, x1: number, y1: number, x2: number, y2: number): number {
  const [dx, dy] = [x2 - x1, y2 - y1];
  const length = dx * dx + dy * dy;
  const share = length === 0 ? 0 : Math.max(0, Math.min(1, ((x - x1) * dx + (y - y1) * dy) / length));
  return Math.hypot(x - x1 - share * dx, y - y1 - share * dy);
}

/** The rectangle of an object; null = it has no place. For a cable the rectangle around its line. */
export function placeOf(scene: Scene, id: ItemId): Rectangle | null {
  const { boxes, spots, boxOf, spotOf } = scene.layout;
  const spot = spots[spotOf.get(id) ?? -1];
  if (spot !== undefined) return spot;
  const box = boxes[boxOf.get(id) ?? -1];
  if (box !== undefined) return box;
  const cable = scene.cables.indexOf.get(id);
  if (cable !== undefined) {
    const at = scene.cables.lineOf(cable);
    const [x1, y1, x2, y2] = [...scene.cables.lines.subarray(at, at + 4)] as [number, number, number, number];
    if (Number.isNaN(x1) || Number.isNaN(x2)) return null;
    return { x: Math.min(x1, x2), y: Math.min(y1, y2), w: Math.abs(x2 - x1), h: Math.abs(y2 - y1) };
  }
  return id.startsWith("port:") ? portPlace(scene, id.slice("port:".length)) : null;
}

function portPlace(scene: Scene, key: string): Rectangle | null {
  for (const cable of scene.picture.cables.values()) {
    for (const { device, port } of [cable.a, cable.b]) {
      if (`${device}/${port}` !== key) continue;
      const at = scene.cables.spotFor(device);
      const spot = scene.layout.spots[at];
      const found = spot === undefined ? undefined : scene.cables.portsOf(at).get(key);
      if (spot === undefined || found === undefined) return null;
      const y = found.atTop ? spot.y : spot.y + spot.h;
      return { x: spot.x + found.offset * spot.w, y, w: 0, h: 0 };
    }
  }
  return null;
}
