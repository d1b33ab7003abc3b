// One generation of the topology, with the indexes for drawing, search and panels. A snapshot creates it. Deltas change
// it in place, at a cost that follows the size of the delta and not of the cluster.
import { deviceState, hypernodeState, linkState, worst, type State } from "./conditions";
import { clusterOf, endpointId, ghostId, hypernodeId, linkId, nodeId, portId, switchId, type ItemId } from "./ids";
import type { Adapter, Anomaly, Endpoint, HyperNode, Link, LinkEnd, Switch, Tier, Topology, TopologyDelta } from "./types";

/** What an update changed: only this is drawn again. */
export interface Change {
  generation: number;
  /** HyperNodes or switches were added or removed, or HyperNodes have other members: places must be computed again. */
  structure: boolean;
  /** Cables were added or removed. */
  links: boolean;
  /** Objects whose state may have changed. */
  touched: ReadonlySet<ItemId>;
}

/** A cable, present or missing. */
export interface Cable {
  id: ItemId;
  a: LinkEnd;
  b: LinkEnd;
  /** null: the cable is missing or in a wrong port, and only an anomaly names it. */
  link: Link | null;
  fabric: string;
  /** Name of the host's adapter ("mlx5_3"); "" between switches or where unknown. */
  rail: string;
}

const byTierAndName = (a: HyperNode, b: HyperNode): number => a.tier - b.tier || compare(a.name, b.name);
const byId = (a: { id: string }, b: { id: string }): number => compare(a.id, b.id);

/** Compares by code units. The collector sorts by code points, which differs only beyond the basic plane. */
export function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

export class Picture {
  generation = 0;
  readonly hypernodes = new Map<string, HyperNode>();
  readonly switches = new Map<string, Switch>();
  /** By adapter id. */
  readonly adapters = new Map<string, Adapter>();
  /** Also missing cables, whose `Cable.link` is null. */
  readonly cables = new Map<ItemId, Cable>();
  anomalies: readonly Anomaly[] = [];
  nodesWithoutEvidence: readonly string[] = [];
  foreignEndpoints: readonly string[] = [];
  tiers: readonly Tier[] = [];
  /** Whether the picture contains cables: the first one may not. */
  complete = true;

  private readonly cablesOfDevice = new Map<string, Set<ItemId>>();
  private readonly adaptersOfNode = new Map<string, Set<string>>();
  /** Adapters that only a missing cable names. */
  private readonly ghosts = new Map<string, Adapter>();
  /** Objects that the current update changes. */
  private changed = new Set<ItemId>();
  private domains: Map<string, HyperNode[]> | null = null;
  private homes: Map<string, HyperNode> | null = null;
  private wrong: Map<ItemId, Anomaly[]> | null = null;
  private silent: ReadonlySet<string> = new Set();

  static of(topology: Topology, complete = true): Picture {
    const picture = new Picture();
    picture.complete = complete;
    for (const h of topology.hypernodes) picture.hypernodes.set(h.name, h);
    for (const s of topology.switches) picture.switches.set(s.id, s);
    for (const x of topology.adapters) picture.addAdapter(x);
    for (const x of topology.links) picture.addLink(x);
    picture.takeLists(topology);
    picture.addMissing(new Map());
    picture.changed.clear();
    return picture;
  }

  /** Applies a delta. An object that exists is replaced; removing an object that does not exist has no effect. */
  apply(delta: TopologyDelta): Change {
    const touched = (this.changed = new Set<ItemId>());
    let structure = false;
    for (const anomaly of this.anomalies) this.touch(touched, anomaly);
    for (const anomaly of this.anomalies) this.dropMissing(anomaly);
    const gone = new Map(this.ghosts);
    for (const ghost of gone.values()) this.dropGhost(ghost);
    for (const name of delta.removedHypernodes ?? []) structure = this.hypernodes.delete(name) || structure;
    for (const h of delta.hypernodes ?? []) {
      const old = this.hypernodes.get(h.name);
      structure ||= old === undefined || !sameMembers(old, h);
      this.hypernodes.set(h.name, h);
      touched.add(hypernodeId(h.name));
    }
    for (const id of delta.removedSwitches ?? []) structure = this.switches.delete(id) || structure;
    for (const s of delta.switches ?? []) {
      const old = this.switches.get(s.id);
      structure ||= old?.name !== s.name || old.level !== s.level;
      this.switches.set(s.id, s);
    }
    for (const x of delta.removedLinks ?? []) this.removeCable(this.cableId(x.a, x.b));
    const renamed = new Set<string>();
    for (const x of delta.removedAdapters ?? []) this.renaming(renamed, x, () => this.removeAdapter(x));
    for (const x of delta.removedAdapters ?? []) gone.set(x.id, x);
    for (const x of delta.addedAdapters ?? []) this.renaming(renamed, x, () => this.addAdapter(x));
    for (const id of renamed) this.rename(id);
    for (const x of delta.addedLinks ?? []) this.addLink(x);
    if (structure || delta.hypernodes?.length) this.domains = this.homes = null;
    const before = this.outside();
    this.takeLists({ ...this.lists(), ...delta });
    structure ||= before !== this.outside() || this.hasStranger(delta.addedAdapters, delta.removedAdapters);
    this.addMissing(gone);
    for (const anomaly of this.anomalies) this.touch(touched, anomaly);
    const links = [delta.removedLinks, delta.addedLinks, delta.addedAdapters].some((x) => (x?.length ?? 0) > 0);
    this.changed = new Set();
    return { generation: this.generation, structure, links, touched };
  }

  /** As in a snapshot, in the same order. */
  topology(): Topology {
    const links = [...this.cables.values()].flatMap((cable) => cable.link ?? []);
    return {
      hypernodes: [...this.hypernodes.values()].sort(byTierAndName),
      switches: [...this.switches.values()].sort(byId),
      adapters: [...this.adapters.values()].sort((a, b) => byId(a, b)),
      links: links.sort(
        (x, y) =>
          compare(x.a.device, y.a.device) ||
          compare(x.a.port, y.a.port) ||
          compare(x.b.device, y.b.device) ||
          compare(x.b.port, y.b.port),
      ),
      ...this.lists(),
    };
  }

  /** The id of a cable, present or missing. */
  cableId(a: Pick<Endpoint, "device" | "port">, b: Pick<Endpoint, "device" | "port">): ItemId {
    return linkId(this.endOf(a.device, a.port ?? ""), this.endOf(b.device, b.port ?? ""));
  }

  /** An end may name the host and its adapter; it is then the adapter's only port. */
  private endOf(device: string, port: string): string {
    for (const id of this.adaptersOfNode.get(device) ?? []) {
      if (id !== device && this.adapterOf(id)?.name === port) return `${id}/1`;
    }
    return `${device}/${port}`;
  }

  /** Also an adapter that lost its only cable, which the collector no longer lists. */
  adapterOf(device: string): Adapter | undefined {
    return this.adapters.get(device) ?? this.ghosts.get(device);
  }

  // --- queries about one object ---------------------------------------------------------------------------

  /** The item that a device id (or a name in an anomaly) belongs to. */
  itemOf(device: string, name = ""): ItemId {
    if (this.switches.has(device)) return switchId(device);
    const node = this.adapterOf(device)?.node ?? device;
    if (this.domainsOf(node).length > 0 || this.silent.has(node)) return nodeId(node);
    if (name !== "" && this.domainsOf(name).length > 0) return nodeId(name);
    return endpointId(node);
  }

  /** The objects at its ends: subject, then peer. */
  itemsOf({ kind, subject, peer, hypernode }: Anomaly): ItemId[] {
    const first =
      kind === "MissingSwitch" && !this.switches.has(subject.device)
        ? subject.device
          ? switchId(subject.device)
          : ghostId(hypernode ?? "")
        : this.itemOf(subject.device, subject.name);
    return peer === null ? [first] : [first, this.itemOf(peer.device, peer.name)];
  }

  /** The HyperNodes that contain a node, tier 1 first. */
  domainsOf(node: string): readonly HyperNode[] {
    if (this.domains === null) {
      this.domains = new Map();
      for (const h of [...this.hypernodes.values()].sort(byTierAndName)) {
        for (const name of h.nodes) {
          const found = this.domains.get(name);
          if (found === undefined) this.domains.set(name, [h]);
          else found.push(h);
        }
      }
    }
    return this.domains.get(node) ?? [];
  }

  /** The HyperNode whose own switch it is. */
  homeOf(switchId: string): HyperNode | undefined {
    if (this.homes === null) {
      this.homes = new Map();
      for (const h of [...this.hypernodes.values()].sort(byTierAndName)) {
        for (const id of h.switches) if (!this.homes.has(id)) this.homes.set(id, h);
      }
    }
    return this.homes.get(switchId);
  }

  /** The names at the ends of its cables: a switch's id, or the names of a node and its adapters. */
  devicesOf(id: ItemId): string[] {
    const name = id.slice(id.indexOf(":") + 1);
    return id.startsWith("switch:") ? [name] : [name, ...(this.adaptersOfNode.get(name) ?? [])];
  }

  /** The cables of a switch, or of all adapters of a node. */
  cablesOf(id: ItemId): Cable[] {
    const found: Cable[] = [];
    for (const device of this.devicesOf(id)) {
      for (const cable of this.cablesOfDevice.get(device) ?? []) found.push(this.cables.get(cable) as Cable);
    }
    return found;
  }

  adaptersOf(node: string): Adapter[] {
    return [...(this.adaptersOfNode.get(node) ?? [])].flatMap((id) => this.adapterOf(id) ?? []);
  }

  anomaliesOf(id: ItemId): readonly Anomaly[] {
    if (this.wrong === null) {
      this.wrong = new Map();
      for (const anomaly of this.anomalies) {
        const about = new Set<ItemId>();
        this.touch(about, anomaly);
        for (const item of about) {
          const found = this.wrong.get(item);
          if (found === undefined) this.wrong.set(item, [anomaly]);
          else found.push(anomaly);
        }
      }
    }
    return this.wrong.get(id) ?? [];
  }

  /** The cables of an anomaly: the cable between its ends, else the cables in the ports that it names. */
  linksOf(anomaly: Anomaly): ItemId[] {
    const { subject, peer } = anomaly;
    if (peer !== null) {
      const id = this.cableId(subject, peer);
      if (this.cables.has(id)) return [id];
    }
    const found: ItemId[] = [];
    for (const end of peer === null ? [subject] : [subject, peer]) {
      for (const id of end.port === null ? [] : (this.cablesOfDevice.get(end.device) ?? [])) {
        const cable = this.cables.get(id) as Cable;
        for (const { device, port } of [cable.a, cable.b]) {
          if (device === end.device && port === end.port) found.push(id);
        }
      }
    }
    return found;
  }

  stateOf(id: ItemId): State {
    const name = id.slice(id.indexOf(":") + 1);
    if (id.startsWith("hypernode:")) {
      const hypernode = this.hypernodes.get(name);
      return hypernode === undefined ? "unknown" : hypernodeState(hypernode);
    }
    let state: State = "ok";
    const isLink = id.startsWith("link:");
    for (const anomaly of this.anomaliesOf(id)) {
      const isSubject = this.itemsOf(anomaly)[0] === id;
      state = worst(state, isLink ? linkState(anomaly) : deviceState(anomaly, isSubject));
    }
    if (id.startsWith("node:")) {
      if (this.silent.has(name)) return "unknown";
      if (state === "degraded" && this.complete && this.cablesOf(id).every((cable) => cable.link === null)) {
        state = "notReady"; // cut off
      }
      const home = this.domainsOf(name)[0];
      if (state === "ok" && home !== undefined && hypernodeState(home) === "stale") state = "stale";
    }
    return state;
  }

  /** The displayed name of a device: the switch's name, or the node and its adapter ("gpu-01 mlx5_0"). */
  deviceName(device: string): string {
    const found = this.switches.get(device);
    if (found !== undefined) return found.name || found.id;
    const adapter = this.adapterOf(device);
    if (adapter === undefined) return device;
    return adapter.name ? `${adapter.node} ${adapter.name}` : adapter.node;
  }

  /** The fabrics of all cables, sorted. */
  fabrics(): string[] {
    return [...new Set([...this.cables.values()].map((cable) => cable.fabric))].filter((x) => x !== "").sort(compare);
  }

  rails(): string[] {
    return [...new Set([...this.cables.values()].map((cable) => cable.rail))].filter((x) => x !== "").sort(compare);
  }

  /** The clusters of all nodes, sorted; none if all nodes are in the collector's own. */
  clusters(): string[] {
    const roots = [...this.hypernodes.values()].filter((x) => x.parent === null);
    const found = [...new Set(roots.flatMap((x) => x.nodes.map(clusterOf)))].sort(compare);
    return found.some((x) => x !== "") ? found : [];
  }

  // --- folding -------------------------------------------------------------------------------------------------

  private lists(): Pick<
    Topology,
    "generation" | "anomalies" | "nodesWithoutEvidence" | "foreignEndpoints" | "tiers"
  > {
    return {
      generation: this.generation,
      anomalies: [...this.anomalies],
      nodesWithoutEvidence: [...this.nodesWithoutEvidence],
      foreignEndpoints: [...this.foreignEndpoints],
      tiers: [...this.tiers],
    };
  }

  private takeLists(from: ReturnType<Picture["lists"]>): void {
    this.generation = from.generation;
    this.anomalies = from.anomalies;
    this.nodesWithoutEvidence = from.nodesWithoutEvidence;
    this.silent = new Set(from.nodesWithoutEvidence);
    this.foreignEndpoints = from.foreignEndpoints;
    this.tiers = from.tiers;
    this.wrong = null;
  }

  private addAdapter(adapter: Adapter): void {
    this.adapters.set(adapter.id, adapter);
    const mine = this.adaptersOfNode.get(adapter.node);
    if (mine === undefined) this.adaptersOfNode.set(adapter.node, new Set([adapter.id]));
    else mine.add(adapter.id);
  }

  private removeAdapter(adapter: Adapter): void {
    const old = this.adapters.get(adapter.id);
    if (old?.node !== adapter.node || old.name !== adapter.name) return;
    this.adapters.delete(adapter.id);
    this.adaptersOfNode.get(adapter.node)?.delete(adapter.id);
  }

  /** Objects that have a place but no domain. */
  private outside(): string {
    const gone = this.anomalies.filter((x) => x.kind === "MissingSwitch").map((x) => [x.subject.device, x.hypernode]);
    return JSON.stringify([this.nodesWithoutEvidence, this.foreignEndpoints, gone]);
  }

  /** Whether one of the adapters is that of a host in no domain. */
  private hasStranger(...adapters: (readonly Adapter[] | undefined)[]): boolean {
    return adapters.some((some) => some?.some(({ node }) => this.domainsOf(node).length === 0));
  }

  /** Makes the change, and records an adapter that cables refer to and that has changed. */
  private renaming(renamed: Set<string>, { id }: Adapter, change: () => void): void {
    for (const cable of this.cablesOfDevice.get(id) ?? []) renamed.add(cable);
    change();
  }

  private rename(id: ItemId): void {
    const link = this.cables.get(id)?.link;
    if (!link) return;
    this.removeCable(id);
    this.addLink(link);
  }

  private addLink(link: Link): void {
    const { a, b, fabric } = link;
    this.addCable({ id: this.cableId(a, b), a, b, link, fabric, rail: this.railOf(a) || this.railOf(b) });
  }

  private addCable(cable: Cable): void {
    this.changed.add(cable.id);
    this.cables.set(cable.id, cable);
    for (const { device } of [cable.a, cable.b]) {
      const mine = this.cablesOfDevice.get(device);
      if (mine === undefined) this.cablesOfDevice.set(device, new Set([cable.id]));
      else mine.add(cable.id);
    }
  }

  private removeCable(id: ItemId): void {
    const cable = this.cables.get(id);
    if (cable === undefined) return;
    this.changed.add(id);
    this.cables.delete(id);
    for (const { device } of [cable.a, cable.b]) {
      const mine = this.cablesOfDevice.get(device);
      mine?.delete(id);
      if (mine?.size === 0) this.cablesOfDevice.delete(device);
    }
  }

  /** Keep objects that anomalies name as missing, at their former place. `gone`: adapters that were removed. */
  private addMissing(gone: ReadonlyMap<string, Adapter>): void {
    for (const anomaly of this.anomalies) {
      const { subject, peer } = anomaly;
      if (anomaly.kind !== "MissingLink" || peer === null) continue;
      for (const end of [subject, peer]) this.addGhost(end, gone.get(end.device));
      const id = this.cableId(subject, peer);
      if (this.cables.has(id)) continue;
      const [a, b] = [subject, peer].map((end) => ({ device: end.device, port: end.port ?? "" })) as [LinkEnd, LinkEnd];
      const rail = this.railOf(a) || this.railOf(b);
      this.addCable({ id, a, b, link: null, fabric: this.fabricOf(a.device, b.device), rail });
    }
  }

  private addGhost({ device, name }: Endpoint, before: Adapter | undefined): void {
    if (this.switches.has(device) || this.adapterOf(device) || this.domainsOf(name).length === 0) return;
    if (device === name) return;
    const ghost = before?.node === name ? before : { id: device, node: name, name: "" };
    this.ghosts.set(device, ghost);
    this.adaptersOfNode.set(name, (this.adaptersOfNode.get(name) ?? new Set()).add(device));
  }

  private dropGhost({ id, node }: Adapter): void {
    this.ghosts.delete(id);
    this.adaptersOfNode.get(node)?.delete(id);
  }

  private dropMissing(anomaly: Anomaly): void {
    if (anomaly.kind !== "MissingLink" || anomaly.peer === null) return;
    const id = this.cableId(anomaly.subject, anomaly.peer);
    if (this.cables.get(id)?.link === null) this.removeCable(id);
  }

  /** Name of a host's adapter, or of its interface if its cables name the host. */
  private railOf({ device, port }: LinkEnd): string {
    return this.adapterOf(device)?.name || (this.domainsOf(device).length > 0 ? port : "");
  }

  /** The fabric of another cable of its devices, because an anomaly names no fabric. */
  private fabricOf(...devices: string[]): string {
    for (const device of devices) {
      for (const id of this.cablesOfDevice.get(device) ?? []) {
        const fabric = this.cables.get(id)?.fabric;
        if (fabric) return fabric;
      }
    }
    return "";
  }

  private touch(touched: Set<ItemId>, anomaly: Anomaly): void {
    const { subject, peer } = anomaly;
    for (const id of this.itemsOf(anomaly)) touched.add(id);
    for (const end of peer === null ? [subject] : [subject, peer]) {
      if (end.port !== null) touched.add(portId(end.device, end.port));
    }
    for (const id of this.linksOf(anomaly)) touched.add(id);
    if (anomaly.hypernode) touched.add(hypernodeId(anomaly.hypernode));
  }
}

function sameMembers(a: HyperNode, b: HyperNode): boolean {
  return (
    a.tier === b.tier &&
    a.parent === b.parent &&
    same(a.children, b.children) &&
    same(a.nodes, b.nodes) &&
    same(a.switches, b.switches)
  );
}

function same(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((x, i) => x === b[i]);
}
