"""Serves an ASGI application over one HTTP/1.1 connection, on h11 and asyncio (RFC 9112, ASGI 3.0).

Everything is limited: the number of connections, the size of a head, the time until a request is complete,
and the bytes that wait to be sent or read. The scope's state contains the peer's verified certificate and a
function that aborts the connection.
"""

import asyncio
import contextvars
import json
import logging
import ssl
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import h11
from hyperscout_runtime.connections import SilentConnections
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Scope

from hyperscout_collector.identity.callers import Shown, shown
from hyperscout_collector.serve.http.problems import PROBLEM_JSON, ProblemError

_log = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S = 15.0  # from the connection, or the end of a response, to the end of the next request
_HEAD_BYTES = 32 * 1024  # limit of a request's head: a token can have half of it
_PIECE_BYTES = 8 * 1024  # passed to h11 at a time
_BUFFER_BYTES = 64 * 1024  # limit of unsent bytes, unread bytes and a body; above it the other side waits
_STALL_S = 30.0  # a client that reads less than a buffer of a response in this time is disconnected
_CLOSE = (b"connection", b"close")
PEER = "hyperscout.peer"  # in the scope's state: the peer's certificate, in the form of gRPC's auth context
ABORT = "hyperscout.abort"  # in the scope's state: a function that ends the connection and drops unsent data


@dataclass(slots=True)
class Served:
    """The data that all connections of a server share. `limit`: connections at once."""

    app: ASGIApp
    limit: int
    silent: SilentConnections  # those that have not sent a request
    connections: "set[Connection]" = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


@dataclass(slots=True)
class _Exchange:
    """One request and its response."""

    is_head: bool
    body: bytearray = field(default_factory=bytearray)
    more: bool = True  # the request's body is not complete
    end_received: bool = False  # the application has received the end of the body
    begun: bool = False  # the response's head is sent
    over: bool = False  # the response is complete, or nothing can be sent any more
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        self.over = True
        self.news.set()


class Connection(asyncio.Protocol):
    """Processes the requests of a connection, one after the other."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._unread = bytearray()
        self._exchange: _Exchange | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_last = False
        self._is_closing = False
        self._scope: dict[str, Any] = {}

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream
        self._transport = transport
        self._served.connections.add(self)
        if len(self._served.connections) > self._served.limit:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        tls = transport.get_extra_info("ssl_object")
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "scheme": "http" if tls is None else "https",
            "server": transport.get_extra_info("sockname")[:2],
            "client": transport.get_extra_info("peername")[:2],
            "root_path": "",
            "state": {PEER: _peer(tls), ABORT: self.abort},
        }
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self._served.silent.discard(self)
        self._served.connections.discard(self)
        if self._exchange is not None:
            self._exchange.end()
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if not self._is_closing:
            self._unread += data
            self._proceed()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def shutdown(self) -> None:
        """Close the connection after the current response."""
        self._is_last = True
        if self._exchange is None:
            self._transport.close()

    # Reading

    def _proceed(self) -> None:
        """Process received bytes as far as possible now."""
        try:
            while not self._is_closing and not self._transport.is_closing() and self._take():
                pass
        except h11.RemoteProtocolError as error:
            is_too_large = error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self._refuse(
                f"the request line and headers exceed {_HEAD_BYTES} bytes: send fewer or shorter headers"
                if is_too_large
                else "expected an HTTP/1.1 request"
            )
        if len(self._unread) < _BUFFER_BYTES:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _take(self) -> bool:
        """Process one h11 event. Returns False if there is nothing to do now. Raises RemoteProtocolError."""
        if self._exchange is not None and len(self._exchange.body) >= _BUFFER_BYTES:
            return False
        if self._http.their_state is h11.MUST_CLOSE:  # bytes after the last request are ignored
            self._unread.clear()
            return False
        event = self._http.next_event()
        if event is h11.NEED_DATA:
            # Bytes are passed in pieces: h11 limits the size of a head only while it is incomplete.
            piece = bytes(self._unread[:_PIECE_BYTES])
            del self._unread[:_PIECE_BYTES]
            if piece:
                self._http.receive_data(piece)
            return bool(piece)
        if isinstance(event, h11.Request):
            self._begin(event)
        elif isinstance(event, h11.Data) and self._exchange is not None:
            self._exchange.body += event.data
            self._exchange.news.set()
        elif isinstance(event, h11.EndOfMessage) and self._exchange is not None:
            self._expect_nothing()
            self._exchange.more = False
            self._exchange.news.set()
        return event is not h11.PAUSED  # PAUSED: the next request comes before this response

    def _begin(self, request: h11.Request) -> None:
        raw_path, _, query = request.target.partition(b"?")
        scope = {
            **self._scope,
            "http_version": request.http_version.decode("ascii"),
            "method": request.method.decode("ascii"),
            "path": unquote(raw_path.decode("ascii")),
            "raw_path": raw_path,
            "query_string": query,
            "headers": list(request.headers),
            "state": dict(self._scope["state"]),
        }
        self._served.silent.discard(self)
        self._exchange = _Exchange(is_head=request.method == b"HEAD")
        # A fresh context: context variables of earlier requests must not leak into this task.
        task = self._loop.create_task(self._answer(self._exchange, scope), context=self._context.copy())
        self._served.tasks.add(task)
        task.add_done_callback(self._served.tasks.discard)

    def _refuse(self, detail: str) -> None:
        """Send 400 for bytes that are not HTTP, and close. A response that has begun is truncated."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.end()
        if exchange is not None and exchange.begun:
            self._finish()
            return
        body = json.dumps(ProblemError(400, "bad-request", detail).document("/")).encode()
        headers = [
            (b"content-type", PROBLEM_JSON.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            _CLOSE,
        ]
        self._write(h11.Response(status_code=400, headers=headers, reason=b"Bad Request"))
        self._write(h11.Data(data=body))
        self._close()

    def _close(self) -> None:
        """Close after the client has read the response: closing with unread bytes resets the connection."""
        self._is_closing = True
        self._unread.clear()
        if self._transport.can_write_eof():
            self._transport.write_eof()
            self._transport.resume_reading()
            self._expect()
        else:
            self._transport.close()

    # The application

    async def _answer(self, exchange: _Exchange, scope: Scope) -> None:
        async def receive() -> Message:
            return await self._receive(exchange)

        async def send(message: Message) -> None:
            await self._send(exchange, message)

        try:
            await self._served.app(scope, receive, send)
            if not exchange.over:
                _log.error("%s %s: the response is incomplete", scope["method"], scope["path"])
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            if not exchange.begun:
                problem = ProblemError(500, "internal", "see the log of the collector")
                await problem.response(Request(scope))(scope, receive, send)
        finally:
            if not exchange.over:
                self.abort()

    async def _receive(self, exchange: _Exchange) -> Message:
        if self._http.they_are_waiting_for_100_continue and not exchange.over:
            self._write(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
        while not exchange.over:
            if exchange.body or not (exchange.more or exchange.end_received):
                body, more = bytes(exchange.body), exchange.more
                exchange.body.clear()
                exchange.end_received = not more
                self._proceed()  # reading stops while the body's buffer is full
                return {"type": "http.request", "body": body, "more_body": more}
            exchange.news.clear()
            await exchange.news.wait()
        return {"type": "http.disconnect"}

    async def _send(self, exchange: _Exchange, message: Message) -> None:
        await self._drained()
        if exchange.over:
            return
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            # If the application has not read the whole body, the connection closes after the response.
            is_last = self._is_last or self._http.their_state is h11.SEND_BODY
            if is_last and not any(name.lower() == b"connection" for name, _ in headers):
                headers.append(_CLOSE)
            status = message["status"]
            reason = HTTPStatus(status).phrase.encode()
            self._write(h11.Response(status_code=status, headers=headers, reason=reason))
            exchange.begun = True
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        # A transport buffers all data, so a final body is written in pieces. A part of a stream is written
        # at once, because the response could end during a wait between two pieces.
        size = len(body) or 1 if more else _BUFFER_BYTES
        for start in range(0, 0 if exchange.is_head else len(body), size):
            await self._drained()
            if exchange.over:
                return
            self._write(h11.Data(data=body[start : start + size]))
        if not more:
            self._write(h11.EndOfMessage())
            exchange.end()
            self._answered()

    def _answered(self) -> None:
        """Start the connection's next request, or close it."""
        self._exchange = None
        if self._http.their_state is h11.SEND_BODY:
            self._close()
        elif self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE or self._is_last:
            self._finish()
        else:
            self._http.start_next_cycle()
            self._expect()
            self._proceed()

    def _finish(self) -> None:
        """Close after the response is sent, or after `_REQUEST_TIMEOUT_S`."""
        self._transport.close()
        self._expect()

    async def _drained(self) -> None:
        """Wait until more can be sent. Aborts the connection after `_STALL_S`."""
        try:
            async with asyncio.timeout(_STALL_S):
                await self._writable.wait()
        except TimeoutError:
            self.abort()

    def _write(self, event: h11.Event) -> None:
        if data := self._http.send(event):
            self._transport.write(data)

    # Time limits

    def abort(self) -> None:
        """End the connection and drop unsent data."""
        if self._exchange is not None:
            self._exchange.end()
        self._transport.abort()

    def _expect(self) -> None:
        """Abort the connection after `_REQUEST_TIMEOUT_S` without a complete request."""
        self._expect_nothing()
        self._deadline = self._loop.call_later(_REQUEST_TIMEOUT_S, self.abort)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _peer(connection: ssl.SSLObject | None) -> dict[str, list[bytes]]:
    """The peer's certificate in the form of gRPC's auth context; {} = none."""
    der = connection.getpeercert(binary_form=True) if connection is not None else None
    if connection is None or not der:
        return {}
    names: Any = (connection.getpeercert() or {}).get("subjectAltName", ())
    return {
        "x509_pem_cert": [ssl.DER_cert_to_PEM_cert(der).encode()],
        "peer_uri": [value.encode() for kind, value in names if kind == "URI"],
    }


def shown_by(request: Request) -> Shown:
    """The caller's credentials. Raises UnknownCallerError if they cannot be read."""
    sent = [("authorization", value) for value in request.headers.getlist("authorization")]
    peer: dict[str, list[bytes]] = request.scope.get("state", {}).get(PEER, {})
    return shown(peer, sent)
