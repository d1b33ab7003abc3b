// A row that links to an object on the map, for all lists.

import type { ItemId } from "../model/ids";
import type { App } from "./app";
import { button, h, name, type Child } from "./dom";
import { stateIcon } from "./icons";
import { exists, label, onMap, stateOf } from "./things";

/** `more`: a line below. `beside`: a word at the end. */
export function row(app: App, id: ItemId, first: Child, title: Child, more: Child = null, beside: Child = null): HTMLElement {
  const chosen = app.views.now.selected === id;
  return h(
    "li",
    {},
    button(
      () => app.go(id),
      { class: beside === null ? "row" : "row wide", "data-key": id, "data-id": id, "aria-current": chosen ? "true" : null },
      first,
      h("span", {}, title),
      beside !== null && h("span", { class: "beside" }, beside),
      more && h("span", { class: "more" }, more),
    ),
  );
}

/** The row of any object in its present state. */
export function thingRow(app: App, id: ItemId, beside: Child = null): HTMLElement {
  const picture = app.picture();
  return row(app, id, stateIcon(stateOf(picture, id), true), name(label(picture, id), 90), null, beside);
}

/** A name in a text that links to its object; plain text if the picture does not contain the object. */
export function link(app: App, id: ItemId, text?: Node | string): HTMLElement {
  const picture = app.picture();
  const shown = text instanceof HTMLElement ? text : name(typeof text === "string" ? text : label(picture, id), 90);
  const place = onMap(picture, id);
  if (place === null || !exists(picture, place)) return shown;
  return button(() => app.go(id), { class: "link", "data-key": `link ${id}`, "data-id": id }, shown);
}
