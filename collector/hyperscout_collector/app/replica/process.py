"""Runs the collector process, either alone or as one of several replicas with a leader.

    alone:    Collector, until a signal stops it
    replica:  standby -> elected -> Collector -> deposed -> standby -> ...

A leader writes only during its term: the fence blocks writes as soon as the term ends, and the replica
releases the Lease, or the lock of PostgreSQL, only after all components have stopped.
"""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import AsyncIterator, Coroutine
from random import Random
from typing import Any, NoReturn

from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.clock import Clock
from hyperscout_runtime.connections import host_port
from hyperscout_runtime.errors import StartError
from hyperscout_runtime.event_loops import LoopThread, loop_in_thread
from hyperscout_runtime.task_watch import TaskWatch, running

from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.build.lifecycle import Lifecycle
from hyperscout_collector.app.build.stores import postgresql_server
from hyperscout_collector.app.replica.cluster_leases import cluster_leases
from hyperscout_collector.app.replica.electors import AnyElector, build_elector, has_lease
from hyperscout_collector.app.replica.follower import Follower
from hyperscout_collector.app.replica.heaps import limit_heaps, trim_heaps
from hyperscout_collector.app.replica.reads import StandbyBackend
from hyperscout_collector.app.replica.standby import Standby
from hyperscout_collector.app.settings.configured import connected
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.history.opening import in_file
from hyperscout_collector.history.reader import HistoryReader
from hyperscout_collector.history.recorder import Recorder
from hyperscout_collector.history.standby_recorder import StandbyRecorder
from hyperscout_collector.identity.certificates import CertificateError
from hyperscout_collector.identity.issuer import CertificateIssuer
from hyperscout_collector.serve.grpc.topology_reads import History
from hyperscout_collector.store.errors import StoreError, StoreUnfitError
from hyperscout_collector.store.postgresql import PostgresqlDatabase
from hyperscout_collector.store.writer import StoreWriter

_log = logging.getLogger(__name__)

_EXIT_S = 28.0  # more than the stop of all components takes, less than the grace period of the chart's pod

# Arguments of `gc.set_threshold`; Python's are 700, 10, 10. The evidence of 10,000 agents is millions of
# objects without cycles, and every thread waits while the cyclic garbage collector traverses them.
_GC_THRESHOLDS = 50_000, 20, 20


def run_process(settings: CollectorSettings) -> NoReturn:
    """Run until SIGTERM or SIGINT, and end the process."""
    code = asyncio.run(run(settings, exit_s=_EXIT_S))
    logging.shutdown()
    # Python would free the evidence of all agents object by object first, and wait for threads that hang.
    os._exit(code)


async def run(settings: CollectorSettings, *, exit_s: float | None = None) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code: 0 after a clean end, 1 after an error.

    `exit_s`: end the process this many seconds after the stop began, even if a thread runs on; None = never.
    """
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # Each stream needs a file descriptor, and the default soft limit is often 1,024.
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    gc.set_threshold(*_GC_THRESHOLDS)
    limit_heaps()
    stop = asyncio.Event()

    def bound_exit() -> None:
        if exit_s is not None:
            _exit_after(exit_s)

    def end() -> None:
        bound_exit()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    try:
        async with _own_certificate(settings), running(trim_heaps(), "heaps"):
            if settings.leader_election:
                await Replica(settings).run(stop)
            else:
                async with Collector(settings) as collector:
                    await _first(stop.wait(), collector.crashed.wait())
                    _log.info("ending")
    except StartError as error:
        _log.error("%s", error)
        return 1
    except Exception:
        _log.exception("the collector ends because of an internal error")
        return 1
    finally:
        bound_exit()
    return 0


@contextlib.asynccontextmanager
async def _own_certificate(settings: CollectorSettings) -> AsyncIterator[None]:
    """Issue the collector's certificate, and renew it during the block, if there is a CA for it.

    Raises StartError.
    """
    ca, own = (settings.tls_issuer_cert, settings.tls_issuer_key), (settings.tls_cert, settings.tls_key)
    if ca[0] is None or ca[1] is None or own[0] is None or own[1] is None:
        yield
        return
    issuer = CertificateIssuer(ca[0], ca[1], settings.tls_names, own[0], own[1])
    try:
        issuer.check()
    except CertificateError as error:
        raise StartError(f"{error}: check tls_issuer_cert, tls_issuer_key and tls_cert") from error
    async with running(issuer.run(), "certificate-renewal"):
        yield


def _exit_after(delay_s: float) -> None:
    """End this process after a delay if it still runs.

    Python itself waits at the end of a process for each thread of a pool, for any time: such a thread may
    hang in a call to a disk.
    """

    def end() -> None:
        names = [thread.name for thread in threading.enumerate() if not thread.daemon]
        _log.error("the process ends, although these threads have not ended: %s", ", ".join(names))
        os._exit(1)

    timer = threading.Timer(delay_s, end)
    timer.daemon = True
    timer.start()


class Replica:
    """One of several replicas. `run` alternates between standby and leader."""

    def __init__(self, settings: CollectorSettings) -> None:
        self._settings = settings
        self._rng = Random()  # noqa: S311 - jitter, not secrets
        self._in_thread = BoundedExecutor("takeover")
        self._collector: Collector | None = None  # that leads
        self._highest = 0  # number of a generation, of the one that led last

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set or the collector crashes.

        Raises StartError, or the exception of the task that failed.
        """
        settings = await _with_ports(self._settings)
        address = advertised(settings)
        settings = settings.model_copy(update={"advertise": address})
        # The elector has connections, a loop and a thread of its own: a renewal must wait neither behind a
        # thousand writes nor behind the work of the collector's loop.
        async with loop_in_thread("leader-election") as thread, contextlib.AsyncExitStack() as stack:
            elector = await build_elector(
                settings,
                address,
                thread,
                stack,
                highest=lambda: self._collector.highest if self._collector else self._highest,
            )
            follower = Follower(
                settings,
                elector.leader_address,
                rng=self._rng,
                is_cut_off=lambda: elector.problem is not None,
            )
            try:
                async with (
                    running(thread.run(elector.run()), "leader-election") as election,
                    running(_withdrawn(stop, elector, election), "withdrawal"),
                ):
                    while not (stop.is_set() or election.done()):
                        await self._stand_by(settings, elector, follower, stop, election)
                        if elector.leading and not stop.is_set():
                            await self._lead(settings, elector, thread, follower, stop, election)
                    if election.done() and not election.cancelled():
                        election.result()  # raises: nothing else ends the election before it is cancelled
            except StoreUnfitError as error:
                raise StartError(str(error)) from error
            finally:
                await thread.run(elector.release())
                await thread.run(stack.aclose())

    async def _stand_by(
        self,
        settings: CollectorSettings,
        elector: AnyElector,
        follower: Follower,
        stop: asyncio.Event,
        election: "asyncio.Task[None]",
    ) -> None:
        """Follow the leader until this replica leads or stops. Raises the exception of a task that failed."""
        watch = TaskWatch()
        async with (
            await connected(settings) if has_lease(settings) else contextlib.nullcontext() as kube,
            recorded(settings, follower, watch) as history,
            Standby(
                settings,
                follower.leader,
                follower.prepared,
                transitions=elector.transitions,
                problem=lambda: elector.problem,
                followed=StandbyBackend(follower.renew(), history, follower.age_s, kube),
                watch=watch,
            ) as standby,
            running(follower.run(), "follower", watch),
        ):
            leading = elector.until(lambda: elector.leading)
            await _first(stop.wait(), leading, watch.failed.wait(), asyncio.wait([election]))
            standby.dismiss(advertised(settings) if elector.leading else elector.leader_address())
        watch.check()

    async def _lead(
        self,
        settings: CollectorSettings,
        elector: AnyElector,
        thread: LoopThread,
        follower: Follower,
        stop: asyncio.Event,
        election: "asyncio.Task[None]",
    ) -> None:
        own_terms = elector.own_terms

        def is_over() -> bool:
            return not elector.leading or elector.own_terms != own_terms

        previous, watch = await self._in_thread(follower.take), TaskWatch()
        async with contextlib.AsyncExitStack() as stack:
            fence, kube = elector.fence(), None
            if has_lease(settings):
                kube = (await stack.enter_async_context(await connected(settings))).fenced(fence)
            leases = await stack.enter_async_context(cluster_leases(settings, elector, thread, watch))
            collector = Collector(
                settings,
                kube=kube,
                fence=fence,
                fences={lease.cluster: lease.fence(fence) for lease in leases},
                previous=previous,
                agents=follower.agents,
                used=max(elector.used, follower.floor),
                transitions=elector.transitions,
            )
            self._collector = collector
            stack.callback(self._ended, collector, follower)
            begin = stack.enter_async_context(collector)  # it may wait minutes for the API server
            if not await _done(begin, stop.wait(), elector.until(is_over), asyncio.wait([election])):
                return
            for one in (elector, *(lease.elector for lease in leases)):
                waking = _wake_publishers(one, collector)
                await stack.enter_async_context(running(waking, "publishers-wake", watch))
            crashed = collector.crashed.wait(), watch.failed.wait()
            await _first(stop.wait(), *crashed, elector.until(is_over), asyncio.wait([election]))
            if stop.is_set() or collector.crashed.is_set() or watch.failed.is_set():
                _log.info("ending")
                collector.leave("the collector is shutting down", "")
            else:
                collector.leave("another replica leads now", elector.leader_address())
        watch.check()

    def _ended(self, collector: Collector, follower: Follower) -> None:
        self._highest, self._collector = collector.highest, None
        shown = collector.highest
        if not has_lease(self._settings) and collector.published is not None:
            follower.keep(collector.published)
            shown = collector.published.generation  # a later one was not recorded, so it was not shown
        follower.raise_floor(shown)


async def _withdrawn(stop: asyncio.Event, elector: AnyElector, election: "asyncio.Task[None]") -> None:
    """End the election at the stop of a standby, which must not take the Lease while it ends."""
    await stop.wait()
    if not elector.leading:
        election.cancel()


@contextlib.asynccontextmanager
async def recorded(
    settings: CollectorSettings, follower: Follower, watch: TaskWatch
) -> AsyncIterator[History | None]:
    """Record what the leader publishes in the history of this replica, which continues it when it leads.

    In PostgreSQL the leader's history is that of all replicas, and this one reads it. Raises StartError.
    """
    if not settings.history_max_days:
        yield None
        return
    now_ns = Clock().now_ns
    if settings.store:
        try:
            reader = HistoryReader(PostgresqlDatabase(postgresql_server(settings)), now_ns)
        except StoreError as error:
            raise StartError(str(error)) from error
        try:
            yield reader
        finally:
            await BoundedExecutor("history-reader")(reader.close)
        return
    writer = StoreWriter()
    recorder = Recorder(in_file(settings.data_dir / "history.db", settings, now_ns), now_ns, writer)
    standby = StandbyRecorder(recorder, follower.cause_of)
    lifecycle = Lifecycle(watch)
    lifecycle.on_stop("history", recorder.close)
    lifecycle.on_stop("writer of the history", writer.close)
    lifecycle.run("store-writer", writer.run())
    # Before the writer's task is cancelled: it would not know whether its last batch is written.
    lifecycle.on_stop("flush of the history", writer.flush)
    lifecycle.on_stop("last generations of the leader", standby.finish)
    lifecycle.on_stop("subscription to the leader", follower.received.subscribe(standby.receive))
    lifecycle.run("history-follower", standby.run())
    try:
        yield recorder
    finally:
        await lifecycle.stop()


async def _wake_publishers(elector: AnyElector, collector: Collector) -> None:
    """Wake the publishers when writing is allowed again after a failed renewal."""
    while True:
        await elector.until(lambda: not elector.may_write)
        await elector.until(lambda: elector.may_write)
        collector.components.publishing.runner.wake()


async def _with_ports(settings: CollectorSettings) -> CollectorSettings:
    """Replace each port 0 by a free port, so that all terms use the same ports. Raises StartError."""
    addresses = (settings.listen, settings.mtls_listen, settings.http_listen, settings.rest_listen)
    if not any(address.endswith(":0") for address in addresses):
        return settings
    async with Standby(settings, lambda: "") as chosen:
        return settings.model_copy(
            update={
                "listen": chosen.address,
                "mtls_listen": chosen.mtls_address,
                "http_listen": chosen.http_address,
                "rest_listen": chosen.rest_address,
            }
        )


def advertised(settings: CollectorSettings) -> str:
    """The address, host:port, at which others reach this replica: the setting, or where it listens.

    Raises StartError.
    """
    if settings.advertise:
        return settings.advertise
    if not settings.listen:
        raise StartError("leader_election with only mtls_listen: set advertise to host:port of this replica")
    host, port = host_port(settings.listen)
    return f"{socket.gethostname()}:{port}" if host in ("0.0.0.0", "::") else settings.listen  # noqa: S104


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until the first of them ends, and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _done(work: Coroutine[Any, Any, Any], *ends: Coroutine[Any, Any, Any]) -> bool:
    """Whether `work` finished before any of `ends`; otherwise it is cancelled. Raises what `work` raises."""
    task = asyncio.ensure_future(work)
    try:
        await _first(asyncio.wait([task]), *ends)
        if not task.done():
            return False
        task.result()
        return True
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
