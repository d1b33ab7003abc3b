"""Serves reads at a standby: the followed topology, its stream, the map, and the history.

All other calls get the leader's address. With PostgreSQL, agents' streams are the exception (`ingest.py`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from hyperscout_formats.text.leader import KEY
from hyperscout_kubernetes.client import Kube
from hyperscout_runtime.errors import StartError

from hyperscout_collector.app.build.context import Context
from hyperscout_collector.app.build.lifecycle import Lifecycle
from hyperscout_collector.app.build.ports import rest_hosts
from hyperscout_collector.app.build.servers import build_callers, start_rest
from hyperscout_collector.app.replica.ingest import StandbyIngest
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.identity.access import Gate
from hyperscout_collector.serve.fanout.hub import Hub
from hyperscout_collector.serve.grpc.topology_reads import SERVICE, History, TopologyReads
from hyperscout_collector.serve.http.counters import RestCounters
from hyperscout_collector.serve.http.problems import ProblemError
from hyperscout_collector.serve.rest.app import application
from hyperscout_collector.serve.rest.reads import ReadHandlers
from hyperscout_collector.serve.rest.standby import aged, refusing
from hyperscout_collector.serve.rest.stream import MAX_READERS, Stream
from hyperscout_collector.store.errors import StoreError

_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class StandbyBackend:
    """What a standby serves; a `ReadBackend`.

    `age_s()`: as of `Follower`. `kube`: the API server that reviews tokens; None = none does.
    """

    watchers: Hub
    history: History | None
    age_s: Callable[[], float | None]
    kube: Kube | None


class StandbyReads(grpc.GenericRpcHandler):
    """Serves reads by gRPC, as a handler of a server, and by REST.

    `refusal()`: the answer of REST to other requests. `leaving()`: as of `start_servers`. The constructor
    raises StartError.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        followed: StandbyBackend,
        lifecycle: Lifecycle,
        *,
        refusal: Callable[[], ProblemError],
        leaving: Callable[[], tuple[str, str]],
    ) -> None:
        self._settings = settings
        self._followed = followed
        self._lifecycle = lifecycle
        self._refusal = refusal
        self._leaving = leaving
        self._context = Context(settings, followed.kube)
        self._callers = build_callers(self._context)
        self._topology = TopologyReads(followed)
        gate, methods = Gate(self._callers.access), self._topology.methods()
        paths = {f"/{SERVICE}/{name}": found for name, found in methods.items()}
        self._methods = {path: gate.guarded(found, path) for path, found in paths.items()}
        lifecycle.on_stop("topology reads", self._topology.close)
        for reviews in self._callers.reviews.values():
            lifecycle.on_stop("token reviews", reviews.close)

    def ingest(self, leader: Callable[[Any], str | None]) -> StandbyIngest:
        """What takes streams of the callers that these reads know. `leader`: as of `DiscoveryService`.

        Raises StartError.
        """
        try:
            return StandbyIngest(self._context, self._callers.access, self._lifecycle, leader)
        except StoreError as error:
            raise StartError(str(error)) from error

    @property
    def watchers(self) -> Hub:
        return self._followed.watchers

    @property
    def rest(self) -> RestCounters | None:
        """None = REST is off."""
        return self._callers.rest

    def service(self, handler_call_details: Any) -> Any:
        """The handler of a read; None = the leader answers it, or there is nothing to serve.

        A call with the metadata key `KEY` is for the leader only.
        """
        found = self._methods.get(handler_call_details.method)
        is_for_leader = any(key == KEY for key, _ in handler_call_details.invocation_metadata or ())
        return None if is_for_leader or self._followed.age_s() is None else found

    async def start(self) -> str:
        """Serve REST until the stop, if it is configured. Returns host:port. Raises StartError."""
        followed, counters = self._followed, self._callers.rest
        stream = None
        address = ""
        if counters is not None:
            epoch = f"{self._context.clock_ns():x}"
            stream = Stream(followed.watchers, epoch=epoch, limit=MAX_READERS, counters=counters)
            handlers = ReadHandlers(followed, self._topology, stream, self._callers.access)
            reads = application(
                handlers,
                self._callers.access,
                rest_hosts(self._settings),
                counters,
                timer=self._context.timer,
                elsewhere=lambda operation: None if operation.rpc in self._methods else self._refusal(),
            )
            app = aged(reads, followed.age_s, refusing(self._refusal))
            address = await start_rest(self._settings, app, stream, handlers, self._lifecycle, self._leaving)
        self._lifecycle.run("ends-of-reads", self._end_old(stream))
        self._lifecycle.on_stop("watches", lambda: followed.watchers.close(*self._leaving()))
        return address

    async def _end_old(self, stream: Stream | None) -> None:
        """End the streams while there is nothing to serve, until cancelled: they do not show its age."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._followed.age_s() is None:
                self._followed.watchers.end_present(*self._leaving())
                if stream is not None:
                    stream.channel.end_present(self._refusal())
