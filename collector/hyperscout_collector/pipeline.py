"""From evidence to generations: when inference runs, on what, and what becomes of its result.

    commit -> (debounce) -> snapshot on the loop -> in a thread: sweeps, infer, generations -> publishers

One inference at a time; what changes meanwhile is in the next one. Four things start one: news in the
evidence, evidence that only grew newer (at leisure: ages decide between sources), a node that turns stale,
and a node of the cluster that came or went. What else changes in the cluster (a node that takes no work) is
offered with what was inferred last. A wake-up that `Generations` asked for only ticks it.
After a take-over what was published stands for what is inferred, until everybody has been heard.
"""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from hyperscout_formats.ibnetdiscover import SWITCH
from hyperscout_formats.reporters import FABRIC_PROBES, is_node

from hyperscout_collector.cloud_labels import Keys, domains_of
from hyperscout_collector.cluster import Cluster, ClusterView
from hyperscout_collector.core.generations import Decision, Generations, Held, NotHeldError
from hyperscout_collector.core.takeover import Takeover
from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.evidence.state import LEASED_PROBES, KeyChange
from hyperscout_collector.evidence.switch_tables import chassis_ids
from hyperscout_collector.evidence.view import InputsView, Resolved, Snapshot, SweepTexts, resolve
from hyperscout_collector.fabric.inputs import FabricInputs, InferOptions
from hyperscout_collector.fabric.managed_nvlink import SOURCE as NVLINK_MANAGER
from hyperscout_collector.hierarchy import infer
from hyperscout_collector.hierarchy.history import forget
from hyperscout_collector.history.causes import APPROVED, CLUSTER, FINDINGS, TAKEOVER, Cause, CauseLog
from hyperscout_collector.topology import Topology

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

NS = 1_000_000_000
LOOK_S = 0.5  # whether the nodes of the cluster are known: a list without any wakes nobody
_IDLE_S = 3600.0  # nothing is due: look again in an hour all the same


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Nobody looks for garbage meanwhile: inference leaves next to none, but makes so many objects that all
    evidence would be gone through again and again."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Times in seconds, as in `CollectorSettings`. `node_map`: adapter GUID -> host. `cloud_labels`: keys of
    nodes' labels, by cloud."""

    options: InferOptions
    node_map: dict[int, str]
    debounce_s: float
    refresh_s: float
    cloud_labels: tuple[Keys, ...] = ()


@dataclass(frozen=True, slots=True)
class _Result:
    resolved: Resolved
    inferred: Topology
    stale: Mapping[str, int]
    stale_switches: Mapping[str, int]
    decision: Decision
    seconds: float


@dataclass(frozen=True, slots=True)
class _Forgotten:
    """What was missing when a person accepted the wiring as it is."""

    nodes: frozenset[str]
    anomalies: frozenset[tuple[str, str, str, str, str]]

    @classmethod
    def missing_from(cls, topology: Topology) -> "_Forgotten":
        missing = (x.key for x in topology.anomalies if x.kind in ("MissingLink", "MissingSwitch"))
        return cls(frozenset(topology.nodes_without_evidence), frozenset(missing))

    def is_in(self, topology: Topology) -> bool:
        """Whether a topology still has any of it."""
        return not self.nodes.isdisjoint(topology.nodes_without_evidence) or any(
            x.key in self.anomalies for x in topology.anomalies
        )


class Pipeline:
    """`publish` gets each new generation and why it is, `superseded` sweeps that newer ones replaced, by key.

    `clock_ns`: Unix ns. `timer`: monotonic seconds. `inferred` is told how long each inference took.
    `measured_enough`: whether what agents measured of each other may place those that no wire shows.
    `watched`: adds to the evidence what ports do wrong. `drifted`: adds what differs from the blueprint to
    what was inferred. `causes`: keeps account of what changed.
    """

    def __init__(
        self,
        settings: PipelineSettings,
        view: InputsView,
        texts: SweepTexts,
        generations: Generations,
        cluster: Cluster,
        *,
        publish: Callable[[Topology, Cause], None],
        superseded: Callable[[Mapping[Key, Collection[Row]]], None],
        inferred: Callable[[float], None],
        clock_ns: Callable[[], int],
        timer: Callable[[], float],
        takeover: Takeover | None = None,
        measured_enough: Callable[[], bool] = lambda: True,
        watched: Callable[[FabricInputs], FabricInputs] = lambda inputs: inputs,
        drifted: Callable[[Topology], Topology] | None = None,
        causes: CauseLog | None = None,
    ) -> None:
        self.takeover = takeover
        self._measured_enough = measured_enough
        self._watched = watched
        self._drifted = drifted
        self._causes = causes or CauseLog()
        self.held: Held | None = None
        self.problems: tuple[str, ...] = ()
        self.inferences = 0
        self._forgotten: _Forgotten | None = None
        self._settings = settings
        self._view = view
        self._texts = texts
        self._generations = generations
        self._cluster = cluster
        self._cluster_news = False
        self._expected: frozenset[str] | None = None  # at the last inference
        self._last: _Result | None = None
        self._publish = publish
        self._superseded = superseded
        self._inferred = inferred
        self._clock_ns = clock_ns
        self._timer = timer
        self._thread = ThreadPoolExecutor(1, "inference")
        self._turn = asyncio.Lock()  # generations are a state machine: one call at a time
        self._wake = asyncio.Event()
        self._news = True  # at start: what was loaded
        self._refresh_at_ns: int | None = None
        self._tick_at_ns: int | None = None

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """A commit changed the evidence."""
        if not changes:
            return
        self._view.follow(changes)
        self._causes.changed((change.key for change in changes if change.news), self._clock_ns())
        waits = self._takeover_until_ns is not None  # for sweeps also that tell nothing new
        if any(change.news or (waits and change.key.probe in LEASED_PROBES) for change in changes):
            self._news = True
            self._wake.set()
        elif self._refresh_at_ns is None:
            self._refresh_at_ns = self._clock_ns() + int(self._settings.refresh_s * NS)
            self._wake.set()  # to reckon with the new time

    def full_state(self, node: str) -> None:
        """All that an agent knows has been committed."""
        if self.takeover is not None and self.takeover.full_state(node) and self.takeover.active:
            self._causes.said(TAKEOVER)
            self._news = True
            self._wake.set()

    def look_around(self) -> None:
        """Something changed in the cluster: a node, or a HyperNode that is not ours."""
        self._cluster_news = True
        self._causes.said(CLUSTER)
        self._wake.set()

    def look_again(self, why: str = FINDINGS) -> None:
        """The evidence is the same, and tells more than it did. `why`: a kind of cause."""
        self._causes.said(why)
        self._news = True
        self._wake.set()

    async def run(self) -> None:
        """Infer until cancelled."""
        while True:
            await self._until_due()
            if not self._cluster.is_known:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._wake.wait()
                continue
            now_ns = self._clock_ns()
            if self._cluster_news:
                self._cluster_news = False
                view = self._cluster.view()
                if (
                    self._last is None
                    or view.expected != self._expected
                    or domains_of(view.labels, self._settings.cloud_labels)
                    != self._last.resolved.inputs.labels
                ):
                    self._news = True
                elif not self._news:
                    async with self._turn:
                        self._causes.looking()
                        self._take(await self._in_thread(self._offer, self._last, view, now_ns))
            if (
                self._news
                or self._is_due(self._refresh_at_ns, now_ns)
                or self._is_due(self._view.next_stale_ns, now_ns)
                or self._is_due(self._takeover_until_ns, now_ns)
            ):
                if self._news and self._settings.debounce_s:
                    await asyncio.sleep(self._settings.debounce_s)
                await self._infer()
            elif self._is_due(self._tick_at_ns, now_ns):
                async with self._turn:
                    self._take(await self._in_thread(self._generations.tick, now_ns), waited=True)

    async def approve(self, generation: int) -> int:
        """Let a held generation go, or accept the published one: what is missing from it is forgotten.

        Returns the number under which it is out. Raises NotHeldError.
        """
        async with self._turn:
            published = self._generations.published
            if self.held is None and published is not None and published.generation == generation:
                self._forgotten = _Forgotten.missing_from(published)
                self.look_again(APPROVED)
                return generation
            decision = await self._in_thread(self._generations.approve, generation, self._clock_ns())
            self._take(decision, APPROVED)
            if decision.publish is None:
                raise NotHeldError(f"generation {generation} is what is published already")
            return decision.publish.generation

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    async def _until_due(self) -> None:
        """Wait for news, or for the first of the times that matter."""
        now_ns = self._clock_ns()
        times = (self._refresh_at_ns, self._tick_at_ns, self._view.next_stale_ns, self._takeover_until_ns)
        due = [t for t in times if t is not None]
        delay_s = min(max((min(due) - now_ns) / NS, 0.0), _IDLE_S) if due else _IDLE_S
        if not (self._news or self._cluster_news):
            try:
                async with asyncio.timeout(delay_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
        self._wake.clear()

    @property
    def _takeover_until_ns(self) -> int | None:
        return self.takeover.until_ns if self.takeover is not None else None

    @staticmethod
    def _is_due(at_ns: int | None, now_ns: int) -> bool:
        return at_ns is not None and at_ns <= now_ns

    async def _infer(self) -> None:
        async with self._turn:
            self._news, self._refresh_at_ns = False, None
            self._causes.looking()
            now_ns = self._clock_ns()
            snapshot = self._view.snapshot(now_ns)
            view = self._cluster.view()
            result = await self._in_thread(self._inference, snapshot, view, now_ns)
            self._last, self._expected = result, view.expected
            self.inferences += 1
            self._inferred(result.seconds)
            if result.resolved.problems != self.problems:
                for problem in result.resolved.problems:
                    _log.error("evidence: %s", problem)
                self.problems = result.resolved.problems
            self._take(result.decision)
        if superseded := result.resolved.superseded:
            self._superseded({key: [row for row in snapshot.sweeps if row.key == key] for key in superseded})

    @uncollected()
    def _inference(self, snapshot: Snapshot, view: ClusterView, now_ns: int) -> _Result:
        """In the thread: everything that takes long."""
        began_s = self._timer()
        resolved = resolve(snapshot, self._texts, self._settings.node_map)
        if labels := domains_of(view.labels, self._settings.cloud_labels):
            resolved = replace(resolved, inputs=replace(resolved.inputs, labels=labels))
        options = self._settings.options
        if options.cluster_nodes is None and view.expected is not None:
            options = replace(options, cluster_nodes=view.expected)
        published = self._generations.published
        if not self._measured_enough():
            options = replace(options, latency_places=False)
        takeover = self._taking_over(resolved, snapshot, view, now_ns)
        if takeover is not None and published is not None:
            stale, switches = takeover.stale(), takeover.stale_switches()
            result = _Result(resolved, published, stale, switches, Decision(), 0.0)
        else:
            topology = infer(self._watched(resolved.inputs), options, self._previous())
            if self._drifted is not None:
                topology = self._drifted(topology)
            stale = stale_nodes(snapshot, topology)
            result = _Result(resolved, topology, stale, stale_switches(snapshot), Decision(), 0.0)
        decision = self._offer(result, view, now_ns)
        return replace(result, decision=decision, seconds=self._timer() - began_s)

    def _taking_over(
        self, resolved: Resolved, snapshot: Snapshot, view: ClusterView, now_ns: int
    ) -> Takeover | None:
        """In the thread: the take-over that is under way."""
        takeover = self.takeover
        if takeover is None or not takeover.active:
            return None
        sweeps = [
            [f"{guid:016x}" for guid in x.sweep.guid[x.sweep.kind == SWITCH].tolist()]
            for x in resolved.inputs.sweeps
            if not x.partial and x.observed_at_ns >= _due_ns(x.source, takeover, snapshot)
        ]
        chassis = {
            name: {port.chassis_id for port in ports} for name, ports in resolved.inputs.switch_ports.items()
        } | chassis_ids(snapshot.tables)
        down = view.down(self._generations.published)
        if not takeover.ended(now_ns, down, sweeps, chassis, snapshot.unsure):
            return takeover
        after_s = (now_ns - takeover.started_ns) / NS
        _log.info("take-over complete after %.1f s; not heard from: %s", after_s, takeover.waits_for())
        return None

    def _offer(self, result: _Result, view: ClusterView, now_ns: int) -> Decision:
        """In the thread: what was inferred, in the cluster as it is now."""
        facts = view.facts(result.stale, result.stale_switches, result.inferred, self._generations.published)
        return self._generations.offer(view.marked(result.inferred), now_ns, facts)

    def _previous(self) -> Topology | None:
        """What inference may remember: what is published, less what a person said is gone for good."""
        published = self._generations.published
        if self._forgotten is None or published is None:
            return published
        if not self._forgotten.is_in(published):
            self._forgotten = None
            return published
        return forget(published, self._forgotten.nodes, self._forgotten.anomalies)

    def _take(self, decision: Decision, why: str = "", *, waited: bool = False) -> None:
        if decision.held is not None and self.held is None:
            _log.warning(
                "generation %d is held: %s; `hyperscout approve %d` publishes it",
                decision.held.generation,
                decision.held.reason,
                decision.held.generation,
            )
        self.held = decision.held
        self._tick_at_ns = decision.wake_at_ns
        if decision.publish is not None:
            self._publish(decision.publish, self._causes.of(self._clock_ns(), why, waited=waited))

    async def _in_thread(self, function: Callable[..., _T], *args: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)


def stale_nodes(snapshot: Snapshot, topology: Topology) -> dict[str, int]:
    """When each node whose evidence is too old was last seen.

    A node that no agent speaks for is known from sweeps alone, and is as old as the newest of them.
    """
    stale = {name: seen_ns for name, seen_ns in snapshot.stale.items() if is_node(name)}
    newest_ns = max((row.seen_ns for row in snapshot.sweeps if row.key.probe != NVLINK_MANAGER), default=0)
    if 0 < newest_ns < snapshot.limit_ns:
        spoken_for = {*snapshot.lldp, *snapshot.infiniband, *snapshot.gpus, *snapshot.latency}
        for hypernode in topology.hypernodes:
            if hypernode.tier == 1 and hypernode.source != "labels":
                for node in hypernode.nodes:
                    if node not in spoken_for:
                        stale.setdefault(node, newest_ns)
    return stale


def stale_switches(snapshot: Snapshot) -> dict[str, int]:
    """When each switch that nobody looked at for too long was last seen, by chassis id: neither its own agent
    nor anybody who asks it speaks of it any more."""
    seen_ns: dict[str, int] = {}
    fresh: set[str] = set()
    for reporter, ports in snapshot.switch_ports.items():
        chassis = {port.chassis_id for port in ports}
        if reporter in snapshot.stale:
            seen_ns |= {id_: max(seen_ns.get(id_, 0), snapshot.stale[reporter]) for id_ in chassis}
        else:
            fresh |= chassis
    for look in snapshot.tables:
        id_, row = look.chassis_id, look.row
        if row.seen_ns < snapshot.limit_ns:
            seen_ns[id_] = max(seen_ns.get(id_, 0), row.seen_ns)
        else:
            fresh.add(id_)
    return {id_: at_ns for id_, at_ns in seen_ns.items() if id_ not in fresh}


def _due_ns(probe: str, takeover: Takeover, snapshot: Snapshot) -> int:
    """From when on a look at a fabric tells what there is now. A sweep is made anew at once when its lease is
    granted; what a manager showed a moment ago comes with the full state of who asked it."""
    return snapshot.limit_ns if probe in FABRIC_PROBES else takeover.started_ns
