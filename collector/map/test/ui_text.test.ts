import { describe, expect, it } from "vitest";
import { expand, hostlist } from "../src/ui/hostlist";
import { digits, visible, words } from "../src/ui/text";
import { ago, clock, parseTime, span } from "../src/ui/times";

describe("visible", () => {
  it.each([
    ["gpu-01", "gpu-01"],
    ["größe 東京", "größe 東京"],
    ["<script>alert(1)</script>", "<script>alert(1)</script>"],
    ["a\u202Eb", "a\\u202eb"],
    ["a\u0000\u001b[31m\n", "a\\x00\\x1b[31m\\x0a"],
    ["a\u200bb\ufeff\u{e0041}", "a\\u200bb\\ufeff\\u{e0041}"],
    ["lone \ud800", "lone \\ud800"],
  ])("%j", (text, shown) => expect(visible(text)).toBe(shown));

  it("keeps both ends of a book", () => {
    const shown = visible(`begin${"x".repeat(5000)}end`, 60);
    expect(shown).toHaveLength(60);
    expect(shown).toMatch(/^begin.*…x*end$/);
  });
});

describe("hostlist", () => {
  it.each([
    ["node[01-03]", ["node01", "node02", "node03"]],
    ["node[8-11],login", ["node8", "node9", "node10", "node11", "login"]],
    ["a[1,3-4]b", ["a1b", "a3b", "a4b"]],
    ["a[0-1]-[1-2]", ["a0-1", "a0-2", "a1-1", "a1-2"]],
    ["one, two", ["one", "two"]],
    ["a,a", ["a"]],
    ["", []],
    ["node[", null],
    ["node]", null],
    ["node[a-b]", null],
    ["node[3-1]", null],
    ["node[[1]]", null],
    ["node[1-999999]", null],
    ["node[1-60000][1-60000]", null],
  ])("expands %j", (list, names) => expect(expand(list)).toEqual(names));

  it.each([
    [["node-0002", "node-0001", "node-0003", "login"], "login,node-[0001-0003]"],
    [["n9", "n10", "n11"], "n[9-11]"],
    [["n09", "n10", "n1"], "n[1,09-10]"],
    [["0123456789abcdef"], "0123456789abcdef"],
    [["a"], "a"],
  ])("folds %j", (names, list) => expect(hostlist(names)).toBe(list));

  it("comes back", () => {
    const names = Array.from({ length: 1200 }, (_, i) => `gpu-${i}`);
    expect(expand(hostlist(names))).toEqual(names);
  });
});

describe("times", () => {
  const now = Date.UTC(2026, 4, 1, 14, 3, 7);
  it.each([
    [0, "0 s"],
    [-5000, "0 s"],
    [59_000, "59 s"],
    [200_000, "3 min 20 s"],
    [3_600_000, "1 h"],
    [100_000_000, "1 d 3 h"],
  ])("span %d", (ms, text) => expect(span(ms)).toBe(text));

  it("tells the time of the day, and another day's date", () => {
    expect(clock(now)).toBe("14:03:07");
    expect(clock(now, now + 86_400_000)).toBe("2026-05-01 14:03:07");
    expect(ago(now - 61_000, now)).toBe("1 min 1 s ago");
    expect(ago(now, now)).toBe("just now");
  });

  it("reads nanoseconds", () => {
    expect(parseTime("2026-05-01T14:03:07.123456789Z")).toBe(now + 123);
    expect(parseTime("yesterday")).toBeNull();
    expect(parseTime(undefined)).toBeNull();
  });
});

it("writes numbers and words as the command line does", () => {
  expect([digits(1.23456), digits(0.01234), digits(1234.5), digits(Number.NaN)]).toEqual(["1.23", "0.0123", "1,235", "?"]);
  expect(words("LinksDown")).toBe("Links down");
});
