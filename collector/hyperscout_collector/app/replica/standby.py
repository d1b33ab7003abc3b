"""Runs a replica that does not lead: it listens, reports healthy, serves reads, and redirects other callers.

With PostgreSQL it also takes agents' streams (`ingest.py`).

While a leader is known, the standby redirects callers at once. Without a leader it delays the answer to
agents for up to `_HOLD_S`: ten thousand agents that retry every second would overload the next leader, which
may be this process.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from hyperscout.v1.discovery_pb2_grpc import add_DiscoveryServiceServicer_to_server
from hyperscout_formats.text.leader import refusal
from hyperscout_runtime.health_server import Answer, not_ready
from hyperscout_runtime.task_watch import TaskWatch

from hyperscout_collector.app.build.lifecycle import Lifecycle
from hyperscout_collector.app.build.ports import (
    DISCOVERY_SERVICE,
    SERVICES,
    add_ports,
    for_certificates,
    rest_server,
    start_http,
)
from hyperscout_collector.app.metrics.page import standby_text
from hyperscout_collector.app.replica.ingest import StandbyIngest
from hyperscout_collector.app.replica.reads import StandbyBackend, StandbyReads
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.ingest.service import server_options
from hyperscout_collector.serve.http.problems import ProblemError
from hyperscout_collector.serve.rest.standby import left, refusing

_log = logging.getLogger(__name__)

_HOLD_S = 15.0  # shorter than an agent's time-out for the first answer
_LOOK_S = 0.25
_STOP_GRACE_S = 0.5
_REQUEST_S = 1.0  # how long a refusal waits for the request


class Standby:
    """Listens at the collector's addresses within `async with`.

    `leader()`: host:port of the leader, "" = none is known. `prepared()`: whether this replica can take over
    without loss; /readyz fails before. `transitions`: the number of changes of the leader, by the Lease or by
    the lock. `problem()`: why this replica cannot take part in the election; None = it can. `followed`: what
    the standby serves; None = nothing. `watch` gets the tasks.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        leader: Callable[[], str],
        prepared: Callable[[], bool] = lambda: True,
        *,
        transitions: Callable[[], int] = lambda: 0,
        problem: Callable[[], str | None] = lambda: None,
        followed: StandbyBackend | None = None,
        watch: TaskWatch | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.address = ""
        self.mtls_address = ""
        self.http_address = ""
        self.rest_address = ""
        self._settings = settings
        self._leader = leader
        self._prepared = prepared
        self._transitions = transitions
        self._election_problem = problem
        self._followed = followed
        self._sleep = sleep
        self._held = 0
        self._next: str | None = None  # set by `dismiss`: the leader's address, "" = not known
        self._lifecycle = Lifecycle(watch)

    async def __aenter__(self) -> "Standby":
        try:
            await self._listen()
        except BaseException:
            await self._lifecycle.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._lifecycle.stop()

    def dismiss(self, leader: str) -> None:
        """Redirect all callers, also the waiting ones: this replica stops, or leads now."""
        self._next = leader

    async def _listen(self) -> None:
        settings, reads, ingest = self._settings, None, None
        server = grpc.aio.server(options=server_options(settings.max_streams))
        if self._followed is not None:
            reads = StandbyReads(
                settings,
                self._followed,
                self._lifecycle,
                refusal=self._problem,
                leaving=lambda: ("this replica is a standby", self._answer()),
            )
            server.add_generic_rpc_handlers((reads,))
            if settings.store and not settings.clusters:
                ingest = reads.ingest(self._answer_to)
                add_DiscoveryServiceServicer_to_server(ingest.service, server)
                ingest.start()
        server.add_generic_rpc_handlers((_Everything(self._refuse),))
        healthy = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        self.address, self.mtls_address = add_ports(server, settings)
        await server.start()
        self._lifecycle.on_stop("gRPC", lambda: server.stop(_STOP_GRACE_S))
        if ingest is not None:
            self._lifecycle.on_stop("streams", partial(self._end_streams, ingest))
        await healthy.set("", health_pb2.HealthCheckResponse.SERVING)
        for name in SERVICES:
            takes = ingest is not None and name == DISCOVERY_SERVICE
            status = (
                health_pb2.HealthCheckResponse.SERVING
                if takes
                else health_pb2.HealthCheckResponse.NOT_SERVING
            )
            await healthy.set(name, status)
        if reads is not None:
            self.rest_address = await reads.start()
        elif settings.rest_listen:
            server_of_rest = rest_server(settings, refusing(self._problem))
            self.rest_address = (await self._lifecycle.enter("REST", server_of_rest)).address
        if settings.http_listen:
            self.http_address = await start_http(
                settings.http_listen,
                ready=self._readiness,
                metrics=lambda: standby_text(
                    self._transitions(), *((reads.watchers, reads.rest) if reads is not None else ())
                ),
                lifecycle=self._lifecycle,
            )
        _log.info("standby listens on %s", " and ".join(filter(None, (self.address, self.mtls_address))))

    def _readiness(self) -> Answer:
        problem = self._election_problem()
        if problem is not None and (self._followed is None or self._followed.age_s() is None):
            return not_ready(f"standby, serves nothing, and cannot take part in the election: {problem}")
        if not self._prepared():
            return not_ready("standby, and the leader's topology has not arrived yet")
        return Answer(b"ok, standby\n")

    async def _refuse(self, method: str, context: Any) -> None:
        """End a call with UNAVAILABLE and the leader's address, at once or after a wait."""
        leader = self._answer()
        if (
            not leader
            and method.startswith(f"/{DISCOVERY_SERVICE}/")
            and self._held < self._settings.max_streams
        ):
            leader = await self._hold()
        await context.abort(
            grpc.StatusCode.UNAVAILABLE, *refusal(self._for(context, leader), self._election_problem())
        )

    def _end_streams(self, ingest: StandbyIngest) -> None:
        ingest.end(self._answer())

    def _answer_to(self, context: Any) -> str:
        return self._for(context, self._answer())

    def _for(self, context: Any, leader: str) -> str:
        has_certificate = context.auth_context().get("x509_pem_cert")
        return for_certificates(leader, self.mtls_address) if has_certificate else leader

    async def _hold(self) -> str:
        """Wait until a leader is known, at most `_HOLD_S`. Returns its address, "" = none is known."""
        self._held += 1
        try:
            for _ in range(int(_HOLD_S / _LOOK_S)):
                await self._sleep(_LOOK_S)
                if self._next is not None or self._leader():
                    break
        finally:
            self._held -= 1
        return self._answer()

    def _problem(self) -> ProblemError:
        return left("this replica is a standby", self._answer(), self.rest_address, self._election_problem())

    def _answer(self) -> str:
        return self._next if self._next is not None else self._leader()


class _Everything(grpc.GenericRpcHandler):
    """Handles all methods of the services that only a leader serves.

    It handles each as a stream in both directions, which fits every kind of call.
    """

    def __init__(self, refuse: Callable[[str, Any], Awaitable[None]]) -> None:
        self._refuse = refuse

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method
        if method.split("/")[1:2] not in [[name] for name in SERVICES]:
            return None

        async def answer(requests: Any, context: Any) -> None:
            # If the call ends while the client writes its request, the client's gRPC reports just that.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REQUEST_S):
                    await anext(aiter(requests), None)
            await self._refuse(method, context)

        return grpc.stream_stream_rpc_method_handler(answer)
