"""Several replicas with PostgreSQL take agents' streams; one of them infers from what all have stored."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest
from hyperscout.v1 import topology_pb2
from hyperscout.v1.discovery_pb2 import NcclId
from hyperscout.v1.finding_pb2 import Finding
from hyperscout.v1.measurement_pb2 import RunNcclRequest
from hyperscout.v1.measurement_pb2_grpc import MeasurementServiceStub
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_runtime.units import NS
from support.agent_stream import AgentStream
from support.collector_process import CollectorProcess, channel_to, listed
from support.collectors import eight_hosts, is_whole, playing
from support.findings import T0, lldp
from support.live import Watcher
from support.placement_calls import reservations, reserved
from support.postgresql import Postgresql
from support.replicas import leads, replica, store_flags, whole
from support.waiting import TIMEOUT_S, eventually, until_awaited

HOSTS = eight_hosts().hosts


@asynccontextmanager
async def three(
    folder: Path, flags: tuple[str, ...]
) -> AsyncIterator[tuple[CollectorProcess, CollectorProcess, CollectorProcess]]:
    """The leader and two standbys."""
    async with contextlib.AsyncExitStack() as stack:
        found = [await stack.enter_async_context(replica(folder, flags, name)) for name in "abc"]
        leader = await leads(found)
        first, second = (one for one in found if one is not leader)
        for one in (first, second):  # it has the port that it keeps
            await eventually(lambda one=one: b"following the leader" in one.said)
        yield leader, first, second


async def status(address: str) -> topology_pb2.GetStatusResponse:
    async with channel_to(address) as channel:
        request = topology_pb2.GetStatusRequest()
        found: topology_pb2.GetStatusResponse = await TopologyServiceStub(channel).GetStatus(
            request, timeout=TIMEOUT_S
        )
    return found


async def connected(address: str, nodes: set[str]) -> None:
    async def are() -> bool:
        return {x.node for x in (await status(address)).agents if x.connected} == nodes

    await until_awaited(are, f"{sorted(nodes)} are connected", pause_s=0.05)


async def test_agents_at_standbys_get_leases_and_what_they_see_is_published(
    tmp_path: Path, shared_postgresql: Postgresql
) -> None:
    flags = store_flags(shared_postgresql, shared_postgresql.new_database())
    async with three(tmp_path, flags) as (leader, first, second):
        # No agent is at the leader, so all leases pass through the tables.
        async with (
            playing(first.address, hosts=HOSTS[:4]) as one,
            playing(second.address, hosts=HOSTS[4:]) as other,
        ):
            before = await whole(leader.address)
            await connected(leader.address, set(HOSTS))
            found = await status(leader.address)
            assert {lease.node for lease in found.leases} <= set(HOSTS)
            assert found.leases
            cable = one.fabric.cables[0]
            links = len(before.links)
            one.cut(cable)
            other.cut(cable)
            await Watcher(leader.address).until(lambda topology: len(topology.links) < links, "the cut cable")
        await connected(leader.address, set())
        assert b"Traceback" not in leader.said + first.said + second.said


async def test_an_nccl_run_reaches_an_agent_at_a_standby_and_its_end_the_leader(
    tmp_path: Path, shared_postgresql: Postgresql
) -> None:
    flags = store_flags(shared_postgresql, shared_postgresql.new_database())
    async with (
        three(tmp_path, flags) as (leader, first, _),
        AgentStream(first.address, "n1", probes=("nccl",)) as agent,
        channel_to(leader.address) as channel,
    ):
        await connected(leader.address, {"n1"})
        request = RunNcclRequest(nodes=["n1"])
        run = asyncio.ensure_future(MeasurementServiceStub(channel).RunNccl(request, timeout=TIMEOUT_S))
        while not (asked := await agent.read()).HasField("measure_nccl"):
            pass
        await agent.send(nccl_id=NcclId(task_id=asked.measure_nccl.task_id, failure="no GPU is free"))
        with pytest.raises(grpc.aio.AioRpcError, match="no GPU is free"):
            await run


async def test_what_was_last_seen_a_week_ago_is_removed_at_a_standby(
    tmp_path: Path, shared_postgresql: Postgresql
) -> None:
    name = shared_postgresql.new_database()
    async with (
        three(tmp_path, store_flags(shared_postgresql, name)) as (_, first, _),
        AgentStream(first.address, "n1") as agent,
    ):
        old = lldp("n1", "eth0", T0 - 8 * 86_400 * NS)
        assert await agent.store(old, full=True, sent_ns=T0) == []
        await eventually(
            lambda: not shared_postgresql.execute(name, "SELECT node FROM findings"), "the finding is removed"
        )


@pytest.mark.parametrize("kind", ["forget", "directive"])
async def test_a_message_that_a_standby_cannot_read_is_left_out(
    tmp_path: Path, shared_postgresql: Postgresql, kind: str
) -> None:
    name = shared_postgresql.new_database()
    async with (
        three(tmp_path, store_flags(shared_postgresql, name)) as (leader, first, _),
        AgentStream(first.address, "n1") as agent,
    ):
        await connected(leader.address, {"n1"})
        shared_postgresql.execute(
            name,
            "INSERT INTO messages (receiver, term, node, claimed, kind, body)"
            f" SELECT replica, term, node, claimed, '{kind}', '[1]' FROM streams, leader",
        )
        said = f"a message of the leader ({kind}) is not read: ".encode()
        await eventually(lambda: said in first.said, "the log names the message")
        # The standby still takes messages.
        old = lldp("n1", "eth0", T0 - 8 * 86_400 * NS)
        assert await agent.store(old, full=True, sent_ns=T0) == []
        await eventually(
            lambda: not shared_postgresql.execute(name, "SELECT node FROM findings"), "the finding is removed"
        )


async def test_a_replica_that_slept_overwrites_nothing(tmp_path: Path, shared_postgresql: Postgresql) -> None:
    def heard(neighbour: str, after_s: int) -> Finding:
        return lldp("n1", "eth0", T0 + after_s * NS, neighbour=neighbour)

    flags = store_flags(shared_postgresql, shared_postgresql.new_database())
    async with (
        three(tmp_path, flags) as (leader, first, second),
        AgentStream(first.address, "n1") as old,
    ):
        assert await old.store(heard("before", 0), full=True) == []
        os.kill(first.pid, signal.SIGSTOP)
        try:
            await old.batch(heard("late", 2))  # newer, but the stream is at another replica by then
            async with AgentStream(second.address, "n1") as new:
                assert await new.store(heard("after", 1), full=True) == []
                os.kill(first.pid, signal.SIGCONT)
                await old.ended()
                await connected(leader.address, {"n1"})
                (stored,) = await listed(leader.address)
                assert [x.system_name for x in stored.finding.lldp.neighbours] == ["after"]
        finally:
            os.kill(first.pid, signal.SIGCONT)


async def test_kill_9_of_a_standby_loses_nothing_that_it_acknowledged(
    tmp_path: Path, shared_postgresql: Postgresql
) -> None:
    name = shared_postgresql.new_database()
    async with three(tmp_path, store_flags(shared_postgresql, name)) as (leader, first, second):
        stored: list[str] = []

        async def load(node: str) -> None:
            async with AgentStream(first.address, node) as agent:
                for i in range(1000):
                    # A leader removes what is older than a week.
                    await agent.store(lldp(node, f"eth{i}", time.time_ns()))
                    stored.append(f"{node} eth{i}")

        others = {f"n{i}" for i in range(8)}
        loads = [asyncio.create_task(load(node)) for node in others]
        async with playing([first.address, second.address]) as player:
            await Watcher(leader.address).until(
                lambda topology: is_whole(topology, others=others), "eight hosts"
            )
            await eventually(lambda: len(stored) > 200)
            first.kill()
            assert await first.ended() == -signal.SIGKILL
            done = await asyncio.gather(*loads, return_exceptions=True)
            assert all(isinstance(one, AssertionError) for one in done), done
            rows = shared_postgresql.execute(name, "SELECT node || ' ' || subject FROM findings")
            assert set(stored) <= {row for (row,) in rows}
            await eventually(lambda: player.settled)
            await connected(leader.address, set(HOSTS))


async def test_agents_at_a_standby_stay_connected_when_the_leader_is_killed(
    tmp_path: Path, shared_postgresql: Postgresql
) -> None:
    flags = store_flags(shared_postgresql, shared_postgresql.new_database())
    async with three(tmp_path, flags) as (leader, first, second):
        async with AgentStream(first.address, "x") as one, AgentStream(second.address, "y") as other:
            streams = {first: one, second: other}
            async with playing([first.address, second.address]):
                before = await Watcher(leader.address).until(
                    lambda topology: is_whole(topology, others={"x", "y"}), "eight hosts"
                )
                nodes = await reserved(leader.address, "train")
                leader.kill()
                heir = await leads([first, second])
                rest = second if heir is first else first
                assert (
                    await streams[rest].store(lldp(streams[rest].node, "eth0", time.time_ns()), full=True)
                    == []
                )
                assert await reservations(heir.address) == {"train": nodes}
                after = await Watcher(heir.address).until(
                    lambda topology: is_whole(topology, others={"x", "y"}), "eight hosts"
                )
                assert after.generation >= before.generation
                assert [h.name for h in after.hypernodes] == [h.name for h in before.hypernodes]
                await connected(heir.address, {*HOSTS, streams[rest].node})
        await leader.ended()
