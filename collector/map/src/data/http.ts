// The one door to /v1. A token lives in the session storage of this tab alone; it goes into a header and never
// into an address. Refusals are problem documents (RFC 9457) and are told in their words.

import type { ProblemDocument } from "../model/types";

const TOKEN = "hyperscout-token";

/** `status` 0: nobody answered. */
export class Problem extends Error {
  constructor(readonly document: ProblemDocument) {
    super(document.detail || document.title);
  }

  get status(): number {
    return this.document.status;
  }
}

export type Query = Readonly<Record<string, string | number | boolean | null | undefined>>;

export class Http {
  #token: string | null = kept();
  #asked: Promise<void> | null = null;

  /** `askToken`: shows a prompt and resolves with a token. */
  constructor(private readonly askToken: (refused: boolean) => Promise<string>) {}

  async get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
    const answer = await this.fetch(path, query, signal === undefined ? {} : { signal });
    return (await answer.json()) as T;
  }

  async post<T>(path: string, body: unknown): Promise<T> {
    const headers = { "Content-Type": "application/json" };
    const answer = await this.fetch(path, {}, { method: "POST", body: JSON.stringify(body), headers });
    return (await answer.json()) as T;
  }

  /** The response, which is a good one; asks for a token where one is wanted. Throws Problem, AbortError. */
  async fetch(path: string, query: Query = {}, init: RequestInit = {}): Promise<Response> {
    const texts = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
    const search = new URLSearchParams(texts.map(([key, value]) => [key, String(value)])).toString();
    for (;;) {
      const token = this.#token;
      const response = await this.#once(search ? `${path}?${search}` : path, init, token);
      if (response.ok) return response;
      if (response.status !== 401) throw await problem(response);
      // Several requests may be refused at once: one prompt serves them all.
      if (this.#token === token) {
        this.#asked ??= this.#ask(token !== null).finally(() => (this.#asked = null));
        await this.#asked;
      }
    }
  }

  async #once(path: string, init: RequestInit, token: string | null): Promise<Response> {
    const headers = new Headers(init.headers);
    if (!headers.has("Accept")) headers.set("Accept", "application/json");
    if (token) headers.set("Authorization", `Bearer ${token}`);
    try {
      return await fetch(`v1/${path}`, { ...init, headers, credentials: "omit", cache: "no-cache" });
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") throw error;
      throw new Problem({ title: "The collector does not answer", status: 0 });
    }
  }

  async #ask(refused: boolean): Promise<void> {
    this.#token = await this.askToken(refused);
    keep(this.#token);
  }
}

async function problem(response: Response): Promise<Problem> {
  const empty = { title: response.statusText || `HTTP ${response.status}`, status: response.status };
  try {
    const found = (await response.json()) as Partial<ProblemDocument>;
    return new Problem({ ...empty, ...found, status: response.status });
  } catch {
    return new Problem(empty);
  }
}

// A browser may keep nothing at all: then the token lasts until the page is left.
function kept(): string | null {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return null;
  }
}

function keep(token: string): void {
  try {
    sessionStorage.setItem(TOKEN, token);
  } catch {
    return;
  }
}
