"""Replicas with one PostgreSQL: what they use, how soon a cut cable shows, and what a kill -9 loses.

    python tests/bench/bench_replicas.py [--agents 500,2000,8000] [--replicas 3] [--processes 2] [--save FILE]
    python tests/bench/bench_replicas.py --from FILE    # the tables of saved figures

The simulated agents of the load test are spread over the replicas, in plaintext. PostgreSQL syncs its disk.
It makes no checkpoint meanwhile, so the WAL has no images of whole pages. With two sizes or more it prints
what each agent adds, and what 100,000 nodes need (docs/scale.md). A size takes some minutes:
`python tests/bench` allows 15 minutes for all.

All processes share the machine's cores. PostgreSQL is on a Unix socket: its traffic is not measured.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psycopg
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_cli.demo.demo import beside
from hyperscout_cli.loadtest.agents_process import content_digest
from hyperscout_cli.loadtest.child import cpu_s, rss_mib
from hyperscout_cli.loadtest.figures import percentile
from hyperscout_cli.loadtest.link_schedule import LinkSchedule
from hyperscout_cli.loadtest.progress import Progress
from hyperscout_cli.loadtest.run import Load, Target, first_change, idle, simulated, start
from hyperscout_cli.loadtest.settings import RAILS, LoadTestSettings
from hyperscout_cli.loadtest.watcher import Port, watch
from hyperscout_cli.remote.open_files import raise_open_files
from hyperscout_runtime.credentials import Credentials
from support.bench_rows import row
from support.collector_process import CollectorProcess
from support.postgresql import Postgresql, postgresql
from support.process_usage import cpu_with_children_s, family, memory_mib, traffic
from support.replica_figures import Figures, table
from support.replicas import database_flags, leads, replica
from support.waiting import eventually

AGENTS, REPLICAS, PROCESSES = "500", 3, 2
INTERVAL_S = 60.0  # at which agents report again, and for which the rest is measured
CUTS = 10
BEFORE_KILL = 3  # changes
PAUSE_S = 0.5  # between changes
TIMEOUT_S = 900.0
POSTGRESQL = {"fsync": "on", "shared_buffers": "256MB", "checkpoint_timeout": "1d", "max_wal_size": "32GB"}
_COUNTERS = """
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, pg_database_size(current_database()),
  (SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint FROM pg_stat_user_tables)
"""
_FINDINGS = "SELECT node, probe, subject, observed_ns, finding FROM hyperscout.findings ORDER BY observed_ns"

Session = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The replicas, the leader first, the server, and the agents. `standby`: what a watcher at one sees."""

    replicas: Sequence[CollectorProcess]
    server: Postgresql
    session: Session
    load: Load
    standby: Progress

    def counters(self) -> Mapping[str, float]:
        """What grows: processor time, rows, WAL and traffic. With the size of the database."""
        wal, size, rows = self.session.execute(_COUNTERS).fetchone() or (0, 0, 0)
        bytes_of = traffic(int(one.address.rpartition(":")[2]) for one in self.replicas)
        return {
            "atS": time.monotonic(),
            "leaderCpuS": cpu_s(self.replicas[0].pid),
            "standbyCpuS": sum(cpu_s(one.pid) for one in self.replicas[1:]) / (len(self.replicas) - 1),
            "postgresqlCpuS": cpu_with_children_s(self.server.pid),
            "agentsCpuS": sum(cpu_s(one.pid) for one in self.load.agents),
            "rows": rows,
            "walBytes": wal,
            "databaseBytes": size,
            **{f"traffic.{name}": value for name, value in bytes_of._asdict().items()},
        }

    def memory(self) -> Mapping[str, float]:
        """Resident memory in MiB: of the leader, of a standby on average, of PostgreSQL."""
        leader, *standbys = (rss_mib(one.pid) for one in self.replicas)
        postgresql_mib = memory_mib(family(self.server.pid))
        return {"leader": leader, "standby": sum(standbys) / len(standbys), "postgresql": postgresql_mib}

    async def at_rest(self) -> Figures:
        """What is used for a second, and memory, while agents only report the same again."""
        before = self.counters()
        await idle(self.load, before["atS"] + INTERVAL_S)
        after = self.counters()
        took_s = after["atS"] - before["atS"]
        per_s = {name: (after[name] - before[name]) / took_s for name in before}
        return {
            "memoryMib": self.memory(),
            "databaseBytes": after["databaseBytes"],
            "cores": {name: per_s[f"{name}CpuS"] for name in ("leader", "standby", "postgresql", "agents")},
            "rowsPerS": per_s["rows"],
            "walBytesPerS": per_s["walBytes"],
            "toReplicasBytesPerS": per_s["traffic.sent"],
            "fromReplicasBytesPerS": per_s["traffic.received"],
            "toReplicasWithHeadersBytesPerS": per_s["traffic.sent_with_headers"],
            "fromReplicasWithHeadersBytesPerS": per_s["traffic.received_with_headers"],
        }

    def change(self, schedule: LinkSchedule) -> int:
        """Cut a link. Returns the number of the change."""
        change = schedule.next(time.monotonic())
        if change is None:
            raise RuntimeError("all links have changed: give more agents")
        number = self.load.progress.begin(change)
        self.standby.begin(change)
        self.load.send(link=change.link, down=change.down, change=number)
        return number

    async def cuts(self, schedule: LinkSchedule) -> Figures:
        """Cut cables, one after the other. Seconds until watchers at the leader and at a standby see it."""
        progress, standby = self.load.progress, self.standby
        took_s: dict[str, list[float]] = {"leader": [], "standby": []}
        for _ in range(CUTS):
            number = self.change(schedule)
            expected = "a cut cable is seen at the leader and at a standby"
            await self.load.until(expected, lambda n=number: n in progress.seen_ns and n in standby.seen_ns)
            await self.load.until("the change is made", lambda n=number: n in progress.made_ns)
            for place, seen in (("leader", progress), ("standby", standby)):
                took_s[place].append((seen.seen_ns[number] - progress.made_ns[number]) / 1e9)
            await asyncio.sleep(PAUSE_S)
        return {place: {"p50": percentile(x, 50), "max": max(x)} for place, x in took_s.items()}

    async def kill(self, schedule: LinkSchedule) -> Figures:
        """Kill the last standby while links change, and compare what was acknowledged with what is stored."""
        load, progress = self.load, self.load.progress
        agents = load.settings.agents

        async def change() -> None:
            while True:
                self.change(schedule)
                await asyncio.sleep(PAUSE_S)

        async with beside(change()):
            first = progress.changes
            await load.until("links change", lambda: progress.changes >= first + BEFORE_KILL)
            self.replicas[-1].kill()
            began_s = time.monotonic()
            lose = load.until("agents lose their replica", lambda: progress.streaming < agents)
            stored, _ = await asyncio.gather(asyncio.to_thread(self._stored), lose)
            lost_stream = await self._acknowledged(connected=False)
            await load.until("all agents are at the other replicas", lambda: progress.streaming == agents)
            moved_s = time.monotonic() - began_s
        await load.until("all changes are seen", lambda: not progress.pending)
        await load.until("all findings are acknowledged", lambda: progress.settled)
        settled_s = time.monotonic() - began_s
        at_kill = checked(lost_stream, stored)
        in_the_end = checked(await self._acknowledged(connected=True), await asyncio.to_thread(self._stored))
        return {"movedS": moved_s, "settledS": settled_s, "checkedAtKill": at_kill, "checked": in_the_end}

    def _stored(self) -> list[tuple[Any, ...]]:
        """Findings in the database: node, probe, subject, when observed (ns), encoded."""
        return self.session.execute(_FINDINGS).fetchall()

    async def _acknowledged(self, *, connected: bool) -> list[Any]:
        """Findings that a replica has acknowledged, of agents that are connected or are not."""
        answers = self.load.progress.acknowledged
        answers.clear()
        self.load.send(connected=connected)
        await self.load.until("the agents answer", lambda: len(answers) == self.load.settings.processes)
        return [one for answer in answers.values() for one in answer]


def checked(acknowledged: Sequence[Any], rows: Sequence[tuple[Any, ...]]) -> int:
    """Raise AssertionError if the database lacks an acknowledged finding. Returns the number of findings.

    The database may hold a newer one. One that is newer in its time alone need not be sent.
    """
    stored = {tuple(key): (observed_ns, encoded) for *key, observed_ns, encoded in rows}
    lost = []
    for *key, observed_ns, digest in acknowledged:
        stored_ns, encoded = stored.get(tuple(key), (0, b""))
        if stored_ns <= observed_ns and content_digest(Finding.FromString(encoded)) != digest:
            lost.append(tuple(key))
    assert not lost, f"{len(lost)} acknowledged findings are not in the database, such as {lost[:3]}"
    return len(acknowledged)


async def _watch(
    address: str,
    standby: Progress,
    leader: str,
    credentials: Credentials,
    links: Mapping[Port, int],
    progress: Progress,
) -> None:
    """Watch at the leader, and at a standby with a given address."""
    async with beside(watch(address, credentials, links, standby)):
        await watch(leader, credentials, links, progress)


async def measured(server: Postgresql, folder: Path, settings: LoadTestSettings, replicas: int) -> Figures:
    """The figures of one size."""
    database = server.new_database()
    flags = database_flags(server, database)
    async with AsyncExitStack() as stack:
        names = [f"replica-{number}" for number in range(replicas)]
        started = [await stack.enter_async_context(replica(folder, flags, x, lease_s=8)) for x in names]
        leader = await leads(started)
        standbys = [one for one in started if one is not leader]
        await eventually(lambda: all(b"following the leader" in one.said for one in standbys))
        target = Target([one.address for one in (leader, *standbys)])
        standby = Progress(settings.agents, settings.processes, say)
        watcher = partial(_watch, standbys[0].address, standby)
        load = await stack.enter_async_context(simulated(settings, say, target, watcher))
        session = stack.enter_context(server.session(database))
        cluster = Cluster((leader, *standbys), server, session, load, standby)
        empty = cluster.memory()
        states = await start(load)
        steady_s = time.monotonic() + INTERVAL_S
        last = settings.agents * RAILS - 1
        await first_change(load, last)
        await idle(load, steady_s)
        say("at rest ...")
        rest = await cluster.at_rest()
        schedule = LinkSchedule(last)
        say("cutting cables ...")
        cuts = await cluster.cuts(schedule)
        say("killing a replica ...")
        kill = await cluster.kill(schedule)
    return {
        "agents": settings.agents,
        "replicas": replicas,
        "settledS": states.acknowledged_s,
        "publishedS": states.published_s,
        "emptyMemoryMib": empty,
        **rest,
        "cutS": cuts,
        "kill": kill,
    }


def rows(one: Figures) -> None:
    """Print the figures of one size."""
    where = f"{one['agents']:,} agents at {one['replicas']} replicas with PostgreSQL"
    row(f"{where}: all connected, all findings acknowledged", f"{one['settledS']:.1f} s")
    row(f"{where}: all nodes published", f"{one['publishedS']:.1f} s")
    for place, took in one["cutS"].items():
        row(f"{where}: cut cable -> watcher at the {place}, median of {CUTS}", f"{took['p50']:.2f} s")
        row(f"{where}: the same, maximum", f"{took['max']:.2f} s")
    for place, mib in one["memoryMib"].items():
        empty = one["emptyMemoryMib"][place]
        row(f"{where}: memory of {place}", f"{mib:.0f} MiB", f"{empty:.0f} MiB without agents")
    for place, cores in one["cores"].items():
        row(f"{where}: load of {place} at rest", f"{cores * 100:.1f} %")
    row(f"{where}: rows written at rest", f"{one['rowsPerS']:.1f}/s")
    row(f"{where}: WAL at rest", f"{one['walBytesPerS'] / 1000:.1f} KB/s")
    row(f"{where}: size of the database", f"{one['databaseBytes'] / 2**20:.1f} MiB")
    for way in ("toReplicas", "fromReplicas"):
        payload, total = one[f"{way}BytesPerS"], one[f"{way}WithHeadersBytesPerS"]
        row(f"{where}: TCP {way}", f"{payload / 1000:.1f} KB/s", f"{total / 1000:.1f} KB/s with headers")
    kill = one["kill"]
    row(f"{where}: kill -9 of a replica, its agents are at others", f"{kill['movedS']:.1f} s")
    row(f"{where}: the same, all findings acknowledged", f"{kill['settledS']:.1f} s")
    row(
        f"{where}: acknowledged findings not in the database",
        f"0 of {kill['checked']}",
        f"0 of {kill['checkedAtKill']} of agents without a replica at the kill",
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", default=AGENTS, help=f"sizes, separated by commas (default {AGENTS})")
    parser.add_argument("--replicas", type=int, default=REPLICAS, help=f"3 or more (default {REPLICAS})")
    parser.add_argument("--processes", type=int, default=PROCESSES, help=f"of agents (default {PROCESSES})")
    parser.add_argument("--save", type=Path, help="write the figures to this file, as JSON")
    parser.add_argument("--from", type=Path, dest="saved", help="measure nothing, and print these figures")
    chosen = parser.parse_args()
    if chosen.replicas < 3:  # the leader and a standby with watchers, and one to kill
        parser.error("--replicas: give 3 or more")
    sizes: list[Figures] = []
    if chosen.saved:
        sizes = json.loads(chosen.saved.read_text())
        for one in sizes:
            rows(one)
    else:
        raise_open_files()
        with tempfile.TemporaryDirectory() as folder, postgresql() as server:
            server.end()
            server.start(**POSTGRESQL)
            for agents in map(int, chosen.agents.split(",")):
                settings = LoadTestSettings(
                    agents, chosen.processes, refresh_interval_s=INTERVAL_S, timeout_s=TIMEOUT_S
                )
                sizes.append(
                    asyncio.run(measured(server, Path(folder) / str(agents), settings, chosen.replicas))
                )
                rows(sizes[-1])
                if chosen.save:
                    chosen.save.write_text(json.dumps(sizes, indent=1))
    if len(sizes) > 1:
        print("", table(sizes), sep="\n")


if __name__ == "__main__":
    main()
