// All cables in columns: the two ends, the state, whether the cable is dimmed. A change updates only the cables that it
// names and the other cables of the same devices, because in a large cluster cables change all the time.
import { STATES, type State } from "../model/conditions";
import { endpointId, nodeId, switchId, type ItemId } from "../model/ids";
import type { Cable, Picture } from "../model/picture";
import type { LinkEnd } from "../model/types";
import type { Layout, Spot } from "./layout";
import { portsOf, type Ports } from "./ports";

export const CODE = new Map<State, number>(STATES.map((state, i) => [state, i]));
export const OK = CODE.get("ok") as number;
export const MISSING = CODE.get("missing") as number;

export class Cables {
  /** undefined = a free entry. */
  readonly all: (Cable | undefined)[] = [];
  readonly indexOf = new Map<ItemId, number>();
  /** Indexes of spots; -1 = the device has no place. */
  a = new Int32Array(0);
  b = new Int32Array(0);
  state = new Uint8Array(0);
  dimmed = new Uint8Array(0);
  /** Four world coordinates each; NaN until `lineOf` computes them. */
  lines = new Float32Array(0);
  /** Indexes of the cables whose state is not ok. */
  wrong: number[] = [];

  private readonly free: number[] = [];
  private readonly ports = new Map<number, Ports>();
  private readonly spots = new Map<string, number>();

  constructor(
    private readonly picture: Picture,
    private readonly layout: Layout,
  ) {
    this.grow(picture.cables.size);
    for (const cable of picture.cables.values()) this.put(cable);
    this.readStates();
  }

  /** Update the cables among `ids` that were added, removed or have other ends. Other ids have no effect. */
  update(ids: ReadonlySet<ItemId>): void {
    this.spots.clear(); // adapters may have other owners
    for (const id of ids) {
      if (!id.startsWith("link:")) continue;
      const index = this.indexOf.get(id);
      const cable = this.picture.cables.get(id);
      if (index !== undefined && cable === undefined) this.drop(id, index);
      else if (index !== undefined && cable !== undefined) this.write(index, cable);
      else if (cable !== undefined) this.put(cable);
    }
    this.readStates();
  }

  readStates(): void {
    this.state.fill(OK);
    const wrong = new Set<number>();
    for (const anomaly of this.picture.anomalies) {
      for (const id of this.picture.linksOf(anomaly)) {
        const cable = this.indexOf.get(id);
        if (cable === undefined) continue;
        this.state[cable] = CODE.get(this.picture.stateOf(id)) ?? OK;
        if (this.state[cable] !== OK) wrong.add(cable);
      }
    }
    this.wrong = [...wrong].sort((a, b) => a - b);
  }

  /** World coordinates of a cable's two ends: [ax, ay, bx, by] from there on in `lines`. */
  lineOf(cable: number): number {
    const at = 4 * cable;
    const ends = this.all[cable];
    if (ends === undefined || !Number.isNaN(this.lines[at])) return at;
    this.putEnd(at, this.a[cable] as number, ends.a);
    this.putEnd(at + 2, this.b[cable] as number, ends.b);
    return at;
  }

  /** Compute lines, from this index on, until the time is up. Returns the next index; past the end, all are computed. */
  prepare(from: number, hasTime: () => boolean): number {
    let next = from;
    while (next < this.all.length && hasTime()) {
      this.lineOf(next);
      next += 1;
    }
    return next;
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

  /** The index of a device's spot; -1 = it has no place. */
  spotFor(device: string): number {
    let spot = this.spots.get(device);
    if (spot === undefined) {
      const node = this.picture.adapterOf(device)?.node ?? device;
      const { spotOf } = this.layout;
      spot = spotOf.get(switchId(device)) ?? spotOf.get(nodeId(node)) ?? spotOf.get(endpointId(node)) ?? -1;
      this.spots.set(device, spot);
    }
    return spot;
  }

  private put(cable: Cable): void {
    const index = this.free.pop() ?? this.all.length;
    if (index >= this.a.length) this.grow(Math.ceil(1.25 * index) + 64);
    this.indexOf.set(cable.id, index);
    this.a[index] = this.b[index] = -1;
    this.write(index, cable);
  }

  private write(index: number, cable: Cable): void {
    this.forgetLines(index);
    this.all[index] = cable;
    this.a[index] = this.spotFor(cable.a.device);
    this.b[index] = this.spotFor(cable.b.device);
    this.forgetLines(index);
  }

  private drop(id: ItemId, index: number): void {
    this.forgetLines(index);
    this.indexOf.delete(id);
    this.all[index] = undefined;
    this.a[index] = this.b[index] = -1;
    this.free.push(index);
  }

  /** Update the ports of the device, which may have moved, and all cables of its ports. */
  private forgetLines(index: number): void {
    this.lines.fill(NaN, 4 * index, 4 * index + 4);
    for (const spot of [this.a[index] as number, this.b[index] as number]) {
      if (!this.ports.delete(spot)) continue;
      for (const cable of this.picture.cablesOf((this.layout.spots[spot] as Spot).id)) {
        const other = this.indexOf.get(cable.id);
        if (other !== undefined) this.lines.fill(NaN, 4 * other, 4 * other + 4);
      }
    }
  }

  private putEnd(at: number, mine: number, end: LinkEnd): void {
    const spot = this.layout.spots[mine];
    if (spot === undefined) return;
    const port = this.portsOf(mine).get(`${end.device}/${end.port}`);
    this.lines[at] = spot.x + (port?.offset ?? 0.5) * spot.w;
    this.lines[at + 1] = (port?.atTop ?? true) ? spot.y : spot.y + spot.h;
  }

  private grow(size: number): void {
    const larger = <T extends Int32Array | Uint8Array | Float32Array>(old: T, fresh: T): T => {
      fresh.set(old);
      return fresh;
    };
    this.a = larger(this.a, new Int32Array(size).fill(-1));
    this.b = larger(this.b, new Int32Array(size).fill(-1));
    this.state = larger(this.state, new Uint8Array(size).fill(OK));
    this.dimmed = larger(this.dimmed, new Uint8Array(size));
    this.lines = larger(this.lines, new Float32Array(4 * size).fill(NaN));
  }
}
