"""The Lease of another cluster is held while this replica leads for certain, and fences the writes there."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from hyperscout_collector.app.replica.cluster_leases import ClusterLease
from hyperscout_kubernetes.errors import NotLeaderError, UnreachableError
from hyperscout_kubernetes.lease import Elector
from hyperscout_runtime.event_loops import LoopThread
from support.fake_time import settle
from support.lease_world import LeaseWorld


class SameLoop:
    """Runs electors on the loop of the test."""

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await work


@asynccontextmanager
async def holding(leader: Elector, there: LeaseWorld) -> AsyncIterator[ClusterLease]:
    lease = ClusterLease("east", "ns/lease", there.candidate("a", runs=False))
    task = asyncio.create_task(lease.hold(leader, cast(LoopThread, SameLoop())))
    try:
        yield lease
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def holder(world: LeaseWorld) -> str:
    return world.api.lease["spec"]["holderIdentity"] if world.api.lease is not None else ""


async def test_it_is_released_while_the_own_lease_cannot_be_renewed() -> None:
    async with LeaseWorld() as here, LeaseWorld(here.time) as there:
        leader = here.candidate("a")
        async with holding(leader, there) as lease:
            await here.time.pass_s(2)
            fence = lease.fence(leader.fence())
            assert holder(there) == "a_0"
            assert 0 < fence.remaining_s() <= 5
            here.api.error = UnreachableError("the own API server is away")
            await here.time.pass_s(12)
            assert holder(there) == ""
            with pytest.raises(NotLeaderError, match="the lease could not be renewed"):
                fence.remaining_s()
            here.api.error = None
            await here.time.pass_s(4)
            assert holder(there) == "a_0"
            assert fence.remaining_s() > 0


async def test_nothing_is_written_while_another_holds_it_or_it_cannot_be_renewed() -> None:
    async with LeaseWorld() as here, LeaseWorld(here.time) as there:
        leader, other = here.candidate("a"), there.candidate("b")
        await settle()
        async with holding(leader, there) as lease:
            await here.time.pass_s(20)
            fence = lease.fence(leader.fence())
            with pytest.raises(NotLeaderError, match=r"cluster east until .* the Lease ns/lease there: b_0"):
                fence.remaining_s()
            await there.end(0)
            await other.release()
            await here.time.pass_s(2)
            assert fence.remaining_s() > 0
            there.api.error = UnreachableError("east is away")
            await here.time.pass_s(6)
            with pytest.raises(NotLeaderError, match="east is away"):
                fence.remaining_s()
            assert leader.fence().remaining_s() > 0, "the own cluster goes on"
