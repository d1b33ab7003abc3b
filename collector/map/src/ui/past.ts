// The picture of an earlier time: fetched for the time in the address, and dropped on the return to the present.

import { Problem, type Http } from "../model/http";
import { Picture } from "../model/picture";
import type { Topology } from "../model/types";

export class Past {
  /** null: the map shows the present, or the past is not loaded yet. */
  picture: Picture | null = null;
  #run: AbortController | null = null;

  constructor(
    private readonly http: Http,
    private readonly changed: (why: Problem | TypeError | null) => void,
  ) {}

  /** null = now. Earlier requests that have no answer yet are cancelled. */
  show(at: number | null): void {
    this.#run?.abort();
    this.#run = null;
    if (at !== null) return void this.#fetch(at);
    const wasThere = this.picture !== null;
    this.picture = null;
    if (wasThere) this.changed(null);
  }

  async #fetch(at: number): Promise<void> {
    const run = (this.#run = new AbortController());
    try {
      const query = new URLSearchParams({ at: new Date(at).toISOString() });
      const topology = await this.http.get<Topology>(`/v1/topology?${query.toString()}`, run.signal);
      if (this.#run !== run) return;
      this.picture = Picture.of(topology);
      this.changed(null);
    } catch (error) {
      if (run.signal.aborted) return;
      if (!(error instanceof Problem || error instanceof TypeError)) throw error;
      this.changed(error);
    }
  }
}
