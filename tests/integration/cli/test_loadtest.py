"""`hyperscout loadtest` as a process: what it prints, and that it leaves no process behind."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hyperscout_cli.loadtest.agents_process import renew
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.shapes import cluster
from support.collector_process import collector_process
from support.collectors import playing
from support.postgresql import Postgresql
from support.replicas import leads, replica, store_flags
from support.waiting import TIMEOUT_S, eventually

COMMAND = [sys.executable, "-m", "hyperscout_cli.main", "loadtest"]


def environment(folder: Path) -> Mapping[str, str]:
    """`folder` is in the environment of all processes that a load test starts."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HYPERSCOUT_")}
    return kept | {"TMPDIR": str(folder)}


def pids(folder: Path, name: str = "") -> list[int]:
    """The living processes with this folder in their environment, and `name` in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if f"TMPDIR={folder}".encode() in variables and name in words:
            found.append(int(process.name))
    return found


@asynccontextmanager
async def loadtest(folder: Path, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    folder.mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *flags,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(folder),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await eventually(lambda: not pids(folder), "all processes end")


async def result(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    async with asyncio.timeout(TIMEOUT_S):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_a_small_run_with_tls_prints_all_figures(tmp_path: Path) -> None:
    flags = "--agents 20 --processes 2 --changes 4 --changes-per-minute 120 --refresh-interval 1s --restart"
    async with loadtest(tmp_path, *flags.split(), "-o", "json") as process:
        code, out, err = await result(process)
        assert code == 0, err
        assert pids(tmp_path) == []
    assert "starting a collector" in err
    found = json.loads(out)
    assert (found["agents"], found["processes"], found["tls"]) == (20, 2, True)
    processor_times = ("collectorCpuS", "collectorCpuPerFindingUs", "agentsCpuS")  # in ticks of 10 ms
    for phase in (found["states"], found["updates"], found["restart"]):
        assert phase["findings"] >= 160, "eight of each agent, and the sweeps"
        assert phase["acknowledgedS"] > 0
        assert all(phase[name] >= 0 for name in processor_times)
    assert found["states"]["publishedS"] > 0
    changes = found["changes"]
    assert (changes["made"], changes["seen"]) == (4, 4)
    assert changes["tookS"] >= 2, "four intervals of half a second"
    spread = list(changes["changeToWatcherS"].values())
    assert list(changes["changeToWatcherS"]) == ["p50", "p90", "p99", "max"]
    assert spread == sorted(spread)
    assert spread[0] > 0
    assert "at rest for 2 s" in err, "as long as the changes"
    assert changes["collectorLoadAtRest"] >= 0
    more = changes["collectorLoad"] - changes["collectorLoadAtRest"]
    assert changes["collectorCpuPerChangeMs"] == pytest.approx(more * changes["tookS"] / 4 * 1000, abs=1)
    assert found["memoryMib"]["empty"] <= found["memoryMib"]["peak"]
    assert list(tmp_path.iterdir()) == [], "its files are gone"


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
async def test_an_interrupted_run_leaves_no_process(tmp_path: Path, end: signal.Signals) -> None:
    async with loadtest(
        tmp_path, "--agents", "20", "--changes-per-minute", "9", "--duration", "1h"
    ) as process:
        for name, count in (("agents_process", 2), (" collector ", 1)):
            await eventually(lambda name=name, count=count: len(pids(tmp_path, name)) == count)
        process.send_signal(end)
        code, out, _ = await result(process)
        assert (code, out) == (-9 if end is signal.SIGKILL else 130, "")
        await eventually(lambda: not pids(tmp_path), "all processes end")


@pytest.mark.parametrize(
    ("name", "ended"),
    [("agents_process", "process agents_process"), (" collector ", "collector")],
)
async def test_a_process_that_ends_too_early_is_an_error(tmp_path: Path, name: str, ended: str) -> None:
    async with loadtest(
        tmp_path, "--agents", "20", "--changes-per-minute", "9", "--duration", "1h"
    ) as process:
        await eventually(lambda: pids(tmp_path, name))
        os.kill(pids(tmp_path, name)[0], signal.SIGKILL)
        code, out, err = await result(process)
    assert (code, out) == (1, "")
    assert f"error: the load test failed: the {ended} ended" in err


async def test_a_given_collector_is_measured_without_its_own_figures(tmp_path: Path) -> None:
    async with collector_process(tmp_path / "data") as collector:
        flags = ("--collector", collector.address, "--agents", "4", "--processes", "1", "--changes", "0")
        async with loadtest(tmp_path / "files", *flags, "-o", "json") as process:
            code, out, err = await result(process)
        assert code == 0, err
        found = json.loads(out)
        assert (found["tls"], found["memoryMib"], found["changes"]) == (False, None, None)
        assert found["states"]["collectorCpuS"] is None


async def test_replicas_share_the_agents(tmp_path: Path, shared_postgresql: Postgresql) -> None:
    database = shared_postgresql.new_database()
    flags = store_flags(shared_postgresql, database)
    async with replica(tmp_path, flags, "a") as one, replica(tmp_path, flags, "b") as other:
        await leads([one, other])
        addresses = f"{one.address},{other.address}"
        words = "--agents 9 --processes 2 --changes 2 --changes-per-minute 120 -o json"
        async with loadtest(tmp_path / "files", "--collector", addresses, *words.split()) as process:
            code, out, err = await result(process)
    assert code == 0, err
    found = json.loads(out)
    assert found["changes"]["seen"] == 2
    assert found["updates"]["findings"] >= 72, "eight of each agent at any replica"
    statement = "SELECT count(DISTINCT node) FROM findings GROUP BY sequence = 0"  # 0: the leader took it
    by_replica = shared_postgresql.execute(database, statement)
    assert sorted(number for (number,) in by_replica) == [4, 5]


async def test_a_collector_with_other_agents_is_refused(tmp_path: Path) -> None:
    async with collector_process(tmp_path / "data") as collector, playing(collector.address) as player:
        await eventually(lambda: player.settled and player.streaming == len(player.fabric.hosts))
        async with loadtest(
            tmp_path / "files", "--collector", collector.address, "--changes", "0"
        ) as process:
            code, out, err = await result(process)
    assert (code, out) == (1, "")
    assert "has 8 agents, such as node-0001: use a collector for tests, with an empty data_dir" in err


async def test_a_collector_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    async with loadtest(tmp_path, "--collector", "127.0.0.1:1") as process:
        code, out, err = await result(process)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "cannot reach the collector at 127.0.0.1:1" in err


async def test_later_observations_keep_the_change_of_all_findings() -> None:
    """Otherwise a restart after it would be a change of all findings, too."""
    player = Player(cluster(2), ["127.0.0.1:1"], lldp=True)
    host = player.fabric.hosts[0]
    player.revive(host)
    store = player.agents[host].store

    def counted() -> dict[str, int]:
        return {
            x.key.subject: x.lldp.carrier_changes if x.HasField("lldp") else x.infiniband.link_downed
            for x in store.newest()
        }

    before = counted()
    await renew(player)
    renewed = {subject: number + 1 for subject, number in before.items()}
    assert counted() == renewed
    player.observe(host)
    assert counted() == renewed
    await player.kill(host)
