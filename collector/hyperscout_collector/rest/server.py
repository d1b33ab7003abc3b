"""REST's port: a listening socket on the collector's event loop, and an orderly end of its connections."""

import asyncio
import contextlib
import socket
import ssl

from starlette.types import ASGIApp

from hyperscout_collector.configured import StartError
from hyperscout_collector.identity.certificates import CertificateError, ServerCertificates
from hyperscout_collector.rest.protocol import Connection, Served
from hyperscout_collector.settings import CollectorSettings, host_port, is_loopback

_STOP_GRACE_S = 2.0  # for answers that are under way
_HANDSHAKE_TIMEOUT_S = 15.0
_OTHER_CONNECTIONS = 1000  # besides those that follow the stream


class RestServer:
    """`async with` listens at `settings.rest_listen`, or raises StartError. `address`: host:port."""

    def __init__(self, settings: CollectorSettings, app: ASGIApp) -> None:
        self.address = ""
        self._settings = settings
        self._served = Served(app, settings.rest_max_streams + _OTHER_CONNECTIONS)
        self._exit = contextlib.AsyncExitStack()

    async def __aenter__(self) -> "RestServer":
        settings = self._settings
        host, port = host_port(settings.rest_listen)
        loop = asyncio.get_running_loop()
        try:
            context = _context(settings)
            handshake_s = None if context is None else _HANDSHAKE_TIMEOUT_S
            server = await loop.create_server(
                lambda: Connection(self._served), host, port, ssl=context, ssl_handshake_timeout=handshake_s
            )
        except CertificateError as error:
            raise StartError(str(error)) from error
        except (OSError, socket.gaierror) as error:
            raise StartError(f"cannot listen on {settings.rest_listen}: {error.strerror}") from error
        self._exit.push_async_callback(self._end)
        self._exit.callback(server.close)
        self.address = f"{settings.rest_listen.rpartition(':')[0]}:{server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def _end(self) -> None:
        """Idle connections close at once, the others after their answer or after a grace period."""
        for connection in list(self._served.connections):
            connection.shutdown()
        if tasks := list(self._served.tasks):
            _, late = await asyncio.wait(tasks, timeout=_STOP_GRACE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in list(self._served.connections):
            connection.abort()


def _context(settings: CollectorSettings) -> ssl.SSLContext | None:
    """None = plaintext. Raises CertificateError."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    files = ServerCertificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    return files.context(demanded=demands_certificates(settings))


def demands_certificates(settings: CollectorSettings) -> bool:
    """Beyond this machine nobody is unknown: who shows no token must show a certificate."""
    asks = settings.tls_client_ca is not None and settings.authenticate == "none"
    return asks and not settings.insecure and not is_loopback(host_port(settings.rest_listen)[0])
