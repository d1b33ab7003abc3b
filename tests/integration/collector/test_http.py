"""The plaintext port: three pages, and an answer to everything else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
from hyperscout_collector.app.metrics.ingest import bounded
from hyperscout_collector.serve.http.health_page import TEXT, HttpServer


def broken() -> tuple[HTTPStatus, str, bytes]:
    raise ZeroDivisionError


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    server = HttpServer({"/healthz": lambda: (HTTPStatus.OK, TEXT, b"ok\n"), "/broken": broken})
    port = await server.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.stop()


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
        (b"GET /healthz?verbose HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /nothing HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /healthz HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /broken HTTP/1.1\r\n\r\n", b"500"),
        (b"\x16\x03\x01 tls? no\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n", b"431"),
    ],
)
async def test_answers(request_: bytes, status: bytes) -> None:
    async with serving() as port:
        assert (await ask(port, request_)).split(b" ")[1] == status


async def test_whoever_hangs_up_half_way_is_no_trouble() -> None:
    async with serving() as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /hea")
        writer.close()
        await writer.wait_closed()
        assert b"ok" in await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n")


def test_probe_names_cannot_flood_the_metrics() -> None:
    evidence = {(f"probe-{i}", "data"): 1 + (i < 5) for i in range(1000)}
    found = bounded(evidence)
    assert len(found) == 33
    assert sum(found.values()) == sum(evidence.values())
    assert found["probe-0", "data"] == 2
