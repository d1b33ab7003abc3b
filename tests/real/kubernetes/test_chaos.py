"""Everything fails, at random and together, and at the end the HyperNodes are what was discovered.

Meanwhile cables are cut, nodes come and go, one user edits our HyperNodes and one has others; the API
server is killed and started, refuses writes or says that they failed although they were done; collectors are
killed and frozen, so that leadership moves. Every single write is recorded and judged as a scheduler would.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import grpc.aio
import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.shapes import rail_optimised
from hyperscout_topology.proto import topology_from_proto
from hyperscout_topology.topology import Topology
from kube.api import ApiError
from kube.recorder import recording
from kube.rules import LABELS
from support.collector_process import CHANNEL_OPTIONS, CollectorProcess, collector_process
from support.flaky_api import FlakyApi
from support.kubernetes import Cluster
from support.soak import soak_s, soak_seed

SECONDS = soak_s(30)
SEED = soak_seed()
SETTLE_S = 240.0
USUAL_SHARE = 0.15  # of the writes that are refused all the time
NAMES = ("collector-0", "collector-1")
PORTS = {"collector-0": "127.0.0.1:0", "collector-1": "127.0.0.1:0"}
FLAGS = (
    *("--kubernetes", "publish", "--leader-election", "--lease-namespace", "default"),
    *("--lease-duration-s", "3"),
    *("--settle-s", "1", "--hold-down-s", "0.1"),
    *("--restart-grace-s", "0", "--takeover-limit-s", "60", "--removal-share", "1", "--hold-s", "60"),
)
FOREIGN = """
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {name: by-hand, labels: {owner: other}}
spec:
  tier: 1
  members:
  - {type: Node, selector: {exactMatch: {name: login-1}}}
"""


class Chaos:
    """What may happen. Each act is short, and leaves nothing broken for ever."""

    def __init__(self, kube: Cluster, api: FlakyApi, player: Player, folder: Path, rng: Random) -> None:
        self.kube = kube
        self.api = api
        self.player = player
        self.rng = rng
        self.done: Counter[str] = Counter()
        self.collectors: dict[str, CollectorProcess] = {}
        self._folder = folder
        self._addresses: dict[str, str] = dict(PORTS)
        self._stack: dict[str, AsyncExitStack] = {}
        self._cables = list(player.fabric.cables)
        self._switches = [x.guid for x in player.fabric.switches]
        self._out: list[Any] = []
        self._deleted: list[str] = []

    async def start(self, name: str) -> None:
        stack = AsyncExitStack()
        flags = (*FLAGS, "--identity", name, "--kubeconfig", str(self.api.kubeconfig))
        process = await stack.enter_async_context(
            collector_process(self._folder / name, *flags, listen=self._addresses[name])
        )
        self._stack[name], self.collectors[name] = stack, process
        self._addresses[name] = process.address

    async def stop(self) -> None:
        for name in self.collectors:
            await self._stack[name].aclose()

    @property
    def addresses(self) -> list[str]:
        return list(self._addresses.values())

    # Acts

    async def cable(self) -> None:
        if len(self._out) > 3:
            self.player.restore(self._out.pop(0))
        else:
            self._out.append(self.rng.choice([c for c in self._cables if c not in self._out]))
            self.player.cut(self._out[-1])

    async def node(self) -> None:
        if self._deleted and self.rng.random() < 0.7:
            await asyncio.to_thread(self.kube.nodes, [self._deleted.pop()])
        else:
            node = self.rng.choice([h for h in self.player.fabric.hosts if h not in self._deleted])
            await asyncio.to_thread(self.kube.delete_node, node)
            self._deleted.append(node)

    async def edit(self) -> None:
        ours = [n for n, h in (await asyncio.to_thread(self.kube.hypernodes)).items() if n != "by-hand"]
        if ours:
            patch = '{"metadata": {"annotations": {"hyperscout.io/nodes": "garbage", "note": "by hand"}}}'
            words = ("patch", "hn", self.rng.choice(ours), "--type=merge", "-p", patch)
            await self.kube.kubectl_async(*words)

    async def count(self) -> None:
        """As another controller does: nodeCount beside our conditions."""
        ours = list(await asyncio.to_thread(self.kube.hypernodes))
        patch = f'{{"status": {{"nodeCount": {self.rng.randrange(100)}}}}}'
        words = ("patch", "hn", self.rng.choice(ours), "--subresource=status", "--type=merge", "-p", patch)
        await self.kube.kubectl_async(*words)

    async def outage(self) -> None:
        await asyncio.to_thread(self.kube.plane.kill_apiserver)
        await asyncio.sleep(self.rng.uniform(0, 3))
        await asyncio.to_thread(self.kube.plane.start_apiserver)
        await asyncio.to_thread(self.kube.plane.await_ready)

    async def refuse(self) -> None:
        """While switches go and come, so that there is much to write."""
        self.api.share = 0.5
        switch = self.rng.choice(self._switches)
        self.player.pull(switch)
        await asyncio.sleep(self.rng.uniform(0.5, 2))
        self.player.push_back(switch)
        await asyncio.sleep(self.rng.uniform(0.5, 2))
        self.api.share = USUAL_SHARE

    async def kill(self) -> None:
        name = self.rng.choice(NAMES)
        self.collectors[name].kill()
        await self._stack[name].aclose()
        await self.start(name)

    async def freeze(self) -> None:
        """Longer than the Lease lasts: another takes over, and this one wakes up deposed."""
        pid = self.collectors[self.rng.choice(NAMES)].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(self.rng.uniform(3.5, 5))
        finally:
            os.kill(pid, signal.SIGCONT)

    async def rage(self) -> None:
        """Until the time is up: something small all the time, something large now and then."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + SECONDS
        self.api.share = USUAL_SHARE
        large = [self.outage, self.kill, self.freeze, self.refuse]
        turn = 0
        while loop.time() < until_s:
            for small in self.rng.choices([self.cable, self.node, self.edit, self.count], [6, 2, 1, 1], k=4):
                try:
                    await small()
                except (ApiError, RuntimeError):
                    continue  # the server is not quite there
                self.done[small.__name__] += 1
                await asyncio.sleep(self.rng.uniform(0, 0.3))
            act = large[turn % len(large)]
            turn += 1
            await act()
            self.done[act.__name__] += 1

    async def peace(self) -> None:
        """Everything is whole again."""
        self.api.share = 0.0
        for cable in self._out:
            self.player.restore(cable)
        await asyncio.to_thread(self.kube.nodes, self._deleted)


@asynccontextmanager
async def chaos(kube: Cluster, folder: Path, rng: Random) -> AsyncIterator[Chaos]:
    fabric = rail_optimised(2, 6, 2, 2, pods=2)
    kube.nodes(fabric.hosts)
    kube.apply(FOREIGN)
    verbs = {"verbs": ["*"]}
    kube.grant(
        "collector",
        [
            {"apiGroups": ["topology.volcano.sh"], "resources": ["hypernodes", "hypernodes/status"], **verbs},
            {"apiGroups": ["", "coordination.k8s.io"], "resources": ["nodes", "events", "leases"], **verbs},
        ],
    )
    api = FlakyApi(kube, rng)
    async with api.running(kube.token("collector"), folder):
        player = Player(fabric, ["127.0.0.1:1"], connections=2, refresh_interval_s=3600)
        found = Chaos(kube, api, player, folder, rng)
        for name in NAMES:
            await found.start(name)
        found.player = Player(fabric, found.addresses, connections=None, refresh_interval_s=10)
        playing = asyncio.create_task(found.player.run())
        try:
            yield found
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
            await found.stop()


async def inferred(addresses: list[str]) -> Topology | None:
    """What the leader has published, by its own API; None = no replica leads."""
    for address in addresses:
        async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
            try:
                answer = await TopologyServiceStub(channel).GetTopology(pb.GetTopologyRequest(), timeout=5)
            except grpc.aio.AioRpcError:
                continue
            return topology_from_proto(answer.topology)
    return None


def as_published(topology: Topology) -> dict[str, Any]:
    """By name: tier, members and the status of each condition."""
    return {
        h.name: (h.tier, sorted(h.children or h.nodes), {c.type: c.status for c in h.conditions})
        for h in topology.hypernodes
    }


def as_found(kube: Cluster) -> dict[str, Any]:
    found = {}
    for name, h in kube.hypernodes().items():
        if h["metadata"].get("labels", {}).items() >= LABELS.items():
            members = sorted(m["selector"]["exactMatch"]["name"] for m in h["spec"].get("members", ()))
            conditions = {c["type"]: c["status"] for c in (h.get("status") or {}).get("conditions", ())}
            found[name] = (h["spec"]["tier"], members, conditions)
    return found


async def settled(chaos: Chaos) -> dict[str, Any]:
    """The HyperNodes, once they are those of a whole and healthy fabric."""
    hosts = set(chaos.player.fabric.hosts)
    found: dict[str, Any] = {}
    wanted: Topology | None = None
    try:
        async with asyncio.timeout(SETTLE_S):
            while True:
                wanted = await inferred(chaos.addresses)
                found = await asyncio.to_thread(as_found, chaos.kube)
                leaves = {n for tier, members, _ in found.values() if tier == 1 for n in members}
                healthy = all(c.get("Degraded") == "False" for _, _, c in found.values())
                if wanted and leaves == hosts and healthy and found == as_published(wanted):
                    return found
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(
            f"after {chaos.done}: HyperNodes are {found}, inferred was {wanted and as_published(wanted)}; "
            + "\n".join(p.said.decode()[-2000:] for p in chaos.collectors.values())
        ) from None


@pytest.mark.soak
async def test_whatever_happens_hypernodes_come_true(own_kube: Callable[[], Cluster], tmp_path: Path) -> None:
    print(f"HYPERSCOUT_SOAK_SEED={SEED}")
    kube = own_kube()
    async with chaos(kube, tmp_path, Random(SEED)) as trouble, recording(kube.plane) as recorder:
        before = await settled(trouble)
        foreign = kube.hypernodes()["by-hand"]
        await trouble.rage()
        await trouble.peace()
        after = await settled(trouble)
        recorder.assert_clean()
        writes = len(recorder.events)
    print(f"chaos: {dict(trouble.done)}, refused {dict(trouble.api.refused)}, {writes} writes")
    assert {n: x[:2] for n, x in after.items()} == {n: x[:2] for n, x in before.items()}
    now = kube.hypernodes()["by-hand"]
    for found in (foreign, now):
        (found.get("status") or {}).pop("nodeCount", None)  # which the test itself writes
        found["metadata"] = {k: found["metadata"][k] for k in ("uid", "generation", "labels")}
    assert now["metadata"] == foreign["metadata"]
    assert now["spec"] == foreign["spec"]
    assert not (now.get("status") or {}).get("conditions")
