"""The parts of a replica in this process: a standby on real gRPC, one that follows, one that takes over."""

import asyncio
import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.discovery_pb2 import Hello, StreamFindingsRequest
from hyperscout.v1.discovery_pb2_grpc import DiscoveryServiceStub
from hyperscout.v1.measurement_pb2 import SetMeasuringRequest
from hyperscout.v1.measurement_pb2_grpc import MeasurementServiceStub
from hyperscout.v1.placement_pb2 import ListPlacementsRequest
from hyperscout.v1.placement_pb2_grpc import PlacementServiceStub
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.inference import inference
from hyperscout_collector.app.replica import electors, process
from hyperscout_collector.app.replica.follower import Follower, channel
from hyperscout_collector.app.replica.standby import DISCOVERY_SERVICE, Standby
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.app.status.status import problems
from hyperscout_formats.text.leader import leader_in
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.hierarchy import infer
from hyperscout_kubernetes.client import Kube
from hyperscout_kubernetes.errors import NotFoundError
from hyperscout_runtime.credentials import CredentialsError
from hyperscout_runtime.settings import SettingsError
from hyperscout_topology.topology import HyperNode, Topology
from support.collector_process import CHANNEL_OPTIONS
from support.collectors import at_rest, collector_settings, playing
from support.evidence_rows import all_rows
from support.identities import FakeReviews, Family
from support.waiting import TIMEOUT_S, eventually

HOSTS = [f"node-000{i}" for i in range(1, 9)]


def settings(folder: Path, **more: Any) -> CollectorSettings:
    given = {"http_listen": "127.0.0.1:0", "data_dir": folder, "hold_down_s": 0.0}
    return collector_settings(folder, **(given | more))


async def refused(call: Any) -> tuple[str, str | None]:
    """What a standby answered: words, and the leader."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return caught.value.details() or "", leader_in(caught.value.trailing_metadata())


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as connection:
        yield connection


async def greeted(connection: grpc.aio.Channel) -> Any:
    while True:
        call = DiscoveryServiceStub(connection).StreamFindings()
        try:
            await call.write(StreamFindingsRequest(hello=Hello(node="n1")))
        except grpc.aio.AioRpcError as error:
            # The server refuses while gRPC writes: then the status is gRPC's own.
            if error.code() is grpc.StatusCode.INTERNAL:
                continue
            raise
        return await call.read()


# --- standing by --------------------------------------------------------------------------------------------


async def test_a_standby_names_the_leader_and_is_healthy(tmp_path: Path) -> None:
    async with Standby(settings(tmp_path), lambda: "10.0.0.7:50051") as standby:
        async with connected(standby.address) as connection:
            expected = ("standby; the leader is 10.0.0.7:50051", "10.0.0.7:50051")
            assert await refused(greeted(connection)) == expected
            assert (
                await refused(TopologyServiceStub(connection).GetTopology(pb.GetTopologyRequest()))
                == expected
            )
            watch = TopologyServiceStub(connection).WatchTopology(pb.WatchTopologyRequest())
            assert await refused(watch.read()) == expected
            pause = MeasurementServiceStub(connection).SetMeasuring(SetMeasuringRequest(paused=True))
            assert await refused(pause) == expected
            placements = PlacementServiceStub(connection).ListPlacements(ListPlacementsRequest())
            assert await refused(placements) == expected
            healthy = health_pb2_grpc.HealthStub(connection)  # type: ignore[no-untyped-call]
            serving = health_pb2.HealthCheckResponse
            for service, status in (("", serving.SERVING), (DISCOVERY_SERVICE, serving.NOT_SERVING)):
                answer = await healthy.Check(health_pb2.HealthCheckRequest(service=service))
                assert answer.status == status
        for page in ("healthz", "readyz", "metrics"):
            url = f"http://{standby.http_address}/{page}"
            text = await asyncio.to_thread(lambda url=url: urllib.request.urlopen(url).read())  # type: ignore[misc]
            assert b"hyperscout_collector_leader 0\n" in text or b"ok" in text


async def test_a_standby_is_ready_when_it_could_take_over(tmp_path: Path) -> None:
    prepared = False
    async with Standby(settings(tmp_path), lambda: "10.0.0.7:50051", lambda: prepared) as standby:
        url = f"http://{standby.http_address}/readyz"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            await asyncio.to_thread(urllib.request.urlopen, url)
        prepared = True
        answer = await asyncio.to_thread(urllib.request.urlopen, url)
        assert answer.read() == b"ok, standby\n"


async def test_a_standby_without_its_election_says_why(tmp_path: Path) -> None:
    config = settings(tmp_path, rest_listen="127.0.0.1:0")
    standby = Standby(config, lambda: "", problem=lambda: "the database is away")
    async with standby, connected(standby.address) as connection:
        reader = TopologyServiceStub(connection).GetTopology(pb.GetTopologyRequest())
        assert await refused(reader) == ("standby; there is no leader yet: the database is away", "")
        for url, text in (
            (f"http://{standby.http_address}/readyz", b"election: the database is away"),
            (f"http://{standby.rest_address}/v1/nodes", b"no leader is known yet: the database is away"),
        ):
            with pytest.raises(urllib.error.HTTPError, match="503") as caught:
                await asyncio.to_thread(urllib.request.urlopen, url)
            with caught.value:
                assert text in caught.value.read()


async def test_a_standby_does_not_take_its_own_port_for_the_leaders(tmp_path: Path) -> None:
    async with Standby(settings(tmp_path, rest_listen="127.0.0.1:0"), lambda: "127.0.0.1:50051") as standby:
        with pytest.raises(urllib.error.HTTPError, match="503") as caught:
            await asyncio.to_thread(urllib.request.urlopen, f"http://{standby.rest_address}/v1/nodes")
        with caught.value:
            answer = json.load(caught.value)
    assert "leader" not in answer
    assert "the leader is 127.0.0.1:50051 (gRPC)" in answer["detail"]


async def test_agents_are_held_while_no_replica_leads(tmp_path: Path) -> None:
    leader = ""
    async with (
        Standby(settings(tmp_path), lambda: leader) as standby,
        connected(standby.address) as connection,
    ):
        agent = asyncio.create_task(refused(greeted(connection)))
        reader = TopologyServiceStub(connection).GetTopology(pb.GetTopologyRequest())
        assert await refused(reader) == ("standby; there is no leader yet", "")
        assert not agent.done()
        leader = "10.0.0.8:50051"
        assert (await agent)[1] == leader


async def test_a_held_agent_is_sent_on_when_the_standby_leads_itself(tmp_path: Path) -> None:
    looks = 0

    async def sleep(_delay_s: float) -> None:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0.01)

    standby = Standby(settings(tmp_path), lambda: "", sleep=sleep)
    async with standby, connected(standby.address) as connection:
        agent = asyncio.create_task(refused(greeted(connection)))
        await eventually(lambda: looks)
        standby.dismiss("127.0.0.1:4711")
        looks = 0
        assert (await agent)[1] == "127.0.0.1:4711"
        assert looks < 5, "at once, not when it has been held for long enough"


async def test_no_more_are_held_than_may_be_connected(tmp_path: Path) -> None:
    standby = Standby(settings(tmp_path, max_streams=1), lambda: "")
    async with standby, connected(standby.address) as connection:
        first = asyncio.create_task(refused(greeted(connection)))
        second = asyncio.create_task(refused(greeted(connection)))
        done, _ = await asyncio.wait((first, second), return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        standby.dismiss("")
        await asyncio.gather(first, second)


# --- following ----------------------------------------------------------------------------------------------


def comparable(topology: Topology) -> Topology:
    """Deltas do not say where in the lists something stands, and no reader depends on it."""
    return replace(
        topology,
        links=tuple(sorted(topology.links)),
        adapters=tuple(sorted(topology.adapters)),
        switches=tuple(sorted(topology.switches, key=lambda s: s.id)),
    )


async def test_a_follower_knows_what_the_leader_published(tmp_path: Path) -> None:
    async with Collector(settings(tmp_path)) as collector, playing(collector.address) as player:
        follower = Follower(settings(tmp_path), lambda: collector.address, rng=Random(1))
        assert not follower.prepared()
        following = asyncio.create_task(follower.run())
        published = collector.components.publishing.watchers
        await eventually(lambda: len(published.current.topology.hypernodes) == 3)
        await eventually(lambda: len(published.current.topology.links) == len(player.fabric.cables))
        for cable in player.fabric.cables[:3]:
            before = published.current.topology.generation
            player.cut(cable)
            await eventually(lambda before=before: published.current.topology.generation > before)
        await eventually(lambda: follower.generation == published.current.topology.generation)
        assert follower.prepared()
        taken = follower.take()
        assert taken is not None
        assert comparable(taken) == comparable(published.current.topology)
        assert follower.take() is None, "it is taken once"
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@pytest.mark.parametrize(
    ("more", "address", "words"),
    [
        ({}, "192.0.2.1:50051", "the connection is plaintext"),
        ({"tls_cert": "x", "tls_key": "y"}, "192.0.2.1:50051", "peer_tls_ca is not set"),
        ({"tls_cert": "x", "tls_key": "y", "peer_tls_ca": "/none"}, "192.0.2.1:50051", "/none"),
    ],
)
def test_a_leader_is_not_trusted_blindly(tmp_path: Path, more: Any, address: str, words: str) -> None:
    with pytest.raises(CredentialsError, match=words):
        channel(settings(tmp_path, **more), address)


async def test_a_new_leader_lists_the_agents_that_the_former_one_knew(tmp_path: Path) -> None:
    async with Collector(settings(tmp_path / "first")) as first, playing(first.address):
        await eventually(lambda: len(agents_of(first)) == len(HOSTS))
        follower = Follower(settings(tmp_path), lambda: first.address, rng=Random(1))
        following = asyncio.create_task(follower.run())
        await eventually(lambda: {x.node for x in follower.agents} == {*HOSTS} and follower.generation > 0)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    dead = HOSTS[-1]
    flags = {"leader_election": True, "takeover_limit_s": 0.0, "stale_after_s": 1.0}
    async with (
        Collector(
            settings(tmp_path / "second", **flags), previous=follower.take(), agents=follower.agents
        ) as second,
        playing(second.address, hosts=HOSTS[:-1]),
    ):
        await eventually(lambda: len([x for x in agents_of(second) if x.connected]) == len(HOSTS) - 1)
        assert [x.node for x in agents_of(second) if not x.connected] == [dead]
        published = second.components.publishing.watchers

        def is_stale() -> bool:
            conditions = [c for h in published.current.topology.hypernodes for c in h.conditions]
            return any(c.type == "Stale" and dead in c.nodes for c in conditions)

        await eventually(is_stale)


def agents_of(collector: Collector) -> list[pb.AgentStatus]:
    return list(pb.GetStatusResponse.FromString(collector.status()).agents)


# --- taking over --------------------------------------------------------------------------------------------


def has_lost_a_node(hypernode: HyperNode) -> bool:
    """Whether a HyperNode is degraded and not ready: the sweep and the host have both reported the cut."""
    status = {c.type: c.status for c in hypernode.conditions}
    return (status["Degraded"], status["Ready"]) == ("True", "False")


async def published_by(tmp_path: Path, *, degraded: bool = False) -> Topology:
    async with Collector(settings(tmp_path / "first")) as first, playing(first.address) as player:
        current = first.components.publishing.watchers
        await eventually(lambda: len(current.current.topology.hypernodes) == 3)
        await eventually(lambda: len(current.current.topology.links) == 12)
        if degraded:
            player.cut(player.fabric.cables[0])
            await eventually(lambda: any(map(has_lost_a_node, current.current.topology.hypernodes)))
        await at_rest(first, player)
        return current.current.topology


@pytest.mark.parametrize("held", [True, False])
async def test_a_new_leader_changes_nothing_until_all_were_heard(tmp_path: Path, held: bool) -> None:
    before = await published_by(tmp_path, degraded=True)
    flags = {"leader_election": True, "takeover_limit_s": 3600.0 if held else 0.0}
    async with (
        Collector(settings(tmp_path / "second", **flags), previous=before) as second,
        playing(second.address, hosts=HOSTS[:4]) as player,
    ):
        components = second.components
        pipeline = components.inference.pipeline
        cable = player.fabric.cables[0]
        if not held:
            # The contrast: a leader that infers at once takes back what was said before.
            await eventually(
                lambda: components.publishing.watchers.current.topology.generation > before.generation
            )
            return
        await eventually(
            lambda: any(row.sha256 for row in all_rows(components.evidence.state))
        )  # a sweep came in
        inferences = pipeline.inferences
        player.cut(cable)
        await eventually(lambda: pipeline.inferences > inferences)
        assert components.publishing.watchers.current.topology == before
        assert any("waits for agents of 4 nodes" in problem for problem in problems(components))
        for host in HOSTS[4:]:
            player.revive(host)
        await eventually(lambda: not any("infers nothing yet" in x for x in problems(components)))
        await at_rest(second, player)
        assert components.publishing.watchers.current.topology.hypernodes == before.hypernodes
        assert not any("waits for" in problem for problem in problems(components))


async def test_a_deposed_leader_says_where_to_go(tmp_path: Path) -> None:
    collector = Collector(settings(tmp_path))
    await collector.start()
    async with connected(collector.address) as connection:
        watch = TopologyServiceStub(connection).WatchTopology(pb.WatchTopologyRequest())
        await watch.read()
        agent = DiscoveryServiceStub(connection).StreamFindings()
        await agent.write(StreamFindingsRequest(hello=Hello(node="n1")))
        await agent.read()
        collector.leave("another replica leads now", "10.0.0.9:50051")
        ended = asyncio.gather(refused(watch.read()), refused(agent.read()))
        await collector.stop()
        assert await ended == [("another replica leads now", "10.0.0.9:50051")] * 2


async def test_a_standby_does_not_name_a_leader_that_shut_down(tmp_path: Path) -> None:
    """Its Lease is valid for some seconds more. Agents wait at the standby instead."""
    now_s = 100.0
    async with Collector(settings(tmp_path / "leader")) as collector:
        follower = Follower(
            settings(tmp_path / "standby"), lambda: collector.address, rng=Random(1), clock=lambda: now_s
        )
        following = asyncio.create_task(follower.run())
        await eventually(lambda: follower.problem is None and follower.prepared())
        assert follower.leader() == collector.address
        collector.leave("the collector is shutting down", "")
    await eventually(lambda: follower.leader() == "")
    now_s += 60
    assert follower.leader() == collector.address, "a stored Lease of the same address may be a new one"
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


# --- the end ------------------------------------------------------------------------------------------------


class OneLease:
    """An API server that keeps one Lease, and connections to it."""

    def __init__(self) -> None:
        self.lease: Any = None
        self.writes = 0

    async def get(self, path: str, query: object = None, *, timeout_s: float = 0.0) -> Any:
        if self.lease is None:
            raise NotFoundError(path)
        return self.lease

    async def write(self, method: str, path: str, body: Any, *, timeout_s: float = 0.0) -> Any:
        self.writes += 1
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.writes)}}
        return self.lease

    def fenced(self, fence: object) -> "OneLease":
        return self

    @property
    def holder(self) -> str:
        return str(self.lease["spec"].get("holderIdentity") or "")

    async def connected(self, _: object) -> Any:
        return contextlib.nullcontext(self)


async def test_the_lease_is_renewed_while_the_end_waits_for_inference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, stop, go_on = OneLease(), asyncio.Event(), threading.Event()
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    def slow(inputs: FabricInputs, options: InferOptions, previous: Topology | None = None) -> Topology:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(TIMEOUT_S)
        return infer(inputs, options, previous)

    monkeypatch.setattr(inference, "infer_without_conditions", slow)
    monkeypatch.setattr(process, "connected", api.connected)
    monkeypatch.setattr(electors, "connected", api.connected)
    flags = {"leader_election": True, "lease_namespace": "ns", "lease_duration_s": 1, "identity": "a"}
    replica = process.Replica(settings(tmp_path, **flags))
    task = asyncio.create_task(replica.run(stop))
    async with asyncio.timeout(TIMEOUT_S):
        await begun.wait()
    stop.set()
    await eventually(lambda: "inference" not in {task.get_name() for task in asyncio.all_tasks()})
    for _ in range(3):  # its thread still runs
        writes = api.writes
        await eventually(lambda writes=writes: api.writes > writes or task.done())  # type: ignore[misc]
    assert not task.done()
    assert not go_on.is_set()
    assert api.holder.startswith("a")
    go_on.set()
    async with asyncio.timeout(TIMEOUT_S):
        await task
    assert not api.holder


async def test_a_standby_that_ends_takes_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holder does not renew it, and the end of the standby takes longer than it is valid."""
    api, stop, closing, go_on = OneLease(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    spec = {"holderIdentity": "b", "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z"}
    api.lease = {"metadata": {"resourceVersion": "0"}, "spec": spec}

    class Slow(Standby):
        async def __aexit__(self, *error: object) -> None:
            closing.set()
            await go_on.wait()
            await super().__aexit__(*error)

    monkeypatch.setattr(process, "connected", api.connected)
    monkeypatch.setattr(electors, "connected", api.connected)
    flags = {"leader_election": True, "lease_namespace": "ns", "lease_duration_s": 1, "identity": "a"}
    given = await process._with_ports(settings(tmp_path, **flags))
    monkeypatch.setattr(process, "Standby", Slow)
    task = asyncio.create_task(process.Replica(given).run(stop))
    await eventually(lambda: "follower" in {task.get_name() for task in asyncio.all_tasks()})
    stop.set()
    async with asyncio.timeout(TIMEOUT_S):
        await closing.wait()
    await eventually(lambda: "leader-election" not in {task.get_name() for task in asyncio.all_tasks()})
    go_on.set()
    async with asyncio.timeout(TIMEOUT_S):
        await task
    assert api.writes == 0


# --- settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"lease_duration_s": 1000}, "expected at most 120, found"),
        ({"advertise": "nowhere"}, "expected host:port"),
    ],
)
def test_settings_that_do_not_go_together(tmp_path: Path, more: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        settings(tmp_path, **more)


def test_a_pod_s_ipv6_address_gets_its_brackets(tmp_path: Path) -> None:
    assert settings(tmp_path, advertise="fd00::7:50051").advertise == "[fd00::7]:50051"
    assert settings(tmp_path, advertise="[fd00::7]:50051").advertise == "[fd00::7]:50051"
    assert settings(tmp_path, advertise="10.0.0.1:50051").advertise == "10.0.0.1:50051"


# --- with identities ----------------------------------------------------------------------------------------


async def test_a_follower_shows_its_identity(tmp_path: Path) -> None:
    family, reviews = Family(tmp_path), FakeReviews()
    user = "system:serviceaccount:hyperscout:collector"
    token = tmp_path / "token"
    token.write_text(reviews.user(user) + "\n")
    tls = {"tls_cert": family.server.cert, "tls_key": family.server.key}
    leading = settings(tmp_path / "leader", authenticate="kubernetes", **tls)
    async with Collector(leading, kube=cast(Kube, reviews)) as leader:
        peers = {"peer_tls_ca": family.ca, "peer_token_file": token}
        follower = Follower(
            settings(tmp_path, **tls, **peers), lambda: leader.address, rng=Random(1), sleep=soon
        )
        following = asyncio.create_task(follower.run())
        await eventually(lambda: "PERMISSION_DENIED" in (follower.problem or ""))
        token.write_text("two words")
        await eventually(lambda: "not a token" in (follower.problem or ""))
        token.write_text(reviews.user(user))
        reviews.rights.add((user, "get"))
        await eventually(lambda: follower.problem is None)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def soon(_delay_s: float) -> None:
    await asyncio.sleep(0.05)


@pytest.mark.parametrize(("used", "shown"), [(7, 7), (1007, 1008)], ids=["released", "killed"])
async def test_a_new_leader_shows_no_number_below_those_that_may_have_been_shown(
    tmp_path: Path, used: int, shown: int
) -> None:
    """The former leader may have published more to its own readers, such as when it was cut off."""
    previous = replace(infer(FabricInputs(), InferOptions(cluster_nodes=frozenset(HOSTS))), generation=7)
    async with (
        Collector(settings(tmp_path), previous=previous, used=used) as collector,
        connected(collector.address) as connection,
    ):
        found = await TopologyServiceStub(connection).GetTopology(pb.GetTopologyRequest())
        assert found.topology.generation == shown
