"""Runs a load test: starts the processes, changes links, and measures."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hyperscout_runtime.credentials import Credentials
from hyperscout_sim.fabric.shapes import cluster

from hyperscout_cli.demo.demo import beside
from hyperscout_cli.demo.demo_collector import RunningCollector, running_collector
from hyperscout_cli.loadtest.certificates import CERT, KEY, client_credentials, make_authority
from hyperscout_cli.loadtest.child import Child, child, cpu_s, rss_mib
from hyperscout_cli.loadtest.figures import Changes, Memory, Report, States
from hyperscout_cli.loadtest.link_schedule import LinkSchedule
from hyperscout_cli.loadtest.progress import Progress
from hyperscout_cli.loadtest.settings import RAILS, LoadTestSettings, rest_s
from hyperscout_cli.loadtest.watcher import Port, links_by_port, watch

_QUIET_S = 2.0  # without a new generation, before links change
SEEN_S = 60.0  # after the last change
_CHECK_EVERY_S = 0.1
_LOOPBACK = "127.0.0.1"
_NOT_MEASURED = 0  # number of such a change

Watcher = Callable[[str, Credentials, Mapping[Port, int], Progress], Coroutine[Any, Any, None]]
Usage = tuple[float | None, float]  # processor time of the collector (None = elsewhere) and of the agents


@dataclass(frozen=True, slots=True)
class Target:
    """Running collectors that share their agents. The watcher is at the first one.

    `credentials`: of all agents and the watcher. `authority`: a folder with an authority (`make_authority`)
    that issues a certificate to each of them, in place of the credentials.
    """

    addresses: Sequence[str]
    credentials: Credentials = field(default_factory=Credentials)
    authority: Path | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """The running processes. `collector_pid` None: existing collectors."""

    settings: LoadTestSettings
    progress: Progress
    agents: Sequence[Child]
    collector_pid: int | None = None

    def send(self, **command: object) -> None:
        """Send a command to all processes of agents."""
        self.progress.commands += 1
        for one in self.agents:
            one.send(**command)

    def usage(self, before: Usage = (0.0, 0.0)) -> Usage:
        """What the processes have used, since `before` or since they started."""
        collector_s = None if self.collector_pid is None else cpu_s(self.collector_pid) - (before[0] or 0.0)
        return collector_s, sum(cpu_s(one.pid) for one in self.agents) - before[1]

    async def until(self, expected: str, holds: Callable[[], bool]) -> None:
        """Wait until `holds`. Raises LoadTestError."""
        await self.progress.until(expected, holds, self.settings.timeout_s)


async def run(
    settings: LoadTestSettings,
    folder: Path,
    say: Callable[[str], None],
    given: Target | None = None,
    *,
    flags: Mapping[str, str] = MappingProxyType({}),
    watcher: Watcher = watch,
) -> Report:
    """Run a load test with its files in an empty `folder`. `given`: use these collectors, and start none.

    `flags`: of a collector that is started. `watcher`: reports what is published to the given `Progress`.

    Raises LoadTestError, and DemoError of a collector that does not start.
    """
    tls = given is None and settings.tls
    if tls:
        make_authority(folder)
    async with AsyncExitStack() as stack:
        own: RunningCollector | None = None
        empty = 0.0
        collector = await stack.enter_async_context(AsyncExitStack())
        if given is None:
            say("starting a collector ...")
            own = await collector.enter_async_context(_collector(folder, tls, flags))
            empty = rss_mib(own.pid)
            given = Target([own.address], authority=folder if tls else None)
        load = await stack.enter_async_context(simulated(settings, say, given, watcher))
        progress = load.progress
        if own is not None:
            own.ended.add_done_callback(progress.collector_ended)
            load = replace(load, collector_pid=own.pid)
        states = await start(load)
        changes = await _changes(load, say) if settings.changes else None
        with_agents = rss_mib(own.pid) if own is not None else 0.0
        say("changing all findings ...")
        updates = await _states(load, "renew")
        memory = Memory(empty, with_agents, rss_mib(own.pid, "VmHWM")) if own is not None else None
        restart = None
        if own is not None and settings.restart:
            say("restarting the collector ...")
            own.ended.remove_done_callback(progress.collector_ended)
            await collector.aclose()
            again = await stack.enter_async_context(_collector(folder, tls, flags, own.address))
            again.ended.add_done_callback(progress.collector_ended)
            restart = await _states(replace(load, collector_pid=again.pid), "reconnect")
        return Report(settings, states, changes, updates, memory, restart)


@asynccontextmanager
async def simulated(
    settings: LoadTestSettings, say: Callable[[str], None], target: Target, watcher: Watcher = watch
) -> AsyncIterator[Load]:
    """Processes of agents, which connect when they `start`, and a watcher. Raises LoadTestError."""
    progress = Progress(settings.agents, settings.processes, say)
    credentials = target.credentials
    access: dict[str, Any] = {"given": asdict(credentials)}
    if target.authority is not None:
        access = {"folder": target.authority}
        credentials = client_credentials(target.authority, "reader/loadtest")
    job = {"agents": settings.agents, "targets": list(target.addresses), **access}
    async with AsyncExitStack() as stack:
        agents = []
        for part in range(settings.processes):
            receive = partial(progress.of_agents, part)
            agents.append(await stack.enter_async_context(child(receive, progress.fail)))
            share = {"part": part, "parts": settings.processes}
            agents[part].send(**job, **share, refresh_interval_s=settings.refresh_interval_s)
        links = links_by_port(cluster(settings.agents))  # meanwhile the agents' processes do the same
        await stack.enter_async_context(beside(watcher(target.addresses[0], credentials, links, progress)))
        load = Load(settings, progress, agents)
        await load.until("the processes of the agents are ready", lambda: progress.ready)
        yield load


def _collector(
    folder: Path, tls: bool, flags: Mapping[str, str], listen: str = f"{_LOOPBACK}:0"
) -> AbstractAsyncContextManager[RunningCollector]:
    """A collector with the default settings but for `flags`, on a loopback port."""
    settings = {"http-listen": "", "rest-listen": "", "listen": listen, **flags}
    if tls:
        settings |= {
            "listen": "",
            "mtls-listen": listen,
            "tls-issuer-cert": str(folder / CERT),
            "tls-issuer-key": str(folder / KEY),
            "tls-names": _LOOPBACK,
            "tls-cert": str(folder / "collector.crt"),
            "tls-key": str(folder / "collector.key"),
            "tls-client-ca": str(folder / CERT),
        }
    return running_collector(folder / "data", settings)


async def start(load: Load) -> States:
    """Start the agents, and measure until their states are stored and all nodes are published."""
    settings, progress = load.settings, load.progress
    began_ns = time.monotonic_ns()
    states = await _states(load, "start")
    await load.until(f"{settings.agents} nodes are published", lambda: bool(progress.complete_ns))
    await progress.quiet(_QUIET_S, settings.timeout_s)
    return replace(states, published_s=(progress.complete_ns - began_ns) / 1e9)


async def _states(load: Load, command: str) -> States:
    """Send a command to the agents, and measure until the collector has stored all findings."""
    settings, progress = load.settings, load.progress
    before, began_ns = load.usage(), time.monotonic_ns()
    load.send(**{command: True})
    expected = f"{settings.agents} agents are connected and all their findings are acknowledged"
    await load.until(expected, lambda: progress.settled)
    took_s = (progress.settled_ns - began_ns) / 1e9
    return States(progress.findings, took_s, None, *load.usage(before))


async def _changes(load: Load, say: Callable[[str], None]) -> Changes:
    """Change links at even distances, and wait until the watcher has seen all of it."""
    settings, progress = load.settings, load.progress
    last = settings.agents * RAILS - 1
    schedule = LinkSchedule(last)
    # Until an agent has been connected for an interval, it may report less than it does later.
    steady_s = time.monotonic() + settings.refresh_interval_s
    await first_change(load, last)
    rest_load = await _rest_load(load, steady_s, say)
    every_s = 60 / settings.changes_per_minute
    say(f"changing {settings.changes} links, one each {every_s:g} s ...")
    before = load.usage()
    began_s = due_s = said_s = time.monotonic()
    while progress.changes < settings.changes:
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        progress.check()
        now_s = time.monotonic()
        change = schedule.next(now_s)
        if change is None:
            due_s = now_s + _CHECK_EVERY_S
            continue
        load.send(link=change.link, down=change.down, change=progress.begin(change))
        due_s = max(due_s + every_s, now_s)
        if now_s - said_s > 5:
            said_s = now_s
            made, unseen = progress.changes, len(progress.pending)
            say(f"{made} of {settings.changes} changes are made, {unseen} are not seen yet")
    await asyncio.sleep(max(0.0, due_s - time.monotonic()))  # the interval of the last change
    took_s = time.monotonic() - began_s
    collector_s, agents_s = load.usage(before)
    give_up_s = time.monotonic() + SEEN_S
    while len(progress.latencies_s) < settings.changes and time.monotonic() < give_up_s:
        await asyncio.sleep(_CHECK_EVERY_S)
        progress.check()
    return Changes(
        settings.changes,
        took_s,
        tuple(progress.latencies_s.values()),
        rest_load,
        None if collector_s is None else collector_s / took_s,
        agents_s / took_s,
    )


async def _rest_load(load: Load, steady_s: float, say: Callable[[str], None]) -> float | None:
    """Measure the collector without changes, from a time: the processor cores that it uses.

    None = it is elsewhere.
    """
    if load.collector_pid is None:
        return None
    wait_s = max(0.0, steady_s - time.monotonic())
    say(f"waiting {wait_s:.0f} s, until all agents have been connected for one interval ...")
    await idle(load, steady_s)
    say(f"measuring the collector at rest for {rest_s(load.settings):g} s ...")
    before, began_s = cpu_s(load.collector_pid), time.monotonic()
    await idle(load, began_s + rest_s(load.settings))
    return (cpu_s(load.collector_pid) - before) / (time.monotonic() - began_s)


async def idle(load: Load, until_s: float) -> None:
    """Wait until a time, monotonic. Raises LoadTestError if a process fails."""
    while (left_s := until_s - time.monotonic()) > 0:
        await asyncio.sleep(min(_CHECK_EVERY_S, left_s))
        load.progress.check()


async def first_change(load: Load, link: int) -> None:
    """Cut a link that stays down. It is not measured.

    The collector publishes new cables up to 30 s later, or with any other change. A link that was not
    published before would not be reported as missing.
    """
    progress = load.progress
    before_ns = progress.published_ns
    load.send(link=link, down=True, change=_NOT_MEASURED)
    await load.until("a change is published", lambda: progress.published_ns > before_ns)
    await progress.quiet(_QUIET_S, load.settings.timeout_s)
