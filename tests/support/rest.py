"""REST as a client of its own sees it: plain HTTP/1.1 over asyncio, no library of the server's.

`get(address, "/v1/nodes")` asks once; `follow` reads the live stream.
"""

import asyncio
import gzip
import json
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from support.waiting import TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Reply:
    """`headers` in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event. `data`: its lines, joined."""

    kind: str
    ident: str
    data: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def problem(self) -> Any:
        """Of an `error`: the last line, whatever was cut off before it."""
        return json.loads(self.data.rpartition("\n")[2])


async def ask(
    address: str,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    tls: ssl.SSLContext | None = None,
) -> Reply:
    """One request on a connection of its own. `body`: bytes as they are, anything else as JSON."""
    async with _asked(address, path, method, headers or {}, body, tls) as (reader, status, found):
        if method == "HEAD" or status in (204, 304):
            return Reply(status, found, b"")
        if found.get("transfer-encoding") == "chunked":
            data = b"".join([chunk async for chunk in _chunks(reader)])
        else:
            data = await reader.readexactly(int(found["content-length"]))
        return Reply(
            status, found, gzip.decompress(data) if found.get("content-encoding") == "gzip" else data
        )


@asynccontextmanager
async def follow(
    address: str,
    path: str = "/v1/stream",
    *,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    small: bool = False,
) -> AsyncIterator[AsyncIterator[Event]]:
    """The events of a stream, until it ends. A reader that does not ask for the next one reads nothing.

    `small`: with so little room for what was not read that its sender soon notices.
    """
    async with _asked(address, path, "GET", headers or {}, None, tls, small=small) as (reader, status, found):
        if status != 200:
            raise AssertionError(f"{status}: {(await reader.read(2000)).decode()}")
        assert found["content-type"] == "text/event-stream"
        yield _events(reader)


@asynccontextmanager
async def _asked(
    address: str,
    path: str,
    method: str,
    headers: Mapping[str, str],
    body: Any,
    tls: ssl.SSLContext | None,
    *,
    small: bool = False,
) -> AsyncIterator[tuple[asyncio.StreamReader, int, dict[str, str]]]:
    host, _, port = address.rpartition(":")
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Host": address, "Content-Length": str(len(data)), "Connection": "close", **headers}
    if body is not None:
        sent.setdefault("Content-Type", "application/json")
    plug = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    plug.setblocking(False)
    if small:
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.get_running_loop().sock_connect(plug, (host, int(port)))
            reader, writer = await asyncio.open_connection(
                sock=plug, ssl=tls, server_hostname="localhost" if tls else None
            )
    except BaseException:
        plug.close()
        raise
    try:
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + data)
        async with asyncio.timeout(TIMEOUT_S):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.split(": ", 1) for line in head[1:] if line)
        yield reader, int(head[0].split()[1]), {name.lower(): value for name, value in pairs}
    finally:
        writer.transport.abort()


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readline(), 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[Event]:
    """As WHATWG HTML, 9.2.6 interprets a stream; comments are passed over."""
    rest = b""
    kind, ident, data = "", "", []
    async for chunk in _chunks(reader):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            name, _, value = line.decode().partition(":")
            value = value.removeprefix(" ")
            if not line:
                if data:
                    yield Event(kind or "message", ident, "\n".join(data))
                kind, data = "", []
            elif name == "data":
                data.append(value)
            elif name == "event":
                kind = value
            elif name == "id":
                ident = value
