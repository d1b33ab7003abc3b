// Follows the live stream: a snapshot, then deltas. A broken stream is resumed at its last event. The wait between
// attempts doubles, so that not all open maps reconnect at once after a restart of the collector.
import { Problem, type Http } from "./http";
import { EventReader, type ServerEvent } from "./sse";
import type { ProblemDocument, Topology, TopologyDelta } from "./types";

export type StreamState =
  | { kind: "connecting" }
  | { kind: "live" }
  /** Broken; the next attempt is in this many milliseconds. `problem`: the reason, if the collector gave one. */
  | { kind: "waiting"; retryMs: number; problem: ProblemDocument | null }
  /** The collector refuses (401, 403): there is no further attempt until `start` is called again. */
  | { kind: "refused"; problem: ProblemDocument }
  | { kind: "stopped" };

export interface StreamListener {
  snapshot(topology: Topology): void;
  delta(delta: TopologyDelta): void;
  state(state: StreamState): void;
}

/** Clock and randomness. `after` returns a function that cancels the call. */
export interface Clock {
  after(ms: number, then: () => void): () => void;
  random(): number;
}

export const REAL_CLOCK: Clock = {
  after(ms, then) {
    const timer = setTimeout(then, ms);
    return () => clearTimeout(timer);
  },
  random: Math.random,
};

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 30_000;
/** The collector sends at least a comment every 15 s. After three times that the connection counts as lost. */
const SILENCE_MS = 45_000;
const REFUSED = new Set([401, 403]);

export class TopologyStream {
  /** The last applied event: its id, which is sent back unchanged, and its generation. null = none. */
  private held: { id: string; generation: number } | null = null;
  private failures = 0;
  private run: AbortController | null = null;
  private callOffRetry: (() => void) | null = null;

  constructor(
    private readonly http: Http,
    private readonly listener: StreamListener,
    private readonly clock: Clock = REAL_CLOCK,
  ) {}

  /** Connects, or connects again, for example with another token. */
  start(): void {
    this.end();
    this.failures = 0;
    void this.connect();
  }

  stop(): void {
    this.end();
    this.listener.state({ kind: "stopped" });
  }

  private end(): void {
    this.callOffRetry?.();
    this.callOffRetry = null;
    this.run?.abort();
    this.run = null;
  }

  private async connect(): Promise<void> {
    const run = new AbortController();
    this.run = run;
    this.listener.state({ kind: "connecting" });
    let problem: ProblemDocument | null = null;
    let callOffSilence: () => void = () => undefined;
    const heard = (): void => {
      callOffSilence();
      callOffSilence = this.clock.after(SILENCE_MS, () => run.abort());
    };
    try {
      heard();
      const headers: Record<string, string> = { Accept: "text/event-stream" };
      if (this.held !== null) headers["Last-Event-ID"] = this.held.id;
      const response = await this.http.request("/v1/stream", { headers, signal: run.signal, cache: "no-store" });
      if (response.body === null) throw new TypeError("an answer without a body");
      const reader = response.body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, never>).getReader();
      const events = new EventReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        heard();
        for (const event of events.read(value)) {
          if (this.run !== run) return;
          problem = this.take(event) ?? problem;
        }
      }
    } catch (error) {
      if (error instanceof Problem) problem = error.document;
      else if (!isBrokenConnection(error)) {
        // The event cannot be applied, because of a defect here or in the collector. A new snapshot may help.
        console.error(error);
        this.held = null;
      }
    } finally {
      callOffSilence();
    }
    if (this.run !== run) return; // stopped, or started anew
    this.run = null;
    run.abort(); // of a reader that a bad event left open
    if (problem !== null && REFUSED.has(problem.status)) {
      this.listener.state({ kind: "refused", problem });
      return;
    }
    const retryMs = this.nextRetryMs();
    this.listener.state({ kind: "waiting", retryMs, problem });
    this.callOffRetry = this.clock.after(retryMs, () => void this.connect());
  }

  /** Returns the problem with which the collector ends the stream. */
  private take(event: ServerEvent): ProblemDocument | null {
    if (event.event === "error") return JSON.parse(event.data.slice(event.data.lastIndexOf("\n") + 1)) as ProblemDocument;
    if (event.event === "snapshot") {
      const topology = JSON.parse(event.data) as Topology;
      this.listener.snapshot(topology);
      this.held = { id: event.id, generation: topology.generation };
    } else if (event.event === "delta") {
      const delta = JSON.parse(event.data) as TopologyDelta;
      // Events from before the break may come again. Without a snapshot a delta cannot be applied.
      if (this.held === null || delta.generation <= this.held.generation) return null;
      this.listener.delta(delta);
      this.held = { id: event.id, generation: delta.generation };
    } else {
      return null;
    }
    this.failures = 0;
    this.listener.state({ kind: "live" });
    return null;
  }

  /** The wait doubles; it is random within its upper half. */
  private nextRetryMs(): number {
    const span = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** Math.min(this.failures, 10));
    this.failures += 1;
    return span * (0.5 + this.clock.random() / 2);
  }
}

function isBrokenConnection(error: unknown): boolean {
  return error instanceof TypeError || (error instanceof Error && error.name === "AbortError");
}
