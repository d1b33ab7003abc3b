"""Runs a load test: starts the processes, changes links, and measures."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from hyperscout_runtime.credentials import Credentials

from hyperscout_cli.demo.demo_collector import RunningCollector, running_collector
from hyperscout_cli.loadtest.certificates import CERT, KEY, make_authority
from hyperscout_cli.loadtest.child import Child, child, cpu_s, rss_mib
from hyperscout_cli.loadtest.figures import Changes, Memory, Report, States
from hyperscout_cli.loadtest.link_schedule import LinkSchedule, Stamped, latencies
from hyperscout_cli.loadtest.progress import Progress
from hyperscout_cli.loadtest.settings import RAILS, LoadTestSettings

_QUIET_S = 2.0  # without a new generation, before links change
SEEN_S = 60.0  # after the last change
_WAIT_FOR_A_LINK_S = 0.1
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Target:
    """A collector that runs already, and the credentials of all agents for it."""

    address: str
    credentials: Credentials


@dataclass(frozen=True, slots=True)
class Load:
    """The running processes. `collector_pid` None: an existing collector."""

    settings: LoadTestSettings
    progress: Progress
    agents: Sequence[Child]
    collector_pid: int | None

    def send(self, **message: object) -> None:
        """Send a message to all processes of agents."""
        for one in self.agents:
            one.send(**message)

    def usage(self) -> "Usage":
        """What the processes have used so far."""
        collector_s = None if self.collector_pid is None else cpu_s(self.collector_pid)
        return Usage(collector_s, sum(cpu_s(one.pid) for one in self.agents))


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time of the collector (None = an existing collector) and of the agents' processes."""

    collector_s: float | None
    agents_s: float

    def until(self, later: "Usage") -> tuple[float | None, float]:
        """The time between the two."""
        agents_s = later.agents_s - self.agents_s
        if self.collector_s is None or later.collector_s is None:
            return None, agents_s
        return later.collector_s - self.collector_s, agents_s


async def run(
    settings: LoadTestSettings, folder: Path, say: Callable[[str], None], given: Target | None = None
) -> Report:
    """Run a load test with its files in an empty `folder`. `given`: use this collector, and start none.

    Raises LoadTestError, and DemoError of a collector that does not start.
    """
    progress = Progress(settings.agents, settings.processes, say)
    async with AsyncExitStack() as stack:
        tls = given is None and settings.tls
        if tls:
            make_authority(folder)
        own: RunningCollector | None = None
        empty = 0.0
        collector = stack
        if given is not None:
            address, credentials = given.address, given.credentials
        else:
            say("starting a collector ...")
            collector = await stack.enter_async_context(AsyncExitStack())
            own = await collector.enter_async_context(_collector(folder, tls))
            await collector.enter_async_context(_guarded(own.pid, progress))
            empty = rss_mib(own.pid)
            address, credentials = own.address, Credentials()
        access = {"folder": folder} if tls else {"given": asdict(credentials)}
        where: dict[str, object] = {"target": address, **access}
        await stack.enter_async_context(_watcher(settings, progress, where))
        agents = await _agents(stack, settings, progress, where)
        load = Load(settings, progress, agents, own.pid if own is not None else None)
        states = await _start(load)
        with_agents = rss_mib(own.pid) if own is not None else 0.0
        changes = await _changes(load, say) if settings.changes else None
        say("changing all findings ...")
        updates = await _states(load, lambda: _renew(load))
        memory = Memory(empty, with_agents, rss_mib(own.pid, "VmHWM")) if own is not None else None
        restart = None
        if own is not None and settings.restart:
            say("restarting the collector ...")
            await collector.aclose()
            again = await stack.enter_async_context(_collector(folder, tls, address))
            await stack.enter_async_context(_guarded(again.pid, progress))
            restart = await _states(replace(load, collector_pid=again.pid), _nothing)
        return Report(settings, states, changes, updates, memory, restart)


def _collector(
    folder: Path, tls: bool, listen: str = f"{_LOOPBACK}:0"
) -> AbstractAsyncContextManager[RunningCollector]:
    """A collector with the default settings, on a loopback port."""
    settings = {"http-listen": "", "rest-listen": "", "listen": listen}
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


@asynccontextmanager
async def _guarded(pid: int, progress: Progress) -> AsyncIterator[None]:
    """Fail when the collector ends before the block does."""
    process = os.pidfd_open(pid)
    loop = asyncio.get_running_loop()
    failing: list[asyncio.Task[None]] = []

    def ended() -> None:
        loop.remove_reader(process)
        reason = "the collector ended; if the machine lacks memory, the log of its kernel says so"
        failing.append(loop.create_task(progress.fail(reason), name="collector guard"))

    loop.add_reader(process, ended)
    try:
        yield
    finally:
        loop.remove_reader(process)
        os.close(process)
        await asyncio.gather(*failing)


@asynccontextmanager
async def _watcher(
    settings: LoadTestSettings, progress: Progress, where: dict[str, object]
) -> AsyncIterator[None]:
    async with child("watcher_process", progress.of_watcher, progress.fail) as watcher:
        watcher.send(agents=settings.agents, **where)
        yield


async def _agents(
    stack: AsyncExitStack, settings: LoadTestSettings, progress: Progress, where: dict[str, object]
) -> Sequence[Child]:
    started = []
    for part in range(settings.processes):
        receive = partial(progress.of_agents, part)
        one = await stack.enter_async_context(child("agents_process", receive, progress.fail))
        one.send(
            agents=settings.agents,
            part=part,
            parts=settings.processes,
            refresh_interval_s=settings.refresh_interval_s,
            **where,
        )
        started.append(one)
    await progress.until("the processes of the agents are ready", lambda: progress.ready, settings.timeout_s)
    return started


async def _start(load: Load) -> States:
    """Start the agents, and measure until their states are stored and all nodes are published."""
    settings, progress = load.settings, load.progress
    began_ns = time.monotonic_ns()

    async def start() -> None:
        load.send(start=True)

    states = await _states(load, start)
    expected = f"{settings.agents} nodes are published"
    await progress.until(expected, lambda: bool(progress.complete_ns), settings.timeout_s)
    await progress.quiet(_QUIET_S, settings.timeout_s)
    return replace(states, published_s=(progress.complete_ns - began_ns) / 1e9)


async def _states(load: Load, begin: Callable[[], Awaitable[None]]) -> States:
    """Measure from `begin` until the collector has stored all findings."""
    settings, progress = load.settings, load.progress
    usage = load.usage()
    began_ns = time.monotonic_ns()
    await begin()
    since_ns = time.monotonic_ns()
    expected = f"{settings.agents} agents are connected and all their findings are acknowledged"
    await progress.until(expected, lambda: progress.settled(since_ns), settings.timeout_s)
    took_s = (progress.settled_ns - began_ns) / 1e9
    collector_s, agents_s = usage.until(load.usage())
    return States(progress.findings, took_s, None, collector_s, agents_s)


async def _changes(load: Load, say: Callable[[str], None]) -> Changes:
    """Change links at even distances, and wait until the watcher has seen all of it."""
    settings, progress = load.settings, load.progress
    last = settings.agents * RAILS - 1
    schedule = LinkSchedule(last)
    await _first_change(load, last)
    every_s = 60 / settings.changes_per_minute
    say(f"changing {settings.changes} links, one each {every_s:g} s ...")
    usage = load.usage()
    began_s = due_s = said_s = time.monotonic()
    made = 0
    while made < settings.changes:
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        progress.check()
        now_s = time.monotonic()
        change = schedule.next(now_s)
        if change is None:
            due_s = now_s + _WAIT_FOR_A_LINK_S
            continue
        progress.pending[change.link] = change.down
        load.send(link=change.link, down=change.down)
        made += 1
        due_s = max(due_s + every_s, now_s)
        if now_s - said_s > 5:
            said_s = now_s
            say(f"{made} of {settings.changes} changes are made, {len(progress.pending)} are not seen yet")
    await asyncio.sleep(max(0.0, due_s - time.monotonic()))  # the interval of the last change
    took_s = time.monotonic() - began_s
    collector_s, agents_s = usage.until(load.usage())
    give_up_s = time.monotonic() + SEEN_S
    while progress.pending and time.monotonic() < give_up_s:
        await asyncio.sleep(_WAIT_FOR_A_LINK_S)
        progress.check()
    found = latencies(_in_time(progress.made), _in_time(progress.seen))
    return Changes(
        settings.changes,
        took_s,
        tuple(value for value in found if value is not None),
        None if collector_s is None else collector_s / took_s,
        agents_s / took_s,
    )


async def _first_change(load: Load, link: int) -> None:
    """Cut a link that stays down. It is not measured.

    The collector publishes new cables up to 30 s later, or with any other change. A link that was not
    published before would not be reported as missing.
    """
    settings, progress = load.settings, load.progress
    before_ns = progress.published_ns
    load.send(link=link, down=True)
    await progress.until(
        "a change is published", lambda: progress.published_ns > before_ns, settings.timeout_s
    )
    await progress.quiet(_QUIET_S, settings.timeout_s)
    progress.made.clear()
    progress.seen.clear()


async def _renew(load: Load) -> None:
    """Change every finding of every agent."""
    load.send(renew=True)
    await load.progress.until(
        "all findings are changed", lambda: load.progress.renewed, load.settings.timeout_s
    )


async def _nothing() -> None:
    """The agents connect again on their own."""


def _in_time(stamped: Sequence[Stamped]) -> list[Stamped]:
    return sorted(stamped, key=lambda one: one.at_ns)
