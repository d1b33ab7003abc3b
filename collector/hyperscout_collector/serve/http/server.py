"""Listens on the port of REST, on the collector's event loop, and closes its connections at the end."""

import asyncio
import contextlib
import socket
import ssl
from functools import partial

from hyperscout_runtime.connections import SilentConnections, host_port, why_not_listening
from hyperscout_runtime.errors import StartError
from starlette.types import ASGIApp

from hyperscout_collector.identity.certificates import CertificateError, ServerCertificates
from hyperscout_collector.serve.http.protocol import Connection, Served

_STOP_GRACE_S = 2.0  # for responses in progress
_HANDSHAKE_TIMEOUT_S = 5.0
_SILENT = 256  # connections in a handshake or before their first request; each takes 300 KiB with TLS
_BACKLOG = 1024
_ACCEPT_AGAIN_S = 1.0  # after an error, such as no free file descriptor
_OTHER_CONNECTIONS = 1000  # connections in addition to those of the live stream


class RestServer:
    """Listens within `async with`. Raises StartError on entry if it cannot. `address`: host:port.

    `files`: the certificates, None = plaintext. `demanded`: clients must present a certificate.
    `max_streams`: readers of the live stream; the server accepts `_OTHER_CONNECTIONS` more connections.
    """

    def __init__(
        self,
        listen: str,
        app: ASGIApp,
        *,
        max_streams: int,
        files: ServerCertificates | None,
        demanded: bool,
    ) -> None:
        self.address = ""
        self._listen = listen
        self._files = files
        self._demanded = demanded
        self._served = Served(app, max_streams + _OTHER_CONNECTIONS, SilentConnections(_SILENT))
        self._exit = contextlib.AsyncExitStack()

    async def __aenter__(self) -> "RestServer":
        host, port = host_port(self._listen)
        loop = asyncio.get_running_loop()
        try:
            context = None if self._files is None else self._files.context(demanded=self._demanded)
            listeners = await _listen(host, port)
        except CertificateError as error:
            raise StartError(f"{error}: check tls_cert, tls_key and tls_client_ca") from error
        except OSError as error:
            raise StartError(why_not_listening("rest_listen", host, port, error)) from error
        self._exit.push_async_callback(self._end)
        for listener in listeners:
            task = loop.create_task(self._accept(listener, context), name="rest-accept")
            self._exit.callback(listener.close)
            self._exit.push_async_callback(_ended, task)
        self.address = f"{self._listen.rpartition(':')[0]}:{listeners[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def _accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        """Accept connections until cancelled. asyncio's own server would not count pending handshakes."""
        loop, handshakes = asyncio.get_running_loop(), set[asyncio.Task[None]]()
        while True:
            try:
                found, peer = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            connection = Connection(self._served)
            task = loop.create_task(self._greet(connection, found, context), name="rest-handshake")
            handshakes.add(task)
            task.add_done_callback(handshakes.discard)
            self._served.silent.add(connection, peer[0], partial(_drop, connection, task))

    async def _greet(
        self, connection: Connection, found: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        limits = {} if context is None else {"ssl_handshake_timeout": _HANDSHAKE_TIMEOUT_S}
        is_connected = False
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, found, ssl=context, **limits
            )
            is_connected = True
        except OSError:
            pass  # the handshake failed, or took too long
        finally:
            if not is_connected:
                self._served.silent.discard(connection)

    async def _end(self) -> None:
        """Close idle connections at once, the others after their response or after `_STOP_GRACE_S`."""
        for connection in list(self._served.connections):
            connection.shutdown()
        if tasks := list(self._served.tasks):
            _, late = await asyncio.wait(tasks, timeout=_STOP_GRACE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in list(self._served.connections):
            connection.abort()


async def _listen(host: str, port: int) -> list[socket.socket]:
    """Listen on all addresses of the host. Raises OSError."""
    flags, kind = socket.AI_PASSIVE, socket.SOCK_STREAM
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=kind, flags=flags)
    listeners: list[socket.socket] = []
    try:
        for family, _, _, _, address in infos:
            listeners.append(socket.create_server(address[:2], family=family, backlog=_BACKLOG))
            listeners[-1].setblocking(False)
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _drop(connection: Connection, handshake: "asyncio.Task[None]") -> None:
    """End a connection that has not sent a request."""
    if handshake.done():
        connection.abort()
    else:
        handshake.cancel()
