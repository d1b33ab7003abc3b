// The meaning of shapes and colours.

import { STATES } from "../model/conditions";
import { h, svg, type Child } from "./dom";
import { STATE_WORDS, stateIcon } from "./icons";

export function legend(): HTMLElement {
  const entry = (picture: Node, text: string): Child => h("span", {}, picture, text);
  const drawing = (...shapes: SVGElement[]): SVGElement => svg("svg", { viewBox: "0 0 22 16", "aria-hidden": "true" }, ...shapes);
  const stroke = (colour: string, more: Record<string, string> = {}): Record<string, string> => ({
    fill: "none",
    stroke: `var(--${colour})`,
    "stroke-width": "1.6",
    ...more,
  });
  return h(
    "details",
    { class: "legend", open: window.innerHeight > 700 },
    h("summary", {}, "Legend"),
    h(
      "div",
      { class: "grid" },
      ...STATES.map((state) => entry(stateIcon(state), STATE_WORDS[state])),
      entry(drawing(svg("rect", { x: 2, y: 2, width: 18, height: 12, rx: 3, ...stroke("border") })), "Domain, by tier"),
      entry(drawing(svg("rect", { x: 3, y: 4, width: 16, height: 8, rx: 1, fill: "var(--device)" })), "Switch"),
      entry(drawing(svg("rect", { x: 6, y: 3, width: 10, height: 10, rx: 2, fill: "var(--device)" })), "Node"),
      entry(drawing(svg("path", { d: "M1 8h20", ...stroke("cable") })), "Cable"),
      entry(drawing(svg("path", { d: "M1 8h20", ...stroke("missing", { "stroke-dasharray": "4 3" }) })), "Missing cable"),
      entry(drawing(svg("path", { d: "M1 8h20", ...stroke("path", { "stroke-width": "3.5" }) })), "Explained path"),
      entry(drawing(svg("rect", { x: 5, y: 2, width: 12, height: 12, rx: 2, ...stroke("placed", { "stroke-width": "2.5" }) })), "Placed here"),
    ),
  );
}
