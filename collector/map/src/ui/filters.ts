// Filters. Things that do not match are dimmed and keep their place.

import type { MapFilter } from "../graph/api";
import { STATES, type State } from "../model/conditions";
import type { App } from "./app";
import { button, fill, h, name, type Child } from "./dom";
import { STATE_WORDS, stateIcon } from "./icons";
import type { View } from "./state";
import { visible } from "./text";

type Key = "fabrics" | "rails" | "clusters" | "tiers" | "conditions";
const KEYS: readonly Key[] = ["fabrics", "rails", "clusters", "tiers", "conditions"];

export function filtersPanel(app: App): HTMLElement {
  const panel = h("div", { class: "filters" });
  let shown = "";
  const render = (isOther: boolean): void => {
    const picture = app.picture();
    const tiers = [...new Set([...picture.hypernodes.values()].map((x) => x.tier))].sort((a, b) => a - b);
    const names = new Map([...picture.hypernodes.values()].map((x) => [x.tier, x.tierName]));
    const values = { fabrics: picture.fabrics(), rails: picture.rails(), clusters: picture.clusters(), tiers: tiers.map(String) };
    const key = JSON.stringify(values);
    if (!isOther && key === shown) return;
    shown = key;
    const chosen = KEYS.some((k) => app.views.now[k].length);
    fill(
      panel,
      h("p", { class: "muted" }, "Choose nothing of a kind to see all of it."),
      choices(app, "fabrics", "Fabric", values.fabrics.map((x) => [x, name(x, 60)])),
      choices(app, "rails", "Rail", values.rails.map((x) => [x, name(x, 60)])),
      choices(app, "clusters", "Cluster", values.clusters.map((x) => [x, x ? name(x, 60) : "the collector's own"])),
      choices(app, "tiers", "Tier", tiers.map((x) => [String(x), `${x} · ${visible(names.get(x) || "unnamed")}`])),
      choices(app, "conditions", "Condition", STATES.map((x) => [x, h("span", { class: "check" }, stateIcon(x), STATE_WORDS[x])])),
      chosen && button(() => app.views.change({ fabrics: [], rails: [], clusters: [], tiers: [], conditions: [] }), { "data-key": "clear" }, "Clear all filters"),
    );
  };
  app.onPicture(() => render(false));
  app.views.listen((view, before) => {
    if (KEYS.some((k) => String(view[k]) !== String(before[k]))) {
      render(true);
      app.map.setFilter(mapFilter(view));
    }
  });
  app.map.setFilter(mapFilter(app.views.now));
  return panel;
}

function choices(app: App, key: Key, title: string, values: readonly [string, Child][]): Child {
  if (!values.length) return null;
  const chosen = app.views.now[key];
  const toggle = (value: string): void =>
    app.views.change({ [key]: chosen.includes(value) ? chosen.filter((x) => x !== value) : [...chosen, value] });
  return h(
    "fieldset",
    {},
    h("legend", {}, title),
    ...values.map(([value, shown]) => {
      const input = h("input", { type: "checkbox", "data-key": `${key} ${value}`, name: key, value, change: () => toggle(value) });
      input.checked = chosen.includes(value);
      return h("label", { class: "check" }, input, h("span", {}, shown));
    }),
  );
}

function mapFilter(view: View): MapFilter {
  return {
    ...(view.fabrics.length ? { fabrics: new Set(view.fabrics) } : {}),
    ...(view.rails.length ? { rails: new Set(view.rails) } : {}),
    ...(view.clusters.length ? { clusters: new Set(view.clusters) } : {}),
    ...(view.tiers.length ? { tiers: new Set(view.tiers.map(Number)) } : {}),
    ...(view.conditions.length ? { states: new Set(view.conditions as State[]) } : {}),
  };
}
