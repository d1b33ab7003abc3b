"""The collector with 2,000 agents: findings a second, memory an agent, and how soon a cut cable shows.

The agents are the simulator's: real stores and uplinks, one connection each, all in this process; the
collector is a process of its own. Both share the machine's cores, so the figures are for the pair of them.
"""

import asyncio
import json
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import Finding
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import rail_optimised
from support.collector_process import CHANNEL_OPTIONS, collector_process

AGENTS = 2000
WATCH = "--watch"  # this file as the watcher's process
STEPS = (500, 1000, 2000)
RAILS = 4
CHANGES = 100
SETTLE_TIMEOUT_S = 300.0
CHANGE_TIMEOUT_S = 60.0
BUDGET_AGENTS = 10_000
PAGE_BYTES = resource.getpagesize()


def rss_mib(pid: int) -> float:
    """Resident memory (proc(5), statm)."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES / 2**20


def cpu_s(pid: int) -> float:
    """User and system time so far (proc(5), stat: fields 14 and 15, in ticks of 10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def settled(player: Player, agents: int) -> float:
    """Wait until so many agents stream and everything that they saw is stored; seconds it took."""
    began = time.perf_counter()
    async with asyncio.timeout(SETTLE_TIMEOUT_S):
        while not (len(player.agents) == agents and player.settled):
            await asyncio.sleep(0.02)
    return time.perf_counter() - began


class Table:
    """The Degraded conditions as a watcher sees them, in a process of its own: the 2,000 agents keep this
    one so busy that it would see them late."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.seen_ns = 0  # when the watcher got its last event
        self.messages: dict[str, str] = {}  # by HyperNode
        self._changed = asyncio.Condition()

    async def follow(self) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, WATCH, self.address, stdout=asyncio.subprocess.PIPE, limit=1 << 24
        )
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                seen_ns, messages = json.loads(line)
                async with self._changed:
                    self.seen_ns = seen_ns
                    self.messages = {**self.messages, **messages}
                    self._changed.notify_all()
        finally:
            process.kill()
            await process.wait()

    async def until_more(self, before: dict[str, str]) -> int:
        """When (Unix ns) a message was another than before."""
        async with asyncio.timeout(CHANGE_TIMEOUT_S), self._changed:
            await self._changed.wait_for(lambda: self.messages != before)
            return self.seen_ns

    async def until_published(self) -> None:
        async with asyncio.timeout(CHANGE_TIMEOUT_S), self._changed:
            await self._changed.wait_for(lambda: bool(self.messages))


async def watch(address: str) -> None:
    """The watcher's process: a line for each event, with the time at which it came."""
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        async for event in TopologyServiceStub(channel).WatchTopology(
            pb.WatchTopologyRequest(omit_links=True)
        ):
            seen_ns = time.time_ns()
            part = getattr(event, event.WhichOneof("event"))
            messages = {
                h.name: c.message for h in part.hypernodes for c in h.conditions if c.type == "Degraded"
            }
            print(json.dumps([seen_ns, messages]), flush=True)


@asynccontextmanager
async def beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def row(what: str, measured: str, peer: str = "", ratio: str = "", budget: str = "") -> None:
    print(" | ".join((what, measured, peer, ratio, budget)), flush=True)


async def everything_changes(player: Player, agents: int, pid: int) -> None:
    """Every finding of every connected agent changes at once: what the streams and the store can take."""
    changed = 0
    for agent in player.agents.values():
        for probe in ("lldp", "infiniband"):
            for subject in agent.store.subjects(probe):
                finding = Finding()
                finding.CopyFrom(agent.store.get(probe, subject) or finding)
                finding.observed_at.FromNanoseconds(time.time_ns())
                if probe == "lldp":
                    finding.lldp.carrier_changes += 1
                else:
                    finding.infiniband.link_downed += 1
                agent.store.put(finding)
                changed += 1
    cpu = cpu_s(pid)
    took = await settled(player, agents)
    cpu = cpu_s(pid) - cpu
    row(
        f"ingest, all {changed} findings of {agents} connected agents change, until all are acknowledged",
        f"{took:.1f} s: {changed / took:,.0f} findings/s, {cpu / changed * 1e6:.0f} us of the collector each",
    )


def sqlite_floor(folder: Path, source: Path) -> float:
    """Rows a second that SQLite alone takes, the same rows in transactions of 4,000."""
    with sqlite3.connect(source) as db:
        rows = db.execute("SELECT * FROM findings").fetchall()
    db.close()
    db = sqlite3.connect(folder / "floor.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE TABLE findings (a,b,c,d,e,f,g,h,i, PRIMARY KEY (a,b,c,d)) WITHOUT ROWID")
    began = time.perf_counter()
    for start in range(0, len(rows), 4000):
        db.execute("BEGIN")
        db.executemany("INSERT INTO findings VALUES (?,?,?,?,?,?,?,?,?)", rows[start : start + 4000])
        db.execute("COMMIT")
    took = time.perf_counter() - began
    db.close()
    return len(rows) / took


async def growth(folder: Path) -> None:
    """Agents in three steps, each against a fresh collector: memory, and how fast the full states go in."""
    sizes: list[tuple[int, float]] = []
    for agents in STEPS:
        data = folder / str(agents)
        async with collector_process(data) as collector:
            empty = rss_mib(collector.pid)
            player = Player(fabric_of(agents), [collector.address], lldp=True, refresh_interval_s=3600)
            cpu = cpu_s(collector.pid)
            async with beside(player.run()):
                took = await settled(player, agents)
                cpu = cpu_s(collector.pid) - cpu
                findings = sum(len(agent.store) for agent in player.agents.values())
                sizes.append((agents, rss_mib(collector.pid)))
                if agents == STEPS[-1]:
                    await everything_changes(player, agents, collector.pid)
        if agents == STEPS[-1]:
            rate, floor = findings / took, sqlite_floor(folder, data / "evidence.db")
            row(
                f"ingest, full states of {agents} agents ({findings} findings), until all are acknowledged",
                f"{took:.1f} s: {rate:,.0f} findings/s",
                f"SQLite alone {floor:,.0f} rows/s",
                f"{floor / rate:.1f} x",
            )
            row(
                "ingest, processor time of the collector for it",
                f"{cpu:.1f} s: {cpu / findings * 1e6:.0f} us a finding",
            )
            row("collector at rest, memory without agents", f"{empty:.0f} MiB")
    (a0, m0), (a1, m1) = sizes[0], sizes[-1]
    slope = (m1 - m0) / (a1 - a0)
    row(
        f"collector, memory with {a1} agents",
        f"{m1:.0f} MiB",
        "42 KiB a stream (gRPC alone)",
        f"{slope * 1024 / 42:.1f} x",
    )
    at_budget = m1 + slope * (BUDGET_AGENTS - a1)
    row(
        f"collector, memory with {BUDGET_AGENTS} agents (extrapolated)",
        f"{at_budget:.0f} MiB",
        f"slope {slope * 1024:.0f} KiB an agent from {a0} to {a1}",
        "",
        "1 GiB",
    )


async def latency(folder: Path) -> None:
    """Cables are cut one after the other; each is another link, so nothing is damped."""
    fabric = fabric_of(AGENTS)
    async with collector_process(folder / "latency") as collector:
        player = Player(fabric, [collector.address], lldp=True, refresh_interval_s=3600)
        table = Table(collector.address)
        async with beside(player.run(), table.follow()):
            await settled(player, AGENTS)
            await table.until_published()
            await quiet(table)
            busy = cpu_s(collector.pid)
            began = time.perf_counter()
            took = [await one_change(player, table, i) for i in range(CHANGES)]
            busy = (cpu_s(collector.pid) - busy) / (time.perf_counter() - began)
    took.sort()
    p99 = took[min(len(took) - 1, int(len(took) * 0.99))]
    row(
        f"change -> table, {AGENTS} agents: finding received -> seen by a watcher, median of {CHANGES}",
        f"{statistics.median(took) * 1000:.0f} ms",
    )
    row("change -> table, p99", f"{p99:.2f} s", "", "", "1 s")
    row("change -> table, load of the collector meanwhile", f"{busy * 100:.0f} % of a core")


async def one_change(player: Player, table: Table, index: int) -> float:
    """Cut a host's cable; seconds from the finding's arrival until a HyperNode says so.

    Both are read off one clock. (What the simulator takes to sweep the fabric anew is left out.)
    """
    step = len(player.fabric.hosts) // CHANGES
    host = player.fabric.hosts[index * step]
    adapters = {a.guid for a in player.fabric.adapters if a.host == host}
    cable = next(c for c in player.fabric.cables if c.a in adapters)
    before = table.messages
    player.cut(cable)
    seen_ns = await table.until_more(before)
    await quiet(table)
    async with grpc.aio.insecure_channel(table.address, options=CHANNEL_OPTIONS) as channel:
        request = pb.ListFindingsRequest(node=host, probe="infiniband")
        held = (await TopologyServiceStub(channel).ListFindings(request)).findings
    came_ns = max(x.received_at.ToNanoseconds() for x in held if x.finding.infiniband.state == "DOWN")
    return (seen_ns - came_ns) / 1e9


async def quiet(table: Table) -> None:
    """Let what a change entails go by, so that the next one is measured alone."""
    while True:
        before = table.messages
        await asyncio.sleep(0.5)
        if table.messages == before:
            return


def fabric_of(agents: int) -> SimFabric:
    """Units of 50 hosts, each with a leaf a rail."""
    return rail_optimised(agents // 50, 50, RAILS, 2)


def main() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    print("what | measured | floor or peer | ratio | budget")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(growth(Path(folder)))
        asyncio.run(latency(Path(folder)))


if __name__ == "__main__":
    if sys.argv[1:2] == [WATCH]:
        asyncio.run(watch(sys.argv[2]))
    else:
        main()
