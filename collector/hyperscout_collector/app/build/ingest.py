"""Opens what the collector stores, and builds the evidence and what brings it in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from hyperscout.v1.topology_pb2 import AgentStatus
from hyperscout_mqtt.topics import device_of
from hyperscout_publish.mqtt.publisher import MqttPublisher
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.errors import StartError
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.build.context import Context
from hyperscout_collector.app.build.stores import open_stores, repeated
from hyperscout_collector.app.ingest.evidence_cleanup import EvidenceCleanup
from hyperscout_collector.app.ingest.other_replicas import OtherReplicas, Receivers, SharedStore
from hyperscout_collector.app.ingest.seeds import Seeds
from hyperscout_collector.app.ingest.sweeps import Sweeps
from hyperscout_collector.app.placing.reservations import Reservations
from hyperscout_collector.app.publication.earlier_topology import published_before
from hyperscout_collector.app.publication.saver import after_crash, ahead, read_saved
from hyperscout_collector.app.status.agent_table import AgentTable
from hyperscout_collector.app.status.components import Evidence, Ingest
from hyperscout_collector.decisions.publication.stamps import moved, not_after
from hyperscout_collector.evidence.committer import Committer
from hyperscout_collector.evidence.guard import EvidenceGuard
from hyperscout_collector.evidence.postgresql import PostgresqlStore
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.evidence.store import EvidenceStore, Loaded
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.evidence.view import InputsView
from hyperscout_collector.history.opening import HistoryOpening
from hyperscout_collector.ingest.devices import Devices
from hyperscout_collector.ingest.session import TakeId
from hyperscout_collector.ingest.streams import Streams
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.writer import StoreWriter


@dataclass(frozen=True, slots=True)
class Storage:
    """What the collector stores, its writer, and what was published before it started.

    `problems`: errors while loading. `is_takeover`: `published` does not come from this replica's disk, nor
    from the store of all replicas.
    `agents`: those that the former leader knew. `highest`: numbers up to it may have been used.
    """

    writer: StoreWriter
    store: EvidenceStore
    loaded: Loaded
    reservations: Reservations
    history: HistoryOpening
    published: Topology | None
    is_takeover: bool
    problems: tuple[str, ...]
    agents: Sequence[AgentStatus]
    highest: int
    shared: SharedStore | None = None


async def open_storage(
    context: Context, previous: Topology | None, agents: Sequence[AgentStatus], used: int
) -> Storage:
    """Open the stores, and close them at the stop. `previous`, `agents`, `used`: as in `Collector`.

    Raises StartError.
    """
    settings, clock_ns = context.settings, context.clock_ns
    in_thread = BoundedExecutor("start")
    stores = await open_stores(context)
    store, loaded = stores.evidence, stores.loaded
    saved, problem = await in_thread(read_saved, loaded.topology)
    if saved is not None:
        saved = moved(saved, loaded.shift_ns)
    published = await published_before(settings, context.kube, previous, saved, context.clusters)
    # What the leader stored in PostgreSQL is the evidence of all replicas.
    is_takeover = published is not saved and (saved is None or not settings.store)
    if published is not None:
        # Only now, because the numbers tell which topology is newer. A leader that could not reach the API
        # server may have shown numbers that no replica received.
        published = after_crash(not_after(published, clock_ns()), max(loaded.reserved, used))
    writer = StoreWriter()
    over = is_takeover and settings.leader_election and not settings.store
    restored = partial(
        Reservations,
        stores.reservations,
        writer,
        now_ns=clock_ns,
        shift_ns=loaded.shift_ns,
        over=over,
        is_shared=bool(settings.store),
    )
    try:
        reservations = await repeated(context, restored)
    except StoreError as error:
        raise StartError(f"the reservations cannot be read: {error}") from error
    problems = [*loaded.problems, *([problem] if problem else []), *reservations.problems]
    highest = max(loaded.reserved, used, published.generation if published is not None else 0)
    try:
        await in_thread(store.reserve, ahead(highest))
    except StoreError as error:
        problems.append(f"numbers of generations are not reserved: {error}")
    return Storage(
        writer,
        store,
        loaded,
        reservations,
        stores.history,
        published,
        is_takeover,
        tuple(problems),
        agents,
        highest,
        stores.shared,
    )


def build_evidence(context: Context, storage: Storage, streams: Streams) -> Evidence:
    """Build the evidence in memory and its only writer."""
    settings, signals, clock_ns = context.settings, context.signals, context.clock_ns
    state = EvidenceState()
    state.load(storage.loaded.rows, storage.loaded.agents, storage.loaded.text_bytes)
    guard = EvidenceGuard(state)
    signals.committed.subscribe(guard.follow)
    view = InputsView(state, settings.stale_after_s, clock_ns())
    guard.load("the evidence for inference", view.touch)
    committer = Committer(
        state,
        storage.store,
        storage.writer,
        on_commit=signals.committed,
        on_full_state=signals.full_state,
        load_nodes=storage.store.load_nodes if isinstance(storage.store, PostgresqlStore) else None,
        clock_ns=clock_ns,
        grace_s=settings.restart_grace_s,
    )
    cleanup = EvidenceCleanup(
        state,
        view,
        committer,
        stream_of=streams.get,
        clock_ns=clock_ns,
    )
    texts = SweepTexts(storage.store)
    return Evidence(storage.store, storage.writer, state, guard, view, texts, committer, cleanup)


def build_other_replicas(
    context: Context, shared: SharedStore, evidence: Evidence, ingest: Ingest, take_id: TakeId, since: int
) -> OtherReplicas:
    """Build what follows the other replicas. `since`: number of the batch up to which evidence was loaded."""
    signals, failed = context.signals, ingest.sweeps.failed
    return OtherReplicas(
        shared,
        ingest.streams,
        evidence.state,
        evidence.committer,
        since=since,
        receivers=Receivers(signals, signals.committed, signals.full_state, take_id, failed),
        silence_s=context.settings.lease_duration_s,
        clock_ns=context.clock_ns,
    )


def build_ingest(
    context: Context,
    storage: Storage,
    streams: Streams,
    evidence: Evidence,
    mqtt: MqttPublisher | None,
    *,
    topology: Callable[[], Topology],
) -> Ingest:
    """Build what agents and devices report to. `mqtt`: the connection by which devices report. `topology()`:
    as published."""
    settings, signals, clock_ns = context.settings, context.signals, context.clock_ns
    state, guard = evidence.state, evidence.guard
    log = context.event_log("leases")
    interval_s, texts = settings.sweep_interval_s, evidence.texts
    sweeps = Sweeps(interval_s, streams, state, texts, guard, clock_ns, log, topology)
    seeds = Seeds(streams, state)
    agents = AgentTable(state, streams, int(settings.stale_after_s * NS), storage.agents)
    signals.connected.subscribe(sweeps.connected)
    signals.disconnected.subscribe(sweeps.disconnected)
    signals.connected.subscribe(seeds.connected)
    guard.load("the addresses for crawls", seeds.touch)
    guard.load("the list of agents", agents.count)
    signals.committed.subscribe(guard.guarded("the sweep leases", sweeps.follow))
    signals.committed.subscribe(guard.guarded("the addresses for crawls", seeds.follow))
    signals.committed.subscribe(guard.guarded("the list of agents", agents.follow))
    signals.full_state.subscribe(guard.guarded_reporter("the versions of agents", agents.full_state))
    devices = None
    if mqtt is not None and settings.mqtt_devices:
        devices = Devices(
            dict(map(device_of, settings.mqtt_devices)),
            mqtt,
            state,
            streams,
            evidence.committer,
            sweeps,
            per_s=settings.mqtt_findings_per_s,
            heard=agents.device_heard,
            full_state=signals.full_state,
            clock_ns=clock_ns,
            timer=context.timer,
        )
        mqtt.received.subscribe(devices.take)
    return Ingest(streams, sweeps, seeds, agents, devices)
