"""Builds the agent from its parts and runs it until SIGTERM or SIGINT."""

import asyncio
import contextlib
import importlib.metadata
import logging
import signal
from collections import defaultdict
from contextlib import AsyncExitStack
from random import Random

from hyperscout.v1.discovery_pb2 import Hello, Intervals
from hyperscout_formats.text.prometheus_text import CONTENT_TYPE
from hyperscout_runtime.clock import Clock
from hyperscout_runtime.connections import why_not_listening
from hyperscout_runtime.errors import StartError
from hyperscout_runtime.health_server import Answer, not_ready, serving
from hyperscout_runtime.task_watch import run_checked

from hyperscout_agent.findings.probe import ProbeContext
from hyperscout_agent.findings.scheduler import Scheduler
from hyperscout_agent.findings.store import FindingStore
from hyperscout_agent.pages.findings import findings_page
from hyperscout_agent.pages.metrics import AgentMetrics
from hyperscout_agent.probes.registry import build_probes
from hyperscout_agent.runtime.tasks import supervise
from hyperscout_agent.settings.settings import AgentSettings
from hyperscout_agent.uplink.session import Handler, Outbox
from hyperscout_agent.uplink.uplink import Uplink

_log = logging.getLogger(__name__)


class Agent:
    """All parts of one agent and their connections."""

    def __init__(self, settings: AgentSettings, rng: Random) -> None:
        """Build the parts. Raises StartError."""
        self._settings = settings
        self._rng = rng
        clock = Clock()
        self.store = FindingStore(settings.reporter, refresh_interval_s=settings.refresh_interval_s)
        outbox = Outbox(self.store.changed)
        triggers: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._parts = build_probes(
            settings, lambda name: ProbeContext(settings, triggers[name].set, outbox.put, now_ns=clock.now_ns)
        )
        probes = [parts.probe for parts in self._parts if parts.probe is not None]
        self.scheduler = Scheduler(probes, self.store, rng=rng, triggers=triggers, wall_ns=clock.now_ns)
        self.uplink = Uplink(
            settings.collectors,
            self.store,
            Hello(version=version(), probes=[probe.name for probe in probes], instance=clock.now_ns()),
            directives=self._directives(),
            outbox=outbox,
            on_end=self._stream_ended,
            wall_ns=clock.now_ns,
            rng=rng,
            channel=settings.credentials.connect,
            metadata=settings.credentials.metadata,
        )
        self.metrics = AgentMetrics(
            self.store,
            self.uplink.stats,
            self.scheduler.stats,
            version=version(),
            of_probes=[parts.metrics for parts in self._parts if parts.metrics is not None],
        )

    def _directives(self) -> dict[str, list[Handler]]:
        """Return the handlers of the collector's messages: the scheduler's and those of the probes."""

        def set_intervals(directive: Intervals) -> None:
            self.scheduler.set_intervals(directive.interval_s_by_probe)

        handlers: defaultdict[str, list[Handler]] = defaultdict(list)
        handlers["intervals"].append(set_intervals)
        for parts in self._parts:
            for kind, handler in parts.directives.items():
                handlers[kind].append(handler)
        return dict(handlers)

    def _stream_ended(self) -> None:
        """End the work that a collector requested."""
        for parts in self._parts:
            if parts.stream_ended is not None:
                parts.stream_ended()

    async def run(self, stop: asyncio.Event) -> None:
        """Run all parts until `stop` is set. Raises StartError when the metrics port cannot be opened."""
        pages = {
            "/metrics": lambda: Answer(self.metrics.text(), content_type=CONTENT_TYPE),
            "/healthz": self._health,
            "/readyz": self._ready,
            "/findings": self._findings,
        }
        metrics = self._settings.metrics
        async with AsyncExitStack() as stack:
            try:
                port = await stack.enter_async_context(serving(metrics.host, metrics.port, pages))
            except OSError as error:
                why = why_not_listening("metrics.port", metrics.host, metrics.port, error)
                raise StartError(why) from error
            _log.info("metrics at http://%s:%d/metrics", metrics.host, port)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(run_checked(name, part.run()), name=name)
                    for name, part in (("scheduler", self.scheduler), ("uplink", self.uplink))
                ]
                for parts in self._parts:
                    for name, service in parts.services.items():
                        kept = supervise(name, service, rng=self._rng, sleep=asyncio.sleep)
                        tasks.append(group.create_task(kept, name=name))
                await stop.wait()
                for task in tasks:
                    task.cancel()

    def _health(self) -> Answer:
        """Report liveness. An unreachable collector does not make the agent unhealthy."""
        return Answer(b"ok, connected\n" if self.uplink.stats.connected else b"ok, not connected\n")

    def _findings(self) -> Answer:
        stats = self.scheduler.stats
        return Answer(findings_page(self.store, stats, connected=self.uplink.stats.connected))

    def _ready(self) -> Answer:
        """Report readiness: true after the first accepted Hello, and from then on.

        Settings or a certificate that no collector accepts stop a rolling update at the first nodes. A
        collector that is unreachable later does not make the agent unready.
        """
        if not self.uplink.stats.sessions:
            return not_ready("no collector has accepted this agent yet")
        return self._health()


async def run(settings: AgentSettings) -> int:
    """Run the agent until SIGTERM or SIGINT. Returns the exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _log.info("agent %s of %s %s", version(), settings.role, settings.node)
    try:
        await Agent(settings, Random()).run(stop)  # noqa: S311 - jitter, not secrets
    except (StartError, OSError) as error:
        _log.error("%s", error)
        return 1
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    return 0


def version() -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("hyperscout")
    return "unknown"
