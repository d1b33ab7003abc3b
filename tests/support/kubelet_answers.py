"""Answers of the kubelet's PodResources API, and a gRPC server on a Unix socket that gives them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import grpc
import grpc.aio
from hyperscout.v1.kubelet_pb2 import (
    KubeletAllocatable,
    KubeletContainer,
    KubeletDevices,
    KubeletNumaNode,
    KubeletPod,
    KubeletPods,
    KubeletTopology,
)

GPU = "nvidia.com/gpu"


def devices(ids: Iterable[str], numa: Sequence[int] | None = None, resource: str = GPU) -> KubeletDevices:
    """`numa`: None = the device plugin reports no topology."""
    found = KubeletDevices(resource_name=resource, device_ids=ids)
    if numa is not None:
        found.topology.CopyFrom(KubeletTopology(nodes=[KubeletNumaNode(ID=number) for number in numa]))
    return found


def two_zones(each: int = 4) -> list[KubeletDevices]:
    """A node with as many GPUs in each of two NUMA zones: gpu-0-0, ..., gpu-1-3."""
    return [devices([f"gpu-{zone}-{i}"], [zone]) for zone in (0, 1) for i in range(each)]


def allocatable(*given: KubeletDevices) -> bytes:
    return KubeletAllocatable(devices=given).SerializeToString()


def pods(*given: KubeletDevices) -> bytes:
    """One pod with one container for each of these."""
    containers = ([KubeletContainer(devices=[one])] for one in given)
    return KubeletPods(pod_resources=[KubeletPod(containers=one) for one in containers]).SerializeToString()


Answer = Callable[[str], Awaitable[bytes]]  # by method; may raise an Abort


class Abort(Exception):  # noqa: N818 - an instruction
    """Makes the server end the call with a status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code, self.details = code, details


@contextlib.asynccontextmanager
async def kubelet(socket: Path, answer: Answer) -> AsyncIterator[None]:
    """Serve the PodResources API on a socket."""

    def handler(method: str) -> "grpc.RpcMethodHandler[bytes, bytes]":
        async def call(_request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            try:
                return await answer(method)
            except Abort as abort:
                await context.abort(abort.code, abort.details)

        return grpc.unary_unary_rpc_method_handler(call)

    server = grpc.aio.server()
    methods = {method: handler(method) for method in ("List", "GetAllocatableResources")}
    handlers = grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods)
    server.add_generic_rpc_handlers((handlers,))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


async def hangs(_method: str) -> bytes:
    await asyncio.Event().wait()
    raise AssertionError


def answers(allocatable: bytes, pods: bytes) -> Answer:
    async def answer(method: str) -> bytes:
        return pods if method == "List" else allocatable

    return answer
