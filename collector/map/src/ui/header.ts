// The state of the cluster in one line: the generation, its age, the number of problems, and whether the map is live.

import { hypernodeState } from "../model/conditions";
import type { Picture } from "../model/picture";
import type { StreamState } from "../model/stream";
import type { App } from "./app";
import { button, fill, h, type Child } from "./dom";
import { ICONS, icon, STATE_WORDS, stateIcon } from "./icons";
import { count, visible } from "./text";
import { nodeNames } from "./search";
import { clock, span } from "./times";

export function header(app: App, search: HTMLElement, ...tools: HTMLElement[]): { element: HTMLElement; connected(state: StreamState): void } {
  const facts = h("div", { class: "facts", id: "facts" });
  const connection = h("div", { class: "connection", id: "connection", role: "status" });
  let state: StreamState = { kind: "connecting" };
  let awaySince: number | null = null;
  const render = (): void => {
    fill(facts, ...factsOf(app));
    fill(connection, ...connectionOf(app, state, awaySince));
  };
  app.onPicture(render);
  app.views.listen((view, before) => view.at !== before.at && render());
  render();
  setInterval(() => awaySince !== null && render(), 1000);
  return {
    element: h("header", { class: "header" }, h("h1", { class: "brand" }, icon(ICONS.brand), "hyperscout"), facts, search, connection, ...tools),
    connected(now) {
      const isAway = now.kind === "waiting" || (now.kind === "connecting" && awaySince !== null);
      if (isAway && awaySince === null) app.say("Connection lost, trying again");
      if (now.kind === "live" && awaySince !== null) app.say("Live again");
      awaySince = isAway ? (awaySince ?? Date.now()) : null;
      state = now;
      render();
    },
  };
}

function factsOf(app: App): Child[] {
  const picture = app.picture();
  if (!picture.generation) return [h("span", { class: "muted" }, "Nothing is published yet")];
  const domains = [...picture.hypernodes.values()].map(hypernodeState);
  const isBad = (state: string): boolean => state === "notReady" || state === "degraded";
  const bad = domains.filter(isBad).length;
  const show = (): void => app.views.change({ tab: "wrong" });
  const down = linksDown(picture);
  const total = down.reduce((sum, [, n]) => sum + n, 0);
  const [first] = down;
  const where = down.length === 1 && first ? visible(first[0], 24) : `in ${count(down.length, "fabric")}`;
  return [
    h("span", { class: "chip", title: "Generation of the picture" }, h("span", { class: "muted" }, "generation"), h("strong", { id: "generation" }, picture.generation)),
    h("span", { class: "muted size" }, `${count(nodeNames(picture).length, "node")} · ${count(picture.switches.size, "switch", "switches")}${picture.complete ? ` · ${count(picture.cables.size, "cable")}` : ""}`),
    bad > 0
      ? button(show, { class: "chip degraded", id: "domains-bad" }, stateIcon("degraded"), `${count(bad, "domain")} ${STATE_WORDS.degraded.toLowerCase()}`)
      : h("span", { class: "chip", id: "domains-bad" }, stateIcon("ok"), "all domains well"),
    down.length > 0 &&
      button(show, { class: "chip bad", id: "links-down", title: down.map(([fabric, n]) => `${visible(fabric || "unknown fabric", 60)}: ${n}`).join("\n") }, stateIcon("missing"), `${count(total, "link")} down`, h("span", { class: "muted" }, where)),
  ];
}

/** Missing cables by fabric. */
function linksDown(picture: Picture): [string, number][] {
  const found = new Map<string, number>();
  for (const cable of picture.cables.values()) {
    if (cable.link === null) found.set(cable.fabric, (found.get(cable.fabric) ?? 0) + 1);
  }
  return [...found].sort();
}

function connectionOf(app: App, state: StreamState, awaySince: number | null): Child[] {
  const { at } = app.views.now;
  if (at !== null) return [h("span", { class: "dot past" }), h("strong", {}, "The past"), clock(at, Date.now())];
  if (state.kind === "live") return [h("span", { class: "dot live" }), "Live"];
  if (state.kind === "refused") return [h("span", { class: "dot away" }), "Refused"];
  if (awaySince !== null) return [h("span", { class: "dot away" }), `Reconnecting, away since ${clock(awaySince)} (${span(Date.now() - awaySince)})`];
  return [h("span", { class: "dot away" }), "Connecting"];
}
