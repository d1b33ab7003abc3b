import { describe, expect, it } from "vitest";
import { Http, type Fetch } from "../src/model/http";
import { EventReader } from "../src/model/sse";
import { TopologyStream, type Clock, type StreamState } from "../src/model/stream";

/** Time that passes when it is told to. */
class FakeClock implements Clock {
  now = 0;
  private timers: { at: number; then: () => void }[] = [];
  random = (): number => 0;

  after(ms: number, then: () => void): () => void {
    const timer = { at: this.now + ms, then };
    this.timers.push(timer);
    return () => {
      this.timers = this.timers.filter((t) => t !== timer);
    };
  }

  async pass(ms: number): Promise<void> {
    const until = this.now + ms;
    for (;;) {
      const next = this.timers.filter((t) => t.at <= until).sort((a, b) => a.at - b.at)[0];
      if (next === undefined) break;
      this.timers = this.timers.filter((t) => t !== next);
      this.now = next.at;
      next.then();
      await settled();
    }
    this.now = until;
    await settled();
  }
}

/** Until everything that is ready to go on has gone on. */
async function settled(): Promise<void> {
  for (let i = 0; i < 12; i += 1) await new Promise<void>((done) => setTimeout(done));
}

class FakeCollector {
  requests: { headers: Headers }[] = [];
  answers: (() => Response | Promise<Response>)[] = [];
  open: ReadableStreamDefaultController<Uint8Array> | null = null;

  readonly fetch: Fetch = async (_, init) => {
    this.requests.push({ headers: new Headers(init?.headers) });
    const answer = this.answers.shift();
    if (answer === undefined) throw new TypeError("cannot be reached");
    const response = await answer();
    init?.signal?.addEventListener("abort", () => {
      try {
        this.open?.error(new DOMException("", "AbortError"));
      } catch {
        // closed already
      }
    });
    return response;
  };

  stream(): void {
    this.answers.push(
      () =>
        new Response(
          new ReadableStream<Uint8Array>({
            start: (controller) => {
              this.open = controller;
            },
          }),
          { headers: { "Content-Type": "text/event-stream" } },
        ),
    );
  }

  refuse(status: number, title: string): void {
    this.answers.push(
      () =>
        new Response(JSON.stringify({ title, status }), {
          status,
          headers: { "Content-Type": "application/problem+json" },
        }),
    );
  }

  async send(event: string, data: unknown, id = ""): Promise<void> {
    this.open?.enqueue(new TextEncoder().encode(`event: ${event}\nid: ${id}\ndata: ${JSON.stringify(data)}\n\n`));
    await settled();
  }

  async end(): Promise<void> {
    this.open?.close();
    await settled();
  }
}

function world() {
  const clock = new FakeClock();
  const collector = new FakeCollector();
  const seen: string[] = [];
  const states: StreamState[] = [];
  const stream = new TopologyStream(
    new Http(collector.fetch),
    {
      snapshot: (t) => seen.push(`snapshot ${t.generation}`),
      delta: (d) => seen.push(`delta ${d.generation}`),
      state: (s) => states.push(s),
    },
    clock,
  );
  const last = (): StreamState | undefined => states.at(-1);
  return { clock, collector, seen, states, stream, last };
}

describe("the stream", () => {
  it("takes up where it broke, by the id as it came", async () => {
    const { clock, collector, seen, stream, last } = world();
    collector.stream();
    stream.start();
    await settled();
    await collector.send("snapshot", { generation: 5 }, "5-abc");
    await collector.send("delta", { generation: 6 }, "6-abc");
    expect(last()).toEqual({ kind: "live" });
    collector.stream();
    await collector.end();
    expect(last()).toMatchObject({ kind: "waiting" });
    await clock.pass(500);
    await collector.send("delta", { generation: 6 }, "6-abc");
    await collector.send("delta", { generation: 7 }, "7-abc");
    expect(collector.requests.map((r) => r.headers.get("Last-Event-ID"))).toEqual([null, "6-abc"]);
    expect(seen).toEqual(["snapshot 5", "delta 6", "delta 7"]);
  });

  it("waits longer each time, to a bound, and briefly again after a success", async () => {
    const { clock, collector, states, stream } = world();
    stream.start();
    await settled();
    await clock.pass(10 * 60_000);
    const waits = states.flatMap((s) => (s.kind === "waiting" ? [s.retryMs] : []));
    expect(waits.slice(0, 8)).toEqual([250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
    collector.stream();
    await clock.pass(15_000);
    await collector.send("snapshot", { generation: 1 }, "1-a");
    await collector.end();
    expect(states.at(-1)).toEqual({ kind: "waiting", retryMs: 250, problem: null });
  });

  it.each([401, 403])("sends no request after %i, until it is started anew", async (status) => {
    const { clock, collector, stream, last } = world();
    collector.refuse(status, "no");
    stream.start();
    await settled();
    expect(last()).toMatchObject({ kind: "refused", problem: { status } });
    await clock.pass(3_600_000);
    expect(collector.requests).toHaveLength(1);
    collector.stream();
    stream.start();
    await settled();
    await collector.send("snapshot", { generation: 1 });
    expect(last()).toEqual({ kind: "live" });
  });

  it("goes on trying at a standby, and shows what that said", async () => {
    const { collector, stream, last } = world();
    collector.refuse(503, "standby");
    stream.start();
    await settled();
    expect(last()).toMatchObject({ kind: "waiting", problem: { title: "standby" } });
  });

  it("says why the collector ended it", async () => {
    const { collector, stream, last } = world();
    collector.stream();
    stream.start();
    await settled();
    await collector.send("error", { title: "too slow", status: 503 });
    await collector.end();
    expect(last()).toMatchObject({ kind: "waiting", problem: { title: "too slow" } });
  });

  it("gives up a connection on which nothing is heard", async () => {
    const { clock, collector, stream, last } = world();
    collector.stream();
    stream.start();
    await settled();
    await collector.send("snapshot", { generation: 1 });
    await clock.pass(44_000);
    expect(last()).toEqual({ kind: "live" });
    await clock.pass(1_000);
    expect(last()).toMatchObject({ kind: "waiting" });
  });

  it("folds nothing into nothing", async () => {
    const { collector, seen, stream } = world();
    collector.stream();
    stream.start();
    await settled();
    await collector.send("delta", { generation: 2 });
    expect(seen).toEqual([]);
  });

  it("is silent once stopped", async () => {
    const { clock, collector, seen, stream, last } = world();
    collector.stream();
    stream.start();
    await settled();
    stream.stop();
    await clock.pass(3_600_000);
    expect(last()).toEqual({ kind: "stopped" });
    expect(collector.requests).toHaveLength(1);
    expect(seen).toEqual([]);
  });
});

describe("events", () => {
  const text = ': hello\nevent: delta\nid: 7-x\ndata: {"a":\ndata: 1}\n\ndata\n\nid: 8\nretry: 5\n\nevent: x\ndata:  y\r\n\r\n';
  const wanted = [
    { event: "delta", data: '{"a":\n1}', id: "7-x" },
    { event: "message", data: "", id: "7-x" },
    { event: "x", data: " y", id: "8" },
  ];

  it.each([1, 2, 3, 7, 1000])("are the same in portions of %i", (size) => {
    const reader = new EventReader();
    const found = [];
    for (let i = 0; i < text.length; i += size) found.push(...reader.read(text.slice(i, i + size)));
    expect(found).toEqual(wanted);
  });
});
