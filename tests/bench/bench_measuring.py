"""The collector's side of measuring: both ends of a thousand nodes' pairs joined, and what a tick costs with
ten thousand agents. The traffic of a node is counted, not timed: by the packets that agents send.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from decisions.measured_world import World, most_within
from hyperscout_collector.decisions.measuring.pair_events import Tick
from hyperscout_collector.decisions.measuring.pair_limits import PairSettings
from hyperscout_formats.facts.facts import LatencyPort, LatencyResult, LatencySample
from hyperscout_inference.latency.pairs import PairReader
from hyperscout_runtime.units import NS
from support.bench_rows import row

NODES, RESULTS = 1024, 120
AGENTS = 10_000


def reports() -> dict[str, tuple[LatencyPort, ...]]:
    """Each node and the 60 on either side of it."""
    names = [f"n{i:04}" for i in range(NODES)]
    found = {}
    for i, name in enumerate(names):
        near = [names[(i + step) % NODES] for step in range(-RESULTS // 2, RESULTS // 2 + 1) if step]
        before = tuple(LatencySample(NS, 5.0 + (i + k) % 7 / 20, 0.1) for k in range(8))
        results = tuple(
            LatencyResult(peer, "ib0", "udp", NS, 16, 16, 5.0 + (i % 7) / 20, 6.0, 0.1, history=before)
            for peer in near
        )
        found[name] = (LatencyPort("ib0", ("10.0.0.1",), 4711, "", results),)
    return found


def join() -> None:
    ports = reports()
    began_s = time.process_time()
    reader = PairReader()
    table = reader.read(ports)
    whole_s = time.process_time() - began_s
    if len(table) != NODES * RESULTS // 2:
        raise SystemExit(f"{len(table)} pairs")
    ports["n0001"] = (LatencyPort("ib0", ("10.0.0.1",), 4711, "", ports["n0001"][0].results[1:]),)
    began_s = time.perf_counter()
    reader.read(ports)
    one_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    reader.read(dict(ports))
    none_s = time.perf_counter() - began_s
    what = f"pairs of {NODES:,} nodes, {RESULTS} results each with 8 before"
    row(f"{what}: all", f"{whole_s * 1000:.0f} ms of CPU")
    row(f"{what}: one node changed", f"{one_s * 1000:.0f} ms")
    row(f"{what}: nothing changed", f"{none_s * 1000:.2f} ms")


def ticks() -> None:
    world = World()
    world.connect(*(f"n{i:05}" for i in range(AGENTS)))
    world.plan = lambda wanted: list(zip(wanted.nodes[::2], wanted.nodes[1::2], strict=True))[: wanted.limit]
    world.run(2)
    count = 50
    began_s = time.perf_counter()
    for _ in range(count):
        world.now_ns += NS // 5
        world.handle(Tick())
    each_s = (time.perf_counter() - began_s) / count
    row(f"a tick with {AGENTS:,} agents, 100 probes/s", f"{each_s * 1000:.2f} ms")


def traffic() -> None:
    world = World(settings=PairSettings(probes_per_s=2000.0))
    world.connect(*(f"n{i:04}" for i in range(1000)))
    hubs = [f"n{i:04}" for i in range(8)]
    world.plan = lambda wanted: [(a, b) for b in wanted.nodes[8:] for a in hubs][: wanted.limit]
    world.run(30)
    most = max(most_within(seen, 10 * NS) for seen in world.bytes_by_node().values()) * 8 / 10 / 1000
    row(
        "busiest of 1,000 nodes, out and in, of 200 kbit/s",
        f"{most:.0f} kbit/s",
        ratio=f"{most / 2:.0f} %",
        budget="100 %",
    )


def main() -> None:
    join()
    ticks()
    traffic()


if __name__ == "__main__":
    main()
