// The list of problems. Each row selects its place on the map.

import { hypernodeState, linkState } from "../model/conditions";
import { hypernodeId, nodeId } from "../model/ids";
import type { Anomaly, HyperNode } from "../model/types";
import type { App } from "./app";
import { fill, h, name, type Child } from "./dom";
import { ICONS, icon, STATE_WORDS, stateIcon } from "./icons";
import { time } from "./pieces";
import { row } from "./rows";
import { count, visible, words } from "./text";
import { anomalyId, between, clears, worstFirst } from "./things";
import { parseTime } from "./times";

const MAX_ROWS = 300; // further rows are counted

export function wrongList(app: App): HTMLElement {
  const panel = h("div", { class: "wrong" });
  const render = (): void => fill(panel, ...rows(app));
  app.onPicture(render);
  app.views.listen((view, before) => {
    if (view.selected !== before.selected) render();
  });
  return panel;
}

function rows(app: App): Child[] {
  const picture = app.picture();
  const anomalies = worstFirst(picture.anomalies);
  const explained = new Set(anomalies.map((x) => x.hypernode));
  const domains = [...picture.hypernodes.values()].filter((x) => hypernodeState(x) !== "ok" && !explained.has(x.name));
  const silent = picture.nodesWithoutEvidence;
  if (!anomalies.length && !domains.length && !silent.length) {
    const nothing = picture.generation ? "Nothing is wrong" : "Nothing is published yet";
    return [h("div", { class: "all-well" }, icon(ICONS.well), h("p", {}, nothing))];
  }
  const kinds = new Map<string, Anomaly[]>();
  for (const x of anomalies) kinds.set(x.kind, [...(kinds.get(x.kind) ?? []), x]);
  const found: Child[] = [];
  for (const [kind, all] of kinds) found.push(...group(words(kind), all, (x) => anomalyRow(app, x)));
  found.push(...group("Domains", domains, (x) => domainRow(app, x)));
  found.push(...group("Nodes without evidence", silent, (x) => row(app, nodeId(x), stateIcon("unknown"), name(x, 90))));
  return found;
}

function group<T>(title: string, all: readonly T[], render: (x: T) => Child): Child[] {
  if (!all.length) return [];
  const more = all.length - MAX_ROWS;
  return [
    h("h3", { class: "group" }, h("span", {}, title), h("span", {}, all.length)),
    h("ul", { class: "list" }, ...all.slice(0, MAX_ROWS).map(render)),
    more > 0 && h("p", { class: "muted" }, `and ${count(more, "more", "more")}`),
  ];
}

function anomalyRow(app: App, x: Anomaly): HTMLElement {
  const since = parseTime(x.since);
  const where = x.hypernode ? visible(x.hypernode, 80) : "";
  const age = since !== null && time(since, app.nowMs(), "for");
  const more = h("span", {}, where, where && age && " · ", age, clears(x, app.nowMs()));
  return row(app, anomalyId(x), stateIcon(linkState(x), true), name(between(app.picture(), x), 90), more);
}

function domainRow(app: App, x: HyperNode): HTMLElement {
  const state = hypernodeState(x);
  const wrong = x.conditions.filter((c) => c.reason && hypernodeState({ ...x, conditions: [c] }) !== "ok");
  const more = [STATE_WORDS[state], ...wrong.map((c) => visible(words(c.reason), 80))].join(" · ");
  return row(app, hypernodeId(x.name), stateIcon(state, true), name(x.name, 90), more);
}
