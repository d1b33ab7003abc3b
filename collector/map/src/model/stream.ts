// The live picture: a snapshot, then deltas. A stream that breaks is taken up where it ended, later and later while
// the collector cannot be reached, so that a restart is not met by every open map at once.
import type { ProblemDocument, Topology, TopologyDelta } from "./types";

export type StreamState =
  | { kind: "connecting" }
  | { kind: "live" }
  /** Broken; tried again in so many milliseconds. `problem`: why, where the collector said so. */
  | { kind: "waiting"; retryMs: number; problem: ProblemDocument | null }
  /** The collector refuses (401, 403): nothing is tried before `start` is called again. */
  | { kind: "refused"; problem: ProblemDocument }
  | { kind: "stopped" };

export interface StreamListener {
  snapshot(topology: Topology): void;
  delta(delta: TopologyDelta): void;
  state(state: StreamState): void;
}

export interface TopologyStream {
  /** `since`: a generation that the caller holds already. */
  start(since?: number): void;
  stop(): void;
}
