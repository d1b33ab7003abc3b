"""Listens on the port of REST, on the collector's event loop, and closes its connections at the end."""

import asyncio
import contextlib
import socket

from hyperscout_runtime.addresses import host_port
from hyperscout_runtime.errors import StartError
from starlette.types import ASGIApp

from hyperscout_collector.identity.certificates import CertificateError, ServerCertificates
from hyperscout_collector.serve.http.protocol import Connection, Served

_STOP_GRACE_S = 2.0  # for responses in progress
_HANDSHAKE_TIMEOUT_S = 15.0
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
        files: ServerCertificates | None = None,
        demanded: bool = False,
    ) -> None:
        self.address = ""
        self._listen = listen
        self._files = files
        self._demanded = demanded
        self._served = Served(app, max_streams + _OTHER_CONNECTIONS)
        self._exit = contextlib.AsyncExitStack()

    async def __aenter__(self) -> "RestServer":
        host, port = host_port(self._listen)
        loop = asyncio.get_running_loop()
        try:
            context = None if self._files is None else self._files.context(demanded=self._demanded)
            handshake_s = None if context is None else _HANDSHAKE_TIMEOUT_S
            server = await loop.create_server(
                lambda: Connection(self._served), host, port, ssl=context, ssl_handshake_timeout=handshake_s
            )
        except CertificateError as error:
            raise StartError(str(error)) from error
        except (OSError, socket.gaierror) as error:
            raise StartError(f"cannot listen on {self._listen}: {error.strerror}") from error
        self._exit.push_async_callback(self._end)
        self._exit.callback(server.close)
        self.address = f"{self._listen.rpartition(':')[0]}:{server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

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
