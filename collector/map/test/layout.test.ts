import { describe, expect, it } from "vitest";
import { layOut, sortedBy, type Layout, type Rectangle } from "../src/graph/layout";
import { Scene } from "../src/graph/scene";
import { nodeId, switchId } from "../src/model/ids";
import { Picture } from "../src/model/picture";
import type { Topology } from "../src/model/types";
import { SMALL, deltaOf, railOptimised, withCut, type Shape } from "./topologies";

const LARGE: Shape = { pods: 2, units: 20, hosts: 125, rails: 8, spines: 24 };
const healthy = railOptimised(SMALL);

function within(inner: Rectangle, outer: Rectangle): boolean {
  const e = 1e-6;
  return (
    inner.x >= outer.x - e &&
    inner.y >= outer.y - e &&
    inner.x + inner.w <= outer.x + outer.w + e &&
    inner.y + inner.h <= outer.y + outer.h + e
  );
}

function apart(a: Rectangle, b: Rectangle): boolean {
  return a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
}

/** What sticks out of its box, and what lies on something else. */
function faults({ boxes, spots, bounds }: Layout): string[] {
  const found: string[] = [];
  const siblings = new Map<number, (Rectangle & { id: string })[]>();
  const put = (thing: Rectangle & { id: string }, box: number): void => {
    if (!within(thing, boxes[box] ?? bounds)) found.push(`${thing.id} sticks out`);
    const others = siblings.get(box) ?? [];
    for (const other of others) if (!apart(thing, other)) found.push(`${thing.id} lies on ${other.id}`);
    siblings.set(box, [...others, thing]);
  };
  for (const box of boxes) put(box, box.parent);
  for (const spot of spots) put(spot, spot.box);
  return found;
}

const shuffled = (topology: Topology): Topology => ({
  ...topology,
  hypernodes: [...topology.hypernodes].reverse(),
  switches: [...topology.switches].reverse(),
  adapters: [...topology.adapters].reverse(),
  links: [...topology.links].reverse(),
});

describe("the layout", () => {
  const odd: Topology = {
    ...healthy,
    hypernodes: [
      ...healthy.hypernodes,
      { ...(healthy.hypernodes[0] as Topology["hypernodes"][0]), name: "lone", parent: "gone", nodes: ["x", "node-0001"] },
      { ...(healthy.hypernodes[0] as Topology["hypernodes"][0]), name: "loop", parent: "loop", nodes: [], switches: [] },
    ],
    switches: [...healthy.switches, { id: "s0", name: "", level: 0 }],
    nodesWithoutEvidence: ["silent-1", "silent-2"],
    foreignEndpoints: ["storage-1"],
    adapters: [...healthy.adapters, { id: "ad", node: "98039b03", name: "" }],
  };

  it.each([
    ["two pods", healthy],
    ["nothing", railOptimised({ pods: 0, units: 0, hosts: 0, rails: 0, spines: 0 })],
    ["one host", railOptimised({ pods: 1, units: 1, hosts: 1, rails: 1, spines: 1 })],
    ["uneven domains, a parent that is gone, one in itself, endpoints", odd],
    ["5,000 nodes", railOptimised(LARGE)],
  ])("puts everything somewhere once, inside its box and on nothing else: %s", (_, topology) => {
    const picture = Picture.of(topology);
    const layout = layOut(picture);
    expect(faults(layout)).toEqual([]);
    expect(layout.spotOf.size).toBe(layout.spots.length);
    const nodes = new Set(topology.hypernodes.flatMap((h) => h.nodes).concat(topology.nodesWithoutEvidence));
    const wanted = [...[...nodes].map(nodeId), ...topology.switches.map(({ id }) => switchId(id))];
    expect(wanted.filter((id) => !layout.spotOf.has(id))).toEqual([]);
  });

  it("is the same whatever the order in which things are told", () => {
    expect(layOut(Picture.of(shuffled(odd)))).toEqual(layOut(Picture.of(odd)));
  });

  it("puts switches above what they serve, and the tiers above around", () => {
    const { boxes, spots } = layOut(Picture.of(healthy));
    for (const spot of spots) {
      const box = boxes[spot.box];
      if (spot.kind === "switch") expect(spot.y + spot.h).toBeLessThanOrEqual(box?.switchesEnd as number);
      else expect(spot.y).toBeGreaterThan(box?.switchesEnd as number);
    }
  });

  it("moves nothing when a cable is cut, and draws it where it was", () => {
    const cable = healthy.links.find((x) => x.a.device === "node-0003-mlx5_0") ?? healthy.links[0];
    if (cable === undefined) throw new Error("no cable");
    const before = new Scene(Picture.of(healthy));
    const after = new Scene(Picture.of(withCut(healthy, cable, "unit-p0-u00")));
    expect(after.layout).toEqual(before.layout);
    const line = (scene: Scene, id: string): number[] => {
      const at = scene.cables.lineOf(scene.cables.indexOf.get(id) as number);
      return [...scene.cables.lines.subarray(at, at + 4)];
    };
    for (const id of before.cables.indexOf.keys()) expect(line(after, id)).toEqual(line(before, id));
    expect(after.cables.wrong.map((i) => after.cables.all[i]?.id)).toEqual([before.picture.cableId(cable.a, cable.b)]);
    expect(before.cables.wrong).toEqual([]);
  });

  it("dims what is not of the wanted clusters", () => {
    const several = JSON.parse(JSON.stringify(healthy).replaceAll('"node-0003"', '"east/node-0003"')) as Topology;
    const scene = new Scene(Picture.of(several));
    expect(scene.picture.clusters()).toEqual(["", "east"]);
    expect(Picture.of(healthy).clusters()).toEqual([]);
    const { boxes, spots } = scene.layout;
    const bright = (kind: string): string[] =>
      spots.filter((spot, i) => spot.kind === kind && scene.spotDimmed[i] === 0).map((spot) => spot.label);
    scene.setFilter({ clusters: new Set(["east"]) });
    expect(bright("node")).toEqual(["east/node-0003"]);
    expect(boxes.filter((_, i) => scene.boxDimmed[i] === 0).map((box) => box.label).sort()).toEqual(["core", "pod-00", "unit-p0-u00"]);
    const ends = scene.cables.all.flatMap((_, i) => (scene.cables.dimmed[i] === 0 ? [scene.cables.a[i], scene.cables.b[i]] : []));
    const nodes = ends.map((end) => spots[end as number]).filter((spot) => spot?.kind === "node");
    expect([...new Set(nodes.map((spot) => spot?.label))]).toEqual(["east/node-0003"]);
    scene.setFilter({ clusters: new Set(["", "east"]) });
    expect([...scene.spotDimmed, ...scene.boxDimmed].some(Boolean)).toBe(false);
  });

  it("moves no other domain when a node goes", () => {
    const six = railOptimised({ ...SMALL, hosts: 6 });
    const without: Topology = {
      ...six,
      hypernodes: six.hypernodes.map((h) => ({ ...h, nodes: h.nodes.filter((n) => n !== "node-0002") })),
    };
    const [before, after] = [layOut(Picture.of(six)), layOut(Picture.of(without))];
    expect(after.boxes.filter((box) => !box.id.startsWith("band:"))).toEqual(before.boxes);
    const elsewhere = before.spots.filter((s) => before.boxes[s.box]?.label !== "unit-p0-u00");
    for (const spot of elsewhere) expect(after.spots[after.spotOf.get(spot.id) as number]).toEqual(spot);
  });

  it("keeps a place for a switch that is gone", () => {
    const gone: Topology = {
      ...healthy,
      switches: healthy.switches.filter((s) => s.id !== "leaf-p0-u00-r1"),
      hypernodes: healthy.hypernodes.map((h) => ({ ...h, switches: h.switches.filter((s) => s !== "leaf-p0-u00-r1") })),
      anomalies: [
        {
          kind: "MissingSwitch",
          subject: { device: "leaf-p0-u00-r1", name: "leaf-p0-u00-r1", port: null },
          peer: null,
          tier: 1,
          sources: [],
          confidence: 0.9,
          message: "",
          hypernode: "unit-p0-u00",
        },
      ],
    };
    const scene = new Scene(Picture.of(gone));
    expect(scene.layout).toEqual(layOut(Picture.of(healthy)));
    expect(scene.picture.stateOf(switchId("leaf-p0-u00-r1"))).toBe("missing");
  });
});

describe("a scene after a change", () => {
  const cut = (node: string, generation: number): Topology => {
    const cable = healthy.links.find((x) => x.a.device === `${node}-mlx5_0`);
    if (cable === undefined) throw new Error("no cable");
    return { ...withCut(healthy, cable, "unit-p0-u00"), generation };
  };
  const stale = { type: "Stale", status: "True", reason: "EvidenceOld", message: "" };
  const steps: Topology[] = [
    healthy,
    cut("node-0001", 2),
    cut("node-0002", 3),
    { ...healthy, generation: 4 },
    { ...healthy, generation: 5, links: healthy.links.slice(0, -3) },
    {
      ...healthy,
      generation: 6,
      links: [
        ...healthy.links,
        { a: { device: "leaf-p0-u00-r0", port: "900" }, b: { device: "core-1", port: "900" }, fabric: "x", sources: [] },
      ],
    },
    {
      ...healthy,
      generation: 7,
      hypernodes: healthy.hypernodes.map((h) => (h.name === "unit-p0-u00" ? { ...h, conditions: [stale] } : h)),
    },
    railOptimised({ ...SMALL, units: 3 }, 8),
  ];

  it("is as one made anew, step by step", () => {
    const scene = new Scene(Picture.of(healthy));
    steps.slice(1).forEach((step, i) => {
      scene.apply(scene.picture.apply(deltaOf(steps[i] as Topology, step)));
      const fresh = new Scene(Picture.of(step));
      expect(scene.layout).toEqual(fresh.layout);
      expect([...scene.spotState]).toEqual([...fresh.spotState]);
      expect([...scene.boxState]).toEqual([...fresh.boxState]);
      expect(scene.bundles).toEqual(fresh.bundles);
      const cables = ({ cables }: Scene): Map<string, unknown> =>
        new Map(
          [...cables.indexOf].sort().map(([id, at]) => {
            const line = cables.lineOf(at);
            return [id, [cables.a[at], cables.b[at], cables.state[at], ...cables.lines.subarray(line, line + 4)]];
          }),
        );
      expect(cables(scene)).toEqual(cables(fresh));
      expect(scene.cables.wrong.length).toBe(fresh.cables.wrong.length);
    });
  });
});

describe("bundles", () => {
  it("count every cable that leaves a domain once, at each domain that it leaves", () => {
    const { layout, bundles } = new Scene(Picture.of(healthy));
    const counted = new Map(bundles.map((b) => [layout.boxes[b.box]?.label, b.count]));
    expect(counted.get("unit-p0-u00")).toBe(SMALL.rails * SMALL.spines);
    expect(counted.get("pod-00")).toBe(SMALL.spines);
    expect(counted.has("core")).toBe(false);
  });

  it("show their worst cable", () => {
    const uplink = healthy.links.find((x) => x.a.device === "leaf-p0-u00-r0" && x.b.device === "spine-p0-00");
    if (uplink === undefined) throw new Error("no uplink");
    const { layout, bundles } = new Scene(Picture.of(withCut(healthy, uplink, "unit-p0-u00")));
    const states = new Map(bundles.map((b) => [layout.boxes[b.box]?.label, b.state]));
    expect(states.get("unit-p0-u00")).toBe(0);
    expect(states.get("unit-p0-u01")).not.toBe(0);
  });
});

describe("filters", () => {
  it("dim what does not match, and the cables between", () => {
    const scene = new Scene(Picture.of(healthy));
    scene.setFilter({ rails: new Set(["mlx5_0"]) });
    const dimmed = (id: string): boolean => scene.spotDimmed[scene.layout.spotOf.get(id) as number] === 1;
    expect(dimmed(switchId("leaf-p0-u00-r1"))).toBe(true);
    expect(dimmed(switchId("leaf-p0-u00-r0"))).toBe(false);
    expect(dimmed(nodeId("node-0001"))).toBe(false);
    const shown = scene.cables.all.flatMap((cable, i) => (cable && scene.cables.dimmed[i] === 0 ? [cable] : []));
    expect(new Set(shown.map((cable) => cable.rail))).toEqual(new Set(["mlx5_0"]));
    scene.setFilter({ states: new Set(["degraded"]) });
    expect(dimmed(nodeId("node-0001"))).toBe(true);
    scene.setFilter({});
    expect([...scene.spotDimmed, ...scene.cables.dimmed]).not.toContain(1);
  });
});

it("sorts names as people count", () => {
  expect(sortedBy(["leaf-10", "leaf-9", "leaf-1a", "Leaf-2"], (x) => x)).toEqual(["Leaf-2", "leaf-1a", "leaf-9", "leaf-10"]);
});
