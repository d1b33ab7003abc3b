"""Runs inference on the evidence and publishes its results as generations.

    commit -> (debounce) -> snapshot on the loop -> in a thread: sweeps, infer, generations -> publishers

One inference runs at a time; the next one covers changes that arrive meanwhile. These events start one:

- The evidence changes.
- Only timestamps in the evidence change. Inference then waits `refresh_s`; it still runs, because the age of
  evidence decides between sources.
- A node becomes stale.
- A node joins or leaves the cluster, or its cloud labels change.
- A part of the collector calls `look_again`, for example after a change of the blueprint.
- A wait ends: for a takeover, for another try after a failure, or for another try with evidence set aside.

Other changes in the cluster, such as a node that becomes unschedulable, do not start an inference: the last
result is offered to `Generations` again with the new state of the cluster. A wake-up that `Generations`
requested only calls its `tick`. After a takeover the published topology replaces the inferred one until the
takeover is complete (`decisions.publication.takeover`).

When inference raises an exception, the last topology stays published. The pipeline searches for the reporters
whose evidence causes the exception, uses their earlier evidence instead, and infers again
(`decisions.publication.quarantine`). If it finds none, the HyperNodes are marked as stale, and the pipeline
tries again after the next change or after a wait that doubles.
"""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from hyperscout_formats.infiniband.ibnetdiscover import SWITCH
from hyperscout_formats.text.reporters import FABRIC_PROBES
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.hierarchy.history import forget
from hyperscout_inference.labels.cloud_labels import Keys, domains_of
from hyperscout_runtime.errors import described
from hyperscout_topology.topology import Topology, rfc3339

from hyperscout_collector.app.fabric.cluster import Cluster, ClusterView
from hyperscout_collector.decisions.publication.generations import (
    Decision,
    Generations,
    Held,
    NotHeldError,
)
from hyperscout_collector.decisions.publication.quarantine import (
    MAX_SET_ASIDE,
    Backoff,
    Missing,
    Quarantine,
    find_culprits,
    marked,
    why_lacking,
)
from hyperscout_collector.decisions.publication.takeover import Takeover
from hyperscout_collector.evidence.pair_tables import PairTables
from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.evidence.stale import stale_nodes, stale_switches
from hyperscout_collector.evidence.state import LEASED_PROBES, MEASURING_PROBES, KeyChange
from hyperscout_collector.evidence.switch_tables import chassis_ids
from hyperscout_collector.evidence.view import (
    NO_EVIDENCE,
    InputsView,
    Resolved,
    Snapshot,
    SweepTexts,
    resolve,
)
from hyperscout_collector.history.causes import APPROVED, CLUSTER, FINDINGS, TAKEOVER, Cause, CauseLog

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

NS = 1_000_000_000
LOOK_S = 0.5  # how often to check that the cluster's nodes are listed: an empty list sends no event
_IDLE_S = 3600.0  # longest wait when nothing is due
_CLOSE_S = 15.0  # shorter than the grace period of a pod


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disable the cyclic garbage collector within the block.

    Inference leaves almost no cyclic garbage, but it allocates so many objects that the garbage collector
    would traverse all evidence repeatedly.
    """
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Settings of the pipeline. Times are in seconds, as in `CollectorSettings`.

    `node_map`: adapter GUID -> host. `cloud_labels`: the label keys of nodes, per cloud.
    """

    options: InferOptions
    node_map: dict[int, str]
    debounce_s: float
    refresh_s: float
    cloud_labels: tuple[Keys, ...] = ()


@dataclass(frozen=True, slots=True)
class _Result:
    """The result of one inference.

    `stale`, `stale_switches`: when each stale node or switch was last seen, Unix ns.
    `lacks`: why the published topology replaces the inferred one; "" = it does not.
    """

    resolved: Resolved
    inferred: Topology
    stale: Mapping[str, int]
    stale_switches: Mapping[str, int]
    is_takeover: bool = False
    lacks: str = ""
    decision: Decision = field(default_factory=Decision)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the last topology stays published. `since_ns`: time of the first failure, Unix ns."""

    since_ns: int
    error: str

    def __str__(self) -> str:
        return f"inference fails since {rfc3339(self.since_ns)}, and the last topology stays: {self.error}"


@dataclass(frozen=True, slots=True)
class _Forgotten:
    """The nodes and links that were missing when an operator accepted the wiring as it is."""

    nodes: frozenset[str]
    anomalies: frozenset[tuple[str, str, str, str, str]]

    @classmethod
    def missing_from(cls, topology: Topology) -> "_Forgotten":
        missing = (x.key for x in topology.anomalies if x.kind in ("MissingLink", "MissingSwitch"))
        return cls(frozenset(topology.nodes_without_evidence), frozenset(missing))

    def is_in(self, topology: Topology) -> bool:
        """Whether a topology still contains any of these anomalies or nodes without evidence."""
        return not self.nodes.isdisjoint(topology.nodes_without_evidence) or any(
            x.key in self.anomalies for x in topology.anomalies
        )


class Pipeline:
    """Infers and publishes while `run` runs.

    `publish` receives each new generation with its cause. `superseded` receives the sweeps that newer sweeps
    replaced, by key. `inferred` receives the duration of each inference in seconds. `clock_ns`: Unix ns.
    `timer`: monotonic seconds. `measured_enough`: whether measured latency may place nodes without link
    evidence. `watched` adds the health of ports to the evidence. `drifted` adds the differences from the
    blueprint to the inferred topology. `causes` records what changed.
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
        self.failure: Failure | None = None
        self.failures = 0  # exceptions of inference
        self.quarantine = Quarantine()
        self.inferences = 0
        self._unread: tuple[str, ...] = ()  # evidence that cannot be read
        self._good: Snapshot | None = None  # the evidence of the last successful inference
        self._changed: set[str] = set()  # reporters whose evidence has changed since
        self._tried_ns = 0
        self._retry = Backoff()
        self._search = Backoff()
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
        self._running: set[Future[Any]] = set()
        self._turn = asyncio.Lock()  # `Generations` is a state machine: one call at a time
        self._wake = asyncio.Event()
        self._news = True  # the evidence loaded at start is new
        self._refresh_at_ns: int | None = None
        self._tick_at_ns: int | None = None

    @property
    def problems(self) -> list[str]:
        """Unreadable evidence, why the last topology stays published, and the reporters set aside."""
        failure = [str(self.failure)] if self.failure is not None else []
        set_aside = [
            f"evidence of {reporter} is set aside, because inference raises with it: {error}"
            for reporter, error in self.quarantine.errors.items()
        ]
        return [*self._unread, *failure, *set_aside]

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """A commit changed the evidence."""
        if not changes:
            return
        self._view.follow(changes)
        self._changed.update(change.key.node for change in changes)
        self.quarantine.reported({x.key.node for x in changes if x.news or x.key.probe in MEASURING_PROBES})
        self._causes.changed((change.key for change in changes if change.news), self._clock_ns())
        waits = self._takeover_until_ns is not None  # a takeover also waits for sweeps without changes
        if any(change.news or (waits and change.key.probe in LEASED_PROBES) for change in changes):
            self._news = True
            self._wake.set()
        elif self._refresh_at_ns is None:
            self._refresh_at_ns = self._clock_ns() + int(self._settings.refresh_s * NS)
            self._wake.set()  # `_until_due` must use the new time

    def full_state(self, node: str) -> None:
        """The full state of an agent was committed."""
        if self.takeover is not None and self.takeover.full_state(node) and self.takeover.active:
            self._causes.said(TAKEOVER)
            self._news = True
            self._wake.set()

    def look_around(self) -> None:
        """The cluster changed: a node, or a HyperNode that the collector does not own."""
        self._cluster_news = True
        self._causes.said(CLUSTER)
        self._wake.set()

    def look_again(self, why: str = FINDINGS) -> None:
        """Infer again from unchanged evidence, because another input changed. `why`: a kind of cause."""
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
                    self._causes.looking()
                    await self._decide(self._offer, self._last, view, now_ns, self._failing)
            if self._news or self._is_due(self._infer_at_ns, now_ns):
                if self._news and self._settings.debounce_s:
                    await asyncio.sleep(self._settings.debounce_s)
                await self._infer()
            elif self._is_due(self._tick_at_ns, now_ns):
                await self._decide(self._generations.tick, now_ns, waited=True)

    async def approve(self, generation: int) -> int:
        """Publish a held generation, or accept the published one as it is.

        Accepting the published generation makes inference forget the links, switches and nodes that are
        missing from it. Returns the number of the published generation. Raises NotHeldError.
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

    async def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Wait until the thread has finished, at most `timeout_s` seconds. Does not block the event loop."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        running = [asyncio.wrap_future(future) for future in tuple(self._running)]
        if not running:
            return
        _, late = await asyncio.wait(running, timeout=timeout_s)
        for future in late:
            future.cancel()
        if late:
            _log.warning("inference still runs after %g s, and its result is dropped", timeout_s)

    async def _until_due(self) -> None:
        """Wait for a change, or until the next inference or tick is due."""
        now_ns = self._clock_ns()
        due = [t for t in (self._infer_at_ns, self._tick_at_ns) if t is not None]
        delay_s = min(max((min(due) - now_ns) / NS, 0.0), _IDLE_S) if due else _IDLE_S
        if not (self._news or self._cluster_news):
            try:
                async with asyncio.timeout(delay_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
        self._wake.clear()

    @property
    def _infer_at_ns(self) -> int | None:
        """When to infer without a change, Unix ns; None = never."""
        due_ns = self.quarantine.next_due_ns
        if self.failure is not None:  # a reporter due before the last try waits for the next try
            tries = self._retry.until_ns, due_ns if due_ns is not None and due_ns > self._tried_ns else None
            return min(t for t in tries if t is not None)
        times = (self._refresh_at_ns, self._view.next_stale_ns, self._takeover_until_ns, due_ns)
        return min((t for t in times if t is not None), default=None)

    @property
    def _failing(self) -> str:
        return str(self.failure) if self.failure is not None else ""

    @property
    def _takeover_until_ns(self) -> int | None:
        return self.takeover.until_ns if self.takeover is not None else None

    @staticmethod
    def _is_due(at_ns: int | None, now_ns: int) -> bool:
        return at_ns is not None and at_ns <= now_ns

    async def _infer(self) -> None:
        self._news, self._refresh_at_ns = False, None
        self._causes.looking()
        self._tried_ns = now_ns = self._clock_ns()
        current, view = self._view.snapshot(now_ns), self._cluster.view()
        held = self.quarantine.held(now_ns)
        evidence = current.with_earlier(held, self._good or NO_EVIDENCE)
        missing = self._missing(held, current, evidence)
        changed, self._changed = self._changed, set()
        try:
            async with self._turn:
                result = await self._in_thread(self._inference, evidence, view, now_ns, missing)
        except Exception as error:
            self._changed |= changed
            await self._failed(error, current, view, now_ns)
            return
        self._expected = view.expected
        if self.quarantine:
            self.quarantine.keep(held & current.reporters)
        if result.lacks:
            self._keep_last(result.lacks, now_ns)
        else:
            self.failure, self._retry, self._search = None, Backoff(), Backoff()
            self._last = result
        if result.lacks or result.is_takeover:
            self._changed |= changed
        else:
            self._good = evidence
        self.inferences += 1
        self._inferred(result.seconds)
        if result.resolved.problems != self._unread:
            for problem in result.resolved.problems:
                _log.error("evidence: %s", problem)
            self._unread = result.resolved.problems
        self._take(result.decision)
        if superseded := result.resolved.superseded:
            self._superseded({key: [row for row in evidence.sweeps if row.key == key] for key in superseded})

    def _missing(self, held: Collection[str], current: Snapshot, evidence: Snapshot) -> list[Missing]:
        """A description of each reporter that is set aside. `evidence`: the evidence used of `current`."""
        if not held:
            return []
        used, errors = evidence.reporters, self.quarantine.errors
        return [Missing(x, errors[x], current.chassis_of(x), x in used) for x in sorted(held)]

    @uncollected()
    def _inference(
        self, evidence: Snapshot, view: ClusterView, now_ns: int, missing: Sequence[Missing]
    ) -> _Result:
        """Infer, and let the generations decide. Runs in the thread, because it takes long."""
        began_s = self._timer()
        resolved = self._resolved(evidence, view)
        published = self._generations.published
        takeover = self._taking_over(resolved, evidence, view, now_ns)
        if takeover is not None and published is not None:
            stale, switches = takeover.stale(), takeover.stale_switches()
            result = _Result(resolved, published, stale, switches, is_takeover=True)
        else:
            topology = marked(self._topology_of(resolved, view), missing, published)
            stale, switches = stale_nodes(evidence, topology), stale_switches(evidence)
            result = _Result(resolved, topology, stale, switches)
            if published is not None and (lacks := why_lacking(topology, missing, published)):
                result = replace(result, inferred=published, lacks=lacks)
        failing = str(self._failure_of(result.lacks, now_ns)) if result.lacks else ""
        decision = self._offer(result, view, now_ns, failing)
        return replace(result, decision=decision, seconds=self._timer() - began_s)

    def _resolved(self, evidence: Snapshot, view: ClusterView) -> Resolved:
        resolved = resolve(evidence, self._texts, self._settings.node_map)
        if labels := domains_of(view.labels, self._settings.cloud_labels):
            resolved = replace(resolved, inputs=replace(resolved.inputs, labels=labels))
        return resolved

    def _topology_of(self, resolved: Resolved, view: ClusterView) -> Topology:
        options = self._settings.options
        if options.cluster_nodes is None and view.expected is not None:
            options = replace(options, cluster_nodes=view.expected)
        if not self._measured_enough():
            options = replace(options, latency_places=False)
        topology = infer(self._watched(resolved.inputs), options, self._previous())
        return self._drifted(topology) if self._drifted is not None else topology

    # When inference raises

    async def _failed(self, error: Exception, current: Snapshot, view: ClusterView, now_ns: int) -> None:
        """Keep the last topology, and search for the reporters whose evidence causes the exception."""
        self._raised(error, now_ns)
        if now_ns >= self._search.until_ns:
            culprits = await self._culprits(current, view, now_ns)
            found_ns = self._clock_ns()
            self._search.failed(found_ns)
            for reporter, cause in culprits.items():
                _log.error("evidence of %s is set aside: inference raises with it: %s", reporter, cause)
                self.quarantine.put(reporter, cause, found_ns)
            if culprits:
                self._news = True
                return
            _log.error("no single reporter is found to be the cause")
        published, last = self._generations.published, self._last
        if last is None and published is not None:
            last = _Result(Resolved(FabricInputs()), published, {}, {})
        if last is not None:
            await self._decide(self._offer, last, view, now_ns, self._failing)

    async def _culprits(self, current: Snapshot, view: ClusterView, now_ns: int) -> dict[str, str]:
        """The reporters whose evidence causes the exception, with that exception.

        Suspects are the reporters whose evidence changed since the last successful inference, and those that
        were set aside before.
        """
        held = self.quarantine.held(now_ns)
        suspects = current.reporters - held
        if self._good is not None:
            suspects &= self._changed | self.quarantine.errors.keys()

        async def error_without(reporters: Collection[str]) -> str | None:
            return await self._in_thread(self._error_of, current, held.union(reporters), view)

        return await find_culprits(sorted(suspects), error_without, MAX_SET_ASIDE - len(held))

    def _raised(self, error: Exception, now_ns: int) -> None:
        self.failures += 1
        text = described(error)
        if self.failure is None or self.failure.error != text:
            _log.error("inference fails, and the last topology stays", exc_info=error)
        self._keep_last(text, now_ns)
        self._tick_at_ns = None

    def _keep_last(self, error: str, now_ns: int) -> None:
        self.failure = self._failure_of(error, now_ns)
        self._retry.failed(now_ns)

    def _failure_of(self, error: str, now_ns: int) -> Failure:
        return Failure(self.failure.since_ns if self.failure is not None else now_ns, error)

    @uncollected()
    def _error_of(self, current: Snapshot, held: Collection[str], view: ClusterView) -> str | None:
        """The exception of an inference without the evidence of the reporters `held`; None = it raises none.

        Runs in the thread.
        """
        try:
            evidence = current.with_earlier(held, self._good or NO_EVIDENCE)
            # A trial must not change the shared table of pairs.
            resolved = self._resolved(replace(evidence, pair_tables=PairTables()), view)
            stale_nodes(evidence, self._topology_of(resolved, view))
            stale_switches(evidence)
        except Exception as error:
            return described(error)
        return None

    async def _decide(self, function: Callable[..., Decision], *args: object, waited: bool = False) -> None:
        """Let the generations decide without an inference. An exception is recorded as a failure."""
        try:
            async with self._turn:
                decision = await self._in_thread(function, *args)
        except Exception as error:
            self._raised(error, self._clock_ns())
        else:
            self._take(decision, waited=waited)

    def _taking_over(
        self, resolved: Resolved, snapshot: Snapshot, view: ClusterView, now_ns: int
    ) -> Takeover | None:
        """The takeover in progress; None = there is none, or it is complete now. Runs in the thread."""
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

    def _offer(self, result: _Result, view: ClusterView, now_ns: int, failing: str) -> Decision:
        """Offer a result to the generations with the present state of the cluster. Runs in the thread.

        `failing`: why the result is not newer, "" = it is the newest.
        """
        facts = view.facts(result.stale, result.stale_switches, result.inferred, self._generations.published)
        facts = replace(facts, failing=failing)
        return self._generations.offer(view.marked(result.inferred), now_ns, facts)

    def _previous(self) -> Topology | None:
        """The topology that inference remembers: the published one, without what an operator removed."""
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
        future = self._thread.submit(function, *args)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return await asyncio.wrap_future(future)


def _due_ns(probe: str, takeover: Takeover, snapshot: Snapshot) -> int:
    """The earliest time, Unix ns, from which a sweep of this source counts for a takeover.

    An agent sweeps at once when the new leader grants it a lease, so its sweep must be newer than the
    takeover. The reading of a fabric manager comes with the full state of the agent that queried it, so it
    counts as long as it is not stale.
    """
    return snapshot.limit_ns if probe in FABRIC_PROBES else takeover.started_ns
