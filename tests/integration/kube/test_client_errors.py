"""What the client says when a server says nothing, what it counts, and which proxy it uses."""

import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hyperscout_kubernetes.client import Fence, Kube, RateLimit
from hyperscout_kubernetes.errors import WORDS, KubeError, NotLeaderError, UnreachableError
from kubernetes.aio.client import Configuration
from support.identities import Family
from support.waiting import TIMEOUT_S

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[Configuration]:
    """A server on loopback. Yields the configuration of its clients."""
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        configuration = Configuration()
        port = server.sockets[0].getsockname()[1]
        configuration.host = f"http{'s' if tls else ''}://127.0.0.1:{port}"
        yield configuration


def of_pieces(pieces: list[bytes]) -> Serve:
    """Serves a stream in these pieces."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    return serve


async def test_a_server_that_hangs_is_named_with_what_happened() -> None:
    came, gone, timeout_s = asyncio.Event(), asyncio.Event(), 0.05

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    async with served(hang) as configuration:
        async with Kube(configuration, RateLimit(1, 1, clock=lambda: 0.0)) as kube:
            while not came.is_set():  # a busy machine may take longer to connect
                with pytest.raises(UnreachableError, match=r"^POST /path: .*[Tt]ime"):
                    await kube.review("/path", {}, timeout_s=timeout_s)
                timeout_s *= 2
        async with asyncio.timeout(TIMEOUT_S):
            await gone.wait()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (b"200 OK", "written"),
        (b"409 Conflict", "conflict"),
        (b"403 Forbidden", "forbidden"),
        (b"422 Unprocessable Entity", "rejected"),
        (b"503 Service Unavailable", "unreachable"),
        (b"", "unreachable"),
    ],
)
async def test_writes_are_counted_by_what_came_of_them(answer: bytes, outcome: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer:
            head = b"HTTP/1.1 " + answer + b"\r\nContent-Type: application/json\r\nConnection: close\r\n"
            writer.write(head + b"Content-Length: 2\r\n\r\n{}")
            await writer.drain()
        writer.close()

    limit = RateLimit(1, 10, clock=lambda: 0.0)
    async with served(serve) as configuration, Kube(configuration, limit) as kube:
        with contextlib.suppress(KubeError):
            await kube.fenced(Fence()).write("PATCH", "/path")
        with pytest.raises(NotLeaderError):
            await kube.paced(limit).fenced(_Deposed()).write("DELETE", "/path")
        with contextlib.suppress(KubeError):
            await kube.get("/path")
        assert kube.counters.writes == {("PATCH", outcome): 1, ("DELETE", "not_leader"): 1}
        assert kube.counters.write_seconds["PATCH"] > 0
        assert outcome in {"written", *WORDS}


@pytest.mark.parametrize("without", ["", "other.invalid", "api.invalid"])
async def test_the_proxy_of_the_environment_is_read_once(
    monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                asked.append(head.partition(b"\r\n")[0])
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    monkeypatch.setenv("no_proxy", without)
    configuration = Configuration()
    configuration.host = "http://api.invalid"
    threads = threading.active_count()
    async with served(serve) as proxy:
        monkeypatch.setenv("http_proxy", proxy.host)
        async with Kube(configuration, RateLimit(1, 1)) as kube:
            monkeypatch.delenv("http_proxy")
            assert configuration.proxy == (None if without == "api.invalid" else proxy.host)
            if configuration.proxy is not None:
                assert await kube.get("/path") == await kube.get("/path") == {}
                assert asked == [b"GET http://api.invalid/path HTTP/1.1"] * 2
                assert threading.active_count() <= threads, "no request needs a thread"


async def test_events_of_a_watch_may_come_in_any_pieces() -> None:
    events = [{"type": "ADDED", "object": {"metadata": {"name": name}}} for name in ("a", "b" * 5000, "c")]
    text = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    serve = of_pieces([text[:80], text[80:5090], text[5090:]])
    async with served(serve) as configuration, Kube(configuration, RateLimit(1, 1)) as kube:
        assert [event async for event in kube.watch("/path", "1")] == events


@pytest.mark.parametrize("pieces", [1, 3])
async def test_an_event_that_is_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    monkeypatch.setattr("hyperscout_kubernetes.client._MAX_EVENT_BYTES", 50_000)
    text = json.dumps({"type": "ADDED", "object": {"name": "b" * 50_000}}).encode() + b"\n"
    serve = of_pieces([text[i * len(text) // pieces : (i + 1) * len(text) // pieces] for i in range(pieces)])
    async with served(serve) as configuration, Kube(configuration, RateLimit(1, 1)) as kube:
        with pytest.raises(UnreachableError, match="watch /path: an event is longer than 50000 bytes"):
            assert [event async for event in kube.watch("/path", "1")] == []


async def test_the_connection_of_a_cancelled_request_is_closed_with_the_client(
    monkeypatch: pytest.MonkeyPatch, family: Family
) -> None:
    """An event loop that ends just after its client would leave the socket open."""
    monkeypatch.setattr("hyperscout_kubernetes.client._CLOSING_S", 0.5)  # a busy machine may be slow
    asked, gone = asyncio.Event(), asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        gone.set()

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(family.server.cert, family.server.key)
    async with served(hang, tls) as configuration:
        configuration.ssl_ca_cert = str(family.ca)
        async with Kube(configuration, RateLimit(1, 1)) as kube:
            request = asyncio.create_task(kube.get("/path"))
            await asked.wait()
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
        assert gone.is_set()


class _Deposed(Fence):
    def remaining_s(self) -> float:
        raise NotLeaderError("another replica leads")


def test_every_kind_of_error_has_a_word() -> None:
    kinds = [KubeError, *KubeError.__subclasses__()]
    assert {kind.word for kind in kinds} == set(WORDS)
