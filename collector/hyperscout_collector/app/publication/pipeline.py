"""Decides when to infer, and publishes the results as generations.

    commit -> (debounce) -> snapshot on the loop -> in a thread: `Inference` -> publishers

One inference runs at a time; the next one covers changes that arrive meanwhile. While many agents send their
full states (`Storm`), inference waits, and later runs less often: the collector needs its processor time to
take them in. These events start one:

- The evidence changes.
- Only timestamps in the evidence change. Inference then waits `refresh_s`; it still runs, because the age of
  evidence decides between sources.
- A node becomes stale.
- A node joins or leaves the cluster, or its cloud labels change.
- Another input of inference changes (`infer_again`), for example the blueprint.
- A wait ends: for a takeover, for another try after a failure, or for another try with evidence set aside.

Other changes in the cluster, such as a node that becomes unschedulable, do not start an inference: the last
result is offered to `Generations` again with the new state of the cluster. A wake-up that `Generations`
requested only calls its `tick`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_runtime.bounded_executor import ended
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.inference.cluster import Cluster, ClusterView
from hyperscout_collector.app.inference.failures import Failures
from hyperscout_collector.app.inference.inference import Inference, Result
from hyperscout_collector.app.publication.storm import MANY, Storm, storm_pause_s
from hyperscout_collector.decisions.publication.generations import Decision, GenerationNotHeldError
from hyperscout_collector.decisions.publication.membership import HeldTree
from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.evidence.snapshot import HeldSweep, Resolved, Snapshot
from hyperscout_collector.evidence.state import LEASED_PROBES, MEASURING_PROBES, KeyChange
from hyperscout_collector.evidence.view import InputsView
from hyperscout_collector.history.causes import APPROVED, CLUSTER, FINDINGS, TAKEOVER, Cause, CauseLog

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

LOOK_S = 0.5  # how often to check that the cluster's nodes are listed: an empty list sends no event
_IDLE_S = 3600.0  # longest wait when nothing is due
_STORM_LOOKS = 60  # in all, each after `LOOK_S`
_CLOSE_S = 15.0  # leaves time for the steps of the stop that follow


class Pipeline:
    """Infers and publishes while `run` runs.

    `publish` receives each new generation with its cause. `superseded` receives the sweeps that newer sweeps
    replaced, by key. `held` receives the sweeps that do not count as a whole, and returns when to infer
    again (Unix ns, None = never). `inferred` receives the duration of each inference in seconds. `clock_ns`:
    Unix ns. `causes` records what changed.
    """

    def __init__(
        self,
        inference: Inference,
        view: InputsView,
        cluster: Cluster,
        *,
        publish: Callable[[Topology, Cause], None],
        superseded: Callable[[Mapping[Key, Collection[Row]]], None],
        held: Callable[[Sequence[HeldSweep]], int | None] = lambda _: None,
        inferred: Callable[[float], None],
        clock_ns: Callable[[], int],
        debounce_s: float,
        refresh_s: float,
        causes: CauseLog | None = None,
    ) -> None:
        self.failures = Failures()
        self.held: HeldTree | None = None
        self.inferences = 0
        self.generations = 0  # number published since the start
        self.published_ns = 0  # when the last one was published; 0 = none since the start
        self._inference = inference
        self._view = view
        self._cluster = cluster
        self._publish = publish
        self._superseded = superseded
        self._held_sweeps = held
        self._inferred = inferred
        self._clock_ns = clock_ns
        self._debounce_s = debounce_s
        self._refresh_ns = int(refresh_s * NS)
        self._causes = causes or CauseLog()
        self._storm = Storm()
        self._storm_looks = _STORM_LOOKS  # that are left
        self._unread: tuple[str, ...] = ()  # evidence that cannot be read
        self._full_states: set[str] = set()  # reporters whose full state came after the last snapshot
        self._cluster_changed = False
        self._expected: frozenset[str] | None = None  # at the last inference
        self._last: Result | None = None
        # No BoundedExecutor: there is one caller at a time, and `close` waits for its call.
        self._thread = ThreadPoolExecutor(1, "inference")
        self._running: set[Future[Any]] = set()
        self._turn = asyncio.Lock()  # `Generations` is a state machine: one call at a time
        self._wake = asyncio.Event()
        self._news = True  # the evidence loaded at start is new
        self._refresh_at_ns: int | None = None
        self._tick_at_ns: int | None = None
        self._inferred_ns = 0  # when the last inference began
        self._held_until_ns: int | None = None  # when to judge held sweeps again

    @property
    def highest(self) -> int:
        """The highest number of a generation that may have been used."""
        return self._inference.generations.highest

    @property
    def problems(self) -> list[str]:
        """The takeover in progress, unreadable evidence, failures, and the reporters set aside."""
        takeover = self._inference.takeover
        waits = (
            [f"shows the earlier topology, and infers nothing yet: waits for {takeover.waits_for()}"]
            if takeover is not None and takeover.active
            else []
        )
        return [*waits, *self._unread, *self.failures.problems]

    def is_takeover(self) -> bool:
        """Whether the evidence is not complete yet."""
        takeover = self._inference.takeover
        return takeover is not None and takeover.active

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """A commit changed the evidence."""
        if not changes:
            return
        self._view.follow(changes)
        news = [change.key for change in changes if change.news]
        measured = {change.key.node for change in changes if change.key.probe in MEASURING_PROBES}
        self.failures.changed(
            (change.key.node for change in changes), measured.union(key.node for key in news)
        )
        self._causes.changed(news, self._clock_ns())
        # A takeover also waits for sweeps without changes.
        if news or (self.is_takeover() and any(change.key.probe in LEASED_PROBES for change in changes)):
            self._infer_soon()
        elif self._refresh_at_ns is None:
            self._refresh_at_ns = self._clock_ns() + self._refresh_ns
            self._wake.set()  # `_until_due` must use the new time

    def full_state(self, node: str) -> None:
        """The full state of an agent was committed.

        It counts from the next snapshot on. The one that is being inferred from does not contain it.
        """
        self._storm.full_state(self._clock_ns())
        takeover = self._inference.takeover
        if takeover is not None:
            self._full_states.add(node)
            if takeover.active and takeover.lacks_only(self._full_states):
                self._storm.end()
                self.infer_again(TAKEOVER)

    def cluster_changed(self) -> None:
        """A node of the cluster changed, or a HyperNode that the collector does not own."""
        self._cluster_changed = True
        self._causes.input_changed(CLUSTER)
        self._wake.set()

    def infer_again(self, why: str = FINDINGS) -> None:
        """Infer again from unchanged evidence, because another input changed. `why`: a kind of cause."""
        self._causes.input_changed(why)
        self._infer_soon()

    async def run(self) -> None:
        """Infer until cancelled."""
        if self._view.reporters >= MANY:
            self._storm.begin(self._clock_ns())
        while True:
            await self._until_due()
            if not self._cluster.is_known:
                await self._woken(LOOK_S)
                continue
            now_ns = self._clock_ns()
            if self._cluster_changed:
                self._cluster_changed = False
                await self._compare_cluster(now_ns)
            if self._news or _is_due(self._infer_at_ns, now_ns):
                if self._news and self._debounce_s:
                    await self._pause()
                await self._storm_over()
                await self._infer()
            elif _is_due(self._tick_at_ns, now_ns):
                await self._decide(self._inference.generations.tick, now_ns, waited=True)

    async def approve(self, generation: int) -> int:
        """Publish a held generation, or accept the published one as it is.

        Accepting the published generation makes inference forget the links, switches and nodes that are
        missing from it. Returns the number of the published generation. Raises GenerationNotHeldError.
        """
        async with self._turn:
            published = self._inference.published
            if self.held is None and published is not None and published.generation == generation:
                self._inference.accept_losses(published)
                self.infer_again(APPROVED)
                return generation
            approve = self._inference.generations.approve
            decision = await self._in_thread(approve, generation, self._clock_ns())
            self._take(decision, APPROVED)
            if decision.publish is None:
                raise GenerationNotHeldError(f"generation {generation} is published already")
            return decision.publish.generation

    async def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Wait until the thread has finished, at most `timeout_s` seconds. Does not block the event loop."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if not await ended(self._running, timeout_s):
            _log.warning("inference still runs after %g s, and its result is dropped", timeout_s)

    def _infer_soon(self) -> None:
        self._news = True
        self._wake.set()

    async def _woken(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()

    async def _until_due(self) -> None:
        """Wait for a change, or until the next inference or tick is due."""
        if not (self._news or self._cluster_changed):
            due = [t for t in (self._infer_at_ns, self._tick_at_ns) if t is not None]
            delay_s = (min(due) - self._clock_ns()) / NS if due else _IDLE_S
            await self._woken(min(max(delay_s, 0.0), _IDLE_S))
        self._wake.clear()

    async def _storm_over(self) -> None:
        """Wait until the storm is over. There is no wait until the first generation is published.

        All waits since the start together are bounded. Later, `_pause` alone waits in a storm.
        """
        while self._storm_looks and self._inference.published and self._storm.is_on(self._clock_ns()):
            self._storm_looks -= 1
            await asyncio.sleep(LOOK_S)

    async def _pause(self) -> None:
        """Wait for further changes, until `_pause_s` have passed."""
        waited_s = self._debounce_s
        await asyncio.sleep(waited_s)
        while (left_s := self._pause_s - waited_s) > 0:  # it ends early if the storm does
            await asyncio.sleep(step_s := min(left_s, LOOK_S))
            waited_s += step_s

    @property
    def _pause_s(self) -> float:
        """How long to wait for further changes. While many agents send their full states, three quarters of
        the time are left to take them in: until the first generation, and in a storm that lasts longer than
        `_storm_over` waits."""
        last, published = self._last, self._inference.published
        if last is None or (published is not None and not self._storm.is_on(self._clock_ns())):
            return self._debounce_s
        return max(self._debounce_s, storm_pause_s(last.seconds))

    @property
    def _infer_at_ns(self) -> int | None:
        """When to infer without a change, Unix ns; None = never."""
        if self.failures.present is not None:
            return self.failures.retry_ns
        takeover = self._inference.takeover
        times = (
            self._refresh_at_ns,
            self._held_until_ns,
            self._view.next_stale_ns,
            takeover.next_look_ns(self._inferred_ns) if takeover is not None else None,
            takeover.next_stale_ns(self._inferred_ns) if takeover is not None else None,
            self.failures.retry_ns,
        )
        return min((t for t in times if t is not None), default=None)

    async def _compare_cluster(self, now_ns: int) -> None:
        """The cluster changed: infer again if inference uses the change, else offer the last result again."""
        view, last = self._cluster.view(), self._last
        try:
            same = (
                last is not None
                and self._inference.with_labels(inputs := last.resolved.inputs, view) is inputs
            )
        except Exception:  # inference raises it too, and reports it
            same = False
        if last is None or not same or view.expected != self._expected:
            self._news = True
        elif not self._news:
            self._causes.inference_started()
            await self._decide(self._inference.offer, last, view, now_ns, str(self.failures))

    async def _infer(self) -> None:
        self._news, self._refresh_at_ns, self._held_until_ns = False, None, None
        self._causes.inference_started()
        self._inferred_ns = now_ns = self._clock_ns()
        view = self._cluster.view()
        self._count_full_states(now_ns)
        try:
            current = self._view.snapshot(now_ns)
        except Exception as error:
            self._tick_at_ns = None
            self.failures.raised(error, now_ns)
            await self._keep_last(view, now_ns)
            return
        evidence, missing = self.failures.begin(current, now_ns)
        since_ns = self.failures.since_ns(now_ns)
        try:
            async with self._turn:
                result = await self._in_thread(self._inference.run, evidence, view, now_ns, missing, since_ns)
        except Exception as error:
            await self._failed(error, current, view, now_ns)
            return
        self._expected = view.expected
        is_replaced = bool(result.lacks) or result.is_takeover
        self.failures.succeeded(current, None if is_replaced else evidence, result.lacks)
        if not result.lacks:
            self._last = result
        self.inferences += 1
        self._inferred(result.seconds)
        if result.resolved.problems != self._unread:
            for problem in result.resolved.problems:
                _log.error("evidence: %s", problem)
            self._unread = result.resolved.problems
        self._take(result.decision)
        self._held_until_ns = self._held_sweeps(result.resolved.held)
        if superseded := result.resolved.superseded:
            self._superseded({key: [row for row in evidence.sweeps if row.key == key] for key in superseded})

    def _count_full_states(self, now_ns: int) -> None:
        if (takeover := self._inference.takeover) is not None:
            for node in sorted(self._full_states):
                takeover.full_state(node, now_ns)
        self._full_states.clear()

    async def _failed(self, error: Exception, current: Snapshot, view: ClusterView, now_ns: int) -> None:
        """Inference raised: set evidence aside and infer again, or mark the last topology as stale."""
        self._tick_at_ns = None

        async def error_without(reporters: Collection[str]) -> str | None:
            def error() -> str | None:
                return self._inference.error_of(self.failures.earlier_of(reporters, current), view)

            return await self._in_thread(error)

        if await self.failures.failed(error, current, error_without, self._clock_ns):
            self._news = True
            return
        await self._keep_last(view, now_ns)

    async def _keep_last(self, view: ClusterView, now_ns: int) -> None:
        """Inference raised: offer the last topology, marked as stale."""
        published, last = self._inference.published, self._last
        if last is None and published is not None:
            last = Result(Resolved(FabricInputs()), published, {}, {})
        if last is not None:
            await self._decide(self._inference.offer, last, view, now_ns, str(self.failures))

    async def _decide(self, function: Callable[..., Decision], *args: object, waited: bool = False) -> None:
        """Let the generations decide without an inference. An exception is recorded as a failure."""
        try:
            async with self._turn:
                decision = await self._in_thread(function, *args)
        except Exception as error:
            self._tick_at_ns = None
            self.failures.raised(error, self._clock_ns())
        else:
            self._take(decision, waited=waited)

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
        if (topology := decision.publish) is not None:
            self.published_ns = self._clock_ns()
            self.generations += 1
            _log.info("generation %d", topology.generation)
            self._publish(topology, self._causes.take(self.published_ns, why, waited=waited))

    async def _in_thread(self, function: Callable[..., _T], *args: object) -> _T:
        future = self._thread.submit(function, *args)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return await asyncio.wrap_future(future)


def _is_due(at_ns: int | None, now_ns: int) -> bool:
    return at_ns is not None and at_ns <= now_ns
