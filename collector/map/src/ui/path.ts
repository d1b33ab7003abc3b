// Shows how two nodes are connected. The user types them or picks them on the map. The collector explains the path.

import { hypernodeId, nodeId, type ItemId } from "../model/ids";
import { Problem } from "../model/http";
import type { Anomaly, Link } from "../model/types";
import type { App } from "./app";
import { button, fill, h, name, type Child } from "./dom";
import { row, thingRow } from "./rows";
import { isSeen } from "./stage";
import { stateIcon } from "./icons";
import { visible, words } from "./text";
import { anomalyId, stateOf } from "./things";

/** The answer of /v1/explain (ExplainResponse). */
interface Explanation {
  /** The lowest HyperNode that contains both; "" if there is none. */
  hypernode: string;
  path: Link[];
  anomalies: Anomaly[];
  text: string;
}

export function pathPanel(app: App): { element: HTMLElement; picks(id: ItemId): boolean } {
  const inputs = ["a", "b"].map((end) =>
    h("input", { id: `path-${end}`, autocomplete: "off", spellcheck: "false", placeholder: "node name" }),
  ) as [HTMLInputElement, HTMLInputElement];
  const answer = h("div", { "aria-live": "polite" });
  const form = h(
    "form",
    { submit: (event: Event) => (event.preventDefault(), apply()) },
    h("p", { class: "muted" }, "Type two nodes, or click them on the map."),
    h("label", { class: "field" }, h("span", { class: "label" }, "From"), inputs[0]),
    h("label", { class: "field" }, h("span", { class: "label" }, "To"), inputs[1]),
    h(
      "div",
      { class: "actions" },
      h("button", { type: "submit", class: "primary" }, "Explain"),
      button(() => app.views.change({ path: [inputs[1].value.trim(), inputs[0].value.trim()] }), {}, "Swap"),
      button(() => app.views.change({ path: null }), {}, "Clear"),
    ),
  );
  const apply = (): void => app.views.change({ path: [inputs[0].value.trim(), inputs[1].value.trim()] });

  let run: AbortController | null = null;
  let asked = "";
  let isNew = app.views.now.camera === null; // a new path moves the view, once
  const explain = async (a: string, b: string): Promise<void> => {
    run?.abort();
    const mine = (run = new AbortController());
    try {
      const query = new URLSearchParams({ a, b });
      const found = await app.http.get<Explanation>(`/v1/explain?${query.toString()}`, mine.signal);
      if (run === mine) show(found, a, b);
    } catch (error) {
      if (mine.signal.aborted) return;
      if (!(error instanceof Problem || error instanceof TypeError)) throw error;
      app.drawPath(null);
      const why = error instanceof Problem ? error.message : "the collector does not answer";
      fill(answer, h("p", { class: "answer refused" }, visible(why, 500)));
    }
  };
  const show = (found: Explanation, a: string, b: string): void => {
    const picture = app.picture();
    const cables = found.path.map((x) => picture.cableId(x.a, x.b));
    const devices = found.path.flatMap((x) => [picture.itemOf(x.a.device), picture.itemOf(x.b.device)]);
    const items = [...new Set([nodeId(a), ...devices, nodeId(b)])];
    app.drawPath([...items, ...cables]);
    if (isNew && [a, b].some((node) => !isSeen(app, nodeId(node)))) app.moveTo(items);
    isNew = false;
    fill(answer, h("p", { class: "answer" }, visibleLines(found.text)), ...hops(app, found, a));
  };
  const update = (): void => {
    const { path, at } = app.views.now;
    const [a, b] = path ?? ["", ""];
    if (document.activeElement !== inputs[0]) inputs[0].value = a;
    if (document.activeElement !== inputs[1]) inputs[1].value = b;
    const key = JSON.stringify([path, at, app.picture().generation, app.picture().complete]);
    if (key === asked) return;
    asked = key;
    if (a && b && at === null) return void explain(a, b);
    run?.abort();
    app.drawPath(null);
    fill(answer, at !== null && a !== "" && h("p", { class: "muted" }, "Paths are explained of the present alone: go back to live."));
  };
  app.onPicture(update);
  app.views.listen((view, before) => {
    if (String(view.path) !== String(before.path) || view.at !== before.at) {
      asked = "";
      isNew = true;
      update();
    }
  });
  return {
    element: h("div", {}, form, answer),
    /** Take a click on the map. Returns whether it selects an end of the path. */
    picks(id) {
      const { tab, path } = app.views.now;
      if (tab !== "path" || !id.startsWith("node:") || (path?.[0] && path[1])) return false;
      const node = id.slice("node:".length);
      app.views.change({ path: path?.[0] ? [path[0], node] : [node, path?.[1] ?? ""] });
      return true;
    },
  };
}

function hops(app: App, found: Explanation, from: string): Child[] {
  const picture = app.picture();
  let here = nodeId(from);
  const line = (x: Link): Child => {
    const id = picture.cableId(x.a, x.b);
    // In the direction of the path, not in the order of the ends in the link.
    const ends = picture.itemOf(x.b.device) === here ? [x.b, x.a] : [x.a, x.b];
    here = picture.itemOf(ends[1]?.device ?? "");
    const title = name(ends.map((end) => `${picture.deviceName(end.device)}/${end.port}`).join(" → "), 90);
    return row(app, id, stateIcon(stateOf(picture, id), true), title, visible(x.fabric, 60));
  };
  return [
    found.hypernode !== "" && h("ul", { class: "list" }, thingRow(app, hypernodeId(found.hypernode), "holds both")),
    found.path.length > 0 && h("h3", { class: "group" }, h("span", {}, "Cables"), h("span", {}, found.path.length)),
    found.path.length > 0 && h("ol", { class: "list" }, ...found.path.map(line)),
    found.anomalies.length > 0 && h("h3", { class: "group" }, h("span", {}, "On the way"), h("span", {}, found.anomalies.length)),
    found.anomalies.length > 0 &&
      h("ul", { class: "list" }, ...found.anomalies.slice(0, 50).map((x) => thingRow(app, anomalyId(x), words(x.kind)))),
  ];
}

/** Line breaks are kept; other invisible characters are shown as escapes. */
const visibleLines = (text: string): string => text.split("\n").map((x) => visible(x, 500)).join("\n");
