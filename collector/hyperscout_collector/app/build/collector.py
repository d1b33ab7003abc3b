"""The collector: builds its components in the order of the flow of data, starts them, and stops them.

    Storage -> Evidence, Ingest -> Inferring -> Publishing -> servers

A component receives what it reads in its constructor; what it must learn later reaches it by the signals of
`build.context`. Two read what was stored after they are constructed and before the servers start: the hub
checks the last topology, and the placer restores the reservations. Decisions are made by pure code in other
packages.
"""

import importlib.metadata
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from hyperscout.v1.topology_pb2 import AgentStatus
from hyperscout_formats.facts.facts import Gpu, LatencyPort, NcclRun
from hyperscout_kubernetes.client import Fence, Kube
from hyperscout_publish.publisher.base import Publisher
from hyperscout_runtime.clock import Clock
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.build.context import Context
from hyperscout_collector.app.build.inference import build_inference
from hyperscout_collector.app.build.ingest import (
    build_evidence,
    build_ingest,
    build_other_replicas,
    open_storage,
)
from hyperscout_collector.app.build.lifecycle import Lifecycle, start
from hyperscout_collector.app.build.publishers import build_publishers, build_publishing, needs_kubernetes
from hyperscout_collector.app.build.servers import build_callers, start_servers
from hyperscout_collector.app.metrics.page import Metrics, Timings
from hyperscout_collector.app.settings.configured import connected, connected_clusters
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.app.status.components import Components
from hyperscout_collector.app.status.event_logs import all_lines
from hyperscout_collector.app.status.no_hypernodes import NoHyperNodes
from hyperscout_collector.app.status.status import status
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.evidence.store import EvidenceStore
from hyperscout_collector.history.recorder import Recorder
from hyperscout_collector.ingest.streams import Streams
from hyperscout_collector.serve.fanout.hub import Hub
from hyperscout_collector.serve.grpc.measured import NodeReport


class Collector:
    """All components from the agents' streams to the publishers. `async with` starts and stops it.

    `clock`: None = the machine's; `timer`: monotonic seconds. `publishers`: used in addition to those in the
    settings. `kube`: an existing client of the API server; it writes only while this collector leads.
    `fence`: permits writes while this collector leads; None = that of `kube`, or it always leads. `fences`:
    those of other clusters, by name; a cluster without one has `fence`. `previous`: the topology that another
    leader published before this one took over; it replaces the one saved on this disk. `agents`: those that
    the other leader knew. `used`: it may have used numbers of generations up to this one. `transitions`: the
    number of times that the Lease moved to another replica.

    `start` sets `components`, `metrics` and the addresses. The other methods need them.
    """

    components: Components
    metrics: Metrics

    def __init__(
        self,
        settings: CollectorSettings,
        *,
        publishers: Sequence[Publisher] = (),
        kube: Kube | None = None,
        fence: Fence | None = None,
        fences: Mapping[str, Fence] = MappingProxyType({}),
        previous: Topology | None = None,
        agents: Sequence[AgentStatus] = (),
        used: int = 0,
        transitions: Callable[[], int] = lambda: 0,
        clock: Clock | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.settings = settings
        self.address = ""  # host:port of gRPC
        self.mtls_address = ""
        self.http_address = ""
        self.rest_address = ""
        self.estimator_address = ""
        self._publishers = publishers
        self._kube = kube
        self._fence = fence or (kube.fence if kube is not None else Fence())
        self._fences = fences
        self._previous = previous
        self._agents, self._used = agents, used
        self._transitions = transitions
        self._clock = clock or Clock()
        self._timer = timer
        self._lifecycle = Lifecycle()
        self.crashed = self._lifecycle.failed
        self._leaving: tuple[str, str | None] = ("the collector is shutting down", None)

    async def __aenter__(self) -> "Collector":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Load the evidence, start the components and listen. Raises StartError after a complete stop."""
        try:
            kube = self._kube
            if kube is None and needs_kubernetes(self.settings):
                kube = await self._lifecycle.enter("Kubernetes client", await connected(self.settings))
            clusters = {}
            for name, client in (await connected_clusters(self.settings, kube)).items():
                entered = await self._lifecycle.enter(f"client of cluster {name}", client)
                clusters[name] = entered.fenced(self._fences.get(name, self._fence))
            context = Context(
                self.settings,
                kube,
                clusters,
                self._clock,
                self._timer,
                lifecycle=self._lifecycle,
                fence=self._fence,
            )
            timings = Timings()
            self.components = await self._build(context, timings)
            start(self.components, self._lifecycle)
            if self.settings.store and self.history is not None:
                # The servers show the topology from before, under a new number.
                await self.history.caught_up()
            self.metrics = Metrics(self.components, timings, self._transitions)
            addresses = await start_servers(context, self.components, self, self.metrics, self._farewell)
        except BaseException:
            await self._lifecycle.stop()
            raise
        self.address, self.mtls_address = addresses.grpc, addresses.grpc_mtls
        self.http_address, self.rest_address = addresses.http, addresses.rest
        self.estimator_address = addresses.estimator

    def leave(self, reason: str, leader: str | None) -> None:
        """Set the reason that connected clients receive at the stop, and the leader's address.

        See `WatchEndedError`.
        """
        self._leaving = reason, leader

    def _farewell(self) -> tuple[str, str | None]:
        return self._leaving

    async def stop(self) -> None:
        """Stop accepting evidence, write the received evidence and save the topology.

        Raises the exception of the first task that failed.
        """
        await self._lifecycle.stop()
        self._lifecycle.check()

    async def _build(self, context: Context, timings: Timings) -> Components:
        settings = self.settings
        storage = await open_storage(context, self._previous, self._agents, self._used)
        started_ns = context.clock_ns()
        streams = Streams(settings.max_streams)
        watchers = await Hub.opened(storage.published or Topology(0))
        publishers = build_publishers(context, watchers.current_topology)
        evidence = build_evidence(context, storage, streams)
        ingest = build_ingest(
            context, storage, streams, evidence, publishers.mqtt, topology=watchers.current_topology
        )
        inference = await build_inference(
            context,
            storage,
            streams,
            evidence,
            publishers.cluster,
            ingest.sweeps,
            topology=watchers.current_topology,
            inferred=timings.inference.observe,
        )
        publishing = build_publishing(
            context,
            storage,
            evidence,
            watchers,
            publishers,
            more=self._publishers,
            decided=timings.placement.observe,
            lacks_evidence=inference.pipeline.is_takeover,
        )
        others = None
        if (shared := storage.shared) is not None:
            take_id, since = inference.nccl.take_id, storage.loaded.number
            others = build_other_replicas(context, shared, evidence, ingest, take_id, since)
        no_hypernodes = NoHyperNodes(
            evidence.state,
            streams,
            inference.pipeline,
            watchers.current_topology,
            warn=publishers.warn,
            clock_ns=context.clock_ns,
        )
        return Components(
            version=importlib.metadata.version("hyperscout"),
            started_ns=started_ns,
            stale_after_ns=int(settings.stale_after_s * NS),
            load_problems=list(storage.problems),
            clock=context.clock,
            evidence=evidence,
            ingest=ingest,
            inference=inference,
            publishing=publishing,
            others=others,
            no_hypernodes=no_hypernodes,
            callers=build_callers(context),
            event_logs=context.event_logs,
            damage=context.damage,
        )

    @property
    def highest(self) -> int:
        """The highest number of a generation that may have been used."""
        is_built = hasattr(self, "components")
        return self.components.inference.pipeline.highest if is_built else self._used

    @property
    def published(self) -> Topology | None:
        """The last published topology; before the start has read one, `previous`."""
        return self.watchers.current.topology if hasattr(self, "components") else self._previous

    # Backend of the API

    @property
    def watchers(self) -> Hub:
        return self.components.publishing.watchers

    @property
    def store(self) -> EvidenceStore:
        return self.components.evidence.store

    @property
    def history(self) -> Recorder | None:
        return self.components.publishing.recorder

    def status(self, *, omit_agents: bool = False) -> bytes:
        return status(self.components, omit_agents=omit_agents)

    def event_log(self) -> Iterator[str]:
        return all_lines(self.components.event_logs)

    def is_stale(self, seen_ns: int) -> bool:
        return seen_ns < self._clock.now_ns() - self.components.stale_after_ns

    def evidence_of(self, nodes: Sequence[str]) -> list[Key]:
        return [key for node in nodes for key in self.components.evidence.state.keys_of(node)]

    def reports_of(self, nodes: Sequence[str]) -> list[NodeReport]:
        state = self.components.evidence.state
        rows = ((node, row.fact) for node in nodes for row in state.rows_of_node(node))
        return [
            NodeReport(node, fact) for node, fact in rows if isinstance(fact, LatencyPort | NcclRun | Gpu)
        ]

    async def approve(self, generation: int) -> int:
        return await self.components.inference.pipeline.approve(generation)
