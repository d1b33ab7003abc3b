import { describe, expect, it } from "vitest";
import { EMPTY, fromHash, toHash, Views, type View } from "../src/ui/state";

const FULL: View = {
  tab: "path",
  selected: "link:0x1:p1--0x2:p2 & <b>",
  marked: "node[01-16]",
  fabrics: ["ib-0", "a,b"],
  rails: ["mlx5_0"],
  clusters: ["", "east"],
  tiers: ["1", "2"],
  conditions: ["missing"],
  at: Date.UTC(2026, 4, 1, 14, 3, 7, 1),
  path: ["node-01", "node-02"],
  camera: { x: -12.5, y: 3, zoom: 0.25 },
};

describe("the address", () => {
  it.each([EMPTY, FULL, { ...EMPTY, path: ["node-01", ""] as const }])("comes back", (view) => {
    expect(fromHash(`#${toHash(view as View)}`)).toEqual(view);
  });

  it("is empty where nothing was chosen", () => expect(toHash(EMPTY)).toBe(""));

  it.each(["#camera=1,2", "#camera=a,b,c", "#camera=1,2,-3", "#at=never", "#tab=nothing", "#%%%", "#tab=__proto__"])(
    "%s makes no sense and is passed over",
    (hash) => expect(fromHash(hash)).toEqual(EMPTY),
  );
});

describe("views", () => {
  function page(hash: string): { views: Views; addresses: string[]; back(to: string): void } {
    const addresses: string[] = [];
    let back: () => void = () => undefined;
    const location = { hash, pathname: "/", search: "" };
    const history = {
      pushState: (_: unknown, __: string, to: string) => addresses.push(`push ${to}`),
      replaceState: (_: unknown, __: string, to: string) => addresses.push(`replace ${to}`),
    };
    const addEventListener = (_: string, listener: () => void): void => void (back = listener);
    const views = new Views({ location, history, addEventListener } as unknown as Window);
    return { views, addresses, back: (to) => ((location.hash = to), back()) };
  }

  it("begin with the address, keep it in step, and go back", () => {
    const { views, addresses, back } = page("#select=node%3Aa");
    expect(views.now.selected).toBe("node:a");
    const seen: (string | null)[] = [];
    views.listen((view) => seen.push(view.selected));
    views.change({ selected: "node:b" });
    views.change({ camera: { x: 1, y: 2, zoom: 3 } }, "replace");
    views.change({ selected: null, camera: null });
    back("#select=node%3Aa");
    expect(addresses).toEqual(["push #select=node%3Ab", "replace #select=node%3Ab&camera=1%2C2%2C3", "push /"]);
    expect(seen).toEqual(["node:b", "node:b", null, "node:a"]);
  });

  it("that stay the same make no place to go back to", () => {
    const { views, addresses } = page("#select=node%3Aa");
    views.change({ selected: "node:a" });
    expect(addresses).toEqual([]);
  });
});
