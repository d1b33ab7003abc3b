"""Assembles the collector's parts, starts them in order and stops them in reverse order.

This module connects the parts to the clock, the disk and the network. Decisions are made by pure code in
other modules.
"""

import asyncio
import contextlib
import importlib.metadata
import logging
import secrets
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from hyperscout_formats.facts.facts import LatencyPort, NcclRun
from hyperscout_formats.text.reporters import DEVICE_PROBE
from hyperscout_inference.fabric.inputs import InferOptions
from hyperscout_kubernetes.client import Kube
from hyperscout_mqtt.topics import device_of
from hyperscout_publish.mqtt.publisher import MqttPublisher
from hyperscout_publish.publisher.base import Publisher
from hyperscout_publish.publisher.memory import MemoryPublisher
from hyperscout_publish.publisher.runner import PublisherRunner
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.errors import StartError
from hyperscout_runtime.task_watch import TaskWatch
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.build.listening import Listening
from hyperscout_collector.app.fabric.blueprint_file import BlueprintFile
from hyperscout_collector.app.fabric.cluster import Cluster
from hyperscout_collector.app.fabric.link_watch import LinkWatch
from hyperscout_collector.app.fabric.seeds import Seeds
from hyperscout_collector.app.fabric.sweeps import Sweeps
from hyperscout_collector.app.measuring.measuring import Measuring, MeasuringTools
from hyperscout_collector.app.measuring.nccl import NcclRuns
from hyperscout_collector.app.measuring.nccl_window import NcclWindow
from hyperscout_collector.app.metrics.page import Metrics
from hyperscout_collector.app.placing.placing import Placing
from hyperscout_collector.app.publication.pipeline import Pipeline, PipelineSettings
from hyperscout_collector.app.publication.publishers import Service, chosen, needs_kubernetes
from hyperscout_collector.app.publication.recall import published_before
from hyperscout_collector.app.publication.saver import Saver, read_saved
from hyperscout_collector.app.settings.configured import (
    connected,
    generation_settings,
    health_settings,
    inference_inputs,
    own_namespace,
)
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.app.status.agent_table import AgentTable
from hyperscout_collector.app.status.parts import Parts
from hyperscout_collector.app.status.status import status
from hyperscout_collector.decisions.measuring.nccl_window import parse_windows
from hyperscout_collector.decisions.measuring.pair_limits import PairSettings
from hyperscout_collector.decisions.publication.generations import Generations, NotHeldError
from hyperscout_collector.decisions.publication.takeover import Takeover
from hyperscout_collector.evidence.committer import Committer, OverloadedError, Submission
from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.evidence.state import AgentRow, EvidenceState, KeyChange
from hyperscout_collector.evidence.store import Loaded, Store, StoreError
from hyperscout_collector.evidence.view import InputsView, SweepTexts
from hyperscout_collector.history.causes import BLUEPRINT, RESTART, TAKEOVER, Cause, CauseLog
from hyperscout_collector.history.reading import HistoryReader
from hyperscout_collector.history.recorder import Recorder
from hyperscout_collector.ingest.devices import Devices
from hyperscout_collector.ingest.streams import Streams
from hyperscout_collector.serve.grpc.measured import MeasuredBy
from hyperscout_collector.serve.grpc.topology_service import NothingHeldError
from hyperscout_collector.serve.grpc.watchers import Watchers
from hyperscout_collector.store.reservations import Reservations, ReservationsError

_log = logging.getLogger(__name__)

NS = 1_000_000_000
_TICK_S = 1.0
_END_S = 5.0  # longer than any part takes to stop
_FORGET_AFTER_S = 7 * 86_400.0  # a node unseen for a week: longer than a repair


class Collector:
    """All parts from the agents' streams to the publishers. `async with` starts and stops it.

    `clock_ns`: Unix ns; `timer`: monotonic seconds. `publishers`: used in addition to those in the settings.
    `kube`: an existing client of the API server; it writes only while this collector leads. `previous`: the
    topology that another leader published before this one took over; it replaces the one saved on this disk.
    `transitions`: the number of times that the Lease moved to another replica.
    """

    parts: Parts

    def __init__(
        self,
        settings: CollectorSettings,
        *,
        publishers: Sequence[Publisher] = (),
        kube: Kube | None = None,
        previous: Topology | None = None,
        transitions: Callable[[], int] = lambda: 0,
        clock_ns: Callable[[], int] = time.time_ns,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.settings = settings
        self.address = ""  # host:port of gRPC, set when it listens
        self.mtls_address = ""
        self.http_address = ""
        self.rest_address = ""
        self._kube = kube
        self._previous = previous
        self._transitions = transitions
        self._took_over = False  # the published topology does not come from this replica's disk
        self.leaving: tuple[str, str | None] = ("the collector is shutting down", None)
        self._watch = TaskWatch()
        self.crashed = self._watch.failed
        self._clock_ns = clock_ns
        self._timer = timer
        self._publishers = publishers
        self._services: dict[str, Service] = {}
        self._blueprint: BlueprintFile | None = None
        self._to_forget: dict[Key, Collection[Row]] = {}  # with the rows at the time of the decision
        self._exit = contextlib.AsyncExitStack()
        self._starting = BoundedExecutor("start")

    # Backend of the API

    @property
    def watchers(self) -> Watchers:
        return self.parts.watchers

    @property
    def store(self) -> Store:
        return self.parts.store

    @property
    def history(self) -> HistoryReader | None:
        return self.parts.recorder

    def status(self, *, omit_agents: bool = False) -> bytes:
        return status(self.parts, omit_agents=omit_agents)

    def is_stale(self, seen_ns: int) -> bool:
        return seen_ns < self._clock_ns() - self.parts.stale_after_ns

    def evidence_of(self, nodes: Sequence[str]) -> list[Key]:
        return [key for node in nodes for key in self.parts.state.keys_of(node)]

    def measured_by(self, nodes: Sequence[str]) -> list[MeasuredBy]:
        rows = ((node, row.fact) for node in nodes for row in self.parts.state.rows_of(node))
        return [MeasuredBy(node, fact) for node, fact in rows if isinstance(fact, LatencyPort | NcclRun)]

    async def approve(self, generation: int) -> int:
        try:
            return await self.parts.pipeline.approve(generation)
        except NotHeldError as error:
            raise NothingHeldError(str(error)) from error

    # Starting and stopping

    async def __aenter__(self) -> "Collector":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Load the evidence, start the parts and listen. Raises StartError after stopping what it started."""
        try:
            options, adapters = inference_inputs(self.settings)
            if self._kube is None and needs_kubernetes(self.settings):
                self._kube = await self._exit.enter_async_context(await connected(self.settings))
            store, loaded = await self._load()
            reservations = await self._reservations()
            saved, problem = await self._starting(read_saved, loaded.topology_json)
            if problem:
                loaded = replace(loaded, problems=[*loaded.problems, problem])
            before = await published_before(self.settings, self._kube, self._previous, saved)
            self._took_over = before is not saved
            if self.settings.blueprint is not None:
                self._blueprint = BlueprintFile(
                    self.settings.blueprint, lambda: self.parts.pipeline.look_again(BLUEPRINT)
                )
                await self._starting(self._blueprint.look)
            self._assemble(store, loaded, before, options, adapters, reservations)
            self._begin_all()
            await self._listen()
        except BaseException:
            await self._exit.aclose()
            raise

    async def stop(self) -> None:
        """Stop accepting evidence, write the received evidence and save the topology.

        Raises the exception of the first part that failed.
        """
        await self._exit.aclose()
        self._watch.check()

    async def _load(self) -> tuple[Store, Loaded]:
        settings = self.settings
        path = settings.data_dir / "evidence.db"
        try:
            store = await self._starting(
                partial(SqliteStore, path, max_bytes=settings.evidence_max_mib << 20, now_ns=self._clock_ns)
            )
            self._exit.callback(store.close)
            return store, await self._starting(store.load)
        except StoreError as error:
            raise StartError(str(error)) from error

    async def _reservations(self) -> Reservations:
        """Open the reservations. Call it after the store, whose lock protects the folder."""
        path = self.settings.data_dir / "placements.db"
        try:
            found = await self._starting(partial(Reservations, path, now_ns=self._clock_ns))
        except ReservationsError as error:
            raise StartError(str(error)) from error
        self._exit.callback(found.close)
        return found

    def _assemble(
        self,
        store: Store,
        loaded: Loaded,
        saved: Topology | None,
        options: InferOptions,
        adapters: dict[int, str],
        reservations: Reservations,
    ) -> None:
        settings, started_ns = self.settings, self._clock_ns()
        state = EvidenceState()
        state.load(loaded.rows, loaded.agents)
        self.metrics = Metrics(lambda: self.parts, self._transitions)
        self._texts = SweepTexts(store)
        view = InputsView(state, settings.stale_after_s, started_ns)
        streams = Streams(settings.max_streams)
        watchers = Watchers(saved or Topology(0))
        outputs = chosen(
            settings,
            self._kube,
            look_around=self._look_around,
            clock_ns=self._clock_ns,
            timer=self._timer,
            rng=Random(),  # noqa: S311 - jitter, not secrets
            namespace=own_namespace(settings, "gates") if settings.gates != "off" else "",
        )
        self._services = outputs.services
        publishers = [MemoryPublisher(watchers.publish), *self._publishers, *outputs.publishers]
        committer = Committer(
            state,
            store,
            on_commit=self._committed,
            on_full_state=self._full_state,
            clock_ns=self._clock_ns,
            grace_s=settings.restart_grace_s,
        )
        links = LinkWatch(health_settings(settings), store, self._clock_ns, self._look_again)
        pipeline = Pipeline(
            PipelineSettings(
                options, adapters, settings.debounce_s, settings.refresh_s, settings.cloud_labels
            ),
            view,
            self._texts,
            Generations(generation_settings(settings), saved, started_ns),
            outputs.cluster,
            publish=self._publish,
            superseded=self._to_forget.update,
            inferred=self.metrics.inference_seconds.observe,
            clock_ns=self._clock_ns,
            timer=self._timer,
            takeover=self._takeover(saved, started_ns),
            measured_enough=lambda: self.parts.measuring.measured_enough,
            watched=links.added_to,
            drifted=self._blueprint.drifted if self._blueprint is not None else None,
            causes=self._causes(saved, started_ns),
        )
        placing = Placing(
            reservations,
            state,
            outputs.cluster,
            decided=self.metrics.placement_seconds.observe,
            clock_ns=self._clock_ns,
            timer=self._timer,
            pods_are_watched=outputs.gates is not None,
        )
        if outputs.gates is not None:
            outputs.gates.book(placing.placements)
        self.parts = Parts(
            version=importlib.metadata.version("hyperscout"),
            started_ns=started_ns,
            stale_after_ns=int(settings.stale_after_s * NS),
            load_problems=[
                *loaded.problems,
                *placing.load(over=self._took_over and settings.leader_election),
            ],
            clock_ns=self._clock_ns,
            store=store,
            state=state,
            view=view,
            committer=committer,
            streams=streams,
            sweeps=Sweeps(settings.sweep_interval_s, streams, state, self._texts, self._clock_ns),
            seeds=Seeds(streams, state),
            measuring=self._measuring(streams, state, view, watchers),
            nccl=self._nccl(streams, state, outputs.cluster),
            links=links,
            pipeline=pipeline,
            watchers=watchers,
            agents=AgentTable(state, streams, int(settings.stale_after_s * NS)),
            runner=PublisherRunner(publishers, rng=Random()),  # noqa: S311 - jitter, not secrets
            saver=Saver(committer, self._timer),
            placing=placing,
            gates=outputs.gates,
            mqtt=outputs.mqtt.counters if outputs.mqtt is not None else None,
            blueprint=self._blueprint,
            kube=self._kube,
        )
        if settings.history_max_days:
            recorder = Recorder(settings.data_dir / "history.db", settings, self._clock_ns)
            self.parts.recorder, self.parts.history = recorder, recorder.size
            # HyperNodes read from a cluster contain no links. The history must not record them as removed.
            if saved is not None and (saved.links or not saved.hypernodes):
                recorder.resume(saved, Cause(TAKEOVER if self._took_over else RESTART))
        if outputs.mqtt is not None and settings.mqtt_devices:
            self.parts.devices = self._devices(outputs.mqtt)
        if saved is not None:
            self.parts.runner.offer(saved)  # restores published files that were deleted in the meantime
            self.parts.saver.offer(saved)
            placing.published(saved)

    def _measuring(
        self, streams: Streams, state: EvidenceState, view: InputsView, watchers: Watchers
    ) -> Measuring:
        settings = self.settings
        return Measuring(
            PairSettings(
                probes_per_s=settings.measure_probes_per_s,
                node_kbps=settings.measure_node_kbps,
                pings=settings.measure_pings,
                reverify_s=settings.measure_reverify_s,
            ),
            streams,
            state,
            view,
            lambda: watchers.current.topology,
            MeasuringTools(
                self._clock_ns,
                self._timer,
                secrets.token_bytes,
                Random(),  # noqa: S311 - spreads the choice of pairs; keys come from `secrets`
            ),
            enabled=settings.measure,
            learned=self._look_again,
        )

    def _devices(self, mqtt: MqttPublisher) -> Devices:
        parts = self.parts
        devices = Devices(
            dict(map(device_of, self.settings.mqtt_devices)),
            mqtt.topics,
            parts.state,
            parts.streams,
            parts.committer,
            parts.sweeps,
            mqtt.counters,
            per_s=self.settings.mqtt_findings_per_s,
            heard=parts.agents.device_heard,
            say=mqtt.say,
            full_state=self._full_state,
            clock_ns=self._clock_ns,
            timer=self._timer,
        )
        mqtt.take, mqtt.reads = devices.take, (mqtt.topics.findings,)
        self._services["mqtt-devices"] = devices.run
        return devices

    def _nccl(self, streams: Streams, state: EvidenceState, cluster: Cluster) -> NcclRuns:
        def why_paused() -> str | None:
            report = self.parts.measuring.report()
            return report.reason if report.state == "paused" else None

        return NcclRuns(
            streams,
            state,
            why_not_free=cluster.why_not_reserved,
            why_paused=why_paused,
            forget=lambda keys: self._to_forget.update({key: state.looks(key) for key in keys}),
            clock_ns=self._clock_ns,
            new_id=lambda: secrets.randbits(64),
        )

    def _nccl_window(self) -> NcclWindow:
        parts = self.parts
        return NcclWindow(
            parse_windows(self.settings.nccl_window),
            parts.nccl,
            parts.streams,
            parts.state,
            lambda: parts.watchers.current.topology,
            clock_ns=self._clock_ns,
        )

    def _takeover(self, published: Topology | None, now_ns: int) -> Takeover | None:
        """The takeover to complete before the first inference; None = there is none.

        With leader election each start on a published tree is a takeover: even a replica that led before has
        missed evidence in between.
        """
        if not (self.settings.leader_election or self._took_over):
            return None
        if published is None or not published.hypernodes:
            return None
        return Takeover(published, self.settings.takeover_limit_s, now_ns)

    def _causes(self, published: Topology | None, now_ns: int) -> CauseLog:
        if published is None:
            return CauseLog()
        limit_s = self.settings.takeover_limit_s if self._took_over else self.settings.restart_grace_s
        return CauseLog(TAKEOVER if self._took_over else RESTART, now_ns + int(limit_s * NS))

    def _begin_all(self) -> None:
        """Start the parts. They stop in reverse order."""
        parts = self.parts
        if parts.recorder is not None:
            self._exit.callback(parts.recorder.close)
            self._begin("history", parts.recorder.run())
        self._exit.push_async_callback(parts.committer.close)
        self._begin("evidence-writer", parts.committer.run())
        self._exit.push_async_callback(parts.pipeline.close)
        self._begin("inference", parts.pipeline.run())
        self._begin("sweeps", parts.sweeps.run())
        self._begin("links", parts.links.run())
        self._begin("measuring", parts.measuring.run())
        self._begin("nccl-window", self._nccl_window().run())
        self._begin("saver", parts.saver.run())
        if self._blueprint is not None:
            self._begin("blueprint", self._blueprint.run())
        self._begin("placements", parts.placing.placements.run())
        self._begin("reservations", parts.placing.reservations.run())
        for name, service in self._services.items():
            self._begin(name, service())
        for state in parts.runner.states:
            self._begin(f"publisher-{state.publisher.name}", parts.runner.run(state))
        self._begin("housekeeping", self._keep_house())
        self._exit.push_async_callback(self._flush)

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        self._watch.add(task)
        self._exit.push_async_callback(_cancel, task)

    async def _flush(self) -> None:
        """Write pending evidence, the topology, reservations and the history to disk."""
        await self.parts.committer.drain()
        await self.parts.saver.flush()
        await self.parts.placing.reservations.flush()
        if self.parts.recorder is not None:
            await self.parts.recorder.flush()

    async def _listen(self) -> None:
        listening = Listening(
            self.settings,
            self.parts,
            self,
            texts=self._texts,
            metrics=self.metrics,
            kube=self._kube,
            leaving=lambda: self.leaving,
            begin=self._begin,
            timer=self._timer,
        )
        await self._exit.enter_async_context(listening)
        self.address, self.mtls_address = listening.address, listening.mtls_address
        self.http_address, self.rest_address = listening.http_address, listening.rest_address

    # Between the parts

    def _committed(self, changes: Sequence[KeyChange]) -> None:
        self.parts.pipeline.follow(changes)
        self.parts.links.follow(changes)
        self.parts.sweeps.follow(changes)
        self.parts.seeds.follow(changes)
        self.parts.measuring.follow(changes)
        self.parts.nccl.follow(changes)
        self.parts.placing.follow(changes)
        self.parts.agents.follow(changes)

    def _full_state(self, node: str) -> None:
        self.parts.pipeline.full_state(node)
        self.parts.agents.touch(node)

    def _publish(self, topology: Topology, cause: Cause) -> None:
        self.parts.published_ns = self._clock_ns()
        self.parts.generations += 1
        _log.info("generation %d", topology.generation)
        self.parts.runner.offer(topology)
        self.parts.saver.offer(topology)
        self.parts.placing.published(topology)
        if self.parts.recorder is not None:
            self.parts.recorder.offer(topology, cause)

    def _look_around(self) -> None:
        self.parts.pipeline.look_around()
        self.parts.placing.look_around()

    def _look_again(self) -> None:
        self.parts.pipeline.look_again()

    async def _keep_house(self) -> None:
        """Do the periodic work, once a second."""
        parts = self.parts
        while True:
            await asyncio.sleep(_TICK_S)
            now_ns = self._clock_ns()
            parts.sweeps.tick()
            parts.seeds.tick()
            parts.placing.tick()
            gone = parts.committer.due(now_ns, lambda node: parts.streams.get(node) is not None)
            long_ago_ns = now_ns - int(_FORGET_AFTER_S * NS)
            for node in (*parts.view.unseen_since(long_ago_ns), *parts.view.failed_before(long_ago_ns)):
                gone += sorted(parts.state.keys_of(node))
            for node in parts.view.unseen_devices(long_ago_ns):
                gone += sorted(key for key in parts.state.keys_of(node) if key.probe == DEVICE_PROBE)
            self._to_forget.update({key: parts.state.looks(key) for key in gone})
            # A disconnected agent is removed together with the last of its evidence.
            agents = [a for a in parts.state.agents_without_evidence() if parts.streams.get(a.node) is None]
            if self._to_forget or agents:
                await self._forget(agents)

    async def _forget(self, agents: Sequence[AgentRow]) -> None:
        """Remove the findings that are due, and these agents. A failed write is repeated later."""
        forgotten = dict(self._to_forget)
        self._to_forget.clear()
        submission = Submission(forgotten=forgotten, forgotten_agents=agents)
        try:
            await (await self.parts.committer.submit(submission))
        except (StoreError, OverloadedError) as error:
            _log.warning(
                "%d findings and %d agents are removed later: %s", len(forgotten), len(agents), error
            )
            self._to_forget.update(forgotten)


async def _cancel(task: "asyncio.Task[None]") -> None:
    """Cancel a task until it ends: a library may swallow a cancellation (`asyncio.wait_for` before 3.12)."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_END_S)
