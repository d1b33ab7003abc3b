// Cables as bundles: one line from a domain to the switches above it, along the gaps between boxes. Its width follows
// the number of cables. Single cables could not be told apart at this scale.
import { OK } from "./cables";
import type { Bundle } from "./scene";
import type { Layout } from "./layout";

export interface BusLine {
  x1: number;
  y1: number;
  x2: number;
  y2: number;
  state: number;
  /** Number of its cables. */
  count: number;
}

export function busLines({ boxes, spots }: Layout, bundles: readonly Bundle[]): BusLine[] {
  const lines: BusLine[] = [];
  const line = (x1: number, y1: number, x2: number, y2: number, count: number, state = OK): void => {
    lines.push({ x1, y1, x2, y2, count, state });
  };
  const switchesOf = new Map<number, number[]>();
  const hosts = new Set<number>();
  for (const spot of spots) {
    if (spot.kind !== "switch") hosts.add(spot.box);
    else switchesOf.set(spot.box, [...(switchesOf.get(spot.box) ?? []), spot.x + spot.w / 2]);
  }
  // A domain's switches stand on a bar below them: to its hosts, or to the trunk of its children.
  boxes.forEach((box, i) => {
    const xs = switchesOf.get(i);
    if (xs === undefined || box.tier === 0) return;
    const y = box.switchesEnd + 6;
    for (const x of xs) line(x, box.switchesEnd, x, y, 1);
    const from = hosts.has(i) ? Math.min(...xs) : Math.min(box.x + 3, ...xs);
    line(from, y, Math.max(...xs), y, xs.length);
  });
  const rows = new Map<string, { parent: number; y: number; right: number; count: number }>();
  for (const { box: index, count, state } of bundles) {
    const box = boxes[index];
    const parent = box === undefined ? undefined : boxes[box.parent];
    if (box === undefined || parent === undefined) continue;
    const y = box.y - 4;
    const x = box.x + box.w / 2;
    line(x, box.y, x, y, count, state);
    const key = `${box.parent} ${y}`;
    const row = rows.get(key) ?? { parent: box.parent, y, right: x, count: 0 };
    rows.set(key, { ...row, right: Math.max(row.right, x), count: row.count + count });
  }
  for (const { parent, y, right, count } of rows.values()) {
    const box = boxes[parent];
    if (box === undefined) continue;
    line(box.x + 3, y, right, y, count);
    line(box.x + 3, switchesOf.has(parent) ? box.switchesEnd + 6 : box.y, box.x + 3, y, count);
  }
  return lines;
}
