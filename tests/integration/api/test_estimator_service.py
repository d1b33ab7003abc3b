"""The estimator of replicas over a real server, asked with the bytes that Karmada's scheduler sends."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.serve.grpc.estimator_service import EstimatorService
from hyperscout_kubernetes.nodes import kept
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.demands.node_masks import NodeMasks
from support import kube_objects
from support.builders import gang
from support.callers import OPTIONS, refused
from support.collectors import collector_settings
from support.identities import Family
from support.topologies import leaves

Code = grpc.StatusCode
METHOD = "/github.com.karmada_io.karmada.pkg.estimator.service.Estimator/MaxAvailableReplicas"
GPU = "nvidia.com/gpu"
TREE = leaves(("m1", "m2", "east/n1", "east/n2"), ("east/n3", "east/n4", "east/n5", "m3"))
NODES = sorted(TREE.hypernodes[-1].nodes)


# Messages, by the numbers of fields in Karmada's pkg/estimator/pb/generated.proto and in Kubernetes'.


def field(number: int, *values: bytes | str) -> bytes:
    """Length-delimited fields of one number, of less than 16 KiB."""
    parts = [x.encode() if isinstance(x, str) else x for x in values]
    lengths = [bytes([n]) if (n := len(x)) < 128 else bytes([n & 127 | 128, n >> 7]) for x in parts]
    return b"".join(bytes([number << 3 | 2]) + n + x for n, x in zip(lengths, parts, strict=True))


def quantities(resources: dict[str, str]) -> bytes:
    return b"".join(field(2, field(1, name) + field(2, field(1, text))) for name, text in resources.items())


def requirement(key: str, operator: str, *values: str) -> bytes:
    return field(1, field(1, key) + field(2, operator) + field(3, *values))


def affinity(*terms: bytes) -> bytes:
    return field(1, field(1, *terms))


def ask(cluster: str, resources: dict[str, str], claim: bytes = b"") -> bytes:
    return field(1, cluster) + field(2, (field(1, claim) if claim else b"") + quantities(resources))


LEAF = requirement("hyperscout.io/leaf", "Exists")
BIG = requirement("size", "In", "big")


class World:
    def __init__(self) -> None:
        self.placements = Placements(clock_ns=lambda: 10**18, timer=lambda: 0.0)
        self.placements.set_topology(TREE)
        self.placements.set_unused({node: {"workers": 1, GPU: 8} for node in NODES})
        self.nodes: dict[str, Any] = {
            node: kept(
                kube_objects.node(
                    node.rpartition("/")[2], labels={"size": "big" if node.endswith(("1", "3")) else "small"}
                )
            )
            for node in NODES
        }
        self.masks = NodeMasks(self.nodes.get)
        self.service = EstimatorService(self.placements, self.masks, own="member1", clusters=["east", "west"])


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    yield found
    found.service.close()


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[Any]:
    server = grpc.aio.server()
    world.service.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel.unary_unary(METHOD)
    finally:
        await server.stop(None)


def answer(count: int) -> bytes:
    return bytes([1 << 3, count]) if count else b""


@pytest.mark.parametrize(
    ("request_bytes", "count"),
    [
        (ask("east", {GPU: "8"}), 5),
        (ask("east", {GPU: "4"}), 10),
        (ask("member1", {GPU: "8"}), 3),
        (ask("east", {GPU: "8", "cpu": "500m"}), 5),  # no node reports cpu: it does not count
        (ask("east", {GPU: "9"}), 0),
        (ask("east", {GPU: "8"}, affinity(LEAF)), 3),  # in one leaf, though no node has the label
        (ask("member1", {GPU: "8"}, affinity(LEAF)), 2),
        (ask("east", {GPU: "8"}, affinity(requirement("hyperscout.io/core", "Exists"))), 5),
        (ask("east", {GPU: "8"}, affinity(BIG)), 2),
        (ask("east", {GPU: "8"}, affinity(LEAF + BIG)), 1),
        (ask("east", {GPU: "8"}, affinity(LEAF, LEAF + BIG)), 3),
        (ask("east", {GPU: "8"}, affinity(BIG, LEAF)), 5),  # a term without the tier: no domain is required
        (ask("east", {GPU: "8"}, field(2, field(1, "size") + field(2, "small"))), 3),
    ],
)
async def test_as_many_replicas_as_fit(world: World, request_bytes: bytes, count: int) -> None:
    async with serving(world) as call:
        assert await call(request_bytes) == answer(count)


async def test_reservations_and_taints_count(world: World) -> None:
    asked = replace(gang(2, resources={GPU: 8}), cluster="east")
    world.placements.place("a", asked, holder="api")
    async with serving(world) as call:
        assert await call(ask("east", {GPU: "8"})) == answer(3)
        taints = {"taints": [{"key": "x", "effect": "NoSchedule"}]}
        tainted = kube_objects.node("n5", labels={"size": "small"}, spec=taints)
        before, world.nodes["east/n5"] = world.nodes["east/n5"], kept(tainted)
        world.masks.node_changed(before, world.nodes["east/n5"])
        tolerates = field(3, field(1, "x") + field(2, "Exists"))
        small = field(2, field(1, "size") + field(2, "small"))
        assert await call(ask("east", {GPU: "8"}, small + tolerates)) == answer(2)
        assert await call(ask("east", {GPU: "8"}, small)) == answer(1)


@pytest.mark.parametrize(
    ("request_bytes", "code", "words"),
    [
        (
            ask("north", {GPU: "8"}),
            Code.INVALID_ARGUMENT,
            "cluster: 'north': expected east or member1 or west",
        ),
        (ask("", {GPU: "8"}), Code.INVALID_ARGUMENT, "cluster: ''"),
        (ask("west", {GPU: "8"}), Code.INVALID_ARGUMENT, "no node of this cluster is in the topology"),
        (ask("east", {"cpu": "1"}), Code.FAILED_PRECONDITION, "cpu: no node reports it"),
        (ask("east", {}), Code.FAILED_PRECONDITION, "the claim names no resources"),
        (ask("east", {GPU: "x"}), Code.INVALID_ARGUMENT, "nvidia.com/gpu"),
    ],
)
async def test_what_cannot_be_counted_is_refused(
    world: World, request_bytes: bytes, code: Code, words: str
) -> None:
    async with serving(world) as call:
        found = await refused(call(request_bytes))
        assert (found[0], words in found[1]) == (code, True), found
        assert await call(ask("east", {GPU: "8"})) == answer(5)


async def test_the_port_requires_client_certificates(tmp_path: Path) -> None:
    family = Family(tmp_path)
    settings = collector_settings(
        tmp_path,
        estimator_listen="127.0.0.1:0",
        estimator_cluster="member1",
        tls_cert=family.server.cert,
        tls_key=family.server.key,
        tls_client_ca=family.ca,
    )
    async with Collector(settings) as collector:
        for identity, code in (("reader/karmada", Code.FAILED_PRECONDITION), ("", Code.UNAVAILABLE)):
            address, credentials = collector.estimator_address, family.channel(identity)
            async with grpc.aio.secure_channel(address, credentials, OPTIONS) as channel:
                call = channel.unary_unary(METHOD)
                assert (await refused(call(ask("member1", {GPU: "8"}))))[0] == code
