// The panel of the selected object: problems and their start, evidence, measurements, recent changes. The panel shows
// the content of the picture at once; findings and history are fetched and appear below.

import { worst, type State } from "../model/conditions";
import { kindOf, type ItemId } from "../model/ids";
import type { Anomaly, Condition } from "../model/types";
import type { App } from "./app";
import { button, fill, h, name, type Child } from "./dom";
import { evidenceSection } from "./evidence";
import { factsOf } from "./facts";
import { historySection } from "./history";
import { ICONS, icon, STATE_WORDS, stateIcon } from "./icons";
import { card, section } from "./pieces";
import { link } from "./rows";
import { visible, words } from "./text";
import { anomalyId, anomalyOf, exists, kindWord, label, onMap, rest, stateOf } from "./things";

export function detailsPanel(app: App): HTMLElement {
  const panel = h("aside", { class: "details", id: "details", "aria-label": "What is selected", hidden: true });
  const evidence = evidenceSection(app);
  const history = historySection(app);
  const render = (): void => {
    const id = app.views.now.selected;
    panel.hidden = id === null;
    if (id === null) return panel.replaceChildren();
    fill(panel, head(app, id), ...body(app, id), evidence.element, history.element);
    evidence.show(id);
    history.show(id);
  };
  app.onPicture(render);
  app.views.listen((view, before) => {
    if (view.selected === before.selected && view.at === before.at) return;
    render();
    if (view.selected !== before.selected) panel.scrollTop = 0;
  });
  return panel;
}

function head(app: App, id: ItemId): HTMLElement {
  const picture = app.picture();
  const place = onMap(picture, id);
  const there = exists(picture, id);
  const state = stateOf(picture, id);
  const anomaly = anomalyOf(picture, id);
  return h(
    "header",
    {},
    h("span", { class: "kind" }, anomaly ? words(anomaly.kind) : kindWord(id)),
    button(() => app.views.change({ selected: null }), { class: "square", "aria-label": "Close", "data-key": "close" }, icon(ICONS.close)),
    h("h2", {}, name(there ? label(picture, id) : rest(id))),
    h(
      "div",
      { class: "state" },
      ...(there ? [stateIcon(state), h("strong", { class: `is-${state}` }, STATE_WORDS[state])] : ["Not in this picture"]),
      place !== null && there && button(() => app.moveTo([place]), { class: "plain", "data-key": "show" }, "Show on the map"),
      kindOf(id) === "node" && button(() => app.views.change({ path: [rest(id), ""], tab: "path" }), { class: "plain", "data-key": "from" }, "Path from here"),
    ),
  );
}

function body(app: App, id: ItemId): Child[] {
  const picture = app.picture();
  if (!exists(picture, id)) return [h("p", { class: "section muted" }, "It is gone, or was not there yet at the time that you look at.")];
  const anomaly = anomalyOf(picture, id);
  const wrong = anomaly ? [anomaly] : picture.anomaliesOf(id);
  const hypernode = kindOf(id) === "hypernode" ? picture.hypernodes.get(rest(id)) : undefined;
  return [
    hypernode && section("Conditions", ...badFirst(hypernode.conditions).map((c) => conditionCard(app, c))),
    wrong.length > 0 && section(anomaly ? "What is wrong" : `What is wrong (${wrong.length})`, ...wrong.slice(0, 50).map((x) => anomalyCard(app, x, anomaly === null))),
    ...factsOf(app, id),
  ];
}

const isGood = (c: Condition): boolean => c.status === (c.type === "Ready" || c.type === "Consistent" ? "True" : "False");
const badFirst = (all: readonly Condition[]): Condition[] => [...all].sort((a, b) => Number(isGood(a)) - Number(isGood(b)));

function conditionCard(app: App, c: Condition): HTMLElement {
  const states: Record<string, State> = { Ready: "notReady", Degraded: "degraded", Consistent: "inconsistent", Stale: "stale" };
  const bad = c.status === "Unknown" ? "unknown" : (states[c.type] ?? "unknown");
  const state = isGood(c) ? "ok" : bad;
  return card(app, state, `${visible(c.type)}: ${visible(c.status)}`, isGood(c) ? "" : c.reason, c.message, c.lastTransitionTime);
}

function anomalyCard(app: App, x: Anomaly, leads: boolean): HTMLElement {
  const id = anomalyId(x);
  const state = worst(stateOf(app.picture(), id), "unknown");
  const title = leads ? link(app, id, h("span", {}, words(x.kind))) : h("span", {}, words(x.kind));
  const by = x.sources.map((source) => visible(source, 60)).join(", ") || "no source";
  const sure = x.confidence < 1 ? `, confidence ${Math.round(x.confidence * 100)} %` : "";
  return card(app, state, title, "", x.message, x.since, `Seen by ${by}${sure}`);
}
