"""Runs the leader's servers: gRPC for agents and readers, REST, and HTTP for health probes and metrics.

The servers start last and stop first, so every accepted call finds all parts running.
"""

import contextlib
import logging
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from hyperscout.v1 import discovery_pb2
from hyperscout.v1.discovery_pb2_grpc import add_DiscoveryServiceServicer_to_server
from hyperscout_kubernetes.client import Kube
from hyperscout_runtime.addresses import host_port
from hyperscout_runtime.errors import StartError

from hyperscout_collector.app.build.ports import add_ports, rest_hosts, rest_server
from hyperscout_collector.app.metrics.page import Metrics
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.app.status.parts import Parts
from hyperscout_collector.evidence.view import SweepTexts
from hyperscout_collector.identity.access import Access, Gate
from hyperscout_collector.identity.reviews import Reviews
from hyperscout_collector.ingest.service import SERVER_OPTIONS, DiscoveryService, IngestSettings, Listeners
from hyperscout_collector.serve.grpc.measurement_service import SERVICE as MEASUREMENT_SERVICE
from hyperscout_collector.serve.grpc.measurement_service import MeasurementService
from hyperscout_collector.serve.grpc.placement_service import SERVICE as PLACEMENT_SERVICE
from hyperscout_collector.serve.grpc.placement_service import PlacementService
from hyperscout_collector.serve.grpc.topology_service import SERVICE as TOPOLOGY_SERVICE
from hyperscout_collector.serve.grpc.topology_service import Backend, TopologyService
from hyperscout_collector.serve.http.counters import RestCounters
from hyperscout_collector.serve.http.health_page import TEXT, HttpServer
from hyperscout_collector.serve.rest.app import application
from hyperscout_collector.serve.rest.handlers import Handlers
from hyperscout_collector.serve.rest.standby import left
from hyperscout_collector.serve.stream.hub import Hub

_log = logging.getLogger(__name__)

NS = 1_000_000_000
_STOP_GRACE_S = 2.0  # for calls in progress
_DISCOVERY_SERVICE = discovery_pb2.DESCRIPTOR.services_by_name["DiscoveryService"].full_name


class Listening:
    """Listens within `async with`. Raises StartError on entry if it cannot.

    `kube`: the API server that reviews callers' tokens. `begin` starts a task that the collector supervises.
    `leaving()`: the reason that connected clients receive when the servers stop, and the leader's address
    (see `WatchEndedError`). `timer`: monotonic seconds.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        parts: Parts,
        backend: Backend,
        *,
        texts: SweepTexts,
        metrics: Metrics,
        kube: Kube | None,
        leaving: Callable[[], tuple[str, str | None]],
        begin: Callable[[str, Coroutine[Any, Any, None]], None],
        timer: Callable[[], float],
    ) -> None:
        self.address = ""  # host:port of gRPC
        self.mtls_address = ""
        self.http_address = ""
        self.rest_address = ""
        self._settings = settings
        self._parts = parts
        self._backend = backend
        self._texts = texts
        self._metrics = metrics
        self._kube = kube
        self._leaving = leaving
        self._begin = begin
        self._timer = timer
        self._exit = contextlib.AsyncExitStack()

    async def __aenter__(self) -> "Listening":
        try:
            await self._listen()
            if self._settings.rest_listen:
                await self._listen_rest()
            if self._settings.http_listen:
                await self._listen_http()
        except BaseException:
            await self._exit.aclose()
            raise
        parts = self._parts
        _log.info(
            "collector %s listens on %s: %d findings of %d nodes, generation %d",
            parts.version,
            " and ".join(filter(None, (self.address, self.mtls_address, self.rest_address))),
            len(parts.state),
            parts.state.node_count,
            parts.watchers.current.topology.generation,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def _listen(self) -> None:
        self._access = access = self._checked()
        self._topology = TopologyService(self._backend)
        self._placing = self._placement()
        discovery = self._discovery(access)
        server = grpc.aio.server(interceptors=(Gate(access),), options=SERVER_OPTIONS)
        add_DiscoveryServiceServicer_to_server(discovery, server)
        self._topology.add_to(server)
        self._exit.callback(self._topology.close)
        MeasurementService(self._parts.measuring, self._parts.nccl).add_to(server)
        self._placing.add_to(server)
        healthy = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        names = (
            *(_DISCOVERY_SERVICE, TOPOLOGY_SERVICE, MEASUREMENT_SERVICE, PLACEMENT_SERVICE),
            health.SERVICE_NAME,
        )
        if self._settings.reflection:
            from grpc_reflection.v1alpha import reflection

            reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)
        self.address, self.mtls_address = add_ports(server, self._settings)
        await server.start()
        self._exit.push_async_callback(server.stop, _STOP_GRACE_S)
        self._exit.callback(lambda: self._leave(discovery))
        self._exit.push_async_callback(healthy.enter_graceful_shutdown)
        for name in ("", *names):
            await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)

    def _discovery(self, access: Access) -> DiscoveryService:
        settings, parts = self._settings, self._parts
        return DiscoveryService(
            IngestSettings(
                parts.version,
                heartbeat_interval_s=settings.heartbeat_interval_s,
                heartbeat_timeout_s=settings.heartbeat_timeout_s,
            ),
            parts.streams,
            parts.state,
            parts.committer,
            gate=parts.sweeps,
            listener=Listeners((parts.sweeps, parts.seeds, parts.measuring, parts.nccl)),
            read_text=parts.links.reader(self._texts.read),
            clock_ns=parts.clock_ns,
            identify=access,
            take_id=parts.nccl.take_id,
        )

    def _placement(self) -> PlacementService:
        placing = self._parts.placing
        service = PlacementService(
            placing.placements, placing.watchers, placing.reservations, clock_ns=self._parts.clock_ns
        )
        self._exit.callback(service.close)
        return service

    def _leave(self, discovery: DiscoveryService) -> None:
        discovery.close(*self._leaving())
        self._parts.watchers.close(*self._leaving())
        self._parts.placing.watchers.close(*self._leaving())

    def _checked(self) -> Access:
        settings = self._settings
        if settings.authenticate == "none":
            return Access()
        if self._kube is None:
            raise StartError("authenticate: kubernetes needs an API server, and there is none to ask")
        reviews = Reviews(self._kube, settings.token_audience, clock=self._timer, now_s=self._now_s)
        self._exit.push_async_callback(reviews.close)
        self._parts.reviews = reviews
        return Access(
            reviews, settings.agent_service_account, settings.fabric_service_account, now_s=self._now_s
        )

    def _now_s(self) -> float:
        return self._parts.clock_ns() / NS

    async def _listen_rest(self) -> None:
        settings, parts = self._settings, self._parts
        parts.rest = RestCounters()
        hub = Hub(
            parts.watchers,
            epoch=f"{parts.started_ns:x}",
            limit=settings.rest_max_streams,
            counters=parts.rest,
            timer=self._timer,
        )
        self._begin("stream", hub.run())
        handlers = Handlers(self._backend, self._topology, self._placing, hub, self._access)
        self._exit.callback(handlers.close)
        app = application(handlers, self._access, rest_hosts(settings), parts.rest, timer=self._timer)
        server = await self._exit.enter_async_context(rest_server(settings, app))
        self._exit.callback(lambda: hub.close(left(*self._leaving(), server.address)))
        self.rest_address = server.address
        scheme = "http" if settings.tls_cert is None else "https"
        _log.info("REST and the map at %s://%s/", scheme, server.address)

    async def _listen_http(self) -> None:
        metrics = self._metrics
        http = HttpServer(
            {
                "/healthz": lambda: (HTTPStatus.OK, TEXT, b"ok\n"),
                "/readyz": self._ready,
                "/metrics": lambda: (HTTPStatus.OK, metrics.content_type, metrics.text()),
            }
        )
        host, port = host_port(self._settings.http_listen)
        try:
            port = await http.start(host, port)
        except OSError as error:
            raise StartError(f"cannot listen on {self._settings.http_listen}: {error.strerror}") from error
        self.http_address = f"{self._settings.http_listen.rpartition(':')[0]}:{port}"
        self._exit.push_async_callback(http.stop)

    def _ready(self) -> tuple[HTTPStatus, str, bytes]:
        """The answer of /readyz.

        A collector whose inference fails stays ready: it serves the last topology, and it recovers only if
        agents can send new evidence.
        """
        pipeline = self._parts.pipeline
        if pipeline.failure is not None:
            return HTTPStatus.OK, TEXT, f"ok, but {pipeline.failure}\n".encode()
        if not pipeline.inferences:
            return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, b"the first inference is not done\n"
        return HTTPStatus.OK, TEXT, b"ok\n"
