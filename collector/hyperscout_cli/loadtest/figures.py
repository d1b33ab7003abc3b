"""The figures of a load test, as a table and as the object of `-o json`. Pure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hyperscout_cli.loadtest.settings import LoadTestSettings
from hyperscout_cli.shared.tables import Row, Table

PERCENTILES = (50, 90, 99)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` percent of the values do not exceed (nearest rank).

    None without values.
    """
    if not values:
        return None
    return sorted(values)[max(1, math.ceil(share / 100 * len(values))) - 1]


@dataclass(frozen=True, slots=True)
class States:
    """All findings of all agents: at their start, after each changed, or after a restart of the collector.

    `acknowledged_s`: until the collector has stored all findings. `published_s`: until the watcher sees all
    nodes; None = not measured. `collector_cpu_s`: None = the collector is not on this machine.
    """

    findings: int
    acknowledged_s: float
    published_s: float | None
    collector_cpu_s: float | None
    agents_cpu_s: float

    @property
    def cpu_us(self) -> float | None:
        """Processor time of the collector for each finding."""
        return None if self.collector_cpu_s is None else self.collector_cpu_s / self.findings * 1e6


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of single links. `latencies_s`: of those that the watcher saw. Loads are in processor cores.

    `rest_load`: of the collector before the changes, while agents only reported the same again.
    """

    made: int
    took_s: float
    latencies_s: tuple[float, ...]
    rest_load: float | None
    collector_load: float | None
    agents_load: float

    @property
    def cpu_ms(self) -> float | None:
        """Processor time of the collector for each change: what it used more than at rest."""
        if self.collector_load is None or self.rest_load is None:
            return None
        return (self.collector_load - self.rest_load) * self.took_s / self.made * 1000


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of the collector in MiB.

    `with_agents`: with all of them, after the changes of links if there are any.
    """

    empty: float
    with_agents: float
    peak: float


@dataclass(frozen=True, slots=True)
class Report:
    """All figures. None = not measured."""

    settings: LoadTestSettings
    states: States
    changes: Changes | None
    updates: States
    memory: Memory | None
    restart: States | None

    @property
    def unseen(self) -> int:
        """Number of changes that the watcher did not see."""
        return 0 if self.changes is None else self.changes.made - len(self.changes.latencies_s)

    def data(self) -> dict[str, Any]:
        """The object of `-o json`."""
        settings = self.settings
        return {
            "agents": settings.agents,
            "processes": settings.processes,
            "tls": settings.tls,
            "states": _states(self.states),
            "changes": None if self.changes is None else _changes(self.changes),
            "updates": _states(self.updates),
            "memoryMib": None
            if self.memory is None
            else {
                "empty": round(self.memory.empty, 1),
                "withAgents": round(self.memory.with_agents, 1),
                "peak": round(self.memory.peak, 1),
            },
            "restart": None if self.restart is None else _states(self.restart),
        }

    def table(self) -> Table:
        """The same as rows."""
        rows = tuple(Row(what, (what, value)) for what, value in self._rows())
        return Table("figure", ("WHAT", "MEASURED"), (), rows)

    def _rows(self) -> Iterator[tuple[str, str]]:
        settings = self.settings
        yield (
            "agents",
            f"{settings.agents} in {settings.processes} processes, {'TLS' if settings.tls else 'plaintext'}",
        )
        yield from _state_rows("full states", self.states)
        if self.changes is not None:
            yield from _change_rows(self.changes)
        yield from _state_rows("all findings change", self.updates)
        if self.memory is not None:
            memory = self.memory
            yield "memory of the collector, empty", f"{memory.empty:.0f} MiB"
            yield "memory of the collector, with all agents", f"{memory.with_agents:.0f} MiB"
            yield "memory of the collector, peak", f"{memory.peak:.0f} MiB"
        if self.restart is not None:
            yield from _state_rows("after a restart", self.restart)


def _states(states: States) -> dict[str, Any]:
    return {
        "findings": states.findings,
        "acknowledgedS": _rounded(states.acknowledged_s),
        "publishedS": _rounded(states.published_s),
        "collectorCpuS": _rounded(states.collector_cpu_s),
        "collectorCpuPerFindingUs": _rounded(states.cpu_us),
        "agentsCpuS": _rounded(states.agents_cpu_s),
    }


def _changes(changes: Changes) -> dict[str, Any]:
    values = changes.latencies_s
    spread = {f"p{share}": _rounded(percentile(values, share)) for share in PERCENTILES}
    return {
        "made": changes.made,
        "seen": len(values),
        "tookS": _rounded(changes.took_s),
        "changeToWatcherS": {**spread, "max": _rounded(max(values, default=None))},
        "collectorLoadAtRest": _rounded(changes.rest_load),
        "collectorLoad": _rounded(changes.collector_load),
        "collectorCpuPerChangeMs": _rounded(changes.cpu_ms),
        "agentsLoad": _rounded(changes.agents_load),
    }


def _state_rows(what: str, states: States) -> Iterator[tuple[str, str]]:
    yield (
        f"{what}: until {states.findings} findings are acknowledged",
        f"{states.acknowledged_s:.1f} s",
    )
    if states.published_s is not None:
        yield f"{what}: until all nodes are published", f"{states.published_s:.1f} s"
    if states.cpu_us is not None:
        yield f"{what}: processor time of the collector for each finding", f"{states.cpu_us:.0f} us"
    yield f"{what}: processor time of the agents' processes", f"{states.agents_cpu_s:.1f} s"


def _change_rows(changes: Changes) -> Iterator[tuple[str, str]]:
    values = changes.latencies_s
    yield "changes of a link: seen of those made", f"{len(values)} of {changes.made}"
    for share in PERCENTILES:
        if (value := percentile(values, share)) is not None:
            yield f"change -> watcher, p{share}", f"{value:.3f} s"
    if values:
        yield "change -> watcher, maximum", f"{max(values):.3f} s"
    if changes.rest_load is not None:
        yield "load of the collector before the changes", f"{changes.rest_load:.2f} cores"
    if changes.collector_load is not None:
        yield "load of the collector meanwhile", f"{changes.collector_load:.2f} cores"
    if changes.cpu_ms is not None:
        yield "processor time of the collector for each change", f"{changes.cpu_ms:.0f} ms"
    yield "load of the agents' processes meanwhile", f"{changes.agents_load:.2f} cores"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
