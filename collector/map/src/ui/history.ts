// What happened lately to the thing that is selected, and how often it flapped.

import { kindOf, type ItemId } from "../model/ids";
import type { App } from "./app";
import { button, h, type Child } from "./dom";
import { eventState, eventText, type HistoryEvent, type HistoryPage } from "./events";
import { Fetched } from "./fetched";
import { count } from "./text";
import { anomalyOf, endText, label, portOf, rest } from "./things";
import { ago, clock, parseTime } from "./times";

const MOST = 20;

export function historySection(app: App): { element: HTMLElement; show(id: ItemId): void } {
  const fetched = new Fetched<HistoryPage>(
    "History",
    (key, signal) => {
      const until = app.views.now.at;
      const query = new URLSearchParams({ about: key, pageSize: String(MOST) });
      if (until !== null) query.set("until", new Date(until + 1).toISOString());
      return app.http.get<HistoryPage>(`/v1/history?${query.toString()}`, signal);
    },
    (page) => render(app, page),
  );
  return {
    element: fetched.element,
    show: (id) => fetched.show(aboutOf(app, id), `${app.views.now.at ?? "live"}/${app.picture().generation}`),
  };
}

/** The name under which the history knows a thing: of a cable one end, "leaf-03/p17". */
function aboutOf(app: App, id: ItemId): string {
  const picture = app.picture();
  const end = anomalyOf(picture, id)?.subject ?? picture.cables.get(id)?.a ?? portOf(picture, id)?.end;
  if (end) return endText(picture, end);
  return kindOf(id) === "switch" ? label(picture, id) : rest(id);
}

function render(app: App, page: HistoryPage): Child[] {
  const oldest = parseTime(page.oldest);
  const flaps = (page.flaps ?? []).slice(0, 3).map((x) => `${count(x.changes, "change")} to and fro`);
  if (!page.items.length) {
    const reach = oldest === null ? "" : ` since ${clock(oldest, app.nowMs())}`;
    return [h("p", { class: "muted" }, `No change is known${reach}.`)];
  }
  return [
    flaps.length > 0 && h("p", { class: "is-degraded" }, flaps.join(", ")),
    h("ol", { class: "events" }, ...page.items.map((event) => line(app, event))),
  ];
}

function line(app: App, event: HistoryEvent): HTMLElement {
  const at = parseTime(event.at);
  const go = (): void => app.views.change({ at });
  const when = at === null ? "" : `${clock(at, app.nowMs())} (${ago(at, app.nowMs())})`;
  return h(
    "li",
    { class: eventState(event) },
    h("span", {}, eventText(event)),
    h("br"),
    button(go, { class: "link small", "data-key": `event ${event.id}`, title: "See the map as it was then" }, when),
  );
}
