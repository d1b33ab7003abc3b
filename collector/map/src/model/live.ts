// The current picture for the drawn map and the interface: first without cables, which are most of the bytes, then
// complete from the stream, which keeps it current.
import { Problem, type Http } from "./http";
import { Picture, type Change } from "./picture";
import { REAL_CLOCK, TopologyStream, type Clock, type StreamState } from "./stream";
import type { Topology } from "./types";

export interface LiveEvents {
  /** Another picture. */
  picture: Picture;
  /** The same picture, of another generation. */
  change: Change;
  state: StreamState;
}

export class Live {
  /** Empty until the first picture is loaded. */
  picture = new Picture();
  state: StreamState = { kind: "stopped" };

  private readonly listeners: { [K in keyof LiveEvents]: Set<(value: LiveEvents[K]) => void> } = {
    picture: new Set(),
    change: new Set(),
    state: new Set(),
  };
  private readonly stream: TopologyStream;

  constructor(
    private readonly http: Http,
    clock: Clock = REAL_CLOCK,
  ) {
    this.picture.complete = false;
    this.stream = new TopologyStream(
      http,
      {
        snapshot: (topology) => this.show(Picture.of(topology)),
        delta: (delta) => this.emit("change", this.picture.apply(delta)),
        state: (state) => {
          this.state = state;
          this.emit("state", state);
        },
      },
      clock,
    );
  }

  /** First without cables, then the stream; also after a new token was given. */
  async start(): Promise<void> {
    try {
      const topology = await this.http.get<Topology>("/v1/topology?links=false");
      if (!this.picture.complete) this.show(Picture.of(topology, false));
    } catch (error) {
      if (!(error instanceof Problem || error instanceof TypeError)) throw error; // the stream gets the same error and reports it
    }
    this.stream.start();
  }

  stop(): void {
    this.stream.stop();
  }

  on<K extends keyof LiveEvents>(event: K, listener: (value: LiveEvents[K]) => void): () => void {
    this.listeners[event].add(listener);
    return () => this.listeners[event].delete(listener);
  }

  private show(picture: Picture): void {
    this.picture = picture;
    this.emit("picture", picture);
  }

  private emit<K extends keyof LiveEvents>(event: K, value: LiveEvents[K]): void {
    for (const listener of this.listeners[event]) listener(value);
  }
}
