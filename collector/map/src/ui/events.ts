// Describes the events of the history (proto/hyperscout/v1/topology.proto, HistoryEvent).

import type { Endpoint } from "../model/types";
import { visible, words } from "./text";

export interface HistoryEvent {
  id: number;
  at: string;
  generation: number;
  kind: string;
  hypernode?: string;
  node?: string;
  subject?: Endpoint;
  peer?: Endpoint;
  what?: string;
  before?: string;
  after?: string;
  reason?: string;
  message?: string;
}

export interface HistoryPage {
  items: HistoryEvent[];
  nextPageToken?: string;
  flaps?: { hypernode?: string; what: string; changes: number; last?: string }[];
  /** The oldest time in the history. */
  oldest?: string;
}

const GOOD = new Map([
  ["Ready", "True"],
  ["Degraded", "False"],
  ["Consistent", "True"],
  ["Stale", "False"],
]);
const WORSE = new Set(["AnomalyAppeared", "LinkRemoved", "SwitchRemoved", "NodeRemoved", "HyperNodeRemoved"]);
const BETTER = new Set(["AnomalyCleared", "LinkAdded", "SwitchAdded", "NodeAdded", "HyperNodeAdded"]);

/** "degraded" if the event is a deterioration, "ok" if it is an improvement, else "". */
export function eventState(event: HistoryEvent): "degraded" | "ok" | "" {
  if (event.kind === "ConditionChanged") return GOOD.get(event.what ?? "") === event.after ? "ok" : "degraded";
  return WORSE.has(event.kind) ? "degraded" : BETTER.has(event.kind) ? "ok" : "";
}

export function eventText(event: HistoryEvent): string {
  const about = event.kind.startsWith("Switch") ? endName(event.subject) : event.node || event.hypernode || endName(event.subject);
  switch (event.kind) {
    case "ConditionChanged":
      return visible(`${event.hypernode ?? ""} ${event.what ?? ""}: ${event.after ?? ""}${event.reason ? ` (${words(event.reason)})` : ""}`);
    case "AnomalyAppeared":
      return visible(`${words(event.what ?? "Anomaly")}: ${ends(event)}`);
    case "AnomalyCleared":
      return visible(`${words(event.what ?? "Anomaly")} is over: ${ends(event)}`);
    case "LinkAdded":
    case "LinkRemoved":
      return visible(`Cable ${event.kind === "LinkAdded" ? "came" : "went"}: ${ends(event)}`);
    case "NodeMoved":
    case "HyperNodeMoved":
      return visible(`${about} moved from ${event.before || "nowhere"} to ${event.after || "nowhere"}`);
    case "GenerationPublished":
      return visible(event.message || `Generation ${event.generation} was published`);
    default:
      return visible(`${words(event.kind.replace("HyperNode", "Domain"))}: ${about}`);
  }
}

const endName = (end: Endpoint | undefined): string => (end ? (end.name || end.device) + (end.port ? `/${end.port}` : "") : "");
const ends = (event: HistoryEvent): string => [event.subject, event.peer].map(endName).filter(Boolean).join(" – ");
