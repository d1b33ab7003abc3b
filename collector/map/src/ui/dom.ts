// Creates elements. Text is always a text node: the map parses no markup, so a switch may be named "<script>".

import { visible } from "./text";

export type Child = Node | string | number | null | undefined | false;
type Handler = (event: never) => void;
type Attributes = Record<string, string | number | boolean | null | undefined | Handler>;

/** An element. Attributes that are functions listen ("click"), true is an empty attribute, false and null none. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  apply(element, attributes);
  element.append(...nodes(children));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS(SVG, tag);
  apply(element, attributes);
  element.append(...nodes(children));
  return element;
}

function apply(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value as unknown as EventListener);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

function nodes(children: readonly Child[]): (Node | string)[] {
  return children
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

/** Replaces the content of an element. The focus stays on its item if the item is still there. */
export function fill(element: Element, ...children: Child[]): void {
  const held = document.activeElement;
  const key = held instanceof HTMLElement && element.contains(held) ? held.dataset["key"] : undefined;
  element.replaceChildren(...nodes(children));
  if (key === undefined) return;
  for (const found of element.querySelectorAll<HTMLElement>("[data-key]")) {
    if (found.dataset["key"] === key) return found.focus({ preventScroll: true });
  }
}

/** A name that a device reports, isolated from the reading direction of the text around it. */
export function name(text: string, longest?: number): HTMLElement {
  const shown = visible(text, longest);
  return h("bdi", { class: "name", title: shown === text ? null : visible(text, 2000) }, shown);
}

export function button(click: () => void, attributes: Attributes, ...children: Child[]): HTMLButtonElement {
  return h("button", { type: "button", click, ...attributes }, ...children);
}
