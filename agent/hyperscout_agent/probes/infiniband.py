"""Reads the ports of this host's RDMA devices from sysfs, which is cheap enough for every second.

Counters are read once a minute, and when a port changed (a link counts errors while it trains).
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hyperscout_formats.facts.wire import infiniband_to_proto
from hyperscout_formats.infiniband.sysfs import parse
from hyperscout_formats.text.errors import Problem

from hyperscout_agent.findings.probe import Observation, ProbeContext, ProbeParts, Scope, data, failed
from hyperscout_agent.runtime.infiniband_tree import read_counters, read_tree
from hyperscout_agent.runtime.threads import in_thread

_log = logging.getLogger(__name__)

# Seconds between two reads of the counters.
_COUNTERS_EVERY_S = 60.0


def build(context: ProbeContext) -> ProbeParts | None:
    settings = context.settings.infiniband
    if not settings.enabled:
        return None
    return ProbeParts(InfinibandProbe(root=settings.root))


class InfinibandProbe:
    """Reads RDMA ports. Subjects are, for example, "mlx5_0/1". A host without RDMA devices is no failure."""

    name = "infiniband"
    scope: Scope = "node"
    timeout_s = 10.0
    max_findings = 256

    def __init__(
        self,
        *,
        root: Path = Path("/sys/class/infiniband"),
        interval_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.interval_s: float | None = interval_s
        self._root = root
        self._clock = clock
        self._clock_ns = clock_ns
        self._active_since_ns: dict[str, int] = {}  # by subject
        self._counted: dict[str, bytes] = {}
        self._counted_at_s: float | None = None
        self._tree: dict[str, bytes] = {}
        self._observation = Observation()
        self._problems: tuple[Problem, ...] = ()

    async def observe(self) -> Observation:
        tree = await in_thread(lambda: read_tree(self._root), "infiniband-sysfs")
        now_s = self._clock()
        changed = tree != self._tree  # when nothing changed, comparing bytes is the only work
        if changed or self._counted_at_s is None or now_s - self._counted_at_s >= _COUNTERS_EVERY_S:
            before, self._counted_at_s = self._counted, now_s
            self._counted = await in_thread(lambda: read_counters(self._root), "infiniband-counters")
            if changed or self._counted != before:
                self._take(tree)
        return self._observation

    def _take(self, tree: dict[str, bytes]) -> None:
        ports, problems = parse(tree | self._counted, str(self._root))
        if problems != self._problems:
            for problem in problems:
                _log.warning("%s", problem)
        self._tree, self._problems = tree, problems
        before, now_ns = self._active_since_ns, self._clock_ns()
        self._active_since_ns = dict(before) if problems else {}  # of ports that cannot be read
        samples = {}
        for port in ports:
            subject = f"{port.device}/{port.port}"
            since_ns = (before.get(subject) or now_ns) if port.state == "ACTIVE" else 0
            self._active_since_ns[subject] = since_ns
            samples[subject] = data(infiniband_to_proto(replace(port, active_since_ns=since_ns)))
        for path in tree:
            match path.split("/"):
                case [device, "ports", number, *_] if f"{device}/{number}" not in samples:
                    samples[f"{device}/{number}"] = failed(_why(problems, device))
        self._observation = Observation(samples, complete=not problems)


def _why(problems: tuple[Problem, ...], device: str) -> str:
    """Return the reader's problem with a device, or a general text."""
    return next(
        (str(one) for one in problems if device in one.reason or device in one.source), "cannot be read"
    )
