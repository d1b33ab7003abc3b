// The history as a line with a mark for each change. A mark shows the map at its time; a button returns to the present.
// The line always shows whether the map shows the past.

import { Problem } from "../model/http";
import type { App } from "./app";
import { button, h, svg } from "./dom";
import { eventState, eventText, type HistoryEvent, type HistoryPage } from "./events";
import { ICONS, icon } from "./icons";
import { clock, parseTime, span } from "./times";

const PAGE = 1000;
const PAGES = 3;
const PLAY_MS = 1200; // a step while it plays
const SETTLE_MS = 150; // of a slider that is being dragged
const AGAIN_MS = 1000; // between two requests for new changes
const EMPTY_SPAN_MS = 3_600_000;
const MAX_MARKS = 1500; // drawn, about one for each pixel

/** The events of one generation. */
interface Moment {
  readonly at: number;
  readonly worst: string;
  readonly texts: readonly string[];
}

export function timebar(app: App): { element: HTMLElement; step(direction: 1 | -1): void; live(): void } {
  let moments: Moment[] = [];
  let oldest = 0;
  let newestEvent = "";
  let player: ReturnType<typeof setInterval> | undefined;
  let settling: ReturnType<typeof setTimeout> | undefined;

  const slider = h("input", { type: "range", id: "time", "aria-label": "Time that is looked at", step: "any" });
  const marks = svg("svg", { "aria-hidden": "true", viewBox: "0 0 1000 22", preserveAspectRatio: "none" });
  const from = h("span", {});
  const what = h("span", {});
  const output = h("output", { for: "time" });
  const step = (direction: 1 | -1): void => {
    const here = app.views.now.at ?? Infinity;
    const next = direction > 0 ? moments.find((x) => x.at > here) : moments.filter((x) => x.at < here).at(-1);
    if (next) look(next.at);
    else if (direction > 0) live();
  };
  const look = (at: number, how: "push" | "replace" = "push"): void => app.views.change({ at }, how);
  const live = (): void => {
    pause();
    if (app.views.now.at !== null) app.views.change({ at: null });
  };
  const pause = (): void => {
    clearInterval(player);
    player = undefined;
    playButton.replaceChildren(icon(ICONS.play));
    playButton.setAttribute("aria-label", "Play the changes");
  };
  const play = (): void => {
    if (player !== undefined) return pause();
    if (app.views.now.at === null && moments[0]) look(moments[0].at);
    playButton.replaceChildren(icon(ICONS.pause));
    playButton.setAttribute("aria-label", "Pause");
    player = setInterval(() => {
      step(1);
      if (app.views.now.at === null) pause();
    }, PLAY_MS);
  };
  const square = (label: string, click: () => void, id: string, shape: readonly string[]): HTMLButtonElement =>
    button(click, { class: "square", id, "aria-label": label, title: label }, icon(shape));
  const playButton = square("Play the changes", play, "play", ICONS.play);
  const back = square("Change before", () => step(-1), "earlier", ICONS.back);
  const forth = square("Change after", () => step(1), "later", ICONS.forth);
  const liveButton = button(live, { id: "live" }, "Live");
  const controls = h("div", { class: "steps" }, back, playButton, forth);
  const track = h("div", { class: "track" }, marks, slider, h("div", { class: "ends" }, from, what));
  const none = h("p", { class: "muted" });
  const element = h("section", { class: "time", "aria-label": "Time" }, h("div", { class: "timebar" }, controls, track, none, h("div", { class: "now" }, output, liveButton)));

  const now = (): number => Date.now();
  const render = (): void => {
    const { at } = app.views.now;
    const end = now();
    const start = Math.min(oldest || end - EMPTY_SPAN_MS, moments[0]?.at ?? end);
    slider.min = String(start);
    slider.max = String(end);
    slider.value = String(at ?? end);
    slider.setAttribute("aria-valuetext", at === null ? "live" : clock(at, end));
    from.textContent = clock(start, end);
    const moment = at === null ? undefined : moments.filter((x) => x.at <= at).at(-1);
    what.textContent = at === null ? "now" : (moment?.texts[0] ?? "") + (moment && moment.texts.length > 1 ? ` (and ${moment.texts.length - 1} more)` : "");
    output.textContent = at === null ? "" : `${clock(at, end)}, ${span(end - at)} ago`;
    liveButton.disabled = at === null;
    document.body.classList.toggle("is-past", at !== null);
    back.disabled = !moments.some((x) => x.at < (at ?? Infinity));
    forth.disabled = at === null;
    playButton.disabled = !moments.length;
    const drawn = moments.slice(-MAX_MARKS).map((x) => {
      const place = ((x.at - start) / Math.max(1, end - start)) * 1000;
      const [top, bottom] = x.worst === "degraded" ? [1, 21] : [6, 16];
      return svg("line", { class: `mark ${x.worst}`, x1: place, x2: place, y1: top, y2: bottom, "vector-effect": "non-scaling-stroke" });
    });
    marks.replaceChildren(...drawn);
  };
  slider.addEventListener("input", () => {
    pause();
    clearTimeout(settling);
    const at = Number(slider.value);
    output.textContent = clock(at, now());
    settling = setTimeout(() => (at >= Number(slider.max) - 1 ? live() : look(Math.round(at), "replace")), SETTLE_MS);
  });

  const available = (why: string): void => {
    none.textContent = why;
    none.hidden = !why;
    track.hidden = controls.hidden = Boolean(why);
  };
  let asking = false;
  let askAgain = false;
  const refresh = async (): Promise<void> => {
    if (asking) return void (askAgain = true);
    asking = true;
    askAgain = false;
    try {
      const found = await events(app, newestEvent);
      oldest = found.oldest ?? oldest;
      newestEvent = found.events.at(-1)?.at ?? newestEvent;
      moments = merge(moments, found.events);
      available("");
      render();
    } catch (error) {
      if (!(error instanceof Problem || error instanceof TypeError)) throw error;
      if (!moments.length) available(whyNot(error));
    }
    setTimeout(() => {
      asking = false;
      if (askAgain) void refresh();
    }, AGAIN_MS);
  };
  // The collector writes the history shortly after it publishes: ask at once, and again a little later.
  const changed = (): void => {
    void refresh();
    askAgain = true;
  };
  available("…");
  app.onPicture(() => {
    if (app.views.now.at === null && app.picture().generation) changed();
    render();
  });
  app.views.listen((view, before) => view.at !== before.at && render());
  return { element, step, live };
}

function whyNot(error: Problem | TypeError): string {
  if (!(error instanceof Problem)) return "No history: the collector does not answer.";
  return error.status === 409 ? "This collector keeps no history." : `No history: ${error.message}`;
}

/** From `since` (included) on, oldest first. */
async function events(app: App, since: string): Promise<{ events: HistoryEvent[]; oldest: number | null }> {
  const found: HistoryEvent[] = [];
  let oldest: number | null = null;
  let token = "";
  for (let page = 0; page < PAGES; page++) {
    const query = new URLSearchParams({ pageSize: String(PAGE) });
    if (since) query.set("since", since);
    if (token) query.set("pageToken", token);
    const answer = await app.http.get<HistoryPage>(`/v1/history?${query.toString()}`);
    found.push(...answer.items);
    oldest = parseTime(answer.oldest) ?? oldest;
    token = answer.nextPageToken ?? "";
    if (!token) break;
  }
  return { events: found.reverse(), oldest };
}

/** Replace events that are fetched again: each request includes the newest known generation. */
function merge(moments: readonly Moment[], found: readonly HistoryEvent[]): Moment[] {
  const byTime = new Map<number, HistoryEvent[]>();
  for (const event of found) {
    const at = parseTime(event.at);
    // To show a generation, request the time one millisecond after its start.
    if (at !== null) byTime.set(at + 1, [...(byTime.get(at + 1) ?? []), event]);
  }
  const all = new Map(moments.map((x) => [x.at, x]));
  for (const [at, events] of byTime) {
    const states = events.map(eventState);
    const worst = states.includes("degraded") ? "degraded" : states.includes("ok") ? "ok" : "";
    const telling = events.filter((x) => x.kind !== "GenerationPublished");
    all.set(at, { at, worst, texts: (telling.length ? telling : events).map(eventText) });
  }
  return [...all.values()].sort((a, b) => a.at - b.at);
}
