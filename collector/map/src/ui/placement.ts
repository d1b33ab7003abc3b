// Shows where a gang would be placed now. It is always a dry run and reserves nothing.

import { ACCELERATORS } from "../model/accelerators";
import { nodeId } from "../model/ids";
import { Problem } from "../model/http";
import type { App } from "./app";
import { button, fill, h, name, type Child } from "./dom";
import { hostlist } from "./hostlist";
import { pairs, some } from "./pieces";
import { row } from "./rows";
import { stateIcon } from "./icons";
import { count, visible } from "./text";

const MAX_ROWS = 100;

/** The answer of POST /v1/placements (Placement). */
interface Placement {
  placed: boolean;
  hypernode: string | null;
  assignments: { rank: number; node: string }[];
  /** Used domains by tier. */
  domains: Record<string, number>;
  reason: string;
  cost: { degraded: number; fragmentation: number[] } | null;
  exact: boolean;
  predicted: { ringS: number; treeS: number; sources: string } | null;
}

export function placementPanel(app: App): HTMLElement {
  const workers = h("input", { type: "number", min: 1, max: 1_000_000, value: 8, id: "workers", required: true });
  const gpus = h("input", { type: "number", min: 1, max: 1024, id: "gpus", placeholder: "whole node" });
  const resource = h("select", { id: "resource" }, ...Object.values(ACCELERATORS).map((x) => h("option", { value: x.resource }, x.resource)));
  const mode = h("select", { id: "mode" }, h("option", { value: "PLACEMENT_MODE_HARD" }, "never (hard)"), h("option", { value: "PLACEMENT_MODE_SOFT" }, "if need be (soft)"));
  const tier = h("select", { id: "tier" });
  const answer = h("div", { "aria-live": "polite" });
  const labelled = (text: string, input: HTMLElement): HTMLElement => h("label", { class: "field" }, h("span", { class: "label" }, text), input);
  const clear = button(() => {
    app.map.setPreview(null);
    fill(answer);
    clear.disabled = true;
  }, { disabled: true }, "Clear");
  const element = h(
    "form",
    { submit: (event: Event) => (event.preventDefault(), void ask()) },
    h("p", { class: "muted" }, "Shows where a gang would go. Nothing is reserved."),
    h("div", { class: "pair" }, labelled("Workers", workers), labelled("GPUs per worker", gpus)),
    labelled("Kind of GPU", resource),
    h("div", { class: "pair" }, labelled("Highest tier", tier), labelled("Above it", mode)),
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Preview"), clear),
    answer,
  );
  const ask = async (): Promise<void> => {
    const resources = gpus.value ? { [resource.value]: gpus.value } : {};
    const body = {
      gang: "preview",
      mode: mode.value,
      highestTierAllowed: tier.value,
      parts: [{ workers: { count: Number(workers.value), resources } }],
      dryRun: true,
    };
    try {
      const found = await app.http.send<Placement>("POST", "/v1/placements", body);
      if (found) show(found);
    } catch (error) {
      if (!(error instanceof Problem || error instanceof TypeError)) throw error;
      const why = error instanceof Problem ? error.message : "The collector does not answer.";
      app.map.setPreview(null);
      fill(answer, h("p", { class: "answer refused" }, visible(why, 500)));
    }
    clear.disabled = false;
  };
  const show = (found: Placement): void => {
    const ranks = byNode(found);
    app.map.setPreview(found.placed ? { nodes: new Map([...ranks].map(([node, all]) => [node, rankText(all)])) } : null);
    if (found.placed) app.moveTo([...ranks.keys()].map(nodeId));
    fill(answer, ...told(app, found, ranks));
  };
  const tiers = (): void => {
    const known = new Map([...app.picture().hypernodes.values()].map((x) => [x.tier, x.tierName]));
    const options = [...known].sort(([a], [b]) => a - b).map(([n, called]) => [String(n), `${n} · ${visible(called || "unnamed", 30)}`] as const);
    const key = JSON.stringify(options);
    if (tier.dataset["options"] === key) return;
    const chosen = tier.value;
    tier.dataset["options"] = key;
    tier.replaceChildren(h("option", { value: "" }, "Any"), ...options.map(([value, text]) => h("option", { value }, text)));
    tier.value = chosen;
  };
  app.onPicture(tiers);
  tiers();
  return element;
}

function byNode(found: Placement): Map<string, number[]> {
  const ranks = new Map<string, number[]>();
  for (const { rank, node } of found.assignments) ranks.set(node, [...(ranks.get(node) ?? []), rank]);
  return ranks;
}

/** "3", "0-7". */
const rankText = (all: readonly number[]): string => (all.length > 1 ? `${Math.min(...all)}-${Math.max(...all)}` : String(all[0] ?? ""));

function told(app: App, found: Placement, ranks: ReadonlyMap<string, readonly number[]>): Child[] {
  if (!found.placed) return [h("p", { class: "answer refused" }, h("strong", {}, "No place. "), visible(found.reason, 1000))];
  const picture = app.picture();
  const tierNames = new Map([...picture.hypernodes.values()].map((x) => [String(x.tier), x.tierName]));
  const domains = Object.entries(found.domains).sort(([a], [b]) => Number(b) - Number(a));
  const used = domains.map(([tier, n]) => `${n} × ${visible(tierNames.get(tier) || `tier ${tier}`, 40)}`);
  const left = (found.cost?.fragmentation ?? []).reduce((a, b) => a + b, 0);
  const time = found.predicted;
  return [
    h(
      "div",
      { class: "answer placed" },
      h("strong", {}, `${count(found.assignments.length, "worker")} on ${count(ranks.size, "node")}`),
      found.hypernode ? h("div", {}, "within ", name(found.hypernode, 60)) : h("div", {}, "not within one domain"),
    ),
    pairs(
      ["Domains used", used.join(", ")],
      ["Degraded links", found.cost && String(found.cost.degraded)],
      ["Left free in them", found.cost && count(left, "worker")],
      ["All-reduce", time && `${(Math.min(time.ringS, time.treeS) * 1e3).toPrecision(3)} ms, ${time.sources}`],
      ["Proof", found.exact ? "nothing is better" : "none: something better may exist"],
      ["But", found.reason ? visible(found.reason, 500) : null],
      ["Nodes", name(hostlist(ranks.keys()), 200)],
    ),
    h("h3", { class: "group" }, h("span", {}, "Ranks"), h("span", {}, ranks.size)),
    h(
      "ul",
      { class: "list" },
      ...some([...ranks], MAX_ROWS, ([node, all]) =>
        row(app, nodeId(node), stateIcon(picture.stateOf(nodeId(node)), true), name(node, 60), null, `rank ${rankText(all)}`),
      ),
    ),
  ];
}
