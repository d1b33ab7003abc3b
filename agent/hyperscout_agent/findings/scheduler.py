"""Runs each probe at its own interval and isolates the failures of one probe from the others.

When a probe fails, crashes, hangs or returns too many findings, the scheduler stores a failed finding
(subject "*") with the reason. Earlier findings of the probe stay. A probe that ignores cancellation is
left behind and does not run again while it hangs.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

from hyperscout.v1.finding_pb2 import (
    Finding,
    FindingKey,
    Gpu,
    InfinibandPort,
    LatencyPort,
    LldpPort,
    NcclRun,
    Outcome,
    Sweep,
    SwitchPort,
    SwitchTable,
)

from hyperscout_agent.findings.probe import Observation, Payload, Probe, ProbeError, Sight, failed
from hyperscout_agent.findings.store import FindingStore, StoreFull
from hyperscout_agent.runtime.waiting import Wait, wait

_log = logging.getLogger(__name__)

# Intervals vary by a tenth either way, so that agents started together do not run probes together.
_JITTER = 0.1
# A probe runs at most five times a second, however often it is triggered (for example by a flapping link).
_MIN_GAP_S = 0.2
# Time for a cancelled probe to clean up before it is left behind.
_GRACE_S = 2.0
_MAX_REASON_BYTES = 1024
_INTERVAL_S = (_MIN_GAP_S, 86_400.0)
# Maximum number of failed subjects in one log line.
_MAX_TOLD = 20
# Subject of the finding for failures of a whole probe. It does not replace findings of real subjects.
_PROBE_ITSELF = "*"


@dataclass(slots=True)
class ProbeStats:
    """Statistics of one probe. Times are in seconds.

    `last_success_s`: Unix time of the last successful run, NaN before the first.
    """

    success: bool | None = None  # result of the last run; None = no run has ended yet
    duration_s: float = math.nan
    all_s: float = 0.0  # total duration of all runs
    last_success_s: float = math.nan
    runs: int = 0
    failures: int = 0
    empty: int = 0  # successful runs without data
    left_behind: bool = False  # the probe hangs and ignores cancellation


@dataclass(slots=True)
class _Runner:
    probe: Probe
    stats: ProbeStats = field(default_factory=ProbeStats)
    triggered: asyncio.Event = field(default_factory=asyncio.Event)
    interval_s: float | None = None  # the collector's interval, which replaces the probe's own
    look: asyncio.Task[Observation] | None = None
    trouble: str = ""  # the last logged problem


class Scheduler:
    """Runs probes and stores their findings.

    `clock`: monotonic seconds. `wall_ns`: nanoseconds since 1970, for the findings' time stamps.
    """

    def __init__(
        self,
        probes: Iterable[Probe],
        store: FindingStore,
        *,
        rng: Random,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
        wait: Wait = wait,
    ) -> None:
        self._runners = {probe.name: _Runner(probe) for probe in probes}
        self._store = store
        self._rng = rng
        self._clock = clock
        self._wall_ns = wall_ns
        self._wait = wait

    @property
    def stats(self) -> Mapping[str, ProbeStats]:
        return {name: runner.stats for name, runner in self._runners.items()}

    def trigger(self, name: str) -> None:
        """Run a probe now, or as soon as the minimum gap between runs allows."""
        self._runners[name].triggered.set()

    def set_intervals(self, interval_s_by_probe: Mapping[str, float]) -> None:
        """Set the collector's intervals for the named probes. Unknown names and invalid values are logged."""
        low_s, high_s = _INTERVAL_S
        for name, interval_s in interval_s_by_probe.items():
            runner = self._runners.get(name)
            if runner is None or not math.isfinite(interval_s) or interval_s <= 0:
                _log.warning("the collector's interval for %r is of no use here: %s s", name, interval_s)
                continue
            runner.interval_s = min(max(interval_s, low_s), high_s)
            runner.triggered.set()

    async def run(self) -> None:
        """Run all probes until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, runner in self._runners.items():
                group.create_task(self._keep_looking(runner), name=f"probe-{name}")

    async def _keep_looking(self, runner: _Runner) -> None:
        while True:
            interval_s = self._interval_s(runner)
            if interval_s is None:
                await self._wait(runner.triggered, None)
                runner.triggered.clear()
                if self._interval_s(runner) is None:
                    continue
            runner.triggered.clear()
            started_s = self._clock()
            await self._look(runner)
            await self._wait(asyncio.Event(), max(0.0, started_s + _MIN_GAP_S - self._clock()))
            interval_s = self._interval_s(runner)
            if interval_s is not None:
                spread_s = interval_s * self._rng.uniform(1 - _JITTER, 1 + _JITTER)
                await self._wait(runner.triggered, max(0.0, started_s + spread_s - self._clock()))

    @staticmethod
    def _interval_s(runner: _Runner) -> float | None:
        own_s = runner.probe.interval_s
        return own_s if own_s is None or runner.interval_s is None else runner.interval_s

    async def _look(self, runner: _Runner) -> None:
        """Run the probe once under its time limit and record the result. Raises only CancelledError."""
        if runner.look is not None and not runner.look.done():
            self._trouble(runner, "still hangs, and ignores that it was cancelled: not started again")
            return
        runner.stats.left_behind = False
        started_s = self._clock()
        ended = asyncio.Event()
        look = runner.look = asyncio.create_task(runner.probe.observe(), name=f"look-{runner.probe.name}")

        def note_end(task: asyncio.Task[Observation]) -> None:
            ended.set()
            if not task.cancelled():
                task.exception()  # retrieve the exception, or asyncio logs a warning for a run left behind

        look.add_done_callback(note_end)
        try:
            await self._wait(ended, runner.probe.timeout_s)
            in_time = look.done()
            if not in_time:
                look.cancel()
                await self._wait(ended, _GRACE_S)
        except asyncio.CancelledError:
            look.cancel()
            raise
        runner.stats.runs += 1
        runner.stats.duration_s = self._clock() - started_s
        runner.stats.all_s += runner.stats.duration_s
        if not in_time:
            reason = f"no answer in {runner.probe.timeout_s:g} s"
            if not look.done():
                runner.stats.left_behind = True
                reason += ", and it ignores that it was cancelled"
            self._trouble(runner, reason)
        elif look.cancelled():
            self._trouble(runner, "it cancelled itself")
        elif (error := look.exception()) is None:
            self._record(runner, look.result())
        elif isinstance(error, ProbeError):
            self._trouble(runner, str(error))
        else:
            self._trouble(runner, f"crashed: {type(error).__name__}: {error}", error)

    def _record(self, runner: _Runner, observation: Observation) -> None:
        probe = runner.probe
        troubles = [observation.trouble] if observation.trouble else []
        unseen = []
        try:
            for bulk in observation.bulks:
                self._store.put_compressed(bulk)
        except StoreFull as full:
            self._trouble(runner, str(full))
            return
        subjects = sorted(observation.sights)
        if len(subjects) > probe.max_findings:
            troubles.append(
                f"{len(subjects)} findings, more than its {probe.max_findings}: the rest was dropped"
            )
            subjects = subjects[: probe.max_findings]
        for subject in subjects:
            sight = observation.sights[subject]
            try:
                self._put(probe.name, subject, sight)
            except (StoreFull, ValueError) as error:
                troubles.append(str(error))
            else:
                if sight.outcome == Outcome.OUTCOME_FAILED:
                    unseen.append(f"{subject}: {sight.reason}")
        if observation.complete and len(subjects) == len(observation.sights):
            for subject in self._store.subjects(probe.name) - observation.sights.keys() - {_PROBE_ITSELF}:
                self._remove(probe.name, subject)
        if len(unseen) > _MAX_TOLD:
            unseen[_MAX_TOLD:] = [f"and {len(unseen) - _MAX_TOLD} more"]
        if troubles:
            self._trouble(runner, "; ".join(troubles + unseen))
            return
        self._remove(probe.name, _PROBE_ITSELF)
        if unseen:
            self._fault(runner, "; ".join(unseen))
            return
        if runner.trouble:
            _log.info("probe %s: well again", probe.name)
            runner.trouble = ""
        runner.stats.empty += all(x.outcome != Outcome.OUTCOME_DATA for x in observation.sights.values())
        runner.stats.success = True
        runner.stats.last_success_s = self._wall_ns() / 1e9

    def _fault(self, runner: _Runner, reason: str, error: BaseException | None = None) -> None:
        """Count an incomplete run, and log it when the reason is new."""
        runner.stats.success = False
        runner.stats.failures += 1
        if reason != runner.trouble:
            runner.trouble = reason
            _log.warning("probe %s: %s", runner.probe.name, reason, exc_info=error)

    def _trouble(self, runner: _Runner, reason: str, error: BaseException | None = None) -> None:
        """Count and log a failure of the whole probe, and store it as a finding."""
        self._fault(runner, reason, error)
        try:
            self._put(runner.probe.name, _PROBE_ITSELF, failed(reason))
        except StoreFull as full:
            _log.warning("probe %s: %s", runner.probe.name, full)

    def _remove(self, probe: str, subject: str) -> None:
        self._store.remove(FindingKey(node=self._store.node, probe=probe, subject=subject))

    def _put(self, probe: str, subject: str, sight: Sight) -> None:
        finding = Finding(
            key=FindingKey(node=self._store.node, probe=probe, subject=subject),
            outcome=sight.outcome,
            reason=_shortened(sight.reason),
        )
        finding.observed_at.FromNanoseconds(self._wall_ns())
        if sight.payload is not None:
            getattr(finding, _FIELD_OF[type(sight.payload)]).CopyFrom(sight.payload)
        self._store.put(finding)


_FIELD_OF: Mapping[type[Payload], str] = {
    LldpPort: "lldp",
    InfinibandPort: "infiniband",
    Sweep: "sweep",
    Gpu: "gpu",
    LatencyPort: "latency",
    NcclRun: "nccl",
    SwitchPort: "switch_port",
    SwitchTable: "switch_table",
}


def _shortened(reason: str) -> str:
    """Cut a reason to at most 1 KiB of UTF-8, at a character boundary."""
    encoded = reason.encode(errors="replace")
    if len(encoded) <= _MAX_REASON_BYTES:
        return encoded.decode()
    return encoded[: _MAX_REASON_BYTES - 3].decode(errors="ignore") + "…"
