"""A collector that starts after `hyperscout snapshot load` shows the snapshot until its agents are back."""

import asyncio
from pathlib import Path

import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_collector.evidence.postgresql import PostgresqlStore
from hyperscout_collector.store.postgresql import PostgresqlDatabase
from hyperscout_topology.frames import encoded_whole
from hyperscout_topology.objects import topology_json
from hyperscout_topology.topology import Topology
from support.collector_process import CollectorProcess, channel_to, collector_process
from support.collectors import QUICK_FLAGS, eight_hosts, is_whole, playing
from support.command_line import CommandLine
from support.evidence_stores import postgresql_evidence
from support.live import Watcher, problems_shown, status, topology_of
from support.postgresql import PASSWORD, Postgresql
from support.waiting import TIMEOUT_S

HOSTS = eight_hosts().hosts
LINKS = 20  # 12 cables in sweeps, and the 8 of hosts again by LLDP


def is_saved_whole(topology: Topology) -> bool:
    return is_whole(topology) and len(topology.links) == LINKS and not topology.anomalies


async def snapshot(run: CommandLine, folder: Path) -> Path:
    """The data folder of a collector that lost its disk, with the snapshot of what it showed."""
    saved, data = folder / "saved.json", folder / "new"
    async with collector_process(folder / "old", *QUICK_FLAGS) as old, playing(old.address, lldp=True):
        await Watcher(old.address).until(is_saved_whole, "the whole fabric")
        ran = run("snapshot", "save", saved, "--collector", old.address)
        assert ran.code == 0, ran.err
    ran = run("snapshot", "load", saved, "--data-dir", data)
    assert ran.code == 0, ran.err
    return data


async def until_problem(collector: CollectorProcess, text: str, *, is_there: bool = True) -> Topology:
    """The topology when a problem with this text is there, or is not."""
    async with channel_to(collector.address) as channel:
        async with asyncio.timeout(TIMEOUT_S):
            while (text in await problems_shown(channel)) != is_there:
                await asyncio.sleep(0.01)
        return await topology_of(channel)


async def losses(collector: CollectorProcess) -> set[tuple[str, str]]:
    """Kind and status of everything that got worse since the start."""
    async with channel_to(collector.address) as channel:
        answer = await TopologyServiceStub(channel).ListHistory(
            pb.ListHistoryRequest(page_size=1000), timeout=TIMEOUT_S
        )
    found = {(x.kind, f"{x.what} {x.after}".strip()) for x in answer.events}
    return {x for x in found if x[0].endswith("Removed") or x[1] == "Ready False"}


async def test_nothing_is_lost_before_the_agents_are_back(run: CommandLine, tmp_path: Path) -> None:
    data = await snapshot(run, tmp_path)
    flags = (*QUICK_FLAGS, "--takeover-limit-s", "3600")
    async with collector_process(data, *flags) as first:
        async with playing(first.address, lldp=True, hosts=HOSTS[:4]):
            shown = await until_problem(first, "waits for agents of 4 nodes")
            assert is_saved_whole(shown)
        assert await losses(first) == set()
        first.kill()
        await first.ended()
    async with (
        collector_process(data, *flags) as again,
        playing(again.address, lldp=True, hosts=HOSTS[:4]) as player,
    ):
        assert is_saved_whole(await until_problem(again, "waits for agents of 4 nodes")), "after a crash, too"
        for host in HOSTS[4:]:
            player.revive(host)
        await until_problem(again, "infers nothing yet", is_there=False)
        await Watcher(again.address).until(is_saved_whole, "the whole fabric, now inferred")
        assert await losses(again) == set()


@pytest.mark.slow
async def test_an_agent_that_does_not_return_becomes_stale(run: CommandLine, tmp_path: Path) -> None:
    data = await snapshot(run, tmp_path)
    flags = (*QUICK_FLAGS, "--takeover-limit-s", "1", "--stale-after-s", "3")
    async with (
        collector_process(data, *flags) as collector,
        playing(collector.address, lldp=True, hosts=HOSTS[:-1], refresh_interval_s=1),
    ):
        await until_problem(collector, "infers nothing yet", is_there=False)
        await Watcher(collector.address).until(
            lambda t: status(t, HOSTS[-1], "Stale") == "True", "the node whose agent did not return"
        )
        assert await losses(collector) == set(), "stale, not missing"


def test_a_folder_that_is_missing_or_of_another_user_is_named(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, data = tmp_path / "saved.json", tmp_path / "data"
    saved.write_text("".join(topology_json(Topology(7))))
    first = run("snapshot", "load", saved, "--data-dir", data)
    assert (first.code, f"{data} does not exist: it is created" in first.err) == (0, True)
    assert run("snapshot", "load", saved, "--data-dir", data).err.count("\n") == 1
    monkeypatch.setattr("os.getuid", lambda: data.stat().st_uid + 1)
    other = run("snapshot", "load", saved, "--data-dir", data)
    assert (other.code, f"warning: {data} belongs to user" in other.err) == (0, True)


def saved_file(folder: Path) -> tuple[Path, bytes]:
    """A snapshot, and how a store has it."""
    saved = folder / "saved.json"
    saved.write_text("".join(topology_json(Topology(7))))
    return saved, encoded_whole(Topology(7))


def database_and_flags(postgresql: Postgresql) -> tuple[str, tuple[str | Path, ...]]:
    """A new database, and the flags that name it."""
    name = postgresql.new_database()
    return name, ("--store", postgresql.url(name), "--store-password-file", postgresql.password_file)


def test_a_snapshot_is_loaded_into_postgresql(
    run: CommandLine, tmp_path: Path, shared_postgresql: Postgresql
) -> None:
    saved, encoded = saved_file(tmp_path)
    name, flags = database_and_flags(shared_postgresql)
    ran = run("snapshot", "load", saved, *flags)
    assert (ran.code, "continues from generation 7" in ran.err) == (0, True), ran.err
    server = shared_postgresql.server(name)
    reader = PostgresqlStore(PostgresqlDatabase(server), PostgresqlDatabase(server))
    loaded = reader.load()
    reader.close()
    assert (loaded.topology, loaded.lacks_evidence) == (encoded, True)


def test_a_database_that_a_collector_uses_is_left_alone(
    run: CommandLine, tmp_path: Path, shared_postgresql: Postgresql
) -> None:
    saved, _ = saved_file(tmp_path)
    name, flags = database_and_flags(shared_postgresql)
    collector = postgresql_evidence(shared_postgresql.server(name))
    try:
        collector.save_topology(b"of the collector")
        ran = run("snapshot", "load", saved, *flags)
        assert (ran.code, "stop all replicas first" in ran.err) == (1, True), ran.err
        collector.save_topology(b"it still writes")
        assert collector.load().topology == b"it still writes"
    finally:
        collector.close()
    assert run("snapshot", "load", saved, *flags).code == 0, "it has ended"


def test_a_store_that_does_not_do_is_an_error_without_the_password(run: CommandLine, tmp_path: Path) -> None:
    saved, _ = saved_file(tmp_path)
    for store, code, text in (
        ("postgresql://u@db.example.org/d", 2, "--store: db.example.org is not on this machine"),
        (f"postgresql://u:{PASSWORD.replace(' ', '%20')}@/d", 2, "--store: it has a password"),
        (f"postgresql://u@/d?host={tmp_path}", 1, "check the server"),
        ("mysql://u@/d", 2, "--store: expected postgresql://user@host/database\n"),
    ):
        ran = run("snapshot", "load", saved, "--store", store)
        assert (ran.code, text in ran.err, "secret" in ran.err) == (code, True, False), ran.err
    ran = run("snapshot", "load", saved, "--store", "postgresql://u@/d", "--data-dir", tmp_path / "d")
    assert (ran.code, "--data-dir and --store: give one of them" in ran.err) == (2, True)
    for flags in (("--store-password-file", tmp_path / "p"), ("--insecure",)):
        ran = run("snapshot", "load", saved, *flags)
        assert (ran.code, f"{flags[0]}: give --store too" in ran.err) == (2, True)


def test_plaintext_beyond_this_machine_needs_insecure(run: CommandLine, tmp_path: Path) -> None:
    saved, _ = saved_file(tmp_path)
    store = "postgresql://u@nosuch.invalid/d?hostaddr=192.0.2.1"
    ran = run("snapshot", "load", saved, "--store", store)
    assert (ran.code, "or give --insecure on a trusted network" in ran.err) == (2, True), ran.err
    ran = run("snapshot", "load", saved, "--store", f"{store}&port=x", "--insecure")
    assert (ran.code, 'invalid integer value "x"' in ran.err) == (1, True), ran.err
