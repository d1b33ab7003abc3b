"""The node plugin over its socket, as the kubelet calls it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from hyperscout.v1.kubelet_pb2 import (
    KubeletClaim,
    KubeletClaimResults,
    KubeletClaims,
    KubeletPluginInfo,
    KubeletRegistrationStatus,
)
from hyperscout_agent.dra.plugin import SOCKET_NAME, main, serve

REGISTRATION = "/pluginregistration.Registration"
PLUGIN = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"


@contextlib.asynccontextmanager
async def plugin(folder: Path) -> AsyncIterator[grpc.aio.Channel]:
    socket, ended = folder / SOCKET_NAME, asyncio.Event()
    task = asyncio.create_task(serve(socket, ended))
    async with grpc.aio.insecure_channel(
        f"unix:{socket}", options=[("grpc.enable_http_proxy", 0)]
    ) as channel:
        await channel.channel_ready()
        yield channel
    ended.set()
    await task
    assert not socket.exists()


async def ask(channel: grpc.aio.Channel, method: str, request: bytes = b"") -> bytes:
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
        method, request_serializer=None, response_deserializer=None
    )
    return await call(request, timeout=30)


async def test_it_says_what_it_is_and_hears_of_its_registration(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (tmp_path / SOCKET_NAME).touch()  # of a plugin that was killed
    async with plugin(tmp_path) as channel:
        info = KubeletPluginInfo.FromString(await ask(channel, f"{REGISTRATION}/GetInfo"))
        assert info == KubeletPluginInfo(
            type="DRAPlugin", name="nic.hyperscout.io", supported_versions=["v1.DRAPlugin"]
        )
        for status in (
            KubeletRegistrationStatus(plugin_registered=True),
            KubeletRegistrationStatus(error="no\x1b[0m"),
        ):
            await ask(channel, f"{REGISTRATION}/NotifyRegistrationStatus", status.SerializeToString())
    assert "the kubelet has registered the plugin of nic.hyperscout.io" in caplog.text
    assert "the kubelet refuses the plugin: no [0m" in caplog.text


async def test_the_socket_of_a_successor_stays(tmp_path: Path) -> None:
    socket, ended = tmp_path / SOCKET_NAME, asyncio.Event()
    first = asyncio.create_task(serve(socket, ended))
    while not socket.exists():
        await asyncio.sleep(0.01)
    async with plugin(tmp_path) as channel:
        ended.set()
        await first
        await ask(channel, f"{REGISTRATION}/GetInfo")
        assert [path.name for path in tmp_path.iterdir()] == [SOCKET_NAME]


async def test_without_its_socket_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperscout_agent.dra.plugin.CHECK_S", 0.01)
    socket = tmp_path / SOCKET_NAME
    serving = asyncio.create_task(serve(socket, asyncio.Event()))
    while not socket.exists():
        await asyncio.sleep(0.01)
    socket.unlink()
    with pytest.raises(FileNotFoundError, match="was removed by another program"):
        await serving


@pytest.mark.parametrize("method", ["NodePrepareResources", "NodeUnprepareResources"])
async def test_each_claim_is_answered_with_nothing(tmp_path: Path, method: str) -> None:
    request = KubeletClaims(claims=[KubeletClaim(uid="a"), KubeletClaim(uid="b")])
    async with plugin(tmp_path) as channel:
        answer = await ask(channel, f"{PLUGIN}/{method}", request.SerializeToString())
    found = KubeletClaimResults.FromString(answer)
    assert {uid: one.ByteSize() for uid, one in found.claims.items()} == {"a": 0, "b": 0}


async def test_what_is_no_request_ends_nothing(tmp_path: Path) -> None:
    async with plugin(tmp_path) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await ask(channel, f"{PLUGIN}/NodePrepareResources", b"\xff" * 100)
        with pytest.raises(grpc.aio.AioRpcError):
            await ask(channel, f"{PLUGIN}/NodeWatchResources")
        await ask(channel, f"{REGISTRATION}/GetInfo")


def test_without_the_kubelets_folder_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--registry", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err
