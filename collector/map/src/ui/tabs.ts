// The left side: problems, filters, path, placement. One is shown at a time (tabs, WAI-ARIA Authoring Practices).

import type { App } from "./app";
import { button, h } from "./dom";
import { legend } from "./legend";
import type { Tab } from "./state";

export const TABS: readonly Tab[] = ["wrong", "filters", "path", "place"];
const TITLES: Readonly<Record<Tab, string>> = { wrong: "Problems", filters: "Filters", path: "Path", place: "Placement" };

export function tabs(app: App, panels: Readonly<Record<Tab, HTMLElement>>): HTMLElement {
  const buttons = new Map(TABS.map((tab) => [tab, button(() => app.views.change({ tab }), { role: "tab", id: `tab-${tab}`, "aria-controls": `panel-${tab}` }, TITLES[tab])]));
  const shown = new Map(TABS.map((tab) => [tab, h("div", { class: "tabpanel", role: "tabpanel", id: `panel-${tab}`, "aria-labelledby": `tab-${tab}`, tabindex: -1 }, panels[tab])]));
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": "What to do" }, ...buttons.values());
  list.addEventListener("keydown", (event) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    const next = TABS[(TABS.indexOf(app.views.now.tab) + by + TABS.length) % TABS.length];
    if (!by || !next) return;
    app.views.change({ tab: next });
    buttons.get(next)?.focus();
    event.preventDefault();
  });
  const explained = legend();
  const render = (): void => {
    if (app.views.now.tab !== "wrong") explained.removeAttribute("open"); // the other tabs need the space
    for (const tab of TABS) {
      const isIt = app.views.now.tab === tab;
      buttons.get(tab)?.setAttribute("aria-selected", String(isIt));
      buttons.get(tab)?.setAttribute("tabindex", isIt ? "0" : "-1");
      const panel = shown.get(tab);
      if (panel) panel.hidden = !isIt;
    }
  };
  app.views.listen((view, before) => view.tab !== before.tab && render());
  const count = (): void => {
    const n = app.picture().anomalies.length;
    buttons.get("wrong")?.replaceChildren(TITLES.wrong, ...(n ? [h("span", { class: "badge" }, n)] : []));
  };
  app.onPicture(count);
  render();
  return h("nav", { class: "side", "aria-label": "Tools" }, list, ...shown.values(), explained);
}
