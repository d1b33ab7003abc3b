"""Runs the leader's servers: gRPC for agents and readers, REST, and HTTP for health probes and metrics.

The servers start last and stop first, so every accepted call finds all components running.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from hyperscout.v1.discovery_pb2_grpc import add_DiscoveryServiceServicer_to_server
from hyperscout_kubernetes.client import Kube
from hyperscout_runtime.errors import StartError
from hyperscout_runtime.health_server import Answer, not_ready, ok
from hyperscout_runtime.units import NS
from starlette.types import ASGIApp

from hyperscout_collector.app.build.context import Context
from hyperscout_collector.app.build.lifecycle import Lifecycle
from hyperscout_collector.app.build.ports import (
    SERVICES,
    add_estimator_port,
    add_ports,
    rest_hosts,
    rest_server,
    start_http,
)
from hyperscout_collector.app.metrics.page import Metrics
from hyperscout_collector.app.publication.pipeline import Pipeline
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.app.status.components import Callers, Components, Publishing
from hyperscout_collector.identity.access import Access, Gate
from hyperscout_collector.identity.reviews import Reviews
from hyperscout_collector.ingest.service import DiscoveryService, IngestSettings, server_options
from hyperscout_collector.serve.grpc.estimator_service import EstimatorService
from hyperscout_collector.serve.grpc.measurement_service import MeasurementService
from hyperscout_collector.serve.grpc.placement_service import PlacementService
from hyperscout_collector.serve.grpc.topology_service import Backend, TopologyService
from hyperscout_collector.serve.http.counters import RestCounters
from hyperscout_collector.serve.rest.app import application
from hyperscout_collector.serve.rest.handlers import Handlers
from hyperscout_collector.serve.rest.reads import ReadHandlers
from hyperscout_collector.serve.rest.standby import left
from hyperscout_collector.serve.rest.stream import MAX_READERS, Stream

_log = logging.getLogger(__name__)

_STOP_GRACE_S = 2.0  # for calls in progress
_ESTIMATOR_OPTIONS = (("grpc.max_receive_message_length", 1 << 20), ("grpc.so_reuseport", 0))
_ESTIMATOR_CALLS = 128  # at once


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the servers listen: host:port; "" = switched off."""

    grpc: str
    grpc_mtls: str
    http: str
    rest: str
    estimator: str


def build_callers(context: Context) -> Callers:
    """Build the authentication of callers. Raises StartError."""
    settings, kube = context.settings, context.kube

    def now_s() -> float:
        return context.clock_ns() / NS

    def wall_s() -> float:
        return context.clock.wall_ns() / NS

    rest = RestCounters() if settings.rest_listen else None
    kubes = ({} if kube is None else {"": kube}) | dict(context.clusters)
    if settings.authenticate == "none":
        return Callers(Access(now_s=now_s, wall_s=wall_s), {}, rest, kubes)
    if kube is None:
        raise StartError("authenticate: kubernetes needs an API server: set kubeconfig, or run in a pod")

    def reviews_of(kube: Kube) -> Reviews:
        return Reviews(kube, settings.token_audience, clock=context.timer, now_s=wall_s)

    reviews = reviews_of(kube)
    clusters = {name: reviews_of(one) for name, one in context.clusters.items()}
    accounts = settings.agent_service_account, settings.fabric_service_account
    access = Access(reviews, *accounts, clusters=clusters, now_s=now_s, wall_s=wall_s)
    return Callers(access, {"": reviews, **clusters}, rest, kubes)


async def start_servers(
    context: Context,
    components: Components,
    backend: Backend,
    metrics: Metrics,
    leaving: Callable[[], tuple[str, str | None]],
) -> Addresses:
    """Listen until the lifecycle stops. Raises StartError.

    `leaving()`: the reason that connected clients receive when the servers stop, and the leader's address
    (see `WatchEndedError`).
    """
    settings, lifecycle, timer = context.settings, context.lifecycle, context.timer
    callers, publishing = components.callers, components.publishing
    topology = TopologyService(backend)
    lifecycle.on_stop("topology reads", topology.close)
    placing = PlacementService(
        publishing.placing.placements,
        publishing.placing.watchers,
        publishing.placing.reservations,
        publishing.masks,
        clock_ns=components.clock_ns,
        queue=None if publishing.gates is None else publishing.gates.queue,
    )
    lifecycle.on_stop("placement requests", placing.close)
    for reviews in callers.reviews.values():
        lifecycle.on_stop("token reviews", reviews.close)
    discovery = _discovery(context, components)

    def leave() -> None:
        discovery.close(*leaving())
        publishing.watchers.close(*leaving())
        publishing.placing.watchers.close(*leaving())

    measuring = MeasurementService(components.inference.measuring, components.inference.nccl)
    addresses = await _start_grpc(
        settings, components, discovery, topology, placing, measuring, lifecycle, leave
    )
    estimator = await _start_estimator(context, publishing) if settings.estimator_listen else ""
    http = rest = ""
    if callers.rest is not None:
        stream = Stream(
            publishing.watchers,
            epoch=f"{components.started_ns:x}",
            limit=MAX_READERS,
            counters=callers.rest,
        )
        handlers = Handlers(backend, topology, placing, measuring, stream, callers.access)
        app = application(handlers, callers.access, rest_hosts(settings), callers.rest, timer=timer)
        rest = await start_rest(settings, app, stream, handlers, lifecycle, leaving)
    if settings.http_listen:
        http = await start_http(
            settings.http_listen,
            ready=lambda: _readiness(components.inference.pipeline),
            metrics=metrics.text,
            lifecycle=lifecycle,
        )
    _log.info(
        "collector %s listens on %s: %d findings of %d nodes, generation %d",
        components.version,
        " and ".join(filter(None, (*addresses, rest, estimator))),
        len(components.evidence.state),
        components.evidence.state.node_count,
        publishing.watchers.current.topology.generation,
    )
    return Addresses(*addresses, http, rest, estimator)


def _discovery(context: Context, components: Components) -> DiscoveryService:
    evidence, ingest, inference = components.evidence, components.ingest, components.inference
    return DiscoveryService(
        IngestSettings(components.version, frozenset(context.clusters)),
        ingest.streams,
        evidence.state,
        evidence.committer,
        gate=ingest.sweeps,
        listener=context.signals,
        read_text=inference.links.reader(evidence.texts.read),
        clock_ns=components.clock_ns,
        identify=components.callers.access,
        take_id=inference.nccl.take_id,
        owner=None if components.others is None else components.others.claims,
    )


async def _start_grpc(
    settings: CollectorSettings,
    components: Components,
    discovery: DiscoveryService,
    topology: TopologyService,
    placing: PlacementService,
    measuring: MeasurementService,
    lifecycle: Lifecycle,
    leave: Callable[[], None],
) -> tuple[str, str]:
    options = server_options(settings.max_streams)
    server = grpc.aio.server(interceptors=(Gate(components.callers.access),), options=options)
    add_DiscoveryServiceServicer_to_server(discovery, server)
    topology.add_to(server)
    measuring.add_to(server)
    placing.add_to(server)
    healthy = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    names = (*SERVICES, health.SERVICE_NAME)
    if settings.reflection:
        from grpc_reflection.v1alpha import reflection

        reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)
    addresses = add_ports(server, settings)
    await server.start()
    lifecycle.on_stop("gRPC", lambda: server.stop(_STOP_GRACE_S))
    lifecycle.on_stop("streams and watches", leave)
    lifecycle.on_stop("gRPC health", healthy.enter_graceful_shutdown)
    for name in ("", *names):
        await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
    return addresses


async def _start_estimator(context: Context, publishing: Publishing) -> str:
    settings, lifecycle = context.settings, context.lifecycle
    service = EstimatorService(
        publishing.placing.placements,
        publishing.masks,
        own=settings.estimator_cluster,
        clusters=context.clusters.keys(),
    )
    server = grpc.aio.server(options=_ESTIMATOR_OPTIONS, maximum_concurrent_rpcs=_ESTIMATOR_CALLS)
    service.add_to(server)
    address = add_estimator_port(server, settings)
    await server.start()
    lifecycle.on_stop("estimates", service.close)
    lifecycle.on_stop("gRPC of the estimator", lambda: server.stop(_STOP_GRACE_S))
    return address


async def start_rest(
    settings: CollectorSettings,
    app: ASGIApp,
    stream: Stream,
    handlers: ReadHandlers,
    lifecycle: Lifecycle,
    leaving: Callable[[], tuple[str, str | None]],
) -> str:
    """Serve REST until the stop. `app`: calls `handlers`. `leaving`: as of `start_servers`.

    Returns host:port. Raises StartError.
    """
    lifecycle.run("stream", stream.run())
    lifecycle.on_stop("REST requests", handlers.close)
    server = await lifecycle.enter("REST", rest_server(settings, app))
    lifecycle.on_stop("live streams", lambda: stream.close(left(*leaving(), server.address)))
    scheme = "http" if settings.tls_cert is None else "https"
    _log.info("REST and the map at %s://%s/", scheme, server.address)
    return server.address


def _readiness(pipeline: Pipeline) -> Answer:
    """The answer of /readyz.

    A collector whose inference fails stays ready: it serves the last topology, and it recovers only if
    agents can send new evidence.
    """
    if failing := str(pipeline.failures):
        return Answer(f"ok, but {failing}\n".encode())
    return ok() if pipeline.inferences else not_ready("the first inference is not done")
