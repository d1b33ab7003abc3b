"""What the client says when a server says nothing."""

import asyncio

import pytest
from hyperscout_collector.kube.client import Kube, RateLimit
from hyperscout_collector.kube.errors import UnreachableError
from kubernetes.aio.client import Configuration


async def test_a_server_that_hangs_is_named_with_what_happened() -> None:
    gone = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        async with Kube(configuration, RateLimit(1, 1, clock=lambda: 0.0)) as kube:
            with pytest.raises(UnreachableError, match=r"^POST /path: .*[Tt]ime"):
                await kube.review("/path", {}, timeout_s=0.05)
        async with asyncio.timeout(10):
            await gone.wait()
