"""A month of history: 1,000 nodes of eight rails, 2,000 flips of cables a day, each a generation of its own.

Time is virtual, the file and everything that is written to it are real. What is asked afterwards is asked of
the very object that answers gRPC and REST; the smallest of several turns counts.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from hyperscout_runtime.units import NS, rfc3339

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.history.causes import Cause
from hyperscout_collector.history.file import HistoryFile
from hyperscout_collector.history.reader import HistoryReader
from hyperscout_collector.history.settings import HistorySettings
from hyperscout_collector.history.store import HistorySize
from hyperscout_collector.store.database import Reader
from hyperscout_inference.hierarchy.conditions import with_conditions
from hyperscout_sim.fabric.shapes import rail_optimised
from hyperscout_topology.link_changes import table_of, without
from hyperscout_topology.proto import timestamp
from hyperscout_topology.topology import Anomaly, Condition, Endpoint, HyperNode, Topology
from support.bench_rows import row
from support.inference import inferred
from support.recorder import record

DAY_NS = 86_400 * NS
BEGAN_NS = 1_767_225_600 * NS  # 2026-01-01
DAYS, FLIPS = 30, 2000  # a day
DOWN = 40  # cables at any time, about
FLAPPING = 20  # cables that a tenth of the flips fall on
TURNS = 5


class Cluster:
    """The picture, and cables of hosts that go and come. Inferred once: that is not what is measured."""

    def __init__(self, whole: Topology) -> None:
        self.now = whole
        self._rng = Random(1)
        self._whole = table_of(whole.links)
        self._node = {x.id: x.node for x in whole.adapters}
        self._switch = {s.id: s.name for s in whole.switches}
        self._home = {node: i for i, h in enumerate(whole.hypernodes) if h.tier == 1 for node in h.nodes}
        self._cables = [
            i for i, x in enumerate(whole.links) if x.a_device in self._node or x.b_device in self._node
        ]
        self._bad = self._rng.sample(self._cables, FLAPPING)
        self._down: dict[int, Anomaly] = {}

    def flip(self, at_ns: int) -> Key:
        """Cut a cable or mend one; the key of the finding that tells of it."""
        rng = self._rng
        if rng.random() < 0.1:
            cable = rng.choice(self._bad)
        elif rng.random() < len(self._down) / (2 * DOWN):
            cable = rng.choice(list(self._down))
        else:
            cable = rng.choice(self._cables)
        link = self._whole[cable]
        (host, port), (switch, far) = sorted(
            ((link.a_device, link.a_port), (link.b_device, link.b_port)),
            key=lambda end: end[0] in self._switch,
        )
        node = self._node[host]
        home = self.now.hypernodes[self._home[node]]
        if cable in self._down:
            del self._down[cable]
        else:
            self._down[cable] = Anomaly(
                "MissingLink",
                Endpoint(host, node, port),
                Endpoint(switch, self._switch[switch], far),
                1,
                ("ibnetdiscover",),
                0.95,
                f"the link from {node}/p{port} to {self._switch[switch]}/p{far} is gone",
                home.name,
                at_ns,
            )
        hypernodes = list(self.now.hypernodes)
        hypernodes[self._home[node]] = self._judged(home, at_ns)
        self.now = replace(
            self.now,
            generation=self.now.generation + 1,
            hypernodes=tuple(hypernodes),
            links=without(self._whole, sorted(self._down)),
            anomalies=tuple(sorted(self._down.values(), key=lambda x: x.key)),
        )
        return Key(node, "infiniband", "mlx5_0/1")

    def _judged(self, h: HyperNode, at_ns: int) -> HyperNode:
        mine = [x for x in self._down.values() if x.hypernode == h.name]
        before = next(c for c in h.conditions if c.type == "Degraded")
        status = "True" if mine else "False"
        since_ns = before.since_ns if before.status == status else at_ns
        named = "; ".join(
            f"{x.subject.name}/p{x.subject.port}, since {rfc3339(x.since_ns)}" for x in mine[:3]
        )
        words = (
            f"{len(mine)} of 256 host links down: {named}"
            if mine
            else "no link or switch is missing, slow or erroring"
        )
        degraded = Condition("Degraded", status, "LinksDown" if mine else "AllLinksUp", words, since_ns)
        return replace(h, conditions=tuple(degraded if c.type == "Degraded" else c for c in h.conditions))


def best_ms(ask: Callable[[], object]) -> float:
    found = []
    for _ in range(TURNS):
        began_s = time.perf_counter()
        ask()
        found.append(time.perf_counter() - began_s)
    return min(found) * 1000


def cluster() -> Cluster:
    """1,024 nodes in 32 units, eight rails each, eight spines: 8,192 cables of hosts, 2,048 others."""
    fabric = rail_optimised(units=32, hosts_per_unit=32, rails=8, shared_spines=8)
    return Cluster(with_conditions(inferred(fabric)))


def month(path: Path, days: int) -> HistorySize:
    """Write it; says what that costs."""
    settings, size, world = HistorySettings(), HistorySize(), cluster()
    limit = settings.history_max_mib << 20
    store = HistoryFile(
        path, size, max_bytes=limit, max_age_ns=int(settings.history_max_days * DAY_NS), now_ns=BEGAN_NS
    )
    record(store, BEGAN_NS, world.now, Cause("findings"))
    spent_s, worst_s, largest = 0.0, 0.0, 0
    for i in range(1, days * FLIPS + 1):
        at_ns = BEGAN_NS + i * DAY_NS // FLIPS
        key = world.flip(at_ns)
        began_s = time.perf_counter()
        record(store, at_ns, world.now, Cause("findings", (key,), 1))
        took_s = time.perf_counter() - began_s
        spent_s, worst_s, largest = spent_s + took_s, max(worst_s, took_s), max(largest, size.bytes)
    store.close()
    what = f"{days} days, 1,024 nodes, {FLIPS:,} flips a day"
    row(
        f"history of {what}: {size.generations:,} generations, {size.events:,} events",
        f"{largest / 2**20:.0f} MiB",
        f"history_max_mib {settings.history_max_mib}",
        "",
        f"{settings.history_max_mib} MiB",
    )
    row(
        "  writing one, in its own thread",
        f"{spent_s / days / FLIPS * 1000:.1f} ms, at most {worst_s * 1000:.0f} ms",
    )
    row("  kept of it", f"{(BEGAN_NS + days * DAY_NS - size.oldest_ns) / DAY_NS:.1f} days")
    return size


def questions(path: Path, days: int) -> None:
    end_ns = BEGAN_NS + days * DAY_NS
    began_s = time.perf_counter()
    store = HistoryFile(path, HistorySize(), max_bytes=256 << 20, max_age_ns=30 * DAY_NS, now_ns=end_ns)
    row("  opening the file after a restart", f"{(time.perf_counter() - began_s) * 1000:.0f} ms")
    store.close()
    reader = HistoryReader(Reader(path), lambda: end_ns)
    for words, back_ns in (("2h", DAY_NS // 12), ("1d", DAY_NS), (f"{days}d", days * DAY_NS)):
        asked = pb.ListHistoryRequest(since=timestamp(end_ns - back_ns), net=True)
        count = len(reader.events(asked).events)
        took_ms = best_ms(lambda asked=asked: reader.events(asked))  # type: ignore[misc]
        row(f"diff --since {words}: {count} differences", f"{took_ms:.0f} ms", "", "", "200 ms")
    rng = Random(2)
    times = [rng.randrange(end_ns - days * DAY_NS // 2, end_ns) for _ in range(20)]
    took = sorted(best_ms(lambda at=at: reader.topology_at(at)) for at in times)  # type: ignore[misc]
    row("tree --at TIME, 20 times", f"{took[10]:.0f} ms, at most {took[-1]:.0f} ms")
    first = pb.ListHistoryRequest(page_size=200)
    token = reader.events(first).next_page_token
    rare = [x for x in reader.events(pb.ListHistoryRequest(kinds=["ConditionChanged"])).events if x.hypernode]
    for what, request in (
        ("history, the first page of 200, with flaps of all days", first),
        ("history, the second", pb.ListHistoryRequest(page_size=200, page_token=token)),
        ("history of one HyperNode, the first page", pb.ListHistoryRequest(about=rare[0].hypernode)),
        ("history of one node, the first page", pb.ListHistoryRequest(about="node-0500")),
        ("history --since 2h, with flaps", pb.ListHistoryRequest(since=timestamp(end_ns - DAY_NS // 12))),
    ):
        found = reader.events(request)
        took_ms = best_ms(lambda request=request: reader.events(request))  # type: ignore[misc]
        row(f"{what}: {len(found.events)} events, {len(found.flaps)} flaps", f"{took_ms:.1f} ms")
    reader.close()
    row("peak memory of all this", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def main() -> None:
    days = int(sys.argv[1]) if len(sys.argv) > 1 else DAYS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.db"
        month(path, days)
        questions(path, days)


if __name__ == "__main__":
    main()
