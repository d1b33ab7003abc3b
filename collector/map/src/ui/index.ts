// Builds the page: the frame, its parts, and the calls of each part when the picture or the view changes.

import "./tokens.css";
import "./layout.css";
import "./parts.css";
import type { MapTheme, MapView } from "../graph/api";
import { nodeId, type ItemId } from "../model/ids";
import { Problem, type Http } from "../model/http";
import type { Live } from "../model/live";
import type { Change, Picture } from "../model/picture";
import { changesIn } from "./announce";
import type { App, PictureListener } from "./app";
import { detailsPanel } from "./details";
import { helpDialog, tokenDialog } from "./dialogs";
import { h } from "./dom";
import { filtersPanel } from "./filters";
import { header } from "./header";
import { expand } from "./hostlist";
import { keyboard } from "./keys";
import { Notices, refusal } from "./notices";
import { Past } from "./past";
import { pathPanel } from "./path";
import { keepTimes } from "./pieces";
import { placementPanel } from "./placement";
import { searchBox } from "./search";
import { stage } from "./stage";
import { Views } from "./state";
import { watchStatus } from "./status";
import { tabs } from "./tabs";
import { themeToggle } from "./theme";
import { visible } from "./text";
import { onMap } from "./things";
import { timebar } from "./timebar";
import { clock } from "./times";
import { wrongList } from "./wrong";

const TOKEN = "hyperscout-token"; // in the storage of this tab
const CAMERA_SETTLES_MS = 300;

export interface Given {
  readonly root: HTMLElement;
  readonly http: Http;
  readonly live: Live;
  readonly makeMap: (container: HTMLElement) => MapView;
}

export function startUi({ root, http, live, makeMap }: Given): { map: MapView } {
  const views = new Views(window);
  const place = stage();
  const map = makeMap(place.canvas);
  const notices = new Notices();
  const listeners: PictureListener[] = [];
  const spoken = h("div", { class: "unseen", role: "log", "aria-live": "polite", id: "spoken" });
  let fitted = ""; // the camera that shows the whole fabric; "" after the user moved it
  let drawnPath: readonly ItemId[] | null = null;

  const app: App = {
    http,
    map,
    views,
    picture: () => past.picture ?? live.picture,
    onPicture: (listener) => listeners.push(listener),
    nowMs: () => views.now.at ?? Date.now(),
    say: (text) => (spoken.textContent = visible(text, 300)),
    go: (id) => {
      views.change({ selected: id });
      const item = onMap(app.picture(), id);
      if (item !== null) moveTo([item]);
    },
    moveTo: (ids) => moveTo(ids),
    drawPath: (ids) => {
      drawnPath = ids;
      highlight();
    },
  };
  const highlight = (): void => {
    const marked = expand(views.now.marked) ?? [];
    if (drawnPath) map.setHighlight({ kind: "path", ids: drawnPath });
    else map.setHighlight(marked.length ? { kind: "search", ids: marked.map(nodeId) } : null);
  };
  // A panel that opens makes the map narrower: resize the map first, then move the view.
  const moveTo = (ids: readonly ItemId[]): void => {
    fitted = "";
    requestAnimationFrame(() => requestAnimationFrame(() => map.focus(ids, true)));
  };
  const emit = (change: Change | null): void => {
    for (const listener of listeners) listener(app.picture(), change);
  };

  // The picture
  const past = new Past(http, (why) => {
    const said = why instanceof Problem ? refusal(why.document) : "The collector does not answer.";
    const back = ["Return to the present", () => views.change({ at: null })] as const;
    const { at } = views.now;
    if (why) notices.set("past", { kind: "bad", text: `What was then is not to be had: ${said}`, action: back });
    else if (at !== null) notices.set("past", { kind: "past", text: `This is how it was at ${clock(at, Date.now())} UTC, not how it is.`, action: back });
    if (why) return;
    show(app.picture());
  });
  let hasCamera = false;
  const cameraText = (): string => JSON.stringify({ ...map.camera() });
  const show = (picture: Picture): void => {
    map.setPicture(picture);
    map.select(views.now.selected === null ? null : onMap(picture, views.now.selected));
    if (!hasCamera && picture.generation > 0) {
      hasCamera = true;
      if (views.now.camera) map.setCamera(views.now.camera);
      else fitted = cameraText();
    }
    highlight();
    emit(null);
  };
  live.on("picture", (picture) => past.picture === null && show(picture));
  live.on("change", (change) => {
    if (past.picture !== null) return;
    map.applyChange(change);
    emit(change);
    const { selected } = views.now;
    if (change.structure || selected?.startsWith("anomaly:")) map.select(selected === null ? null : onMap(live.picture, selected));
  });
  app.onPicture(changesIn(app));

  // The frame
  const search = searchBox(app);
  const path = pathPanel(app);
  const time = timebar(app);
  const help = helpDialog();
  const token = tokenDialog((text) => {
    http.token = text;
    keepToken(text);
    void live.start();
  });
  const toggle = themeToggle((theme: MapTheme) => map.setTheme(theme));
  const helpButton = h("button", { type: "button", class: "square", id: "keys", "aria-label": "Keys", title: "Keys", click: () => help.showModal() }, "?");
  const top = header(app, search.element, toggle, helpButton);
  const side = tabs(app, { wrong: wrongList(app), filters: filtersPanel(app), path: path.element, place: placementPanel(app) });
  const skip = h("a", { class: "skip", href: "#", click: (event: Event) => (event.preventDefault(), place.canvas.focus()) }, "To the map");
  root.replaceChildren(skip, top.element, notices.element, side, place.element, detailsPanel(app), time.element, spoken, help, token.element);
  place.connect(app);

  // Actions
  const pick = (id: ItemId): void => {
    if (!path.picks(id)) views.change({ selected: id });
  };
  map.on("pick", (picked) => (picked === null ? views.now.selected !== null && views.change({ selected: null }) : pick(picked.id)));
  let settling: ReturnType<typeof setTimeout> | undefined;
  map.on("camera", (camera) => {
    clearTimeout(settling);
    settling = setTimeout(() => {
      if (hasCamera) views.change({ camera: cameraText() === fitted ? null : { ...camera } }, "replace");
    }, CAMERA_SETTLES_MS);
  });
  // A camera that shows the whole fabric still shows it after a panel opens.
  new ResizeObserver(() => {
    if (cameraText() !== fitted) return;
    map.fit();
    fitted = cameraText();
  }).observe(place.canvas);
  views.listen((view, before) => {
    if (view.selected !== before.selected) map.select(view.selected === null ? null : onMap(app.picture(), view.selected));
    if (view.marked !== before.marked) highlight();
    if (view.camera && JSON.stringify(view.camera) !== cameraText() && view.camera !== before.camera) map.setCamera(view.camera);
    if (view.at !== before.at) {
      if (view.at === null) notices.set("past", null);
      past.show(view.at);
      app.say(view.at === null ? "Live" : `As it was at ${clock(view.at, Date.now())}`);
    }
  });
  keyboard(app, place.canvas, { search: search.focus, help: () => help.showModal(), theme: () => toggle.click(), live: time.live, step: time.step, pick });

  // The collector
  live.on("state", (state) => {
    top.connected(state);
    const problem = state.kind === "refused" || state.kind === "waiting" ? state.problem : null;
    if (problem?.status === 401) token.ask(http.token === null ? "This collector requires a token." : "That token was not accepted.");
    const text = problem && problem.status !== 401 ? refusal(problem) : null;
    if (state.kind !== "connecting") notices.set("collector", text === null ? null : { kind: "bad", text });
  });
  watchStatus(app, notices);
  keepTimes(app);
  http.token = keptToken();
  if (views.now.at !== null) past.show(views.now.at);
  void live.start();
  return { map };
}

// If the browser has no storage, the token is kept until the page is closed.
function keptToken(): string | null {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return null;
  }
}

function keepToken(token: string): void {
  try {
    sessionStorage.setItem(TOKEN, token);
  } catch {
    return;
  }
}
