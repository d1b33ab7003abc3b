// The evidence of an object: the findings of its nodes, newest first.

import { kindOf, type ItemId } from "../model/ids";
import type { App } from "./app";
import { h, name, type Child } from "./dom";
import { Fetched } from "./fetched";
import { time } from "./pieces";
import { visible } from "./text";
import { nodesOf } from "./things";
import { parseTime } from "./times";

const MAX_NODES = 2; // the ends of a cable
const MAX_FINDINGS = 40;

/** As in /v1/findings, without the payload. */
interface Finding {
  finding: { key: { node: string; probe: string; subject: string }; observedAt?: string; outcome?: string; reason?: string };
  stale?: boolean;
}

export function evidenceSection(app: App): { element: HTMLElement; show(id: ItemId): void } {
  const fetched = new Fetched<Finding[]>(
    "Evidence",
    async (key, signal) => {
      const asked = (JSON.parse(key) as string[]).map(async (node) => {
        const query = new URLSearchParams({ node, pageSize: String(MAX_FINDINGS) });
        const page = await app.http.get<{ items: Finding[] }>(`/v1/findings?${query.toString()}`, signal);
        return page.items;
      });
      return (await Promise.all(asked)).flat();
    },
    (found) => render(app, found),
  );
  return {
    element: fetched.element,
    show(id) {
      const nodes = kindOf(id) === "hypernode" ? [] : nodesOf(app.picture(), id).slice(0, MAX_NODES);
      // Findings exist only for the present. The history describes the past.
      const isLive = app.views.now.at === null;
      fetched.show(nodes.length && isLive ? JSON.stringify(nodes) : "", app.picture().generation);
    },
  };
}

function render(app: App, found: readonly Finding[]): Child[] {
  if (!found.length) return [h("p", { class: "muted" }, "No agent tells of it.")];
  const nodes = new Set(found.map((x) => x.finding.key.node));
  return [h("ul", { class: "list plain" }, ...found.map((x) => line(app, x, nodes.size > 1)))];
}

function line(app: App, x: Finding, withNode: boolean): HTMLElement {
  const { key, observedAt, outcome, reason } = x.finding;
  const word = (outcome ?? "").replace("OUTCOME_", "").toLowerCase();
  const at = parseTime(observedAt);
  const said = word === "data" ? "" : word === "nothing" ? "nothing there" : visible(word);
  return h(
    "li",
    { class: "finding" },
    h("span", {}, withNode && name(key.node, 60), withNode && " ", h("strong", {}, visible(key.probe, 40)), " ", name(key.subject, 60)),
    h("span", { class: "small" }, said && `${said} · `, x.stale && "stale · ", at !== null && time(at, app.nowMs())),
    reason && h("span", { class: "small" }, visible(reason, 400)),
  );
}
