// Computes the place of each object: domains as boxes inside those of the tier above, a domain's switches above its
// hosts or child domains, hosts in rows. Only memberships and names decide, not cables or conditions, so that a cut
// cable moves nothing. Sizes change in steps, so that one more host moves only the objects beside it.
import { endpointId, hypernodeId, nodeId, switchId, type ItemId } from "../model/ids";
import { compare, type Picture } from "../model/picture";
import type { HyperNode } from "../model/types";

/** World units; the camera says how many pixels one is. */
export const HOST = 12;
const HOST_GAP = 6;
export const SWITCH_WIDTH = 24;
export const SWITCH_HEIGHT = 10;
const SWITCH_GAP = 8;
/** Space for cables between a domain's switches and the objects below them. */
const CHANNEL = 22;
const PADDING = 8;
/** Width to height of the whole, and of the rows that are tried. It is not that of the window, so that places in links hold. */
const ASPECT = 1.5;
const INNER_ASPECTS = [1.5, 1, 0.7, 0.5, 2.2, 3];

export interface Rectangle {
  x: number;
  y: number;
  w: number;
  h: number;
}

/** A domain, or a band of objects that are in no domain. */
export interface Box extends Rectangle {
  id: ItemId;
  label: string;
  tier: number;
  /** Boxes around it. */
  depth: number;
  /** Index of the box around it; -1 = none. */
  parent: number;
  /** Height of the strip with its label. */
  header: number;
  /** Lower edge of the rows of its switches, where the cables to the objects inside begin. */
  switchesEnd: number;
}

export interface Spot extends Rectangle {
  id: ItemId;
  kind: "node" | "switch" | "endpoint";
  label: string;
  /** Without the common beginning of its siblings' names. */
  short: string;
  /** Index of its box. */
  box: number;
}

export interface Layout {
  /** Outer ones before those inside them. */
  boxes: Box[];
  spots: Spot[];
  boxOf: ReadonlyMap<ItemId, number>;
  spotOf: ReadonlyMap<ItemId, number>;
  bounds: Rectangle;
}

/** The sort key of a text, which puts leaf-2 before leaf-10 in every locale. */
export function naturalKey(text: string): string {
  return text.replace(/\d+/g, (digits) => digits.padStart(12, "0"));
}

/** Sort in numeric order; the key of each name is computed once. */
export function sortedBy<T>(items: readonly T[], name: (item: T) => string): T[] {
  return items
    .map((item): [T, string, string] => [item, naturalKey(name(item)), name(item)])
    .sort(([, a, x], [, b, y]) => compare(a, b) || compare(x, y))
    .map(([item]) => item);
}

interface Device {
  id: ItemId;
  kind: Spot["kind"];
  label: string;
}

/** The contents of a domain, in their order. */
interface Members {
  id: ItemId;
  label: string;
  tier: number;
  switches: Device[];
  hosts: Device[];
  children: Members[];
  /** The block, once made, of a domain that contains only its own devices. */
  block?: Block;
}

/** A box before it is placed: everything in it relative to its own corner. */
interface Block {
  id: ItemId;
  label: string;
  tier: number;
  w: number;
  h: number;
  header: number;
  switchesEnd: number;
  devices: (Device & Rectangle)[];
  children: { block: Block; x: number; y: number }[];
}

export function layOut(picture: Picture): Layout {
  const { domains, bands } = membersOf(picture);
  let best: Shelves | null = null;
  for (const aspect of INNER_ASPECTS) {
    const blocks = domains.map((members) => blockOf(members, aspect));
    const found = shelves(blocks, 2 * PADDING, ASPECT);
    if (best === null || off(found) < off(best)) best = found;
    if (off(best) < 0.2) break;
  }
  // Below all domains, and not counted in their shape: objects without a domain do not move the domains.
  return place(below(best ?? EMPTY, bands.map((members) => blockOf(members, 6))));
}

/** The distance from the wanted shape. */
function off({ w, h }: Shelves, aspect = ASPECT): number {
  return h === 0 ? 0 : Math.abs(Math.log(w / h / aspect));
}

function blockOf(members: Members, aspect: number): Block {
  if (members.children.length === 0) return (members.block ??= pack(members, EMPTY));
  const children = members.children.map((child) => blockOf(child, aspect));
  return pack(members, shelves(children, PADDING + 4 * members.tier, aspect));
}

function membersOf(picture: Picture): { domains: Members[]; bands: Members[] } {
  const placed = new Set<ItemId>();
  const inside = new Map<string, HyperNode[]>();
  const roots: HyperNode[] = [];
  for (const h of picture.hypernodes.values()) {
    const parent = h.parent === null ? undefined : picture.hypernodes.get(h.parent);
    if (parent === undefined || parent.tier <= h.tier) roots.push(h);
    else inside.set(parent.name, [...(inside.get(parent.name) ?? []), h]);
  }
  const ghosts = missingSwitches(picture);
  /** The objects that are in no other box yet. */
  const mine = (devices: Device[]): Device[] => {
    const left = devices.filter((d) => !placed.has(d.id));
    for (const d of left) placed.add(d.id);
    return sortedBy(left, (d) => d.label);
  };
  function domain(h: HyperNode): Members {
    const children = sortedBy(inside.get(h.name) ?? [], (child) => child.name).map(domain);
    const switches = [...h.switches.map((id) => device(picture, id)), ...(ghosts.get(h.name) ?? [])];
    const hosts = h.nodes.map((name): Device => ({ id: nodeId(name), kind: "node", label: name }));
    const id = hypernodeId(h.name);
    return { id, label: h.name, tier: h.tier, switches: mine(switches), hosts: mine(hosts), children };
  }
  const domains = sortedBy(roots, (h) => h.name)
    .sort((a, b) => b.tier - a.tier)
    .map(domain);

  const silent = picture.nodesWithoutEvidence.map((name): Device => ({ id: nodeId(name), kind: "node", label: name }));
  const switches = [...picture.switches.keys()].map((id) => device(picture, id));
  const names = new Set(picture.foreignEndpoints);
  const claimed = mine(silent);
  for (const { node } of picture.adapters.values()) if (!placed.has(nodeId(node))) names.add(node);
  const others = [...names].map((name): Device => ({ id: endpointId(name), kind: "endpoint", label: name }));
  const bands: Members[] = [
    { id: "band:switches", label: "switches of no domain", tier: 0, switches: mine(switches), hosts: [], children: [] },
    { id: "band:silent", label: "nodes without evidence", tier: 0, switches: [], hosts: claimed, children: [] },
    { id: "band:others", label: "other endpoints", tier: 0, switches: [], hosts: mine(others), children: [] },
  ];
  return { domains, bands: bands.filter((band) => band.switches.length + band.hosts.length > 0) };
}

function below(domains: Shelves, bands: Block[]): Shelves {
  const all: Shelves = { ...domains, blocks: [...domains.blocks] };
  for (const block of bands) {
    const y = all.h === 0 ? 0 : all.h + 2 * PADDING;
    all.blocks.push({ block, x: 0, y });
    all.h = y + block.h;
    all.w = Math.max(all.w, block.w);
  }
  return all;
}

function device(picture: Picture, id: string): Device {
  return { id: switchId(id), kind: "switch", label: picture.switches.get(id)?.name || id };
}

/** Missing switches keep their place in their domain. */
function missingSwitches(picture: Picture): Map<string, Device[]> {
  const found = new Map<string, Device[]>();
  for (const anomaly of picture.anomalies) {
    const { kind, subject, hypernode } = anomaly;
    if (kind !== "MissingSwitch" || !hypernode || picture.switches.has(subject.device)) continue;
    const id = picture.itemsOf(anomaly)[0] as ItemId;
    const mine = found.get(hypernode) ?? [];
    if (!mine.some((d) => d.id === id)) mine.push({ id, kind: "switch", label: subject.name || subject.device });
    found.set(hypernode, mine);
  }
  return found;
}

/** Number of columns for `count` objects, for a block about twice as wide as high: 1, 2, 3, 4, 6, 8, 12, 16, ... */
function columnsFor(count: number): number {
  for (let columns = 1; ; columns *= 2) {
    if (columns * columns >= 2 * count) return columns;
    const half = 1.5 * columns;
    if (columns > 1 && half * half >= 2 * count) return half;
  }
}

function pack({ id, label, tier, switches, hosts }: Members, shelf: Shelves): Block {
  const header = 8 + 4 * tier;
  const columns = columnsFor(hosts.length);
  const hostsWidth = hosts.length === 0 ? 0 : columns * (HOST + HOST_GAP) - HOST_GAP;
  const pitch = SWITCH_WIDTH + SWITCH_GAP;
  const inner = Math.max(hostsWidth, shelf.w, Math.min(switches.length, 8) * pitch - SWITCH_GAP, 4 * pitch);
  const perRow = Math.max(1, Math.floor((inner + SWITCH_GAP) / pitch));
  const rows = Math.ceil(switches.length / perRow);
  const devices: Block["devices"] = [];
  // The switches of a row are spread evenly over the objects below them.
  switches.forEach((d, i) => {
    const row = Math.floor(i / perRow);
    const inRow = Math.min(perRow, switches.length - row * perRow);
    const x = PADDING + ((i % perRow) + 0.5) * (inner / inRow) - SWITCH_WIDTH / 2;
    const y = header + PADDING / 2 + row * (SWITCH_HEIGHT + SWITCH_GAP);
    devices.push({ ...d, x, y, w: SWITCH_WIDTH, h: SWITCH_HEIGHT });
  });
  const switchesEnd = rows === 0 ? header : header + PADDING / 2 + rows * (SWITCH_HEIGHT + SWITCH_GAP) - SWITCH_GAP;
  let y = rows === 0 ? header + PADDING / 2 : switchesEnd + CHANNEL;
  const left = PADDING + (inner - hostsWidth) / 2;
  hosts.forEach((d, i) => {
    const x = left + (i % columns) * (HOST + HOST_GAP);
    devices.push({ ...d, x, y: y + Math.floor(i / columns) * (HOST + HOST_GAP), w: HOST, h: HOST });
  });
  if (hosts.length > 0) y += Math.ceil(hosts.length / columns) * (HOST + HOST_GAP) - HOST_GAP;
  const offset = PADDING + (inner - shelf.w) / 2;
  const inside = shelf.blocks.map((c) => ({ block: c.block, x: c.x + offset, y: c.y + y }));
  return {
    id,
    label,
    tier,
    w: inner + 2 * PADDING,
    h: y + shelf.h + PADDING,
    header,
    switchesEnd,
    devices,
    children: inside,
  };
}

/** The common beginning of several names, up to a separator between words; "" for one name. */
function sharedPrefix(names: readonly string[]): string {
  const first = names[0] ?? "";
  if (names.length < 2) return "";
  let length = first.length;
  for (const name of names) while (!name.startsWith(first.slice(0, length))) length -= 1;
  return /^.*[^\p{L}\p{N}]/su.exec(first.slice(0, length))?.[0] ?? "";
}

interface Shelves {
  blocks: Block["children"];
  w: number;
  h: number;
}

const EMPTY: Shelves = { blocks: [], w: 0, h: 0 };

/** Arrange blocks in rows, in their order, with the number for each row that brings the whole nearest to a shape. */
function shelves(blocks: Block[], gap: number, aspect: number): Shelves {
  const area = blocks.reduce((sum, b) => sum + (b.w + gap) * (b.h + gap), 0);
  const widest = blocks.reduce((most, b) => Math.max(most, b.w + gap), 0);
  if (widest === 0) return EMPTY;
  const columns = Math.max(1, Math.floor(Math.sqrt(area * aspect) / widest));
  const few = inRows(blocks, gap, columns * widest);
  const more = inRows(blocks, gap, (columns + 1) * widest);
  return off(more, aspect) < off(few, aspect) ? more : few;
}

function inRows(blocks: Block[], gap: number, limit: number): Shelves {
  const found: Shelves = { blocks: [], w: 0, h: 0 };
  let x = 0;
  let y = 0;
  let row = 0;
  for (const block of blocks) {
    if (x > 0 && x + block.w > limit) {
      x = 0;
      y += row + gap;
      row = 0;
    }
    found.blocks.push({ block, x, y });
    found.w = Math.max(found.w, x + block.w);
    row = Math.max(row, block.h);
    x += block.w + gap;
  }
  found.h = y + row;
  return found;
}

function place(top: Shelves): Layout {
  const boxes: Box[] = [];
  const spots: Spot[] = [];
  function put(block: Block, x: number, y: number, depth: number, parent: number): void {
    const { id, label, tier, w, h, header, switchesEnd } = block;
    const box = boxes.length;
    boxes.push({ id, label, tier, x, y, w, h, depth, parent, header, switchesEnd: y + switchesEnd });
    const prefixes = new Map(
      (["switch", "node", "endpoint"] as const).map((kind) => [
        kind,
        sharedPrefix(block.devices.filter((d) => d.kind === kind).map((d) => d.label)).length,
      ]),
    );
    for (const { id, kind, label, ...d } of block.devices) {
      const short = label.slice(prefixes.get(kind));
      spots.push({ id, kind, label, short, box, x: x + d.x, y: y + d.y, w: d.w, h: d.h });
    }
    for (const c of block.children) put(c.block, x + c.x, y + c.y, depth + 1, box);
  }
  for (const { block, x, y } of top.blocks) put(block, x, y, 0, -1);
  return {
    boxes,
    spots,
    boxOf: new Map(boxes.map((box, i) => [box.id, i])),
    spotOf: new Map(spots.map((spot, i) => [spot.id, i])),
    bounds: { x: 0, y: 0, w: top.w, h: top.h },
  };
}
