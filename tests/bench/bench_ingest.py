"""The collector with 2,000 agents: findings a second, memory an agent, and how soon a dead link shows.

It runs the load test (`hyperscout loadtest`): first in plaintext and without changes of links at three sizes,
each against a fresh collector, for the growth of the memory; then with TLS and changes. All processes share
the machine's cores, so the figures are for all of them together.
"""

import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path

from hyperscout_cli.loadtest.figures import Memory, Report, percentile
from hyperscout_cli.loadtest.run import run
from hyperscout_cli.loadtest.settings import LoadTestSettings
from hyperscout_cli.remote.open_files import raise_open_files
from support.bench_rows import row

STEPS = (500, 1000, 2000)
AGENTS = STEPS[-1]
CHANGES = 300  # over three minutes: cables go down, and the first of them return
BUDGET_AGENTS = 10_000


def measured(
    folder: Path, agents: int, *, changes: int = 0, tls: bool = False, restart: bool = False
) -> Report:
    """One load test with its files in `folder`."""
    folder.mkdir()
    settings = LoadTestSettings(agents, changes=changes, tls=tls, restart=restart)
    return asyncio.run(run(settings, folder, print))


def memory_of(report: Report) -> Memory:
    assert report.memory is not None
    return report.memory


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


def growth(folder: Path) -> None:
    """Agents in three steps: memory, and how fast full states and updates go in."""
    sizes = [measured(folder / str(agents), agents, restart=agents == AGENTS) for agents in STEPS]
    last = sizes[-1]
    states, updates, restart = last.states, last.updates, last.restart
    assert restart is not None
    rate = states.findings / states.acknowledged_s
    floor = sqlite_floor(folder, folder / str(AGENTS) / "data" / "evidence.db")
    row(
        f"ingest, full states of {AGENTS} agents ({states.findings} findings), until all are acknowledged",
        f"{states.acknowledged_s:.1f} s: {rate:,.0f} findings/s",
        f"SQLite alone {floor:,.0f} rows/s",
        f"{floor / rate:.1f} x",
    )
    row(
        "ingest, processor time of the collector for it",
        f"{states.collector_cpu_s:.1f} s: {states.cpu_us:.0f} us a finding",
    )
    row(
        f"ingest, all {updates.findings} findings of {AGENTS} connected agents change, "
        "until all are acknowledged",
        f"{updates.acknowledged_s:.1f} s: {updates.findings / updates.acknowledged_s:,.0f} findings/s, "
        f"{updates.cpu_us:.0f} us of the collector each",
    )
    row(
        f"ingest, full states of {AGENTS} agents after a restart of the collector",
        f"{restart.acknowledged_s:.1f} s: {restart.cpu_us:.0f} us of the collector a finding",
    )
    (a0, m0), (a1, m1) = ((x.settings.agents, memory_of(x).with_agents) for x in (sizes[0], sizes[-1]))
    row("collector at rest, memory without agents", f"{memory_of(last).empty:.0f} MiB")
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


def latency(folder: Path) -> None:
    """Links change one after the other; each is another link, so nothing is damped."""
    report = measured(folder / "latency", AGENTS, changes=CHANGES, tls=True)
    changes = report.changes
    assert changes is not None
    median, p99 = (percentile(changes.latencies_s, share) or 0.0 for share in (50, 99))
    row(
        f"change -> watcher, {AGENTS} agents with TLS, 100 changes a minute: median of {CHANGES}",
        f"{median * 1000:.0f} ms",
    )
    row("change -> watcher, p99", f"{p99:.2f} s", "", "", "1 s")
    row("change -> watcher, not seen", f"{report.unseen} of {changes.made}")
    row(
        "change -> watcher, load of the collector and of the agents meanwhile",
        f"{(changes.collector_load or 0) * 100:.0f} % and {changes.agents_load * 100:.0f} % of a core",
    )


def main() -> None:
    raise_open_files()
    with tempfile.TemporaryDirectory() as folder:
        growth(Path(folder))
        latency(Path(folder))


if __name__ == "__main__":
    main()
