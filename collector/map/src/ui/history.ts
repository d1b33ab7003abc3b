// Recent events of the selected object, and how often it flapped.

import type { ItemId } from "../model/ids";
import type { App } from "./app";
import { button, h, type Child } from "./dom";
import { eventState, eventText, type HistoryEvent, type HistoryPage } from "./events";
import { Fetched } from "./fetched";
import { count } from "./text";
import { anomalyOf, portOf, rest } from "./things";
import { ago, clock, parseTime } from "./times";

const MAX_EVENTS = 20;
const WRITTEN_MS = 1500;

export function historySection(app: App): { element: HTMLElement; show(id: ItemId): void } {
  let again: ReturnType<typeof setTimeout> | undefined;
  const fetched = new Fetched<HistoryPage>(
    "History",
    (key, signal) => {
      const until = app.views.now.at;
      const query = new URLSearchParams({ about: key, pageSize: String(MAX_EVENTS) });
      if (until !== null) query.set("until", new Date(until + 1).toISOString());
      return app.http.get<HistoryPage>(`/v1/history?${query.toString()}`, signal);
    },
    (page) => render(app, page),
  );
  return {
    element: fetched.element,
    show(id) {
      const asOf = `${app.views.now.at ?? "live"}/${app.picture().generation}`;
      fetched.show(aboutOf(app, id), asOf);
      // The collector writes the history shortly after it publishes.
      clearTimeout(again);
      again = setTimeout(() => fetched.show(aboutOf(app, id), `${asOf}/again`), WRITTEN_MS);
    },
  };
}

/** The name of an object in the history; for a cable the ids of both ends, "0x1:3--0x2:7". */
function aboutOf(app: App, id: ItemId): string {
  const picture = app.picture();
  const anomaly = anomalyOf(picture, id);
  const cable = picture.cables.get(id);
  const port = portOf(picture, id)?.end;
  const ends = anomaly ? [anomaly.subject, anomaly.peer] : cable ? [cable.a, cable.b] : [port];
  const names = ends.flatMap((end) => (end ? [end.port ? `${end.device}:${end.port}` : end.device] : []));
  return names.length ? names.join("--") : rest(id);
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
