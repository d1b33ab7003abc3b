"""What a standby serves: the reads of its leader, to the same callers, and never an earlier generation."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.replica import reads
from hyperscout_collector.app.replica.follower import Follower
from hyperscout_collector.app.replica.process import recorded
from hyperscout_collector.app.replica.reads import StandbyBackend
from hyperscout_collector.app.replica.standby import Standby
from hyperscout_collector.serve.fanout.hub import Hub
from hyperscout_collector.serve.rest.operations import OPERATIONS
from hyperscout_formats.text.leader import KEY, leader_in
from hyperscout_kubernetes.client import Kube
from hyperscout_runtime.task_watch import TaskWatch
from hyperscout_topology.topology import Topology
from support.collector_process import CHANNEL_OPTIONS, channel_to
from support.collectors import collector_settings, tls_settings
from support.identities import FakeReviews, Family, show
from support.rest import Event, ask, follow
from support.rest_collector import publish, rest_collector
from support.topologies import two_leaves
from support.waiting import TIMEOUT_S, eventually

LEADER = "10.0.0.7:50051"
NO_KUBE = cast(Kube, None)
READS = [
    "/v1/topology",
    "/v1/topology?links=false",
    "/v1/topology?output=slurm-tree",
    "/v1/hypernodes?pageSize=2",
    "/v1/hypernodes/leaf-a",
    "/v1/nodes?hypernode=leaf-b",
    "/v1/nodes/n01",
    "/v1/nodes/absent",
    "/v1/switches",
    "/v1/links?pageSize=3",
    "/v1/anomalies",
    "/v1/openapi.json",
    "/v1/topology?links=perhaps",
    "/",
    "/absent",
]


class Replicas:
    """A leader, and a standby that follows it. `leader`: the one that the Lease names."""

    def __init__(self, leader: Collector, follower: Follower, standby: Standby) -> None:
        self.leader = leader
        self.follower = follower
        self.standby = standby

    async def published(self, topology: Topology) -> None:
        """Publish at the leader, and wait until the standby has it."""
        await publish(self.leader, topology)
        await eventually(lambda: self.follower.watchers.current.topology.generation == topology.generation)


@asynccontextmanager
async def following(
    folder: Path, named: Callable[[], str], clock: Callable[[], float] | None = None
) -> AsyncIterator[tuple[Follower, Standby]]:
    """A standby that follows the leader at `named()`."""
    settings = collector_settings(folder / "standby", rest_listen="127.0.0.1:0")
    more: dict[str, Any] = {} if clock is None else {"clock": clock}
    follower, watch = Follower(settings, named, rng=Random(1), **more), TaskWatch()
    async with recorded(settings, follower, watch) as history:
        followed = StandbyBackend(follower.renew(), history, follower.age_s, NO_KUBE)
        async with Standby(settings, named, followed=followed, watch=watch) as standby:
            task = asyncio.create_task(follower.run())
            try:
                yield follower, standby
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
    watch.check()


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Replicas]:
    async with (
        rest_collector(tmp_path / "leader", two_leaves()) as leader,
        following(tmp_path, lambda: leader.address) as (follower, standby),
    ):
        found = Replicas(leader, follower, standby)
        await eventually(lambda: follower.age_s() == 0.0)
        yield found


@asynccontextmanager
async def serving(
    folder: Path, age_s: Callable[[], float | None] = lambda: 0.0, **more: Any
) -> AsyncIterator[tuple[Standby, Hub]]:
    """A standby whose followed topology the test publishes."""
    settings, hub = collector_settings(folder, rest_listen="127.0.0.1:0", **more), Hub(two_leaves())
    followed = StandbyBackend(hub, None, age_s, NO_KUBE)
    async with Standby(settings, lambda: LEADER, followed=followed) as standby:
        yield standby, hub


async def refused(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str | None]:
    """The code of a call, and the leader that its trailing metadata names."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(TIMEOUT_S):
            await call
    return caught.value.code(), leader_in(caught.value.trailing_metadata())


async def one(events: AsyncIterator[Event]) -> Event:
    async with asyncio.timeout(TIMEOUT_S):
        return await anext(events)


async def test_reads_are_those_of_the_leader(replicas: Replicas) -> None:
    await replicas.published(replace(two_leaves(), generation=8, anomalies=()))
    for path in READS:
        there = await ask(replicas.leader.rest_address, path)
        here = await ask(replicas.standby.rest_address, path)
        assert (here.status, here.body) == (there.status, there.body), path
        assert (here.headers.get("age"), there.headers.get("age")) == ("0", None)
    for request in (pb.GetTopologyRequest(), pb.GetTopologyRequest(omit_links=True)):
        async with channel_to(replicas.leader.address) as there, channel_to(replicas.standby.address) as here:
            answers = [await TopologyServiceStub(x).GetTopology(request) for x in (there, here)]
            assert answers[0] == answers[1]


async def test_an_unchanged_topology_is_not_sent_again(replicas: Replicas) -> None:
    first = await ask(replicas.standby.rest_address, "/v1/topology")
    known = {"If-None-Match": first.headers["etag"]}
    assert (await ask(replicas.standby.rest_address, "/v1/topology", headers=known)).status == 304


async def test_history_is_what_the_standby_recorded(replicas: Replicas) -> None:
    await replicas.published(replace(two_leaves(), generation=8, anomalies=()))

    async def events() -> list[dict[str, Any]]:
        return list((await ask(replicas.standby.rest_address, "/v1/history")).json["items"])

    async with asyncio.timeout(TIMEOUT_S):
        while not any(event["generation"] == 8 for event in await events()):
            await asyncio.sleep(0.05)
    at = (await events())[0]["at"]
    there = await ask(replicas.standby.rest_address, f"/v1/topology?at={at}")
    assert there.json["generation"] == 8
    async with channel_to(replicas.standby.address) as here:
        found = await TopologyServiceStub(here).ListHistory(pb.ListHistoryRequest())
    assert {event.generation for event in found.events} >= {8}


async def test_what_only_the_leader_knows_is_redirected(tmp_path: Path) -> None:
    here = {"GetTopology", "ListHistory", "WatchTopology"}
    async with serving(tmp_path) as (standby, _), channel_to(standby.address) as channel:
        port = standby.rest_address.rpartition(":")[2]
        for operation in OPERATIONS:
            if operation.rpc.rpartition("/")[2] in here:
                continue
            path = operation.path.replace("{gang:path}", "train-7")
            body: Any = None if operation.body is None else {}
            reply = await ask(standby.rest_address, path, method=operation.http, body=body)
            assert (reply.status, reply.json["leader"]) == (503, f"10.0.0.7:{port}"), operation.name
        for method in pb.DESCRIPTOR.services_by_name["TopologyService"].methods_by_name:
            if method not in here:
                call = channel.unary_unary(f"/hyperscout.v1.TopologyService/{method}")(b"")
                assert await refused(call) == (grpc.StatusCode.UNAVAILABLE, LEADER), method


async def test_a_replica_that_follows_does_not_follow_a_standby(tmp_path: Path) -> None:
    async with serving(tmp_path) as (standby, _), channel_to(standby.address) as channel:
        call = TopologyServiceStub(channel).GetTopology(pb.GetTopologyRequest(), metadata=((KEY, ""),))
        assert await refused(call) == (grpc.StatusCode.UNAVAILABLE, LEADER)
        follower = Follower(collector_settings(tmp_path), lambda: standby.address, rng=Random(1))
        task = asyncio.create_task(follower.run())
        await eventually(lambda: "UNAVAILABLE: standby" in (follower.problem or ""))
        assert follower.age_s() is None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_callers_are_those_of_the_leader(tmp_path: Path, family: Family) -> None:
    reviews = FakeReviews(rights={("ann", "get")})
    ann, carl = reviews.user("ann"), reviews.user("carl")
    settings = tls_settings(tmp_path, family, reviews, rest_listen="127.0.0.1:0")
    followed = StandbyBackend(Hub(two_leaves()), None, lambda: 0.0, cast(Kube, reviews))
    wanted = [
        (None, 401, grpc.StatusCode.UNAUTHENTICATED),
        ("a.b.c", 401, grpc.StatusCode.UNAUTHENTICATED),
        (carl, 403, grpc.StatusCode.PERMISSION_DENIED),
    ]
    async with (
        Standby(settings, lambda: LEADER, followed=followed) as standby,
        channel_to(standby.address, family.channel()) as channel,
    ):
        service, context = TopologyServiceStub(channel), ssl.create_default_context(cafile=str(family.ca))
        for token, status, code in wanted:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            shown = () if token is None else show(token)
            for path in ("/v1/topology", "/v1/history", "/v1/stream"):
                reply = await ask(standby.rest_address, path, headers=headers, tls=context)
                assert reply.status == status, path
            assert (await refused(service.GetTopology(pb.GetTopologyRequest(), metadata=shown)))[0] is code
            watch = service.WatchTopology(pb.WatchTopologyRequest(), metadata=shown)
            assert (await refused(watch.read()))[0] is code
        headers = {"Authorization": f"Bearer {ann}"}
        assert (await ask(standby.rest_address, "/v1/topology", headers=headers, tls=context)).status == 200
        found = await service.GetTopology(pb.GetTopologyRequest(), metadata=show(ann))
        assert found.topology.generation == 7


async def test_readers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "MAX_READERS", 1)
    async with (
        serving(tmp_path, http_listen="127.0.0.1:0") as (standby, hub),
        follow(standby.rest_address) as events,
    ):
        assert (await one(events)).kind == "snapshot"
        assert (await ask(standby.rest_address, "/v1/stream")).status == 429
        assert (await ask(standby.rest_address, "/v1/status")).status == 503
        page = (await ask(standby.http_address, "/metrics")).body.decode()
        assert "hyperscout_collector_rest_stream_readers 1\n" in page
        assert "hyperscout_collector_watchers 0\n" in page
        assert "rest_requests" not in page, "an alert counts its errors, and a refusal by a standby is none"
        monkeypatch.setattr(hub, "_limit", 0)
        async with channel_to(standby.address) as channel:
            watch = TopologyServiceStub(channel).WatchTopology(pb.WatchTopologyRequest())
            assert (await refused(watch.read()))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_what_is_too_old_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "_LOOK_S", 0.01)
    age_s: float | None = 3.9
    async with (
        serving(tmp_path, lambda: age_s) as (standby, _),
        grpc.aio.insecure_channel(standby.address, options=CHANNEL_OPTIONS) as channel,
        follow(standby.rest_address) as events,
    ):
        assert (await ask(standby.rest_address, "/v1/topology")).headers["age"] == "3"
        watch = TopologyServiceStub(channel).WatchTopology(pb.WatchTopologyRequest())
        await watch.read()
        assert (await one(events)).kind == "snapshot"
        age_s = None
        assert await refused(watch.read()) == (grpc.StatusCode.UNAVAILABLE, LEADER)
        last = await one(events)
        assert (last.kind, last.problem["type"]) == ("error", "urn:hyperscout:problem:standby")
        for path in ("/v1/topology", "/v1/stream", "/v1/openapi.json", "/"):
            assert (await ask(standby.rest_address, path)).status == 503
        asked = TopologyServiceStub(channel).GetTopology(pb.GetTopologyRequest())
        assert await refused(asked) == (grpc.StatusCode.UNAVAILABLE, LEADER)
        age_s = 0.0
        async with follow(standby.rest_address) as again:
            assert (await one(again)).kind == "snapshot"


async def test_streams_continue_at_a_standby_while_the_leader_changes(tmp_path: Path) -> None:
    """The second leader continues the numbers of the first one. The third one does not, and is not served."""
    named, now_s = "", 0.0
    async with following(tmp_path, lambda: named, lambda: now_s) as (follower, standby):
        assert (await ask(standby.rest_address, "/v1/topology")).status == 503
        async with rest_collector(tmp_path / "first", two_leaves()) as first:
            named = first.address
            await eventually(lambda: follower.age_s() == 0.0)
            stream = follow(standby.rest_address)
            events = await stream.__aenter__()
            assert (await one(events)).json["generation"] == 7
            channel = channel_to(standby.address)
            watch = TopologyServiceStub(channel).WatchTopology(pb.WatchTopologyRequest())
            assert (await watch.read()).snapshot.generation == 7
        try:
            await eventually(lambda: follower.problem is not None)
            now_s += 5.0
            assert (await ask(standby.rest_address, "/v1/topology")).headers["age"] == "5"
            async with rest_collector(tmp_path / "second", replace(two_leaves(), generation=1008)) as second:
                named = second.address
                assert (await one(events)).json["generation"] == 1008
                assert (await watch.read()).delta.generation == 1008
                assert follower.age_s() == 0.0
            async with rest_collector(tmp_path / "third", replace(two_leaves(), generation=9)) as third:
                named = third.address
                assert await refused(watch.read()) == (grpc.StatusCode.UNAVAILABLE, named)
                assert (await one(events)).kind == "error"
                assert (await ask(standby.rest_address, "/v1/topology")).status == 503
                await publish(third, replace(two_leaves(), generation=1009))
                await eventually(lambda: follower.age_s() == 0.0)
                assert (await ask(standby.rest_address, "/v1/topology")).json["generation"] == 1009
        finally:
            await stream.__aexit__(None, None, None)
            await channel.close()


async def test_a_leader_that_hangs_is_left_for_the_one_that_the_lease_names(tmp_path: Path) -> None:
    async with (
        rest_collector(tmp_path / "first", two_leaves()) as first,
        rest_collector(tmp_path / "second", replace(two_leaves(), generation=8)) as second,
    ):
        named = first.address
        async with following(tmp_path, lambda: named) as (follower, _):
            await eventually(lambda: follower.generation == 7)
            named = ""  # while the API server is away, the leader that is known is followed
            await publish(first, replace(two_leaves(), generation=8))
            await eventually(lambda: follower.generation == 8)
            named = second.address
            await publish(second, replace(two_leaves(), generation=9))
            await eventually(lambda: follower.generation == 9)
