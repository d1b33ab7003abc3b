import { describe, expect, it } from "vitest";
import { nodeId, switchId, hypernodeId } from "../src/model/ids";
import { Picture } from "../src/model/picture";
import type { Topology } from "../src/model/types";
import { SMALL, deltaOf, inOrder, railOptimised, withCut } from "./topologies";

const healthy = railOptimised(SMALL);
const cable = healthy.links.find((x) => x.a.device === "node-0001-mlx5_1");
if (cable === undefined) throw new Error("no such cable");
const cut = withCut(healthy, cable, "unit-p0-u00");
const cutId = Picture.of(healthy).cableId(cable.a, cable.b);

describe("folding", () => {
  const another = railOptimised({ ...SMALL, units: 3, spines: 1 }, 7);
  const rewitnessed: Topology = {
    ...healthy,
    generation: 2,
    links: healthy.links.map((x, i) => (i % 3 === 0 ? { ...x, sources: ["ibnetdiscover", "lldp"] } : x)),
  };
  const stale = { type: "Stale", status: "True", reason: "EvidenceOld", message: "" };
  const staleUnit: Topology = {
    ...healthy,
    generation: 2,
    hypernodes: healthy.hypernodes.map((h) => (h.name === "unit-p0-u00" ? { ...h, conditions: [stale] } : h)),
  };
  const renamed: Topology = inOrder({
    ...healthy,
    generation: 2,
    adapters: healthy.adapters.map((x) => (x.node === "node-0002" ? { ...x, node: "gpu-2" } : x)),
    nodesWithoutEvidence: ["node-0002"],
  });
  it.each([
    ["a cable is cut", healthy, cut],
    ["and mended", cut, { ...healthy, generation: 3 }],
    ["other domains, switches, hosts and cables", healthy, another],
    ["and back", another, { ...healthy, generation: 8 }],
    ["a second witness for many cables", healthy, rewitnessed],
    ["adapters of another host", healthy, renamed],
    [
      "another name for an adapter",
      healthy,
      { ...healthy, generation: 2, adapters: healthy.adapters.map((x, i) => (i === 0 ? { ...x, name: "ib0" } : x)) },
    ],
    ["a domain turns stale", healthy, staleUnit],
    ["nothing", healthy, { ...healthy, generation: 2 }],
  ])("gives what a fresh snapshot gives: %s", (_, old, fresh) => {
    const folded = Picture.of(old);
    folded.homeOf("leaf-p0-u00-r0"); // what was asked before the fold is remembered
    folded.stateOf(nodeId("node-0001"));
    folded.apply(deltaOf(old, fresh));
    const read = Picture.of(fresh);
    expect(folded.topology()).toEqual(fresh);
    expect([...folded.cables.keys()].sort()).toEqual([...read.cables.keys()].sort());
    for (const { name, nodes } of read.hypernodes.values()) {
      for (const id of [hypernodeId(name), ...nodes.map(nodeId)]) expect(folded.stateOf(id)).toBe(read.stateOf(id));
    }
    for (const id of read.switches.keys()) expect(folded.homeOf(id)).toEqual(read.homeOf(id));
    for (const id of [...read.switches.keys()].map(switchId)) {
      const ids = (picture: Picture): string[] => picture.cablesOf(id).map((x) => x.id).sort();
      expect(ids(folded)).toEqual(ids(read));
      expect(folded.stateOf(id)).toBe(read.stateOf(id));
    }
    expect(folded.rails()).toEqual(read.rails());
  });

  it("leaves no trace of a hundred cuts", () => {
    const picture = Picture.of(healthy);
    for (let i = 0; i < 50; i += 1) {
      picture.apply(deltaOf(healthy, cut));
      picture.apply(deltaOf(cut, healthy));
    }
    expect(picture.topology()).toEqual(healthy);
    expect(picture.cables.size).toBe(healthy.links.length);
  });

  it("says what it touched, and that a cut cable moves nothing", () => {
    const change = Picture.of(healthy).apply(deltaOf(healthy, cut));
    expect(change).toMatchObject({ generation: 2, structure: false, links: true });
    const about = [nodeId("node-0001"), switchId("leaf-p0-u00-r1"), hypernodeId("unit-p0-u00"), cutId];
    expect([...change.touched]).toEqual(expect.arrayContaining(about));
    expect(change.touched).not.toContain(nodeId("node-0002"));
  });
});

describe("states", () => {
  const picture = Picture.of(cut);
  it.each([
    [cutId, "missing"],
    [nodeId("node-0001"), "degraded"],
    [switchId("leaf-p0-u00-r1"), "degraded"],
    [hypernodeId("unit-p0-u00"), "degraded"],
    [hypernodeId("core"), "ok"],
    [nodeId("node-0002"), "ok"],
  ])("%s is %s", (id, state) => expect(picture.stateOf(id)).toBe(state));

  it("knows a cut cable by the names of its host and adapter, too", () => {
    const [anomaly] = cut.anomalies;
    if (anomaly === undefined) throw new Error("no anomaly");
    const subject = { device: "node-0001", name: "node-0001", port: "mlx5_1" };
    const named = Picture.of({ ...cut, anomalies: [{ ...anomaly, subject }] });
    expect(named.stateOf(cutId)).toBe("missing");
    expect(named.cables.get(cutId)).toMatchObject({ link: null, rail: "mlx5_1" });
    expect(picture.cableId(cable.b, cable.a)).toBe(cutId);
  });

  it("leaves a cut cable at its host, though the collector lists an adapter without a cable no more", () => {
    const [anomaly] = cut.anomalies;
    if (anomaly === undefined) throw new Error("no anomaly");
    const unlisted: Topology = {
      ...cut,
      adapters: cut.adapters.filter((x) => x.id !== cable.a.device),
      anomalies: [{ ...anomaly, subject: { ...anomaly.subject, name: "node-0001" } }],
    };
    const folded = Picture.of(healthy);
    folded.apply(deltaOf(healthy, unlisted));
    expect(folded.cables.get(cutId)).toMatchObject({ link: null, rail: "mlx5_1" });
    expect(folded.topology()).toEqual(unlisted);
    for (const one of [folded, Picture.of(unlisted)]) {
      expect(one.cablesOf(nodeId("node-0001")).map((x) => x.id)).toContain(cutId);
      expect(one.stateOf(nodeId("node-0001"))).toBe("degraded");
    }
    folded.apply(deltaOf(unlisted, { ...healthy, generation: 3 }));
    expect(folded.cables.get(cutId)?.link).not.toBeNull();
    expect(folded.adaptersOf("node-0001").map((x) => x.name)).toEqual(["mlx5_0", "mlx5_1"]);
  });

  it("keeps a cut cable where it was, with its rail and fabric", () => {
    expect(picture.cables.get(cutId)).toMatchObject({ link: null, rail: "mlx5_1", fabric: "ib" });
  });

  it("calls a node cut off that has lost every cable", () => {
    const mine = healthy.links.filter((x) => x.a.device.startsWith("node-0001-"));
    const lost = mine.reduce((topology, x) => {
      const next = withCut(topology, topology.links.find((y) => y === x) ?? x, "unit-p0-u00");
      return { ...next, anomalies: [...topology.anomalies, ...next.anomalies] };
    }, healthy);
    expect(Picture.of(lost).stateOf(nodeId("node-0001"))).toBe("notReady");
  });

  it("knows a node without evidence, and one of a stale domain", () => {
    const stale = { type: "Stale", status: "True", reason: "EvidenceOld", message: "" };
    const old = Picture.of({
      ...healthy,
      nodesWithoutEvidence: ["node-9999"],
      hypernodes: healthy.hypernodes.map((h) => ({ ...h, conditions: h.name === "unit-p0-u00" ? [stale] : [] })),
    });
    expect(old.stateOf(nodeId("node-9999"))).toBe("unknown");
    expect(old.stateOf(nodeId("node-0001"))).toBe("stale");
    expect(old.stateOf(nodeId("node-0016"))).toBe("ok");
  });
});
