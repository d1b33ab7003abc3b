"""Follows the leader. The standby serves reads of its topology, and continues from it when it leads."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import reduce
from math import inf
from random import Random
from typing import Any

import grpc
import grpc.aio
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_formats.text.leader import KEY, leader_in
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.connections import host_port, is_loopback
from hyperscout_runtime.credentials import Credentials, CredentialsError, Metadata
from hyperscout_runtime.errors import failure_level
from hyperscout_runtime.signals import Signal
from hyperscout_runtime.task_watch import is_cancelled
from hyperscout_topology.proto import after_event
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.history.causes import Cause, cause_from_proto
from hyperscout_collector.serve.fanout.hub import Hub

_log = logging.getLogger(__name__)

_RETRY_S = 1.0
_LASTS_S = 60.0  # how long a received topology stays valid after the lease of a silent leader has ended
_NO_LEADER_S = 3.0  # without a known leader for this long, the standby assumes that there is none
_PREPARED_ANYWAY_S = 30.0  # a leader that cannot be followed must not block a takeover for longer
_LEASES = 2  # a lost leader's topology is served for as many leases, which covers a change of the leader
_LATEST = 32  # generations whose causes are requested from the leader
_ANSWER_S = 2.0
_AGENTS_S = 30.0  # how often the leader is asked for its agents: an answer has 0.6 MB for 10,000
OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_receive_message_length", -1),  # no limit: the leader is trusted
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.enable_http_proxy", 0),
)


class Follower:
    """Follows the leader. Run `run` as a task.

    `leader()`: host:port of the leader, "" = none is known. `clock`: monotonic seconds. `is_cut_off()`: what
    elects the leader does not answer. The signal `received` is emitted for every event of the leader's
    stream. `watchers` has the topology for readers. `floor`: the highest number of a generation that this
    replica has shown.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        leader: Callable[[], str],
        *,
        rng: Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        is_cut_off: Callable[[], bool] = lambda: False,
    ) -> None:
        self.received = Signal[[pb.WatchTopologyResponse]]()
        self._service: Any = None  # the stub of the followed leader
        self.agents: Sequence[pb.AgentStatus] = ()  # as the leader listed them lately
        self.problem: str | None = None  # why the follower is not connected
        self._level = logging.INFO  # of the line about it
        self._followed = ""  # address of the leader followed last
        self._settings = settings
        self._leader = leader
        self._rng = rng
        self._sleep = sleep
        self._clock = clock
        self._is_cut_off = is_cut_off
        self._left_s: float | None = None  # when the connection to the leader ended
        self._cut_off_s = -inf  # when this replica was cut off from the election last
        self._shut_down = False  # whether the leader followed last has said that it shuts down
        self._began_s: float | None = None  # when `run` started
        self._heard = False  # whether an event came since `run` started
        self._topology = Topology(0)  # as the leader sent it
        self._events: list[pb.WatchTopologyResponse] = []  # received, and not in `_topology` yet
        self._in_thread = BoundedExecutor("follower")
        self.watchers = Hub(Topology(0))
        self.floor = 0

    @property
    def generation(self) -> int:
        """The newest generation that was received and built; 0 = none."""
        return self._topology.generation

    def age_s(self) -> float | None:
        """How long ago the leader of `watchers` was lost, in seconds; 0 = it is followed.

        None: there is nothing to serve. No topology has arrived, its generation is lower than one that this
        replica has shown, or for `_LEASES` leases there was no leader while the election answered. It may
        answer again after a time in which no leader could come.
        """
        if not self.watchers.current.topology.generation or self._topology.generation < self.floor:
            return None
        lost_s = self._clock() - self._left_s if self._left_s is not None else 0.0
        without_s = min(lost_s, self._clock() - self._cut_off_s)
        return lost_s if without_s < _LEASES * self._settings.lease_duration_s else None

    def raise_floor(self, highest: int) -> None:
        """Serve no generation below this number, which this replica may have shown as the leader."""
        self.floor = max(self.floor, highest)

    def keep(self, topology: Topology) -> None:
        """Serve what this replica published as the leader, until it follows another one."""
        self._topology, self._left_s = topology, self._clock()

    def renew(self) -> Hub:
        """Replace `watchers`, for a standby that begins, by a hub with what is known. Returns it."""
        self.watchers = Hub(self._topology)
        return self.watchers

    def leader(self) -> str:
        """Return the leader's address; "" = none is known.

        A leader that shut down leads no more, although its Lease is valid for some seconds.
        """
        address = self._leader()
        if self._shut_down and self._left_s is not None and address == self._followed:
            return address if self._clock() - self._left_s >= self._settings.lease_duration_s else ""
        return address

    def prepared(self) -> bool:
        """Whether this standby can take over without loss.

        True if it received what the leader published, if no leader is known for `_NO_LEADER_S`, or if the
        leader could not be followed for `_PREPARED_ANYWAY_S`. A rolling update stops the old leader as soon
        as the standby is ready.
        """
        if self._began_s is None or self._heard:
            return self._heard
        waited_s = self._clock() - self._began_s
        return waited_s >= (_PREPARED_ANYWAY_S if self.leader() else _NO_LEADER_S)

    def take(self) -> Topology | None:
        """Return and forget the last topology received from the leader. Blocks: call it in a thread.

        None: nothing was received or published, or the connection ended so long ago that a leader may have
        published more since. In that case the HyperNodes in the cluster are newer.
        """
        newest = _after(self._topology, self._events)
        self._topology, self._events = Topology(0), []
        self.renew()  # frees the memory of its topology
        lasts_s = (
            self._settings.lease_duration_s + _LASTS_S if self._settings.kubernetes == "publish" else inf
        )
        if self._left_s is not None and self._clock() - self._left_s > lasts_s:
            return None
        return newest if newest.generation else None

    async def run(self) -> None:
        """Follow the leader until this task is cancelled.

        The follower connects again after a pause, whatever ends the stream. gRPC raises CancelledError in a
        call whose channel is closed; that is such an end, and no cancellation of this task.
        """
        self._began_s, self._heard = self._clock(), False
        while True:
            if self._is_cut_off():
                self._cut_off_s = self._clock()
            if address := self.leader():
                try:
                    await self._follow(address)
                except grpc.aio.AioRpcError as error:
                    self._shut_down |= leader_in(error.trailing_metadata()) == ""
                    reason = f"the leader, {address}: {error.code().name}: {error.details()}"
                    is_expected = error.code() == grpc.StatusCode.UNAVAILABLE
                    self._log_failure(reason, is_expected=is_expected)
                except CredentialsError as error:
                    self._log_failure(str(error), is_expected=False)
                except asyncio.CancelledError:
                    if is_cancelled():
                        raise
                    self._log_failure(f"the leader, {address}: the call was cancelled")
                finally:
                    if self._left_s is None:
                        self._left_s = self._clock()
            await self._sleep(_RETRY_S * self._rng.uniform(0.5, 1.0))

    async def _follow(self, address: str) -> None:
        async with channel(self._settings, address) as connection:
            service = TopologyServiceStub(connection)
            call = service.WatchTopology(pb.WatchTopologyRequest(), metadata=self._metadata())
            others = (self._read_agents(service), self._leave_deposed(call, address))
            tasks = [asyncio.create_task(other) for other in others]
            try:
                await self._follow_topology(call, service, address)
            finally:
                for task in tasks:
                    task.cancel()

    async def _follow_topology(self, call: Any, service: Any, address: str) -> None:
        async for event in call:
            self._service = service
            self.received(event)
            self._events.append(event)
            await self._build()
            self._left_s, self._heard, self._shut_down = None, True, False
            if self.problem is not None or address != self._followed:
                _log.info("following the leader, %s", address)
                self.problem, self._followed = None, address

    async def _build(self) -> None:
        """Build the topology from what was received, and show it unless the readers know a later one."""
        events = list(self._events)
        topology = await self._in_thread(_after, self._topology, events)
        self._topology, self._events = topology, self._events[len(events) :]
        if topology.generation < self.floor:
            _log.warning(
                "the leader's generation %d is not served: this replica has shown %d",
                topology.generation,
                self.floor,
            )
        elif topology.generation != self.watchers.current.topology.generation:
            self.floor = topology.generation
            await self.watchers.publish(topology)

    async def _leave_deposed(self, call: Any, address: str) -> None:
        """End the call when another replica leads: a deposed leader that hangs does not end it."""
        while True:
            await asyncio.sleep(_RETRY_S)
            if self._leader() not in ("", address):
                call.cancel()
                return

    async def _read_agents(self, service: Any) -> None:
        """Ask the leader for its agents, until cancelled. The watch reports why it does not answer."""
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError, CredentialsError):
                answer = await service.GetStatus(
                    pb.GetStatusRequest(), timeout=_ANSWER_S, metadata=self._metadata()
                )
                self.agents = answer.agents
            await asyncio.sleep(_AGENTS_S)

    async def cause_of(self, generation: int) -> Cause | None:
        """The cause of a generation as the leader's history has it.

        None: the history does not have the generation, or the leader does not answer, also because the
        channel was closed during the call.
        """
        if (service := self._service) is None:
            return None
        request = pb.ListHistoryRequest(kinds=["GenerationPublished"], page_size=_LATEST)
        try:
            answer = await service.ListHistory(request, timeout=_ANSWER_S, metadata=self._metadata())
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, CredentialsError):
            return None
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            return None
        found = (x.cause for x in answer.events if x.generation == generation)
        return next(map(cause_from_proto, found), None)

    def _metadata(self) -> Metadata:
        """The credentials, and the key by which a standby refuses a read. Raises CredentialsError.

        A former leader may be a standby: replicas that follow each other would never notice that none leads.
        """
        return (*_credentials(self._settings).metadata(), (KEY, ""))

    def _log_failure(self, problem: str, *, is_expected: bool = True) -> None:
        """Log a failure when it differs from the one before."""
        for_s = self._clock() - self._left_s if self._left_s is not None else 0.0
        level = failure_level(for_s, is_expected=is_expected)
        if (level, problem) != (self._level, self.problem):
            _log.log(level, "not following: %s", problem)
        self._level, self.problem = level, problem


def _after(topology: Topology, events: Sequence[pb.WatchTopologyResponse]) -> Topology:
    """The topology after the events. Blocks."""
    return reduce(after_event, events, topology)


def channel(settings: CollectorSettings, address: str) -> grpc.aio.Channel:
    """A connection to another replica. Raises CredentialsError."""
    if settings.tls_cert is None and not settings.insecure and not is_loopback(host_port(address)[0]):
        raise CredentialsError(
            f"{address} is not on this machine, and the connection is plaintext: set tls_cert"
        )
    return _credentials(settings).connect(address, OPTIONS)


def _credentials(settings: CollectorSettings) -> Credentials:
    """What this replica shows to another one. Without TLS it shows no token. Raises CredentialsError."""
    if settings.tls_cert is None:
        return Credentials(insecure=settings.insecure)
    if settings.peer_tls_ca is None:
        raise CredentialsError("peer_tls_ca is not set, so the leader cannot be authenticated: set it")
    return Credentials(
        ca=settings.peer_tls_ca,
        server_name=settings.peer_tls_server_name,
        token_file=settings.peer_token_file,
    )
