import { describe, expect, it } from "vitest";
import { Picture } from "../src/model/picture";
import { eventState, eventText } from "../src/ui/events";
import { find } from "../src/ui/search";
import { anomalyId, anomalyOf, between, clears, exists, label, placeOf, worstFirst } from "../src/ui/things";

const anomaly = (kind: string, port: string) => ({
  kind,
  subject: { device: "0a1b2c3d4e5f6071", name: "node-1", port },
  peer: { device: "s1", name: "leaf-1", port: "7" },
  tier: 1,
  sources: ["ibnetdiscover"],
  confidence: 1,
  message: "",
  hypernode: "leaf-1-ab",
});
const picture = Picture.of({
  generation: 1,
  hypernodes: [
    { name: "leaf-1-ab", tier: 1, tierName: "leaf", parent: null, children: [], nodes: ["node-1", "node-10"], switches: ["s1"], conditions: [], source: "wires", confidence: 1 },
  ],
  switches: [{ id: "s1", name: "leaf-1", level: 1 }, { id: "b83fd203d3290a80", name: "", level: 0 }],
  adapters: [{ id: "0a1b2c3d4e5f6071", node: "node-1", name: "mlx5_0" }],
  links: [{ a: { device: "0a1b2c3d4e5f6071", port: "1" }, b: { device: "s1", port: "7" }, fabric: "ib", sources: ["x"] }],
  anomalies: [anomaly("SlowLink", "1"), anomaly("MissingSwitch", "2")],
  nodesWithoutEvidence: ["node-100"],
  foreignEndpoints: ["storage-1"],
  tiers: [],
});

describe("find", () => {
  it.each([
    ["node-1", ["node-1", "node-10", "node-100"]],
    ["NODE-100", ["node-100"]],
    ["leaf", ["leaf-1-ab", "leaf-1"]],
    ["orage", ["storage-1"]],
    ["0x0a1b", ["node-1"]],
    ["0a:1b:2c", ["node-1"]],
    ["3290a80", ["b83fd203d3290a80"]],
    ["nothing", []],
  ])("%s", (text, names) => expect(find(picture, text).hits.map((x) => x.text)).toEqual(names));
});

describe("things", () => {
  it("are called as people call them", () => {
    const [id] = [...picture.cables.keys()];
    expect(label(picture, id ?? "")).toBe("node-1 mlx5_0/1 – leaf-1/7");
    expect(label(picture, "switch:s1")).toBe("leaf-1");
    expect(exists(picture, "node:node-100")).toBe(true);
    expect(exists(picture, "node:node-2")).toBe(false);
  });

  it("that are wrong have a place and a name that stays", () => {
    const [slow] = picture.anomalies;
    if (!slow) throw new Error("none");
    expect(anomalyOf(picture, anomalyId({ ...slow, message: "other words" }))).toBe(slow);
    expect(placeOf(picture, slow)).toMatch(/^link:/);
    expect(between(picture, slow)).toBe("node-1/1 – leaf-1/7");
    expect(worstFirst(picture.anomalies).map((x) => x.kind)).toEqual(["MissingSwitch", "SlowLink"]);
  });

  it("that are wrong say until when, where it is known", () => {
    const now = Date.parse("2026-01-01T14:38:00Z");
    const held = { ...anomaly("MissingLink", "1"), flaps: 10, changedAt: "2026-01-01T14:37:34Z" };
    expect(clears({ ...held, clearsAt: "2026-01-01T14:38:50Z" }, now)).toBe(" · clears at 14:38:50");
    expect(clears({ ...held, clearsAt: "2026-01-02T00:00:01Z" }, now)).toBe(" · clears at 2026-01-02 00:00:01");
    expect(clears(held, now)).toBe("");
  });
});

describe("events", () => {
  const event = { id: 1, at: "2026-05-01T00:00:00Z", generation: 3 };
  it.each([
    [{ kind: "ConditionChanged", hypernode: "leaf-1", what: "Degraded", before: "False", after: "True", reason: "LinksDown" }, "leaf-1 Degraded: True (Links down)", "degraded"],
    [{ kind: "ConditionChanged", hypernode: "leaf-1", what: "Ready", before: "False", after: "True" }, "leaf-1 Ready: True", "ok"],
    [{ kind: "SwitchAdded", hypernode: "leaf-1", subject: { device: "s1", name: "sw", port: null } }, "Switch added: sw", "ok"],
    [{ kind: "NodeMoved", node: "n1", before: "a", after: "" }, "n1 moved from a to nowhere", ""],
    [{ kind: "AnomalyCleared", what: "MissingLink", subject: { device: "s1", name: "", port: "3" } }, "Missing link is over: s1/3", "ok"],
    [{ kind: "HyperNodeRemoved", hypernode: "evil\u202e" }, "Domain removed: evil\\u202e", "degraded"],
  ])("%j", (more, text, state) => {
    expect(eventText({ ...event, ...more })).toBe(text);
    expect(eventState({ ...event, ...more })).toBe(state);
  });
});
