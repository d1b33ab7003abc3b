// What there is to draw, as numbers in columns: of every box, device and cable its place, state and whether the filter
// dims it. Rebuilt by parts, so that a flipped condition costs no more than itself.
import { STATES, type State } from "../model/conditions";
import type { ItemId } from "../model/ids";
import { endpointId, nodeId, switchId } from "../model/ids";
import type { Cable, Change, Picture } from "../model/picture";
import type { LinkEnd } from "../model/types";
import type { MapFilter } from "./api";
import { layOut, type Layout, type Spot } from "./layout";
import { portsOf, type Ports } from "./ports";

export const CODE = new Map<State, number>(STATES.map((state, i) => [state, i]));
export const OK = CODE.get("ok") as number;
export const MISSING = CODE.get("missing") as number;

/** Cables in columns; `a` and `b` are indexes of spots, -1 = its device is nowhere. */
export interface Cables {
  all: Cable[];
  a: Int32Array;
  b: Int32Array;
  state: Uint8Array;
  dimmed: Uint8Array;
  /** Indexes of those that are not ok. */
  wrong: number[];
  indexOf: ReadonlyMap<ItemId, number>;
  /** Four world coordinates each; NaN until somebody asked (`lineOf`). */
  lines: Float32Array;
}

/** Cables from one domain to the switches of the domain around it, as one line. */
export interface Bundle {
  /** Index of the inner box. */
  box: number;
  count: number;
  /** Of its worst cable. */
  state: number;
}

export class Scene {
  layout!: Layout;
  cables!: Cables;
  bundles: Bundle[] = [];
  boxState = new Uint8Array(0);
  spotState = new Uint8Array(0);
  boxDimmed = new Uint8Array(0);
  spotDimmed = new Uint8Array(0);
  private ports = new Map<number, Ports>();
  private spots = new Map<string, number>();
  private filter: MapFilter = {};

  constructor(public picture: Picture) {
    this.setPicture(picture);
  }

  setPicture(picture: Picture): void {
    this.picture = picture;
    this.layout = layOut(picture);
    this.readStates();
    this.readCables();
    this.refilter();
  }

  apply(change: Change): void {
    if (change.structure) {
      this.setPicture(this.picture);
      return;
    }
    for (const id of change.touched) {
      const box = this.layout.boxOf.get(id);
      if (box !== undefined) this.boxState[box] = this.codeOf(id);
      const spot = this.layout.spotOf.get(id);
      if (spot !== undefined) this.spotState[spot] = this.codeOf(id);
    }
    // A cable that is missing is one more or less, too.
    if (change.links || this.cables.all.length !== this.picture.cables.size) this.readCables();
    else this.readCableStates();
    this.refilter();
  }

  setFilter(filter: MapFilter): void {
    this.filter = filter;
    this.refilter();
  }

  /** World coordinates of a cable's two ends: [ax, ay, bx, by] from `at` on in `cables.lines`. */
  lineOf(cable: number): number {
    const at = 4 * cable;
    const lines = this.cables.lines;
    if (!Number.isNaN(lines[at] as number)) return at;
    const { a, b } = this.cables;
    const { a: one, b: other } = this.cables.all[cable] as Cable;
    this.putEnd(at, a[cable] as number, one);
    this.putEnd(at + 2, b[cable] as number, other);
    return at;
  }

  /** The ports of a device that have a cable, or miss one. */
  portsOf(spot: number): Ports {
    let ports = this.ports.get(spot);
    if (ports === undefined) {
      const { id, y } = this.layout.spots[spot] as Spot;
      const isBelow = (peer: string): boolean => (this.layout.spots[this.spotFor(peer)]?.y ?? y) > y;
      ports = portsOf(this.picture, id, isBelow);
      this.ports.set(spot, ports);
    }
    return ports;
  }

  private putEnd(at: number, mine: number, end: LinkEnd): void {
    const spot = this.layout.spots[mine];
    if (spot === undefined) return;
    const port = this.portsOf(mine).get(`${end.device}/${end.port}`);
    this.cables.lines[at] = spot.x + (port?.offset ?? 0.5) * spot.w;
    this.cables.lines[at + 1] = (port?.atTop ?? true) ? spot.y : spot.y + spot.h;
  }

  /** Where a device stands; -1 = nowhere. */
  spotFor(device: string): number {
    let spot = this.spots.get(device);
    if (spot === undefined) {
      const node = this.picture.adapters.get(device)?.node ?? device;
      const { spotOf } = this.layout;
      spot = spotOf.get(switchId(device)) ?? spotOf.get(nodeId(node)) ?? spotOf.get(endpointId(node)) ?? -1;
      this.spots.set(device, spot);
    }
    return spot;
  }

  private codeOf(id: ItemId): number {
    return CODE.get(this.picture.stateOf(id)) ?? OK;
  }

  private readStates(): void {
    this.boxState = Uint8Array.from(this.layout.boxes, (box) =>
      box.id.startsWith("hypernode:") ? this.codeOf(box.id) : OK,
    );
    this.spotState = Uint8Array.from(this.layout.spots, (spot) => this.codeOf(spot.id));
  }

  private readCables(): void {
    const all = [...this.picture.cables.values()];
    this.ports = new Map();
    this.spots = new Map();
    this.cables = {
      all,
      a: Int32Array.from(all, (cable) => this.spotFor(cable.a.device)),
      b: Int32Array.from(all, (cable) => this.spotFor(cable.b.device)),
      state: new Uint8Array(all.length),
      dimmed: new Uint8Array(all.length),
      wrong: [],
      indexOf: new Map(all.map((cable, i) => [cable.id, i])),
      lines: new Float32Array(4 * all.length).fill(NaN),
    };
    this.readCableStates();
  }

  private readCableStates(): void {
    const { state, indexOf } = this.cables;
    state.fill(OK);
    const wrong = new Set<number>();
    for (const anomaly of this.picture.anomalies) {
      for (const id of this.picture.linksOf(anomaly)) {
        const cable = indexOf.get(id);
        if (cable === undefined) continue;
        state[cable] = Math.min(state[cable] as number, this.codeOf(id));
        if (state[cable] !== OK) wrong.add(cable);
      }
    }
    this.cables.wrong = [...wrong].sort((a, b) => a - b);
    this.bundle();
  }

  private bundle(): void {
    const { boxes, spots } = this.layout;
    const { a, b, state } = this.cables;
    const count = new Uint32Array(boxes.length);
    const worst = new Uint8Array(boxes.length).fill(OK);
    const depthOf = (spot: number): number => boxes[spots[spot]?.box ?? -1]?.depth ?? -1;
    for (let i = 0; i < a.length; i += 1) {
      let lower = a[i] as number;
      let upper = b[i] as number;
      if (lower < 0 || upper < 0) continue;
      if (depthOf(lower) < depthOf(upper)) [lower, upper] = [upper, lower];
      // Every box that the cable leaves on its way up to the other end's.
      const top = spots[upper]?.box;
      let box = spots[lower]?.box ?? -1;
      for (const until = depthOf(upper); box >= 0 && box !== top && (boxes[box]?.depth ?? 0) > until; ) {
        count[box] = (count[box] as number) + 1;
        worst[box] = Math.min(worst[box] as number, state[i] as number);
        box = boxes[box]?.parent ?? -1;
      }
    }
    this.bundles = [];
    count.forEach((n, box) => {
      if (n > 0) this.bundles.push({ box, count: n, state: worst[box] as number });
    });
  }

  private refilter(): void {
    const { fabrics, rails, tiers, states } = this.filter;
    const { boxes, spots } = this.layout;
    const { all, state, dimmed, a, b } = this.cables;
    const wanted = (code: number): boolean => states === undefined || states.has(STATES[code] as State);
    const inTier = (box: number): boolean => tiers === undefined || tiers.has(boxes[box]?.tier ?? 0);
    this.boxDimmed = Uint8Array.from(boxes, (_, i) => Number(!(inTier(i) && wanted(this.boxState[i] as number))));
    const byCable = fabrics !== undefined || rails !== undefined;
    const reached = new Uint8Array(spots.length);
    all.forEach((cable, i) => {
      const matches =
        (fabrics === undefined || fabrics.has(cable.fabric)) && (rails === undefined || rails.has(cable.rail));
      if (matches) {
        if ((a[i] as number) >= 0) reached[a[i] as number] = 1;
        if ((b[i] as number) >= 0) reached[b[i] as number] = 1;
      }
      dimmed[i] = Number(!(matches && wanted(state[i] as number)));
    });
    this.spotDimmed = Uint8Array.from(spots, (spot, i) =>
      Number(!(inTier(spot.box) && wanted(this.spotState[i] as number) && (!byCable || reached[i] === 1))),
    );
    if (tiers !== undefined) {
      for (let i = 0; i < a.length; i += 1) {
        if (this.spotDimmed[a[i] as number] === 1 && this.spotDimmed[b[i] as number] === 1) dimmed[i] = 1;
      }
    }
  }
}
