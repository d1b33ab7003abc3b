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
from types import MappingProxyType

from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome
from hyperscout_formats.facts.clean_message import clean
from hyperscout_formats.text.clean_text import cleaned
from hyperscout_runtime.errors import failure_level
from hyperscout_runtime.units import NS

from hyperscout_agent.findings.probe import Observation, Probe, ProbeError, Sample, failed, payload_field
from hyperscout_agent.findings.store import FindingStore, StoreFull
from hyperscout_agent.runtime.tasks import Wait, wait
from hyperscout_agent.runtime.threads import BlockedError

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
_MAX_LOGGED = 20
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
    triggered: asyncio.Event
    stats: ProbeStats = field(default_factory=ProbeStats)
    interval_s: float | None = None  # the collector's interval, which replaces the probe's own
    run: asyncio.Task[Observation] | None = None
    logged: tuple[int, str] | None = None  # level and text of the last logged problem; None = it works


class Scheduler:
    """Runs probes and stores their findings.

    `triggers`: events that make a probe run now, or as soon as the minimum gap between runs allows, by the
    probe's name. `stats`: by the probe's name. `clock`: monotonic seconds. `wall_ns`: nanoseconds since 1970,
    for the findings' time stamps.
    """

    def __init__(
        self,
        probes: Iterable[Probe],
        store: FindingStore,
        *,
        rng: Random,
        triggers: Mapping[str, asyncio.Event] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
        wait: Wait = wait,
    ) -> None:
        self._runners = {
            probe.name: _Runner(probe, triggers.get(probe.name) or asyncio.Event()) for probe in probes
        }
        self.stats: Mapping[str, ProbeStats] = {name: one.stats for name, one in self._runners.items()}
        self._store = store
        self._rng = rng
        self._clock = clock
        self._started_s = clock()
        self._wall_ns = wall_ns
        self._wait = wait

    def set_intervals(self, interval_s_by_probe: Mapping[str, float]) -> None:
        """Set the collector's intervals for the named probes. Unknown names and invalid values are logged."""
        low_s, high_s = _INTERVAL_S
        for name, interval_s in interval_s_by_probe.items():
            runner = self._runners.get(name)
            if runner is None or not math.isfinite(interval_s) or interval_s <= 0:
                _log.warning("ignored the collector's interval for probe %r: %s s", name, interval_s)
                continue
            runner.interval_s = min(max(interval_s, low_s), high_s)
            runner.triggered.set()

    async def run(self) -> None:
        """Run all probes until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, runner in self._runners.items():
                group.create_task(self._keep_running(runner), name=f"probe-{name}")

    async def _keep_running(self, runner: _Runner) -> None:
        while True:
            interval_s = self._interval_s(runner)
            if interval_s is None:
                await self._wait(runner.triggered, None)
                runner.triggered.clear()
                if self._interval_s(runner) is None:
                    continue
            runner.triggered.clear()
            started_s = self._clock()
            await self._run(runner)
            await self._wait(asyncio.Event(), max(0.0, started_s + _MIN_GAP_S - self._clock()))
            interval_s = self._interval_s(runner)
            if interval_s is not None:
                spread_s = interval_s * self._rng.uniform(1 - _JITTER, 1 + _JITTER)
                await self._wait(runner.triggered, max(0.0, started_s + spread_s - self._clock()))

    @staticmethod
    def _interval_s(runner: _Runner) -> float | None:
        own_s = runner.probe.interval_s
        return own_s if own_s is None or runner.interval_s is None else runner.interval_s

    async def _run(self, runner: _Runner) -> None:
        """Run the probe once under its time limit and record the result. Raises only CancelledError."""
        if runner.run is not None and not runner.run.done():
            self._trouble(runner, "its last run still hangs and ignores its cancellation: not started again")
            return
        runner.stats.left_behind = False
        started_s = self._clock()
        ended = asyncio.Event()
        run = runner.run = asyncio.create_task(runner.probe.observe(), name=f"probe-run-{runner.probe.name}")

        def note_end(task: asyncio.Task[Observation]) -> None:
            ended.set()
            if not task.cancelled():
                task.exception()  # retrieve the exception, or asyncio logs a warning for a run left behind

        run.add_done_callback(note_end)
        try:
            await self._wait(ended, runner.probe.timeout_s)
            in_time = run.done()
            if not in_time:
                run.cancel()
                await self._wait(ended, _GRACE_S)
        except asyncio.CancelledError:
            run.cancel()
            raise
        runner.stats.runs += 1
        runner.stats.duration_s = self._clock() - started_s
        runner.stats.all_s += runner.stats.duration_s
        if not in_time:
            reason = f"did not end in {runner.probe.timeout_s:g} s"
            if not run.done():
                runner.stats.left_behind = True
                reason += " and ignores its cancellation"
            self._trouble(runner, reason)
        elif run.cancelled():
            self._trouble(runner, "cancelled itself")
        elif (error := run.exception()) is None:
            self._record(runner, run.result())
        elif isinstance(error, ProbeError | BlockedError):
            self._trouble(runner, str(error))
        else:
            self._trouble(runner, f"crashed: {type(error).__name__}: {error}", error)

    def _record(self, runner: _Runner, observation: Observation) -> None:
        probe = runner.probe
        troubles = [observation.trouble] if observation.trouble else []
        failures = []
        try:
            for bulk in observation.bulks:
                self._store.put_bulk(bulk)
        except StoreFull as full:
            self._trouble(runner, str(full))
            return
        subjects = sorted(observation.samples)
        if len(subjects) > probe.max_findings:
            troubles.append(f"{len(subjects)} findings: only the first {probe.max_findings} were kept")
            subjects = subjects[: probe.max_findings]
        for subject in subjects:
            sample = observation.samples[subject]
            try:
                self._put(probe.name, subject, sample)
            except (StoreFull, ValueError) as error:
                troubles.append(str(error))
            else:
                if sample.outcome == Outcome.OUTCOME_FAILED:
                    failures.append(f"{subject}: {sample.reason}")
        if observation.complete and len(subjects) == len(observation.samples):
            for subject in self._store.subjects(probe.name) - observation.samples.keys() - {_PROBE_ITSELF}:
                self._remove(probe.name, subject)
        if len(failures) > _MAX_LOGGED:
            failures[_MAX_LOGGED:] = [f"and {len(failures) - _MAX_LOGGED} more"]
        if troubles:
            self._trouble(runner, "; ".join(troubles + failures))
            return
        self._remove(probe.name, _PROBE_ITSELF)
        if failures:
            self._fault(runner, "; ".join(failures))
            return
        if runner.logged:
            _log.info("probe %s: works again", probe.name)
            runner.logged = None
        runner.stats.empty += all(x.outcome != Outcome.OUTCOME_DATA for x in observation.samples.values())
        runner.stats.success = True
        runner.stats.last_success_s = self._wall_ns() / NS

    def _fault(self, runner: _Runner, reason: str, error: BaseException | None = None) -> None:
        """Count an incomplete run, and log it when the reason is new.

        Shortly after the start it is no warning: neighbours and other containers are not there yet.
        """
        reason = cleaned(reason)
        runner.stats.success = False
        runner.stats.failures += 1
        level = failure_level(self._clock() - self._started_s, is_expected=error is None)
        if runner.logged != (level, reason):
            runner.logged = level, reason
            _log.log(level, "probe %s: %s", runner.probe.name, reason, exc_info=error)

    def _trouble(self, runner: _Runner, reason: str, error: BaseException | None = None) -> None:
        """Count and log a failure of the whole probe, and store it as a finding."""
        self._fault(runner, reason, error)
        try:
            self._put(runner.probe.name, _PROBE_ITSELF, failed(reason))
        except StoreFull as full:
            _log.warning("probe %s: %s", runner.probe.name, full)

    def _remove(self, probe: str, subject: str) -> None:
        self._store.remove(FindingKey(node=self._store.node, probe=probe, subject=subject))

    def _put(self, probe: str, subject: str, sample: Sample) -> None:
        finding = Finding(
            key=FindingKey(node=self._store.node, probe=probe, subject=subject),
            outcome=sample.outcome,
            reason=_shortened(sample.reason),
        )
        finding.observed_at.FromNanoseconds(self._wall_ns())
        if sample.payload is not None:
            getattr(finding, payload_field(sample.payload)).CopyFrom(sample.payload)
        clean(finding)
        self._store.put(finding)


def _shortened(reason: str) -> str:
    """Cut a reason to at most 1 KiB of UTF-8, at a character boundary."""
    encoded = reason.encode(errors="replace")
    if len(encoded) <= _MAX_REASON_BYTES:
        return encoded.decode()
    return encoded[: _MAX_REASON_BYTES - 3].decode(errors="ignore") + "…"
