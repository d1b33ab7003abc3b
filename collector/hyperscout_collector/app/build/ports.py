"""Opens a replica's ports: gRPC for tokens, gRPC for client certificates, REST, health probes and metrics.

gRPC for Python either requires a client certificate or does not request one; it cannot make one optional.
So gRPC has two ports, and both serve the same services.
"""

from collections.abc import Callable

import grpc
import grpc.aio
from hyperscout.v1 import discovery_pb2
from hyperscout_runtime.connections import bind_error, host_port, is_loopback, why_not_listening
from hyperscout_runtime.errors import StartError
from hyperscout_runtime.health_server import Answer
from starlette.types import ASGIApp

from hyperscout_collector.app.build.lifecycle import Lifecycle
from hyperscout_collector.app.metrics.page import CONTENT_TYPE
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.identity.certificates import CertificateError, ServerCertificates
from hyperscout_collector.serve.grpc.measurement_service import SERVICE as MEASUREMENT_SERVICE
from hyperscout_collector.serve.grpc.placement_service import SERVICE as PLACEMENT_SERVICE
from hyperscout_collector.serve.grpc.topology_reads import SERVICE as TOPOLOGY_SERVICE
from hyperscout_collector.serve.http.health_thread import serving_in_thread
from hyperscout_collector.serve.http.hosts import Hosts
from hyperscout_collector.serve.http.server import RestServer
from hyperscout_collector.serve.rest.stream import MAX_READERS

DISCOVERY_SERVICE = discovery_pb2.DESCRIPTOR.services_by_name["DiscoveryService"].full_name
SERVICES = (DISCOVERY_SERVICE, TOPOLOGY_SERVICE, MEASUREMENT_SERVICE, PLACEMENT_SERVICE)


def add_ports(server: grpc.aio.Server, settings: CollectorSettings) -> tuple[str, str]:
    """Add the two gRPC ports to a server that has not started.

    Returns "host:port" of the port for tokens and of the port for client certificates; "" = not configured.
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
        raise StartError(f"{error}: check tls_cert, tls_key and tls_client_ca") from error
    ports = _add(server, "listen", settings.listen, credentials)
    return ports, _add(server, "mtls_listen", settings.mtls_listen, mutual)


def add_estimator_port(server: grpc.aio.Server, settings: CollectorSettings) -> str:
    """Add the port of the estimator to a server that has not started. Returns host:port. Raises StartError.

    It has TLS if the collector has a certificate, and requires a client certificate if there is a CA for it.
    """
    credentials = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        try:
            files = settings.tls_cert, settings.tls_key, settings.tls_client_ca
            credentials = ServerCertificates(*files).credentials()
        except CertificateError as error:
            raise StartError(f"{error}: check tls_cert, tls_key and tls_client_ca") from error
    return _add(server, "estimator_listen", settings.estimator_listen, credentials)


def _add(
    server: grpc.aio.Server, setting: str, address: str, credentials: grpc.ServerCredentials | None
) -> str:
    if not address:
        return ""
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        where = host_port(address)
        raise StartError(why_not_listening(setting, *where, bind_error(*where))) from error
    return f"{address.rpartition(':')[0]}:{port}"


def for_certificates(leader: str, mtls_address: str) -> str:
    """The leader's address for client certificates, host:port.

    The Lease contains only the leader's address for tokens. All replicas have the same configuration, so the
    leader's port for certificates is the port of this replica. `leader`: host:port, "" = none is known.
    """
    host, colon, _ = leader.rpartition(":")
    return f"{host}:{mtls_address.rpartition(':')[2]}" if colon and mtls_address else leader


def rest_hosts(settings: CollectorSettings) -> Hosts:
    """The host names that REST accepts. With authentication it accepts any name."""
    if settings.authenticate != "none":
        return Hosts(None)
    advertised = [host_port(settings.advertise)[0]] if settings.advertise else []
    return Hosts([*settings.rest_hosts, *advertised])


def rest_server(settings: CollectorSettings, app: ASGIApp) -> RestServer:
    """The REST server at `rest_listen`.

    It requires a client certificate if `tls_client_ca` is set, callers do not authenticate with tokens,
    `insecure` is off and the address is not a loopback address.
    """
    files = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        files = ServerCertificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    asks = settings.tls_client_ca is not None and settings.authenticate == "none"
    demanded = asks and not settings.insecure and not is_loopback(host_port(settings.rest_listen)[0])
    return RestServer(settings.rest_listen, app, max_streams=MAX_READERS, files=files, demanded=demanded)


async def start_http(
    listen: str,
    *,
    ready: Callable[[], Answer],
    metrics: Callable[[], bytes],
    lifecycle: Lifecycle,
) -> str:
    """Serve /healthz, /readyz and /metrics at this address until the stop. Returns host:port.

    Raises StartError.
    """
    pages = {
        "/readyz": ready,
        "/metrics": lambda: Answer(metrics(), content_type=CONTENT_TYPE),
    }
    try:
        port = await lifecycle.enter("health pages", serving_in_thread(*host_port(listen), pages))
    except OSError as error:
        raise StartError(why_not_listening("http_listen", *host_port(listen), error)) from error
    return f"{listen.rpartition(':')[0]}:{port}"
