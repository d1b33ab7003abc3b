// Finds the object that an arrow key selects: from a device the next device in this direction; from a domain's first row
// the domain; from a domain its siblings, its parent and its contents.
import type { ItemId } from "../model/ids";
import type { Box, Layout, Rectangle, Spot } from "./layout";

export type Direction = "up" | "down" | "left" | "right";

export function neighbour(layout: Layout, id: ItemId, direction: Direction): ItemId | null {
  const { boxes, spots, boxOf, spotOf } = layout;
  const spot = spots[spotOf.get(id) ?? -1];
  if (spot !== undefined) {
    const siblings = spots.filter((other) => other.box === spot.box && other !== spot);
    return (nearest(spot, siblings, direction) ?? (direction === "up" ? boxes[spot.box] : undefined))?.id ?? null;
  }
  const index = boxOf.get(id) ?? -1;
  const box = boxes[index];
  if (box === undefined) return boxes[0]?.id ?? null;
  const sibling = nearest(
    box,
    boxes.filter((other) => other.parent === box.parent && other !== box),
    direction,
  );
  if (direction === "left" || direction === "right") return sibling?.id ?? null;
  if (direction === "up") return (boxes[box.parent] ?? sibling)?.id ?? null;
  const inside = boxes.find((other) => other.parent === index) ?? spots.find((other) => other.box === index);
  return (inside ?? sibling)?.id ?? null;
}

/** The nearest object in this direction; the distance to the side counts twice. */
function nearest<T extends (Box | Spot) & Rectangle>(from: T, others: readonly T[], direction: Direction): T | undefined {
  let best: T | undefined;
  let least = Infinity;
  const [fx, fy] = [from.x + from.w / 2, from.y + from.h / 2];
  for (const other of others) {
    const [dx, dy] = [other.x + other.w / 2 - fx, other.y + other.h / 2 - fy];
    const [ahead, aside] = { up: [-dy, dx], down: [dy, dx], left: [-dx, dy], right: [dx, dy] }[direction] as [number, number];
    if (ahead <= 1e-6 || (Math.abs(aside) > ahead && (direction === "left" || direction === "right"))) continue;
    const distance = ahead + 2 * Math.abs(aside);
    if (distance < least) {
      least = distance;
      best = other;
    }
  }
  return best;
}
