// Finds objects by name, GUID or host list. A combobox (WAI-ARIA Authoring Practices): the focus stays in the field,
// arrow keys choose, Enter selects.

import { hypernodeId, nodeId, switchId, endpointId, kindOf, type ItemId } from "../model/ids";
import type { Picture } from "../model/picture";
import type { App } from "./app";
import { fill, h, name } from "./dom";
import { expand, hostlist } from "./hostlist";
import { stateIcon } from "./icons";
import { count } from "./text";
import { exists, kindWord, label, stateOf } from "./things";

const MAX_HITS = 12;

interface Hit {
  readonly text: string;
  readonly id: ItemId;
  /** The matching GUID, if the name does not match. */
  readonly by: string;
}

export function searchBox(app: App): { element: HTMLElement; focus(): void } {
  const list = h("ul", { class: "found", id: "found", role: "listbox", "aria-label": "Found", hidden: true });
  const input = h("input", {
    type: "search",
    id: "search",
    role: "combobox",
    placeholder: "Search or node[01-16]",
    "aria-label": "Search nodes, switches, domains and GUIDs",
    "aria-controls": "found",
    "aria-expanded": "false",
    "aria-autocomplete": "list",
    autocomplete: "off",
    spellcheck: "false",
  });
  let choices: (() => void)[] = [];
  let chosen = 0;

  const close = (): void => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const choose = (i: number): void => {
    chosen = choices.length ? (i + choices.length) % choices.length : 0;
    [...list.children].forEach((item, n) => item.setAttribute("aria-selected", String(n === chosen)));
    const item = list.children[chosen];
    if (!choices.length || !item) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", item.id);
    item.scrollIntoView({ block: "nearest" });
  };
  const go = (i: number): void => {
    choices[i]?.();
    close();
    input.blur();
  };
  const option = (i: number, ...children: (Node | string)[]): HTMLElement =>
    h("li", { role: "option", id: `found-${i}`, pointerdown: (event: Event) => event.preventDefault(), click: () => go(i) }, ...children);

  const search = (): void => {
    const text = input.value.trim();
    if (!text) return close();
    const picture = app.picture();
    choices = [];
    const items: HTMLElement[] = [];
    const nodes = many(picture, text);
    if (nodes) {
      items.push(option(0, `Mark ${count(nodes.length, "node")}`, h("span", { class: "muted" }, name(hostlist(nodes), 60))));
      choices.push(() => {
        app.views.change({ marked: hostlist(nodes) });
        app.moveTo(nodes.map(nodeId));
      });
    }
    const { hits, total } = find(picture, text);
    for (const hit of hits) {
      const about = h("span", { class: "muted" }, hit.by && name(hit.by, 24), hit.by && " ", kindWord(hit.id));
      items.push(option(items.length, stateIcon(stateOf(picture, hit.id), true), name(hit.text, 60), about));
      choices.push(() => app.go(hit.id));
    }
    const left = total - hits.length;
    if (!items.length) items.push(h("li", { class: "empty muted" }, "Nothing is called so."));
    if (left > 0) items.push(h("li", { class: "empty muted" }, `and ${count(left, "more", "more")}: type on`));
    fill(list, ...items);
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    choose(0);
    app.say(choices.length ? `${count(total + (nodes ? 1 : 0), "result")}` : "Nothing found");
  };

  input.addEventListener("input", search);
  input.addEventListener("focus", search);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else if (event.key === "Enter") go(chosen);
    else if (event.key === "Escape") {
      input.value = "";
      close();
      input.blur();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return {
    element: h("div", { class: "search", role: "search" }, input, h("kbd", { "aria-hidden": "true" }, "/"), list),
    focus: () => input.select(),
  };
}

/** The nodes of a host list; null if the text is not a list, or names a single node. */
function many(picture: Picture, text: string): string[] | null {
  if (!/[[,\s]/.test(text)) return null;
  const found = expand(text)?.filter((node) => exists(picture, nodeId(node)));
  return found?.length ? found : null;
}

const RANKS = new Map(["hypernode", "switch", "node", "endpoint"].map((kind, i) => [kind, i]));

const ORDER = new Intl.Collator("en", { numeric: true });

/** Names that begin with the text come before names that contain it. GUIDs match with or without 0x and colons. */
export function find(picture: Picture, text: string): { hits: Hit[]; total: number } {
  const wanted = text.toLowerCase();
  const guid = wanted.replace(/^0x/, "").replaceAll(":", "");
  const found: { hit: Hit; rank: number }[] = [];
  const seen = new Set<ItemId>();
  const take = (id: ItemId, shown: string, key: string, by = ""): void => {
    const place = by ? key.toLowerCase().replace(/^0x/, "").replaceAll(":", "").indexOf(guid) : key.toLowerCase().indexOf(wanted);
    if (place < 0 || seen.has(id) || (by && guid.length < 4)) return;
    seen.add(id);
    const exact = key.length === (by ? guid : wanted).length ? 0 : 10;
    found.push({ hit: { text: shown, id, by }, rank: exact + (place > 0 ? 5 : 0) + (RANKS.get(kindOf(id)) ?? 9) });
  };
  for (const x of picture.hypernodes.values()) take(hypernodeId(x.name), x.name, x.name);
  for (const x of picture.switches.values()) take(switchId(x.id), x.name || x.id, x.name || x.id);
  for (const node of nodeNames(picture)) take(nodeId(node), node, node);
  for (const x of picture.foreignEndpoints) take(endpointId(x), x, x);
  for (const x of picture.switches.values()) take(switchId(x.id), x.name || x.id, x.id, x.id);
  for (const x of picture.adapters.values()) {
    const item = picture.itemOf(x.id);
    take(item, label(picture, item), x.id, x.id);
  }
  found.sort((a, b) => a.rank - b.rank || ORDER.compare(a.hit.text, b.hit.text));
  return { hits: found.slice(0, MAX_HITS).map((x) => x.hit), total: found.length };
}

/** Every node, in order. */
export function nodeNames(picture: Picture): string[] {
  const roots = [...picture.hypernodes.values()].filter((x) => x.parent === null);
  return [...roots.flatMap((x) => x.nodes), ...picture.nodesWithoutEvidence];
}
