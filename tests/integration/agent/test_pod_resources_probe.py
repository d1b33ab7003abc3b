"""The probe of the kubelet's PodResources API, with a gRPC server on a socket and with the relay."""

import asyncio
import contextlib
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from hyperscout.v1.finding_pb2 import DeviceResource, Outcome
from hyperscout_agent.findings.probe import ProbeError
from hyperscout_agent.pod_resources.relay import Relay
from hyperscout_agent.probes.pod_resources import PodResourcesProbe
from support.kubelet_answers import (
    GPU,
    Abort,
    Answer,
    allocatable,
    answers,
    devices,
    hangs,
    kubelet,
    pods,
    two_zones,
)
from support.waiting import until

NODE = answers(allocatable(*two_zones(2)), pods(devices(["gpu-1-0"], [1])))


def seen(message: object) -> dict[str, tuple[list[int], bool]]:
    assert isinstance(message, DeviceResource)
    return {device.id: (list(device.numa_nodes), device.in_use) for device in message.devices}


async def test_devices_and_their_changes(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    used = [devices(["gpu-1-0"], [1])]

    async def answer(method: str) -> bytes:
        return pods(*used) if method == "List" else allocatable(*two_zones(2))

    probe = PodResourcesProbe(path)
    async with kubelet(path, answer):
        first = await probe.observe()
        assert first.complete
        assert list(first.samples) == [GPU]
        assert seen(first.samples[GPU].payload) == {
            "gpu-0-0": ([0], False), "gpu-0-1": ([0], False), "gpu-1-0": ([1], True), "gpu-1-1": ([1], False),
        }  # fmt: skip
        used.clear()
        assert not any(in_use for _, in_use in seen((await probe.observe()).samples[GPU].payload).values())


async def test_one_resource_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    bad = devices(["d"], [5000], "other.com/x")
    async with kubelet(path, answers(allocatable(*two_zones(1), bad), pods())):
        samples = (await PodResourcesProbe(path).observe()).samples
    assert samples[GPU].outcome == Outcome.OUTCOME_DATA
    assert samples["other.com/x"].outcome == Outcome.OUTCOME_FAILED
    assert samples["other.com/x"].reason == "device d: NUMA node 5000: Linux has at most 1024"


@pytest.mark.parametrize("kind", ["no folder", "no socket", "a file"])
async def test_without_a_socket(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "pod-resources"
    if kind != "no folder":
        folder.mkdir()
    if kind == "a file":
        (folder / "kubelet.sock").touch()
    with pytest.raises(ProbeError, match="there is no socket of the kubelet: mount its folder, set pod_reso"):
        await PodResourcesProbe(folder / "kubelet.sock").observe()


async def refuses(_method: str) -> bytes:
    raise Abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")


async def knows_nothing(_method: str) -> bytes:
    raise Abort(grpc.StatusCode.UNIMPLEMENTED, "unknown service")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (knows_nothing, "the kubelet has no PodResources API v1: Kubernetes 1.28 or newer is needed"),
        (refuses, "resource exhausted: rejected by rate limit"),
        (answers(b"\xff\xff", b""), "GetAllocatableResources: expected a message of the PodResources API"),
        (answers(bytes(5 * 1024 * 1024), b""), "an answer has at most 4 MiB"),
    ],
    ids=["unimplemented", "rate limit", "junk", "too large"],
)
async def test_answers_that_are_no_data(tmp_path: Path, answer: Answer, reason: str) -> None:
    path = tmp_path / "kubelet.sock"
    async with kubelet(path, answer):
        with pytest.raises(ProbeError, match=reason):
            await PodResourcesProbe(path).observe()


async def test_a_kubelet_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperscout_agent.probes.pod_resources._CALL_S", 0.1)
    path = tmp_path / "kubelet.sock"
    async with kubelet(path, hangs):
        with pytest.raises(ProbeError, match="deadline exceeded"):
            await PodResourcesProbe(path).observe()


async def test_a_socket_without_a_server(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
        with pytest.raises(ProbeError, match="the kubelet does not answer"):
            await PodResourcesProbe(path).observe()


@contextlib.asynccontextmanager
async def relay(path: Path, to: Path, max_open_s: float = 30.0) -> AsyncIterator[None]:
    ended = asyncio.Event()
    task = asyncio.create_task(Relay(path, to, max_open_s=max_open_s).run(ended))
    # The group of the folder may connect, and no other user.
    await until(lambda: path.is_socket() and stat.S_IMODE(path.stat().st_mode) == 0o660)
    try:
        yield
    finally:
        ended.set()
        await task


async def test_through_the_relay(tmp_path: Path) -> None:
    path, inner = tmp_path / "relay.sock", tmp_path / "kubelet.sock"
    path.touch()  # of an earlier relay
    async with relay(path, inner):
        with pytest.raises(ProbeError, match="the kubelet does not answer"):
            await PodResourcesProbe(path).observe()
        async with kubelet(inner, NODE):
            for _ in range(6):  # more runs than connections at a time
                assert len(seen((await PodResourcesProbe(path).observe()).samples[GPU].payload)) == 4
    async with relay(path, inner), kubelet(inner, NODE):  # a second relay takes the socket over
        assert GPU in (await PodResourcesProbe(path).observe()).samples


async def test_the_relay_bounds_its_connections(tmp_path: Path) -> None:
    path, inner = tmp_path / "relay.sock", tmp_path / "kubelet.sock"
    async with kubelet(inner, NODE), relay(path, inner, max_open_s=0.5), contextlib.AsyncExitStack() as stack:
        opened = [await asyncio.open_unix_connection(path) for _ in range(5)]
        for _, writer in opened:
            stack.callback(writer.close)
        assert await opened[4][0].read() == b"", "the fifth is closed at once"
        for reader, _ in opened[:4]:  # gRPC's server sends its settings, then waits
            await reader.read()
        assert GPU in (await PodResourcesProbe(path).observe()).samples, "idle connections end"
