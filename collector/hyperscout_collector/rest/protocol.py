"""uvicorn's HTTP/1.1 connection, with what it lacks: who showed a certificate, and an end to waiting.

ASGI has no word for a peer's certificate that uvicorn would speak, so it is put into the scope here, as the
server verified it. A connection that takes too long to say what it wants is closed, and so is one too many.
"""

import asyncio
import json
import logging
import ssl
from typing import Any

import h11
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from hyperscout_collector.identity.who import Shown, shown
from hyperscout_collector.rest.problems import PROBLEM_JSON, ProblemError

# An invalid request is its sender's business; whoever can connect must not be able to fill the log.
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)

_REQUEST_TIMEOUT_S = 15.0  # from a connection, or the end of the last request, to the end of the next
HEAD_BYTES = 32 * 1024  # of a request: a token may have half of that
_BUFFER_BYTES = 64 * 1024  # unsent; who has more waits
PEER = "hyperscout.peer"  # in the scope's state: what it showed
ABORT = "hyperscout.abort"  # likewise: ends the connection whatever is unsent


class Connection(H11Protocol):
    """`limit`: how many there may be."""

    limit = 2000

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limit:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        self.app_state = {
            PEER: _peer(transport.get_extra_info("ssl_object")),
            ABORT: self._abort,
        }
        self._expect()

    def data_received(self, data: bytes) -> None:
        # What comes at once is read at once, and a head of thousands of lines takes the loop's time.
        is_head = self.conn.their_state is h11.IDLE and len(data) > HEAD_BYTES
        if is_head and data.find(b"\r\n\r\n", 0, HEAD_BYTES) < 0:
            self.send_400_response("The request's head is too large.")
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.more_body:
            self._expect_nothing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        asked = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if not self.transport.is_closing() and not asked:  # the next request may have come already
            self._expect()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read ends the connection; whoever was still answering on it is rid of that."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = json.dumps(ProblemError(400, "bad-request", msg).document("/")).encode()
        headers = [
            ("content-type", PROBLEM_JSON),
            ("content-length", str(len(body))),
            ("cache-control", "no-store"),
            ("connection", "close"),
        ]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def _abort(self) -> None:
        """End it, whatever is unsent."""
        if self.cycle is not None:
            self.cycle.disconnected = True  # or an answer that is not whole would be logged
        self.transport.abort()

    def _expect(self) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(_REQUEST_TIMEOUT_S, self.transport.abort)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _peer(connection: ssl.SSLObject | None) -> dict[str, list[bytes]]:
    """As gRPC's auth context has it."""
    der = connection.getpeercert(binary_form=True) if connection is not None else None
    if connection is None or not der:
        return {}
    names: Any = (connection.getpeercert() or {}).get("subjectAltName", ())
    return {
        "x509_pem_cert": [ssl.DER_cert_to_PEM_cert(der).encode()],
        "peer_uri": [value.encode() for kind, value in names if kind == "URI"],
    }


def shown_by(request: Request) -> Shown:
    """The caller's credentials. Raises UnknownCallerError for what cannot be read."""
    sent = [("authorization", value) for value in request.headers.getlist("authorization")]
    peer: dict[str, list[bytes]] = request.scope.get("state", {}).get(PEER, {})
    return shown(peer, sent)
