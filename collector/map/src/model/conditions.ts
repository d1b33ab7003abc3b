// Computes the state of an object, which decides its colour: the worst of its conditions and anomalies.
import type { Anomaly, HyperNode } from "./types";

/** Worst first. "missing": it existed and is not found; "unknown": nothing reports its state. */
export const STATES = ["missing", "notReady", "degraded", "inconsistent", "stale", "unknown", "ok"] as const;
export type State = (typeof STATES)[number];

const WORSE = new Map(STATES.map((state, i) => [state, i]));

export function worst(a: State, b: State): State {
  return (WORSE.get(a) ?? 0) <= (WORSE.get(b) ?? 0) ? a : b;
}

/** Condition -> [status that is good, state for any other status]. */
const WELL = new Map<string, [string, State]>([
  ["Ready", ["True", "notReady"]],
  ["Degraded", ["False", "degraded"]],
  ["Consistent", ["True", "inconsistent"]],
  ["Stale", ["False", "stale"]],
]);

export function hypernodeState(hypernode: HyperNode): State {
  let state: State = "ok";
  for (const condition of hypernode.conditions) {
    const well = WELL.get(condition.type);
    if (well === undefined || condition.status === well[0]) continue;
    state = worst(state, condition.status === "Unknown" ? "unknown" : well[1]);
  }
  return state;
}

/** The state of a cable by its anomaly. */
const OF_LINK = new Map<string, State>([
  ["MissingLink", "missing"],
  ["MissingSwitch", "missing"],
  ["SlowLink", "degraded"],
  ["ErroringLink", "degraded"],
]);

export function linkState(anomaly: Anomaly): State {
  return OF_LINK.get(anomaly.kind) ?? "inconsistent";
}

/** The state of a device at one end of the anomaly: a device that lacks a cable is degraded. */
export function deviceState(anomaly: Anomaly, isSubject: boolean): State {
  if (anomaly.kind === "MissingSwitch" && isSubject) return "missing";
  const state = linkState(anomaly);
  return state === "missing" ? "degraded" : state;
}
