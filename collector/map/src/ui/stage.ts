// The area of the map, and the elements over it: zoom buttons, the legend, a tooltip.

import type { MapView } from "../graph/api";
import type { ItemId } from "../model/ids";
import type { App } from "./app";
import { button, fill, h, name } from "./dom";
import { ICONS, icon, STATE_WORDS, stateIcon } from "./icons";
import { count, words } from "./text";
import { exists, kindWord, label, stateOf } from "./things";

export interface Stage {
  readonly element: HTMLElement;
  /** The element of the map, which has the keyboard focus. */
  readonly canvas: HTMLElement;
  connect(app: App): void;
}

export function stage(): Stage {
  const canvas = h("div", {
    class: "map-canvas",
    id: "map",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "map",
    "aria-label": "Map of the cluster. Arrows walk from thing to thing, plus and minus zoom, question mark shows all keys.",
  });
  const hover = h("div", { class: "hover", hidden: true, "aria-hidden": "true" });
  const element = h("main", { class: "stage", id: "stage" }, canvas);
  return {
    element,
    canvas,
    connect(app) {
      const { map } = app;
      element.append(hover, tools(map));
      map.on("hover", (over) => {
        hover.hidden = over === null || !exists(app.picture(), over.id);
        if (over === null || hover.hidden) return;
        const picture = app.picture();
        const state = stateOf(picture, over.id);
        const wrong = picture.anomaliesOf(over.id);
        fill(
          hover,
          h("div", {}, name(label(picture, over.id), 80)),
          h("div", { class: "muted" }, `${kindWord(over.id)} `, stateIcon(state), ` ${STATE_WORDS[state]}`),
          wrong[0] && h("div", {}, words(wrong[0].kind), wrong.length > 1 && `, and ${count(wrong.length - 1, "more", "more")}`),
        );
        const { width, height } = element.getBoundingClientRect();
        const x = Math.min(over.x + 14, width - hover.offsetWidth - 8);
        const y = over.y + 18 + hover.offsetHeight > height ? over.y - hover.offsetHeight - 10 : over.y + 18;
        hover.style.transform = `translate(${Math.round(Math.max(4, x))}px, ${Math.round(Math.max(4, y))}px)`;
      });
      canvas.addEventListener("pointerleave", () => (hover.hidden = true));
    },
  };
}

const MARGIN_PX = 20;

/** Whether an object is in the visible part of the map, not at its edge. */
export function isSeen(app: App, id: ItemId): boolean {
  const place = app.map.screenPositionOf(id);
  const map = document.getElementById("map")?.getBoundingClientRect();
  if (!place || !map) return false;
  const within = (at: number, size: number): boolean => at > MARGIN_PX && at < size - MARGIN_PX;
  return within(place.x, map.width) && within(place.y, map.height);
}

function tools(map: MapView): HTMLElement {
  const tool = (label: string, shape: readonly string[], click: () => void): HTMLElement =>
    button(click, { "aria-label": label, title: label }, icon(shape));
  return h(
    "div",
    { class: "tools", role: "toolbar", "aria-label": "Zoom" },
    tool("Nearer", ICONS.plus, () => map.zoomBy(1.5)),
    tool("Farther", ICONS.minus, () => map.zoomBy(1 / 1.5)),
    tool("All of it", ICONS.fit, () => map.fit(true)),
  );
}
