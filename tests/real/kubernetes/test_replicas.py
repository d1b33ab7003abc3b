"""Two collectors and a real API server: one leads, and when it goes in whatever way, the other does.

Agents are played through the real uplink. Writers are read from the API server's own audit log: each
collector is a service account of its own.
"""

import asyncio
import contextlib
import json
import os
import signal
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_sim.agents.player import Player
from kube.api import ApiError
from kube.control_plane import Options
from kube.processes import free_port
from support.collector_process import CollectorProcess, channel_to, collector_process
from support.collectors import playing
from support.kubernetes import Cluster
from support.rest import ask, follow
from support.waiting import TIMEOUT_S, eventually

HOSTS = [f"node-000{i}" for i in range(1, 9)]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/hyperscout-collector"
# A lease that a test waits for: longer than a busy machine delays its renewal.
SHORT_S = 8
SHORT = ("--lease-duration-s", str(SHORT_S))
# The longest lease that the setting allows: it outlasts a hand-over that does not wait for its end.
LONG_S = 120
LONG = ("--lease-duration-s", str(LONG_S))
QUICK = ("--settle-s", "0.5", "--hold-down-s", "0.1")
RULES = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["topology.volcano.sh"], "resources": ["hypernodes", "hypernodes/status"], "verbs": ["*"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "get", "patch"]},
]
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete]
  resources: [{group: topology.volcano.sh}]
- level: None
"""


async def until(happened: Callable[[], Any], what: str) -> float:
    """Wait for something; returns the seconds that it took."""
    began_s = time.monotonic()
    await eventually(happened, what)
    return time.monotonic() - began_s


@dataclass
class Replicas:
    """`a` leads at first. `player` plays the agents of eight hosts under two leaves."""

    cluster: Cluster
    processes: list[CollectorProcess]
    player: Player
    audit: Path
    pages: list[str]  # where the metrics of each are
    rest: list[str]  # where REST of each is

    @property
    def a(self) -> CollectorProcess:
        return self.processes[0]

    @property
    def b(self) -> CollectorProcess:
        return self.processes[1]

    async def page(self, number: int, path: str) -> str:
        """A page of a replica, once it answers with 200: between two roles it is closed for a moment."""
        url = f"http://{self.pages[number]}{path}"
        give_up_s = time.monotonic() + TIMEOUT_S
        while True:
            try:
                answer = await asyncio.to_thread(urllib.request.urlopen, url, timeout=TIMEOUT_S)
                return str(answer.read().decode())
            except OSError:
                assert time.monotonic() < give_up_s, f"{url} does not answer"
                await asyncio.sleep(0.05)

    async def metrics(self, number: int) -> dict[str, float]:
        text = await self.page(number, "/metrics")
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    async def leadership(self, number: int) -> tuple[float, float]:
        """Whether a replica leads, and how often the Lease went to another, by its metrics."""
        values = await self.metrics(number)
        prefix = "hyperscout_collector_leader"
        return values[prefix], values[f"{prefix}_transitions_total"]

    async def all_written(self, number: int) -> Mapping[str, str]:
        """HyperNodes and their versions, once this replica has written its newest generation."""
        give_up_s = time.monotonic() + TIMEOUT_S
        prefix = "hyperscout_collector"
        while True:
            values, versions = await self.metrics(number), self.hypernodes()
            written = [v for k, v in values.items() if k.startswith(f"{prefix}_published_generation{{")]
            if values.get(f"{prefix}_generation") in written and versions == self.hypernodes():
                return versions
            assert time.monotonic() < give_up_s, f"not written: {values}"
            await asyncio.sleep(0.05)

    def holder(self) -> str:
        return str(self.cluster.api.ask("GET", LEASE)["spec"]["holderIdentity"])

    def hypernodes(self) -> dict[str, Any]:
        return {name: x["metadata"]["resourceVersion"] for name, x in self.cluster.hypernodes().items()}

    def having(self, condition: str) -> set[str]:
        """Names of HyperNodes for which a condition is True; none while the API server is away."""
        try:
            found = self.cluster.hypernodes()
        except ApiError:
            return set()
        return {
            name
            for name, x in found.items()
            for c in x.get("status", {}).get("conditions", [])
            if c["type"] == condition and c["status"] == "True"
        }

    def degraded(self) -> set[str]:
        return self.having("Degraded")

    def writers(self) -> list[str]:
        """The service accounts that wrote HyperNodes, in order.

        The API server logs a write after it answered, so the last ones may come a moment later.
        """
        whole_lines = self.audit.read_text().rpartition("\n")[0].splitlines()
        events = [json.loads(line) for line in whole_lines]
        return [e["user"]["username"].rpartition(":")[2] for e in events]

    def cut(self, host: str) -> None:
        guids = {a.guid for a in self.player.fabric.adapters if a.host == host}
        self.player.cut(next(c for c in self.player.fabric.cables if c.a in guids))


@asynccontextmanager
async def replicas(
    cluster: Cluster, tmp_path: Path, *flags: str, names: str = "ab"
) -> AsyncIterator[Replicas]:
    """All run, and what `a` found is published."""
    cluster.nodes(HOSTS)
    async with AsyncExitStack() as stack:
        processes: list[CollectorProcess] = []
        pages, rest = ([f"127.0.0.1:{free_port()}" for _ in names] for _ in range(2))
        for name, page, address in zip(names, pages, rest, strict=True):
            cluster.grant(name, RULES)
            kubeconfig = ("--kubeconfig", str(cluster.kubeconfig_of(name)), "--kubernetes", "publish")
            election = ("--leader-election", "--lease-namespace", "default", "--identity", name)
            election = (*election, "--http-listen", page, "--rest-listen", address)
            processes.append(
                await stack.enter_async_context(
                    collector_process(tmp_path / name, *kubeconfig, *election, *QUICK, *flags)
                )
            )
            await until(lambda: b"standby listens on" in processes[-1].said, "a standby")
            if name == "a":
                await until(lambda: b"findings of" in processes[0].said, "a leader")
        player = await stack.enter_async_context(playing([x.address for x in processes]))
        found = Replicas(cluster, processes, player, tmp_path / "audit.log", pages, rest)
        await until(lambda: player.settled and len(player.agents) == len(HOSTS), "all agents stream")
        await until(
            lambda: len(cluster.hypernodes()) == len(found.having("Ready")) == 3 and not found.degraded(),
            "HyperNodes that are ready",
        )
        for number in range(1, len(names)):
            await found.page(number, "/readyz")  # it has the leader's topology, with which it takes over
        yield found


@pytest.fixture
def audited(own_kube: Callable[..., Cluster], tmp_path: Path) -> Cluster:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={tmp_path / 'audit.log'}")
    return own_kube(Options(api_flags=flags))


async def test_a_killed_leader_is_followed_and_nothing_flaps(audited: Cluster, tmp_path: Path) -> None:
    async with replicas(audited, tmp_path) as r:
        assert r.holder().startswith("a_")
        published = await r.all_written(0)
        r.a.kill()
        began_s = time.monotonic()
        elected_s = await until(lambda: b"elected, term 1" in r.b.said, "the other is elected")
        await until(lambda: r.player.settled, "all agents stream to it")
        total_s = time.monotonic() - began_s
        print(f"kill -9: elected after {elected_s:.1f} s, all agents settled after {total_s:.1f} s")
        assert r.holder().startswith("b_")
        await until(lambda: b"take-over complete" in r.b.said, "all agents were heard")
        print(f"take-over complete after {time.monotonic() - began_s:.1f} s")
        assert await r.all_written(1) == published, "nothing was written"
        r.cut(HOSTS[5])
        await until(lambda: len(r.degraded()) == 1, "a condition turns")
        await until(lambda: r.writers()[-1] == "b", "the new leader wrote it")


async def test_a_clean_exit_hands_over_at_once(audited: Cluster, tmp_path: Path) -> None:
    """The lease is released: the other replica does not wait for its end."""
    async with replicas(audited, tmp_path, *LONG) as r:
        published = await r.all_written(0)
        assert (await r.leadership(0), await r.leadership(1)) == ((1, 0), (0, 0))
        began_s = time.monotonic()
        stopping = asyncio.create_task(r.a.stop())
        await until(lambda: b"elected, term 1" in r.b.said, "the other is elected")
        elected_s = time.monotonic() - began_s
        await until(lambda: r.player.settled, "all agents stream to it")
        print(f"SIGTERM: elected after {elected_s:.1f} s, settled after {time.monotonic() - began_s:.1f} s")
        assert await stopping == 0
        assert b"the lease is released" in r.a.said
        lease = audited.api.ask("GET", LEASE)
        assert lease["spec"]["leaseTransitions"] == 1
        assert lease["metadata"]["annotations"]["hyperscout.io/address"] == r.b.address
        await until(lambda: b"take-over complete" in r.b.said, "all agents were heard")
        assert await r.leadership(1) == (1, 1)
        assert await r.all_written(1) == published


async def test_a_deposed_leader_writes_nothing_more(audited: Cluster, tmp_path: Path) -> None:
    async with replicas(audited, tmp_path, *SHORT) as r:
        await r.all_written(0)
        os.kill(r.a.pid, signal.SIGSTOP)
        r.cut(HOSTS[5])  # its agents still hang on it: this waits in its sockets
        await until(lambda: b"elected, term 1" in r.b.said, "the other is elected")
        before = len(r.writers())
        os.kill(r.a.pid, signal.SIGCONT)
        await until(lambda: b"deposed" in r.a.said, "it notices")
        await until(lambda: r.player.settled, "agents go where it points")
        await until(lambda: len(r.degraded()) == 1, "the news comes out by the new leader")
        await until(lambda: r.a.said.count(b"standby listens on") >= 2, "it stands by again")
        seen = len(r.writers())
        r.cut(HOSTS[1])
        await until(lambda: len(r.degraded()) == 2, "later news come out too")
        await until(lambda: len(r.writers()) > seen, "their writes are logged")
        assert set(r.writers()[before:]) == {"b"}
        assert r.holder().startswith("b_")


async def test_an_api_server_that_was_away_changes_nothing(audited: Cluster, tmp_path: Path) -> None:
    async with replicas(audited, tmp_path, *SHORT) as r:
        await r.all_written(0)
        audited.plane.kill_apiserver()
        renewed_s = time.monotonic()  # at the latest
        await until(lambda: b"nothing is written until it is" in r.a.said, "the leader holds back")
        await until(lambda: time.monotonic() > renewed_s + SHORT_S, "the lease expires")
        r.cut(HOSTS[5])
        await until(lambda: r.player.settled, "evidence goes on")
        audited.plane.start_apiserver()
        await until(lambda: len(r.degraded()) == 1, "what came meanwhile is written")
        assert r.holder().startswith("a_"), "no replica took its place while none could"
        assert b"deposed" not in r.a.said
        assert set(r.writers()) == {"a"}


# --- readers of standbys ------------------------------------------------------------------------------------


class Readers:
    """Readers of one replica, by gRPC and by REST. Each connects again when its stream ends."""

    def __init__(self, address: str, rest: str) -> None:
        self.watched: list[int] = []  # generations, in the order of their arrival
        self.streamed: list[int] = []
        self.connections = 0
        self._address = address
        self._rest = rest

    @asynccontextmanager
    async def reading(self) -> AsyncIterator["Readers"]:
        tasks = [asyncio.create_task(self._forever(read)) for read in (self._watch, self._stream)]
        try:
            await until(lambda: self.watched and self.streamed, "both have a snapshot")
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def newest(self) -> int:
        """The newest generation that both readers have."""
        return min(self.watched[-1], self.streamed[-1])

    def assert_growing(self) -> None:
        assert self.watched == sorted(self.watched)
        assert self.streamed == sorted(self.streamed)

    async def _forever(self, read: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            self.connections += 1
            # A replica that refuses, that ends the stream, or that does not listen between two roles.
            with contextlib.suppress(grpc.aio.AioRpcError, AssertionError, OSError, EOFError, ValueError):
                await read()
            await asyncio.sleep(0.1)

    async def _watch(self) -> None:
        async with channel_to(self._address) as channel:
            async for event in TopologyServiceStub(channel).WatchTopology(pb.WatchTopologyRequest()):
                self.watched.append(event.snapshot.generation or event.delta.generation)

    async def _stream(self) -> None:
        async with follow(self._rest) as events:
            async for event in events:
                if event.kind != "error":
                    self.streamed.append(event.json["generation"])


async def test_readers_of_standbys_continue_when_the_leader_ends(audited: Cluster, tmp_path: Path) -> None:
    """One of two standbys leads then: its readers connect again. Those of the other one notice nothing."""
    async with replicas(audited, tmp_path, *LONG, names="abc") as r, AsyncExitStack() as stack:
        await r.all_written(0)
        addresses = zip([x.address for x in r.processes[1:]], r.rest[1:], strict=True)
        readers = [await stack.enter_async_context(Readers(*one).reading()) for one in addresses]
        for path in ("/v1/topology", "/v1/hypernodes", "/v1/links?pageSize=3", "/v1/nodes/node-0001"):
            leader, *standbys = [(await ask(address, path)).json for address in r.rest]
            assert standbys == [leader, leader], path
        refused = await ask(r.rest[1], "/v1/measuring", method="POST", body={"paused": True})
        # On one machine each replica has a port of REST of its own, so the leader's is not known.
        assert (refused.status, "leader" in refused.json) == (503, False)
        assert r.processes[0].address in refused.json["detail"]
        connections = [reader.connections for reader in readers]
        await r.a.stop()
        await until(lambda: r.holder()[:2] in ("b_", "c_"), "another replica leads")
        await until(lambda: r.player.settled, "all agents stream to it")
        before = max(reader.newest for reader in readers)
        r.cut(HOSTS[5])
        await until(lambda: all(reader.newest > before for reader in readers), "all readers see the change")
        for reader in readers:
            reader.assert_growing()
        standby = "cb".index(r.holder()[0])  # the one of b and c that does not lead
        assert readers[standby].connections == connections[standby], "their streams did not end"


async def test_readers_of_standbys_continue_when_the_leader_is_killed(
    audited: Cluster, tmp_path: Path
) -> None:
    async with replicas(audited, tmp_path, *SHORT, names="abc") as r, AsyncExitStack() as stack:
        await r.all_written(0)
        addresses = zip([x.address for x in r.processes[1:]], r.rest[1:], strict=True)
        readers = [await stack.enter_async_context(Readers(*one).reading()) for one in addresses]
        r.cut(HOSTS[1])
        await until(lambda: len(r.degraded()) == 1, "a condition turns")
        r.a.kill()
        await until(lambda: r.holder()[:2] in ("b_", "c_"), "another replica leads")
        await until(lambda: r.player.settled, "all agents stream to it")
        before = max(reader.newest for reader in readers)
        r.cut(HOSTS[5])
        await until(lambda: all(reader.newest > before for reader in readers), "all readers see the change")
        for reader in readers:
            reader.assert_growing()
