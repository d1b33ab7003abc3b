"""The ports of a replica: two of gRPC (for tokens, and for client certificates) and that of REST.

gRPC for Python can demand a client certificate or not ask for one; it cannot make one optional. So gRPC has
two ports, with the same services behind them.
"""

from typing import Protocol

import grpc
import grpc.aio
from hyperscout_runtime.addresses import host_port, is_loopback
from hyperscout_runtime.errors import StartError
from starlette.types import ASGIApp

from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.identity.certificates import CertificateError, ServerCertificates
from hyperscout_collector.serve.http.hosts import Hosts
from hyperscout_collector.serve.http.server import RestServer


class Server(Protocol):
    """What is needed of `grpc.aio.Server`."""

    def add_insecure_port(self, address: str) -> int: ...

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int: ...


def add_ports(server: Server, settings: CollectorSettings) -> tuple[str, str]:
    """Where it will listen, "host:port" each: for tokens, and for client certificates. "" = not at all.

    Raises StartError.
    """
    try:
        credentials = mutual = None
        if settings.tls_cert is not None and settings.tls_key is not None:
            credentials = ServerCertificates(settings.tls_cert, settings.tls_key).credentials()
            if settings.mtls_listen:
                files = settings.tls_cert, settings.tls_key, settings.tls_client_ca
                mutual = ServerCertificates(*files).credentials()
    except CertificateError as error:
        raise StartError(str(error)) from error
    return _add(server, settings.listen, credentials), _add(server, settings.mtls_listen, mutual)


def _add(server: Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    if not address:
        return ""
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise StartError(f"cannot listen on {address}: {error}") from error
    return f"{address.rpartition(':')[0]}:{port}"


def for_certificates(leader: str, mtls_address: str) -> str:
    """Where the leader takes certificates: at the same port as this replica does, which is set up alike.

    A lease holds one address, the one for tokens. `leader`: host:port, "" = none is known.
    """
    host, colon, _ = leader.rpartition(":")
    return f"{host}:{mtls_address.rpartition(':')[2]}" if colon and mtls_address else leader


def rest_hosts(settings: CollectorSettings) -> Hosts:
    """The names under which REST answers; any name where callers must identify themselves."""
    if settings.authenticate != "none":
        return Hosts(None)
    advertised = [host_port(settings.advertise)[0]] if settings.advertise else []
    return Hosts([*settings.rest_hosts, *advertised])


def rest_server(settings: CollectorSettings, app: ASGIApp) -> RestServer:
    """The server of REST at `rest_listen`.

    Beyond this machine each caller is known: without tokens, a client certificate is demanded.
    """
    files = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        files = ServerCertificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    asks = settings.tls_client_ca is not None and settings.authenticate == "none"
    demanded = asks and not settings.insecure and not is_loopback(host_port(settings.rest_listen)[0])
    return RestServer(
        settings.rest_listen, app, max_streams=settings.rest_max_streams, files=files, demanded=demanded
    )
