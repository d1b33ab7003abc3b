// Topologies made by rule, for tests: pods of units, each with a leaf for every rail, spines above, one core.
import type { Anomaly, HyperNode, Link, Topology, TopologyDelta } from "../src/model/types";

export interface Shape {
  pods: number;
  units: number;
  hosts: number;
  rails: number;
  spines: number;
}

export const SMALL: Shape = { pods: 2, units: 2, hosts: 4, rails: 2, spines: 2 };
const two = (n: number): string => String(n).padStart(2, "0");

function hypernode(name: string, tier: number, parent: string | null, switches: string[]): HyperNode {
  const tierName = ["", "leaf", "pod", "core"][tier] as string;
  const conditions = [
    { type: "Ready", status: "True", reason: "AllNodesReady", message: "" },
    { type: "Degraded", status: "False", reason: "LinksHealthy", message: "" },
  ];
  return { name, tier, tierName, parent, children: [], nodes: [], switches, conditions, source: "wires", confidence: 1 };
}

export function railOptimised({ pods, units, hosts, rails, spines }: Shape, generation = 1): Topology {
  const topology: Topology = {
    generation,
    hypernodes: [],
    switches: [],
    adapters: [],
    links: [],
    anomalies: [],
    nodesWithoutEvidence: [],
    foreignEndpoints: [],
    tiers: [],
  };
  const link = (a: string, ap: string, b: string, bp: string): void => {
    topology.links.push({ a: { device: a, port: ap }, b: { device: b, port: bp }, fabric: "ib", sources: ["ibnetdiscover"] });
  };
  const core = hypernode("core", 3, null, ["core-1"]);
  topology.switches.push({ id: "core-1", name: "core-1", level: 3 });
  topology.hypernodes.push(core);
  let host = 0;
  for (let p = 0; p < pods; p += 1) {
    const tops = Array.from({ length: spines }, (_, i) => `spine-p${p}-${two(i)}`);
    const pod = hypernode(`pod-${two(p)}`, 2, "core", tops);
    core.children.push(pod.name);
    topology.hypernodes.push(pod);
    tops.forEach((id, i) => {
      topology.switches.push({ id, name: id, level: 2 });
      link(id, "100", "core-1", String(p * spines + i + 1));
    });
    for (let u = 0; u < units; u += 1) {
      const leaves = Array.from({ length: rails }, (_, r) => `leaf-p${p}-u${two(u)}-r${r}`);
      const unit = hypernode(`unit-p${p}-u${two(u)}`, 1, pod.name, leaves);
      pod.children.push(unit.name);
      topology.hypernodes.push(unit);
      leaves.forEach((id, r) => {
        topology.switches.push({ id, name: id, level: 1 });
        tops.forEach((top, i) => link(id, String(hosts + i + 1), top, String(u * rails + r + 1)));
      });
      for (let h = 0; h < hosts; h += 1) {
        host += 1;
        const node = `node-${String(host).padStart(4, "0")}`;
        unit.nodes.push(node);
        pod.nodes.push(node);
        core.nodes.push(node);
        leaves.forEach((leaf, r) => {
          const id = `${node}-mlx5_${r}`;
          topology.adapters.push({ id, node, name: `mlx5_${r}` });
          link(id, "1", leaf, String(h + 1));
        });
      }
    }
  }
  return inOrder(topology);
}

export function inOrder(topology: Topology): Topology {
  const by =
    <T>(key: (x: T) => string) =>
    (a: T, b: T): number =>
      key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0;
  topology.hypernodes.sort(by((h) => `${h.tier} ${h.name}`));
  topology.switches.sort(by((s) => s.id));
  topology.adapters.sort(by((x) => x.id));
  topology.links.sort(by((x) => [x.a.device, x.a.port, x.b.device, x.b.port].join("\0")));
  return topology;
}

/** The same with one cable cut: the link gone, an anomaly in its place, its domain degraded. */
export function withCut(topology: Topology, link: Link, hypernode: string): Topology {
  const end = ({ device, port }: { device: string; port: string }): Anomaly["subject"] => ({ device, name: device, port });
  return {
    ...topology,
    generation: topology.generation + 1,
    links: topology.links.filter((x) => x !== link),
    hypernodes: topology.hypernodes.map((h) =>
      h.name !== hypernode
        ? h
        : {
            ...h,
            conditions: h.conditions.map((c) =>
              c.type === "Degraded" ? { ...c, status: "True", reason: "LinksDown", message: "1 link down" } : c,
            ),
          },
    ),
    anomalies: [
      {
        kind: "MissingLink",
        subject: end(link.a),
        peer: end(link.b),
        tier: 1,
        sources: ["ibnetdiscover"],
        confidence: 0.9,
        message: "cut",
        hypernode,
        since: "2026-01-01T00:00:00Z",
      },
    ],
  };
}

/** As the collector makes it: api/delta.py. */
export function deltaOf(old: Topology, fresh: Topology): TopologyDelta {
  const text = (x: unknown): string => JSON.stringify(x);
  const gone = <T>(a: T[], b: T[], key: (x: T) => string): T[] => {
    const there = new Set(b.map(key));
    return a.filter((x) => !there.has(key(x)));
  };
  return {
    generation: fresh.generation,
    hypernodes: gone(fresh.hypernodes, old.hypernodes, text),
    removedHypernodes: gone(old.hypernodes, fresh.hypernodes, (h) => h.name).map((h) => h.name),
    switches: gone(fresh.switches, old.switches, text),
    removedSwitches: gone(old.switches, fresh.switches, (s) => s.id).map((s) => s.id),
    addedLinks: gone(fresh.links, old.links, text),
    removedLinks: gone(old.links, fresh.links, text),
    addedAdapters: gone(fresh.adapters, old.adapters, text),
    removedAdapters: gone(old.adapters, fresh.adapters, text),
    anomalies: fresh.anomalies,
    nodesWithoutEvidence: fresh.nodesWithoutEvidence,
    foreignEndpoints: fresh.foreignEndpoints,
    tiers: fresh.tiers,
  };
}
