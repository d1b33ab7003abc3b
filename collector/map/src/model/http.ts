// Sends all requests to the collector. Each request has the user's token; a refusal becomes the problem document that
// the collector sent.
import type { ProblemDocument } from "./types";

export class Problem extends Error {
  constructor(readonly document: ProblemDocument) {
    super(document.detail ?? document.title);
    this.name = "Problem";
  }

  get status(): number {
    return this.document.status;
  }
}

export type Fetch = (input: string, init?: RequestInit) => Promise<Response>;

export class Http {
  /** Bearer token; null = none. The caller keeps it; it is in no address. */
  token: string | null = null;

  constructor(private readonly doFetch: Fetch = (input, init) => fetch(input, init)) {}

  /** Raises Problem if the collector refuses, TypeError if it cannot be reached. */
  async request(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    if (this.token !== null) headers.set("Authorization", `Bearer ${this.token}`);
    const response = await this.doFetch(path, { ...init, headers, credentials: "same-origin" });
    if (!response.ok) throw await problemOf(response);
    return response;
  }

  /** `path` begins with /v1. */
  async get<T>(path: string, signal?: AbortSignal): Promise<T> {
    const response = await this.request(path, {
      headers: { Accept: "application/json" },
      ...(signal === undefined ? {} : { signal }),
    });
    return (await response.json()) as T;
  }

  async send<T>(method: "POST" | "DELETE", path: string, body?: unknown): Promise<T | null> {
    const response = await this.request(path, {
      method,
      headers: { Accept: "application/json", "Content-Type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return response.status === 204 ? null : ((await response.json()) as T);
  }
}

async function problemOf(response: Response): Promise<Problem> {
  const plain: ProblemDocument = { title: response.statusText || `HTTP ${response.status}`, status: response.status };
  try {
    if (!/\bjson\b/.test(response.headers.get("Content-Type") ?? "")) return new Problem(plain);
    const found: unknown = await response.json();
    if (typeof found !== "object" || found === null) return new Problem(plain);
    return new Problem({ ...plain, ...(found as Partial<ProblemDocument>), status: response.status });
  } catch {
    return new Problem(plain);
  }
}
