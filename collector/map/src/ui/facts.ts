// The facts about an object of each kind, without its problems.

import { ACCELERATORS } from "../model/accelerators";
import { hypernodeId, kindOf, nodeId, portId, switchId, type ItemId } from "../model/ids";
import type { Cable, Picture } from "../model/picture";
import type { Endpoint, HyperNode, LinkEnd, Measured } from "../model/types";
import type { App } from "./app";
import { button, h, type Child } from "./dom";
import { hostlist } from "./hostlist";
import { pairs, section, some, time } from "./pieces";
import { link, row, thingRow } from "./rows";
import { count, digits, visible } from "./text";
import { anomalyOf, endText, portOf, rest } from "./things";
import { parseTime } from "./times";
import { name } from "./dom";
import { stateIcon } from "./icons";

const MAX_ROWS = 64; // rows of a list; a spine has as many ports

export function factsOf(app: App, id: ItemId): Child[] {
  switch (kindOf(id) as string) {
    case "hypernode":
      return ofHypernode(app, app.picture().hypernodes.get(rest(id)));
    case "switch":
      return ofSwitch(app, id);
    case "node":
      return ofNode(app, id);
    case "link":
      return ofCable(app, app.picture().cables.get(id));
    case "port":
      return ofPort(app, id);
    case "anomaly":
      return ofAnomaly(app, id);
    default:
      return cables(app, id);
  }
}

function ofHypernode(app: App, x: HyperNode | undefined): Child[] {
  if (!x) return [];
  const picture = app.picture();
  const list = hostlist(x.nodes);
  const accelerators = ACCELERATORS[x.source]?.domain;
  const guessed = x.source === "wires" ? null : `${accelerators ?? visible(x.source)}, confidence ${Math.round(x.confidence * 100)} %`;
  return [
    section(
      "Domain",
      pairs(
        ["Tier", `${x.tier}${x.tierName ? ` · ${visible(x.tierName)}` : ""}`],
        ["Inside", x.parent === null ? "nothing: it is a root" : link(app, hypernodeId(x.parent))],
        ["Known from", guessed],
        ["Latency", measured(app, x.latencyUs, "µs", "99 % within")],
        ["Bandwidth", measured(app, x.bandwidthGbps, "Gbit/s", "99 % reach")],
        ["Nodes", h("span", {}, `${count(x.nodes.length, "node")} `, name(list, 160), " ", marker(app, list))],
      ),
    ),
    x.children.length > 0 &&
      section(`Domains inside (${x.children.length})`, rows(some(x.children, MAX_ROWS, (child) => thingRow(app, hypernodeId(child), nodesIn(picture, child))))),
    x.switches.length > 0 && section(`Switches (${x.switches.length})`, rows(some(x.switches, MAX_ROWS, (s) => thingRow(app, switchId(s))))),
    x.children.length === 0 && section(`Nodes (${x.nodes.length})`, rows(some(x.nodes, MAX_ROWS, (node) => thingRow(app, nodeId(node))))),
  ];
}

const nodesIn = (picture: Picture, hypernode: string): string =>
  count(picture.hypernodes.get(hypernode)?.nodes.length ?? 0, "node");

const marker = (app: App, list: string): Child =>
  button(() => app.views.change({ marked: list }), { class: "link", "data-key": "mark" }, "Mark them");

function ofSwitch(app: App, id: ItemId): Child[] {
  const picture = app.picture();
  const found = picture.switches.get(rest(id));
  const home = picture.homeOf(rest(id));
  return [
    section(
      "Switch",
      pairs(
        ["Id", name(rest(id))],
        ["Level", found?.level ? `${found.level}${found.level === 1 ? " (leaf)" : ""}` : "unknown"],
        ["Serves", home && link(app, hypernodeId(home.name))],
        ["Seen by", witnesses(picture.cablesOf(id))],
      ),
    ),
    ...cables(app, id),
  ];
}

function ofNode(app: App, id: ItemId): Child[] {
  const picture = app.picture();
  const domains = picture.domainsOf(rest(id));
  const chain = domains.map((x) => h("div", {}, `${visible(x.tierName) || `tier ${x.tier}`} `, link(app, hypernodeId(x.name))));
  const order = new Intl.Collator("en", { numeric: true });
  const known = picture.adaptersOf(rest(id)).sort((a, b) => order.compare(a.name, b.name));
  const adapters = known.map((x) => h("div", {}, name(x.name || "adapter"), " ", name(x.id)));
  return [
    section(
      "Node",
      pairs(
        ["Domains", domains.length ? h("div", {}, ...chain) : "none: no fabric knows it"],
        ["Adapters", adapters.length > 0 && h("div", {}, ...adapters)],
        ["Seen by", witnesses(picture.cablesOf(id))],
      ),
    ),
    ...cables(app, id),
  ];
}

function ofCable(app: App, x: Cable | undefined): Child[] {
  if (!x) return [];
  const note = x.link?.note;
  return [
    section(
      "Cable",
      pairs(
        ["From", end(app, x.a)],
        ["To", end(app, x.b)],
        ["Fabric", x.fabric && name(x.fabric)],
        ["Rail", x.rail && name(x.rail)],
        ["Seen by", witnesses([x]) ?? "no source: it is missing"],
        ["Uncertain", note ? visible(note) : null],
      ),
    ),
  ];
}

function ofPort(app: App, id: ItemId): Child[] {
  const found = portOf(app.picture(), id);
  if (!found) return [];
  const { end: here, cable } = found;
  const there = cable.a === here ? cable.b : cable.a;
  return [
    section(
      "Port",
      pairs(["Of", device(app, here)], ["Port", name(here.port)], ["Leads to", end(app, there)], ["Cable", link(app, cable.id)]),
    ),
  ];
}

function ofAnomaly(app: App, id: ItemId): Child[] {
  const x = anomalyOf(app.picture(), id);
  if (!x) return [];
  return [
    section(
      "Where",
      pairs(
        ["From", end(app, x.subject)],
        ["To", x.peer && end(app, x.peer)],
        ["Domain", x.hypernode ? link(app, hypernodeId(x.hypernode)) : null],
        ["Tier", x.tier ? String(x.tier) : null],
      ),
    ),
  ];
}

/** Cables of a switch or node, by port. */
function cables(app: App, id: ItemId): Child[] {
  const picture = app.picture();
  const mine = (device: string): boolean => picture.itemOf(device) === id;
  const found = picture.cablesOf(id).map((cable) => (mine(cable.a.device) ? { cable, here: cable.a, there: cable.b } : { cable, here: cable.b, there: cable.a }));
  const order = new Intl.Collator("en", { numeric: true });
  found.sort((x, y) => order.compare(endText(picture, x.here), endText(picture, y.here)));
  if (!found.length) return picture.complete ? [section("Cables", h("p", { class: "muted" }, "none"))] : [];
  const line = (x: (typeof found)[number]): Child => {
    const state = x.cable.link === null ? "missing" : picture.stateOf(x.cable.id);
    const adapter = picture.adapterOf(x.here.device)?.name;
    const port = [adapter, x.here.port].filter(Boolean).join("/");
    return row(app, x.cable.id, stateIcon(state, true), h("span", {}, name(port, 40), " → ", name(endText(picture, x.there), 70)));
  };
  return [section(`Cables (${found.length})`, rows(some(found, MAX_ROWS, line)))];
}

const rows = (items: Child[]): HTMLElement => h("ul", { class: "list" }, ...items);

function witnesses(found: readonly Cable[]): Child {
  const sources = new Set(found.flatMap((cable) => cable.link?.sources ?? []));
  return sources.size ? [...sources].sort().map((x) => visible(x, 60)).join(", ") : null;
}

function device(app: App, x: LinkEnd | Endpoint): HTMLElement {
  return link(app, app.picture().itemOf(x.device, "name" in x ? x.name : ""), endText(app.picture(), { device: x.device, port: "" }));
}

function end(app: App, x: LinkEnd | Endpoint): HTMLElement {
  const port = x.port ? link(app, portId(x.device, x.port), x.port) : null;
  const called = "name" in x && x.name ? link(app, app.picture().itemOf(x.device, x.name), x.name) : device(app, x);
  return h("span", {}, called, port && " port ", port);
}

function measured(app: App, x: Measured | undefined, unit: string, worse: string): Child {
  if (!x) return null;
  const at = parseTime(x.measuredAt);
  return h(
    "div",
    {},
    h("strong", {}, `${digits(x.median)} ${unit}`),
    x.samples > 0 && h("div", { class: "muted" }, `${worse} ${digits(x.p99)} ${unit} · ${count(x.samples, "sample")}`),
    at !== null && h("div", { class: "muted" }, time(at, app.nowMs())),
  );
}
