"""A replica continues from PostgreSQL what another one stored, also after kill -9 of it."""

import contextlib
import os
import signal
from pathlib import Path

import grpc.aio
import pytest
from hyperscout.v1 import topology_pb2
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_topology.topology import Topology
from support.collector_process import channel_to, collector_process, listed
from support.collectors import playing
from support.evidence_stores import written
from support.placement_calls import reservations, reserved
from support.postgresql import Postgresql
from support.replicas import leads, replica, store_flags, whole
from support.waiting import TIMEOUT_S, eventually, until_awaited


def names(topology: Topology) -> list[str]:
    return [one.name for one in topology.hypernodes]


async def recorded(address: str) -> list[int]:
    """The generations in the history, oldest first."""
    async with channel_to(address) as channel:
        request = topology_pb2.ListHistoryRequest(kinds=["GenerationPublished"])
        answer = await TopologyServiceStub(channel).ListHistory(request, timeout=TIMEOUT_S)
    return [x.generation for x in reversed(answer.events)]


async def test_a_collector_elsewhere_continues_after_kill_9(
    tmp_path: Path, shared_postgresql: Postgresql
) -> None:
    flags = store_flags(shared_postgresql, shared_postgresql.new_database())
    async with collector_process(tmp_path / "first", *flags) as first:
        async with playing(first.address):
            before = await whole(first.address)
            findings = await listed(first.address)
            assert findings
            await until_awaited(lambda: recorded(first.address), "the history", pause_s=0.05)
        nodes = await reserved(first.address, "train")
        first.kill()
        assert await first.ended() == -signal.SIGKILL
    async with collector_process(tmp_path / "second", *flags) as second:
        assert await reservations(second.address) == {"train": nodes}
        after = await whole(second.address)  # no agent has reported to it
        assert names(after) == names(before)
        assert after.generation > before.generation
        stored = {(f.finding.key.node, f.finding.key.probe, f.finding.key.subject) for f in findings}
        assert {
            (f.finding.key.node, f.finding.key.probe, f.finding.key.subject)
            for f in await listed(second.address)
        } == stored
        assert (await recorded(second.address))[0] <= before.generation
        assert await second.stop() == 0
    assert not (tmp_path / "second").exists()


async def test_a_replica_takes_over_by_the_lock(tmp_path: Path, shared_postgresql: Postgresql) -> None:
    name = shared_postgresql.new_database()
    flags = store_flags(shared_postgresql, name)
    async with replica(tmp_path, flags, "a") as a, replica(tmp_path, flags, "b") as b:
        leader = await leads([a, b])
        other = b if leader is a else a
        async with playing([leader.address, other.address]):
            before = await whole(leader.address)
            nodes = await reserved(leader.address, "train")
            await until_awaited(lambda: recorded(leader.address), "the history", pause_s=0.05)

            async def is_read_at_the_standby() -> bool:
                with contextlib.suppress(grpc.aio.AioRpcError):  # it does not follow the leader yet
                    return await recorded(other.address) == await recorded(leader.address)
                return False

            await until_awaited(is_read_at_the_standby, "the same history", pause_s=0.05)
            leader.kill()
            assert await leads([other]) is other
            assert await reservations(other.address) == {"train": nodes}
            after = await whole(other.address)
            assert names(after) == names(before)
        await leader.ended()
        assert await other.stop() == 0
    assert shared_postgresql.execute(name, "SELECT term FROM leader") == [(2,)]


async def test_a_leader_that_was_suspended_is_deposed(tmp_path: Path, shared_postgresql: Postgresql) -> None:
    name = shared_postgresql.new_database()
    flags = store_flags(shared_postgresql, name)
    async with replica(tmp_path, flags, "a") as a, replica(tmp_path, flags, "b") as b:
        leader = await leads([a, b])
        other = b if leader is a else a
        async with playing([leader.address, other.address]):
            await whole(leader.address)
        os.kill(leader.pid, signal.SIGSTOP)
        try:
            assert await leads([other]) is other
            await whole(other.address)  # inferred from what the other one stored
            nodes = await reserved(other.address, "train")
        finally:
            os.kill(leader.pid, signal.SIGCONT)
        await eventually(lambda: b"deposed: " in leader.said)
        assert await leads([other]) is other
        assert await reservations(other.address) == {"train": nodes}
        assert await other.stop() == 0
        assert await leads([leader]) is leader
        assert await reservations(leader.address) == {"train": nodes}
        assert await leader.stop() == 0


async def test_a_leader_outlasts_a_restart_of_the_server(tmp_path: Path, own_postgresql: Postgresql) -> None:
    name = own_postgresql.new_database()
    flags = store_flags(own_postgresql, name)
    # It is deposed if the restart takes longer than two leases.
    async with replica(tmp_path, flags, "a", lease_s=60) as a, playing(a.address) as player:
        assert await leads([a]) is a
        await whole(a.address)
        nodes = await reserved(a.address, "before")
        own_postgresql.end()
        await eventually(lambda: b"election: " in a.said, "the lock is lost")
        own_postgresql.start()
        await eventually(lambda: b"answers the election again" in a.said)
        await eventually(lambda: player.settled)
        await reserved(a.address, "after")
        assert list(await reservations(a.address)) == ["after", "before"]
        assert (await reservations(a.address))["before"] == nodes
        assert b"deposed" not in a.said
        assert await a.stop() == 0
    assert own_postgresql.execute(name, "SELECT term FROM leader") == [(1,)]
    assert own_postgresql.execute(name, "SELECT gang FROM gangs ORDER BY gang") == [("after",), ("before",)]


async def test_replicas_without_their_server_serve_reads(tmp_path: Path, own_postgresql: Postgresql) -> None:
    flags = store_flags(own_postgresql, own_postgresql.new_database())
    async with replica(tmp_path, flags, "a") as a, replica(tmp_path, flags, "b") as b:
        leader = await leads([a, b])
        other = b if leader is a else a
        async with playing(leader.address):
            before = await whole(leader.address)
        await eventually(lambda: b"following the leader" in other.said)
        await whole(other.address)
        own_postgresql.end()
        await eventually(lambda: b"deposed: the lock was not confirmed" in leader.said)
        await eventually(lambda: b"standby listens" in leader.said.partition(b"deposed: ")[2])
        for one in (leader, other):
            assert names(await whole(one.address)) == names(before)
            async with channel_to(one.address) as channel:
                status = TopologyServiceStub(channel).GetStatus(topology_pb2.GetStatusRequest())
                with pytest.raises(grpc.aio.AioRpcError, match="there is no leader yet: PostgreSQL at"):
                    await status
        own_postgresql.start()
        again = await leads([a, b])
        assert names(await whole(again.address)) == names(before)


async def test_a_replica_that_knows_the_schema_no_more_ends(
    tmp_path: Path, shared_postgresql: Postgresql
) -> None:
    name = shared_postgresql.new_database()
    written(shared_postgresql.server(name)).close()
    shared_postgresql.execute(name, "UPDATE version SET number = 99")
    async with replica(tmp_path, store_flags(shared_postgresql, name), "a") as a:
        assert await a.ended() == 1
        assert b"has version 99" in a.said


async def test_a_replica_without_its_database_ends(tmp_path: Path, shared_postgresql: Postgresql) -> None:
    async with replica(tmp_path, store_flags(shared_postgresql, "nosuch"), "a") as a:
        assert await a.ended() == 1
        assert b"create it: createdb" in a.said
