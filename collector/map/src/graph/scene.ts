// The scene as numbers in columns: for each box, device and cable the place, the state and whether the filter dims it.
// Parts are rebuilt one by one, so that a changed condition updates only its own objects.
import { STATES, type State } from "../model/conditions";
import { clusterOf, type ItemId } from "../model/ids";
import type { Change, Picture } from "../model/picture";
import type { MapFilter } from "./api";
import { Cables, CODE, OK } from "./cables";
import { layOut, type Layout } from "./layout";

/** Cables from one domain to the switches of the domains around it, as one line. */
export interface Bundle {
  /** Index of the inner box. */
  box: number;
  count: number;
  /** The state of its worst cable. */
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
  private filter: MapFilter = {};

  constructor(public picture: Picture) {
    this.setPicture(picture);
  }

  setPicture(picture: Picture): void {
    this.picture = picture;
    this.layout = layOut(picture);
    this.boxState = Uint8Array.from(this.layout.boxes, (box) =>
      box.id.startsWith("hypernode:") ? this.codeOf(box.id) : OK,
    );
    this.spotState = Uint8Array.from(this.layout.spots, (spot) => this.codeOf(spot.id));
    this.cables = new Cables(picture, this.layout);
    this.bundle();
    this.refilter();
  }

  apply(change: Change): void {
    if (change.structure) {
      this.setPicture(this.picture);
      return;
    }
    const flipped = new Set<number>();
    for (const id of change.touched) {
      const box = this.layout.boxOf.get(id);
      if (box !== undefined) {
        this.boxState[box] = this.codeOf(id);
        flipped.add(box);
      }
      const spot = this.layout.spotOf.get(id);
      if (spot !== undefined) this.spotState[spot] = this.codeOf(id);
    }
    // Nodes of a stale domain are stale, too.
    this.layout.spots.forEach((spot, i) => {
      if (flipped.has(spot.box)) this.spotState[i] = this.codeOf(spot.id);
    });
    this.cables.update(change.touched);
    this.bundle();
    this.refilter();
  }

  setFilter(filter: MapFilter): void {
    this.filter = filter;
    this.refilter();
  }

  private codeOf(id: ItemId): number {
    return CODE.get(this.picture.stateOf(id)) ?? OK;
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
      // All boxes that the cable leaves on the way to the box of the other end.
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
    const { fabrics, rails, clusters, tiers, states } = this.filter;
    const { boxes, spots } = this.layout;
    const { all, state, dimmed, a, b } = this.cables;
    const wanted = (code: number): boolean => states === undefined || states.has(STATES[code] as State);
    const inTier = (box: number): boolean => tiers === undefined || tiers.has(boxes[box]?.tier ?? 0);
    // Nodes of other clusters, and the boxes with none of the wanted ones.
    const foreign = Uint8Array.from(spots, (spot) =>
      Number(clusters !== undefined && spot.kind === "node" && !clusters.has(clusterOf(spot.label))),
    );
    const holds = new Uint8Array(boxes.length).fill(clusters === undefined ? 1 : 0);
    spots.forEach((spot, i) => {
      if (spot.kind !== "node" || foreign[i] === 1) return;
      for (let box = spot.box; box >= 0 && holds[box] === 0; box = boxes[box]?.parent ?? -1) holds[box] = 1;
    });
    this.boxDimmed = Uint8Array.from(boxes, (_, i) =>
      Number(!(inTier(i) && holds[i] === 1 && wanted(this.boxState[i] as number))),
    );
    const byCable = fabrics !== undefined || rails !== undefined;
    const reached = new Uint8Array(spots.length);
    for (let i = 0; i < all.length; i += 1) {
      const cable = all[i];
      if (cable === undefined) continue;
      const matches =
        foreign[a[i] as number] !== 1 &&
        foreign[b[i] as number] !== 1 &&
        (fabrics === undefined || fabrics.has(cable.fabric)) && (rails === undefined || rails.has(cable.rail));
      if (matches) {
        if ((a[i] as number) >= 0) reached[a[i] as number] = 1;
        if ((b[i] as number) >= 0) reached[b[i] as number] = 1;
      }
      dimmed[i] = Number(!(matches && wanted(state[i] as number)));
    }
    this.spotDimmed = Uint8Array.from(spots, (spot, i) =>
      Number(
        !(
          inTier(spot.box) &&
          foreign[i] === 0 &&
          holds[spot.box] !== 0 &&
          wanted(this.spotState[i] as number) &&
          (!byCable || reached[i] === 1)
        ),
      ),
    );
    if (tiers === undefined) return;
    for (let i = 0; i < all.length; i += 1) {
      if (this.spotDimmed[a[i] as number] === 1 && this.spotDimmed[b[i] as number] === 1) dimmed[i] = 1;
    }
  }
}
