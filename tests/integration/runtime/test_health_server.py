"""The plaintext port: pages, and an answer to everything else."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest
from hyperscout_runtime import health_server
from hyperscout_runtime.health_server import Answer, not_ready, ok, serving
from support.waiting import TIMEOUT_S


def broken() -> Answer:
    raise ZeroDivisionError


@contextlib.asynccontextmanager
async def pages() -> AsyncIterator[int]:
    found = {"/healthz": ok, "/readyz": lambda: not_ready("no reason"), "/broken": broken}
    async with serving("127.0.0.1", 0, found) as port:
        yield port


async def ask(port: int, request: bytes, *, ends: bool = False) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    with contextlib.suppress(ConnectionError):
        writer.write(request)
        if ends:
            writer.write_eof()
        async with asyncio.timeout(TIMEOUT_S):
            answer = await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", HTTPStatus.OK),
        (b"GET /healthz?verbose HTTP/1.0\r\n\r\n", HTTPStatus.OK),
        (b"HEAD /healthz HTTP/1.1\r\n\r\n", HTTPStatus.OK),
        (b"GET /readyz HTTP/1.1\r\n\r\n", HTTPStatus.SERVICE_UNAVAILABLE),
        (b"GET /nothing HTTP/1.1\r\n\r\n", HTTPStatus.NOT_FOUND),
        (b"POST /healthz HTTP/1.1\r\n\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
        (b"GET /broken HTTP/1.1\r\n\r\n", HTTPStatus.INTERNAL_SERVER_ERROR),
        (b"\x16\x03\x01 tls? no\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET /healthz FTP/1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (
            b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        ),
    ],
)
async def test_answers(request_: bytes, status: HTTPStatus) -> None:
    async with pages() as port:
        assert int((await ask(port, request_)).split(b" ")[1]) == status


async def test_the_answer_of_head_has_no_body() -> None:
    async with pages() as port:
        head, _, body = (await ask(port, b"HEAD /healthz HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
        assert b"Content-Length: 3\r\n" in head
        assert body == b""
        assert (await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\nok\n")


@pytest.mark.parametrize(
    "bad",
    [b"", b"GET", b"\xff" * 100 + b"\r\n\r\n", b"x" * 100_000],
    ids=["nothing", "cut", "binary", "endless"],
)
async def test_a_bad_client_harms_no_other(bad: bytes) -> None:
    async with pages() as port:
        await ask(port, bad, ends=True)
        assert b"ok" in await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n")


async def test_a_client_that_disconnects_early_harms_no_other() -> None:
    async with pages() as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /hea")
        writer.close()
        await writer.wait_closed()
        assert b"ok" in await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n")


async def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_server, "_TIMEOUT_S", 0.2)
    large = Answer(b"x" * (64 << 20))  # more than the buffers of a connection hold
    async with serving("127.0.0.1", 0, {"/metrics": lambda: large}) as port:
        # A reader with a small limit stops reading from the socket.
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await asyncio.wait_for(reader.readline(), TIMEOUT_S)
        with pytest.raises(ConnectionError):
            await write_on(writer)
        writer.close()


async def write_on(writer: asyncio.StreamWriter) -> None:
    """Write until the other end resets the connection."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)
