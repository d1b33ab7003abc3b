"""HTTP/1.1 of one connection, without a socket: what is answered, what waits, and what ends it."""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import h11
import pytest
from hyperscout_collector.serve.http import protocol
from hyperscout_collector.serve.http.protocol import ABORT, Connection, Served
from hyperscout_runtime.connections import SilentConnections
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp, Receive, Scope, Send

GET = b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
MANY_LINES = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 20_000 + b"\r\n"


def post(length: int, *more: str) -> bytes:
    lines = ["POST /p HTTP/1.1", "Host: localhost", f"Content-Length: {length}", *more]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


class FakeTransport(asyncio.Transport):
    def __init__(self, *, tls: bool = False) -> None:
        super().__init__({"sockname": ("127.0.0.1", 80), "peername": ("127.0.0.1", 1)})
        self.sent = bytearray()
        self.reads, self.half_closed, self.closed, self.aborted = True, False, False, False
        self._tls = tls

    def write(self, data: Any) -> None:
        assert not self.half_closed
        self.sent += data

    def can_write_eof(self) -> bool:
        return not self._tls

    def write_eof(self) -> None:
        self.half_closed = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high


class Wire:
    """A connection of an application, and its client's side."""

    def __init__(self, app: ASGIApp, *, served: Served | None = None, tls: bool = False) -> None:
        self.served = served or Served(app, 10, SilentConnections(10))
        self.transport = FakeTransport(tls=tls)
        self.connection = Connection(self.served)
        self.connection.connection_made(self.transport)

    async def says(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.connection.data_received(piece)
        await self.settled()

    async def settled(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def heard(self, *methods: bytes) -> list[tuple[int, dict[bytes, bytes], bytes]]:
        """The answers to requests of these methods, as a client reads them."""
        found = []
        client = h11.Connection(h11.CLIENT)
        client.receive_data(bytes(self.transport.sent))
        for at, method in enumerate(methods):
            if at:
                client.start_next_cycle()
            client.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"localhost")]))
            client.send(h11.EndOfMessage())
            while isinstance(head := client.next_event(), h11.InformationalResponse):
                pass
            assert isinstance(head, h11.Response), head
            body = b""
            while isinstance(event := client.next_event(), h11.Data):
                body += event.data
            assert isinstance(event, h11.EndOfMessage), event
            found.append((head.status_code, dict(head.headers), body))
        assert not client.trailing_data[0]
        return found


async def reply(send: Send, body: bytes, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def body_of(receive: Receive) -> bytes | None:
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            return body
    return None


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """What it was asked for, and with which body."""
    body = await body_of(receive)
    assert body is not None
    await reply(send, b"%s %s %s" % (scope["method"].encode(), scope["raw_path"], body))


async def test_a_connection_answers_request_after_request() -> None:
    wire = Wire(echo)
    await wire.says(GET % 1)
    await wire.says(post(3) + b"abc")
    await wire.says(GET % 2)
    assert [body for _, _, body in wire.heard(b"GET", b"POST", b"GET")] == [
        b"GET /1 ",
        b"POST /p abc",
        b"GET /2 ",
    ]
    assert not wire.transport.is_closing()


@given(st.lists(st.integers(1, 400), max_size=30))
@settings(deadline=None, max_examples=50)
def test_answers_do_not_depend_on_how_the_bytes_come(cuts: list[int]) -> None:
    """Requests that come together are answered one after the other."""

    async def run() -> None:
        wire = Wire(echo)
        chunked = (
            b"POST /p HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
        )
        data = GET % 1 + post(3) + b"abc" + chunked + (b"HEAD" + (GET % 2)[3:]) + GET % 3
        at = 0
        for cut in cuts:
            await wire.says(data[at : at + cut])
            at += cut
        await wire.says(data[at:])
        bodies = [body for _, _, body in wire.heard(b"GET", b"POST", b"POST", b"HEAD", b"GET")]
        assert bodies == [b"GET /1 ", b"POST /p abc", b"POST /p hi", b"", b"GET /3 "]

    asyncio.run(run())


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"],
)
async def test_the_last_request_ends_the_connection(sent: bytes) -> None:
    wire = Wire(echo)
    await wire.says(sent + GET % 1)
    ((status, headers, body),) = wire.heard(b"GET")
    assert (status, headers[b"connection"], body) == (200, b"close", b"GET / ")
    assert wire.transport.closed


async def test_an_answer_without_a_length_is_chunked() -> None:
    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await send({"type": "http.response.body", "body": b"b"})

    wire = Wire(app)
    await wire.says(GET % 1)
    ((_, headers, body),) = wire.heard(b"GET")
    assert (headers[b"transfer-encoding"], body) == (b"chunked", b"ab")


async def test_a_body_is_asked_for_when_it_is_read() -> None:
    wire = Wire(echo)
    await wire.says(post(3, "Expect: 100-continue"))
    assert bytes(wire.transport.sent) == b"HTTP/1.1 100 Continue\r\n\r\n"
    await wire.says(b"abc")
    assert wire.heard(b"POST")[0][2] == b"POST /p abc"


@pytest.mark.parametrize("expect", [(), ("Expect: 100-continue",)])
@pytest.mark.parametrize("tls", [False, True])
async def test_an_answer_before_the_end_of_the_body_is_the_last(expect: tuple[str, ...], tls: bool) -> None:
    """The client reads the answer: a close with bytes unread would reset the connection."""

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await reply(send, b"too large", 413)

    wire = Wire(app, tls=tls)
    await wire.says(post(1 << 30, *expect))
    ((status, headers, body),) = wire.heard(b"POST")
    assert (status, headers[b"connection"], body) == (413, b"close", b"too large")
    assert wire.transport.closed if tls else wire.transport.half_closed
    if not tls:
        await wire.says(*[b"x" * 100_000] * 10, GET % 1)
        assert wire.transport.reads
        assert len(wire.heard(b"POST")) == 1


async def test_a_body_that_is_not_read_waits_with_the_client() -> None:
    go = asyncio.Event()

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        await reply(send, b"%d" % len(await body_of(receive) or b""))

    wire = Wire(app)
    whole = 1_000_000
    sent = 0
    connection, transport = wire.connection, wire.transport
    connection.data_received(post(whole))
    while transport.reads:
        connection.data_received(b"x" * 10_000)
        sent += 10_000
        assert sent < 300_000, "the client is told to wait"
    go.set()
    while sent < whole:
        await wire.settled()
        assert transport.reads, "what was read makes room"
        connection.data_received(b"x" * 10_000)
        sent += 10_000
    await wire.settled()
    assert wire.heard(b"POST")[0][2] == b"%d" % whole


async def test_an_answer_that_the_client_does_not_read_waits() -> None:
    wire = Wire(echo)
    wire.connection.pause_writing()
    await wire.says(GET % 1)
    assert not wire.transport.sent
    wire.connection.resume_writing()
    await wire.settled()
    assert len(wire.heard(b"GET")) == 1


async def large(_: Scope, __: Receive, send: Send) -> None:
    await reply(send, b"x" * 1_000_000)


class FullTransport(FakeTransport):
    """Takes one write, then asks to wait."""

    def write(self, data: Any) -> None:
        super().write(data)
        self.get_protocol().pause_writing()  # type: ignore[attr-defined]


def with_full_transport(app: ASGIApp) -> Wire:
    wire = Wire(app)
    wire.transport = FullTransport()
    wire.connection.connection_made(wire.transport)
    wire.transport.get_protocol = lambda: wire.connection  # type: ignore[method-assign]
    return wire


async def test_a_large_answer_is_sent_as_the_client_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_REQUEST_TIMEOUT_S", 0.0)
    wire = with_full_transport(large)
    await wire.says(GET % 1)
    while not wire.transport.aborted:
        before = len(wire.transport.sent)
        wire.connection.resume_writing()
        await wire.settled()
        assert len(wire.transport.sent) - before < 100_000, "the rest waits for the client"
    assert len(wire.heard(b"GET")[0][2]) == 1_000_000, "the next request is due after all of the answer"


async def test_a_client_that_reads_nothing_loses_its_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(protocol, "_STALL_S", 0.0)
    wire = with_full_transport(large)
    await wire.says(GET % 1, GET % 2)
    assert wire.transport.aborted
    assert not wire.served.tasks
    assert not caplog.records


async def test_a_last_answer_must_be_read_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_REQUEST_TIMEOUT_S", 0.0)
    wire = Wire(echo)
    await wire.says(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert wire.transport.closed
    assert wire.transport.aborted, "a transport closes when all is sent, and that may be never"


@pytest.mark.parametrize(
    "sent",
    [
        MANY_LINES,
        GET % 1 + MANY_LINES,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 50_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["many lines", "many lines, the second request", "a long line", "TLS", "no chunk"],
)
async def test_what_is_no_request_is_answered_400_and_nothing_is_read_after_it(sent: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if await body_of(receive) is not None:
            await reply(send, b"fine")

    wire = Wire(app)
    await wire.says(sent, GET % 2)
    before = [b"GET"] if sent.startswith(GET % 1) else []
    *_, (status, headers, _) = wire.heard(*before, b"GET")
    assert (status, headers[b"content-type"]) == (400, b"application/problem+json")
    assert headers[b"connection"] == b"close"
    assert wire.transport.half_closed
    assert not wire.served.tasks


@pytest.mark.parametrize("sent", [b"", b"GET / HT", post(3) + b"a"], ids=["nothing", "head", "body"])
async def test_a_request_that_does_not_come_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[bytes | None] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        seen.append(await body_of(receive))

    monkeypatch.setattr(protocol, "_REQUEST_TIMEOUT_S", 0.0)
    wire = Wire(app)
    await wire.says(sent)
    assert wire.transport.aborted
    assert seen == ([None] if b"POST" in sent else [])
    assert not caplog.records


async def test_an_application_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    go = asyncio.Event()

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await go.wait()
        await reply(send, b"late")

    monkeypatch.setattr(protocol, "_REQUEST_TIMEOUT_S", 0.0)
    wire = Wire(app)
    await wire.says(GET % 1)
    assert not wire.transport.is_closing()
    go.set()
    await wire.settled()
    assert wire.heard(b"GET")[0][2] == b"late"
    assert wire.transport.aborted, "but then the next request must come in time"


async def test_a_client_that_hangs_up_is_sent_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def app(_: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        await reply(send, b"too late")

    wire = Wire(app)
    await wire.says(GET % 1)
    wire.connection.connection_lost(None)
    await wire.settled()
    assert not wire.transport.sent
    assert not wire.served.tasks
    assert not wire.served.connections
    assert not caplog.records


async def test_an_application_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, _: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        scope["state"][ABORT]()

    wire = Wire(app)
    await wire.says(GET % 1)
    assert wire.transport.aborted
    assert not caplog.records


async def fails(_: Scope, __: Receive, ___: Send) -> None:
    raise LookupError("a bug")


async def fails_late(_: Scope, __: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200})
    raise LookupError("a bug")


async def forgets(_: Scope, __: Receive, ___: Send) -> None:
    return


@pytest.mark.parametrize(
    ("app", "logged"), [(fails, "a bug"), (fails_late, "a bug"), (forgets, "the response is incomplete")]
)
async def test_a_bug_is_logged_and_never_looks_like_a_whole_answer(
    app: Callable[[Scope, Receive, Send], Awaitable[None]], logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire(app)
    await wire.says(GET % 1)
    if app is fails:
        assert wire.heard(b"GET")[0][0] == 500
    else:
        assert wire.transport.aborted
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert logged in caplog.text


async def test_one_request_leaves_nothing_in_the_context_of_the_next() -> None:
    caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="unset")

    async def app(_: Scope, __: Receive, send: Send) -> None:
        found = caller.get()
        caller.set("ann")
        await reply(send, found.encode())

    wire = Wire(app)
    await wire.says(GET % 1 + GET % 2)
    assert [body for _, _, body in wire.heard(b"GET", b"GET")] == [b"unset", b"unset"]


async def test_connections_beyond_the_limit_are_ended() -> None:
    served = Served(echo, 2, SilentConnections(10))
    wires = [Wire(echo, served=served) for _ in range(3)]
    assert [wire.transport.aborted for wire in wires] == [False, False, True]
    wires[2].connection.connection_lost(None)
    wires[0].connection.connection_lost(None)
    assert not Wire(echo, served=served).transport.aborted


async def test_an_end_waits_for_the_answer_that_is_under_way() -> None:
    go = asyncio.Event()

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await go.wait()
        await reply(send, b"done")

    idle, busy = Wire(app), Wire(app)
    await busy.says(GET % 1)
    idle.connection.shutdown()
    busy.connection.shutdown()
    assert idle.transport.closed
    assert not busy.transport.is_closing()
    go.set()
    await busy.settled()
    ((_, headers, body),) = busy.heard(b"GET")
    assert (headers[b"connection"], body) == (b"close", b"done")
    assert busy.transport.closed
