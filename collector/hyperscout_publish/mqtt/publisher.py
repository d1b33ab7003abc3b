"""Publishes HyperNode states, events and the leader to an MQTT broker.

States are retained, so a new subscriber receives the whole tree at once. Each new connection publishes
everything again, because the broker may have lost it. Only events are queued, in a bounded queue.
"""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hyperscout_kubernetes.client import Fence
from hyperscout_kubernetes.errors import NotLeaderError
from hyperscout_mqtt.client import Access, BrokerError
from hyperscout_mqtt.connection import Connection, RefusedError, Session
from hyperscout_mqtt.counters import MqttCounters
from hyperscout_mqtt.envelope import Outgoing, encoded
from hyperscout_mqtt.topics import Topics
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.signals import Signal
from hyperscout_topology.diff import Diff
from hyperscout_topology.events import bounded, events
from hyperscout_topology.topology import Topology

from hyperscout_publish.mqtt.payloads import EVENT_EXPIRY_S, Backlog, State, states_of
from hyperscout_publish.publisher.base import Publisher, PublishError

_LIST_TIMEOUT_S = 60.0  # for thousands of states
_AT_ONCE = 16
_MAX_LISTED = 100_000
_MAX_STATE_BYTES = 4096  # of a collector's state; other clients may publish anything


class MqttPublisher(Publisher):
    """Publishes to MQTT. Run `run` as a separate task.

    `reads_findings`: subscribe to the topics to which devices send findings. The signal
    `received(topic, payload, retained)` is emitted for each of their messages. `fence`: raises NotLeaderError
    unless this replica leads. `clock_ns`: Unix ns; `timer`: monotonic seconds.
    """

    name = "mqtt"

    def __init__(
        self,
        access: Access,
        prefix: str,
        *,
        identity: str,
        version: str,
        fence: Fence,
        clock_ns: Callable[[], int],
        timer: Callable[[], float],
        rng: Random,
        reads_findings: bool = False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__()
        self.counters = MqttCounters()
        self.topics = Topics(prefix)
        self.received = Signal[[str, bytes, bool]]()
        self._reads_findings = reads_findings
        self._identity = {"identity": identity, "instance": secrets.token_hex(8), "version": version}
        self._fence = fence
        self._clock_ns = clock_ns
        self._progress: _Progress | None = None
        self._known: dict[str, tuple[bytes, int]] = {}  # digest, and the generation that introduced it
        self._seen: Topology | None = None
        self._backlog = Backlog()
        self._generation = 0  # the last one with all states published
        self._rival = ""
        self._refused: str | None = None
        self._listed: set[str] = set()
        self._is_listed = asyncio.Event()
        self._in_thread = BoundedExecutor("publish-mqtt")
        self._connection = Connection(
            access,
            self.counters,
            will=lambda: self._own_state("offline"),
            begin=self._begin,
            goodbye=self._goodbye,
            take=self._take,
            failed=self.wake,  # so that the runner reports the problem
            rng=rng,
            timer=timer,
            sleep=sleep,
        )

    async def run(self) -> None:
        """Keep the connection open until cancelled."""
        await self._connection.run()

    @property
    def notice(self) -> str | None:
        """A problem to report although everything is published; None if there is none."""
        if self._connection.problem is not None:
            return self._connection.problem
        if self._rival:
            return (
                f"another collector, {self._rival}, also publishes below {self.topics.prefix}: "
                "set a different mqtt_topic_prefix for each cluster"
            )
        return self._refused

    async def say(self, message: Outgoing) -> None:
        """Publish a message once, if connected. Otherwise it is lost."""
        if self._progress is not None:
            with suppress(BrokerError, NotLeaderError):
                await self._send(self._progress, message)

    async def publish(self, topology: Topology) -> None:
        """Bring the broker up to date. Raises PublishError."""
        await self._note(topology)
        await self._connection.tried.wait()
        progress = self._progress
        if progress is None or self._connection.problem is not None:
            raise PublishError(self._connection.problem or "not connected", retry=False)
        states = await self._in_thread(states_of, topology)
        try:
            await self._bring(progress, topology, states)
        except (NotLeaderError, RefusedError) as error:
            raise PublishError(str(error)) from error
        except BrokerError as error:
            progress.session.drop(str(error))
            raise PublishError(str(error), retry=False) from error

    async def _note(self, topology: Topology) -> None:
        """Queue the changes since the last topology, whether or not the broker is connected."""
        before = self._seen
        if before is not None and before is not topology:
            # In a thread: this takes seconds if many links change at once.
            changes = await self._in_thread(lambda: bounded(events(Diff(before, topology))))
            self._backlog.add(topology.generation, self._clock_ns(), changes)
            self.counters.dropped_total = self._backlog.lost_total
        self._seen = topology
        for state in self._known.keys() - {h.name for h in topology.hypernodes}:
            del self._known[state]

    async def _bring(self, at: "_Progress", topology: Topology, states: dict[str, State]) -> None:
        refused = await self._bring_states(at, topology.generation, states)
        gone = at.out.keys() - states.keys()
        if not at.synced:
            gone |= await self._list(at, states)
        for name in sorted(gone):
            await self._send(at, Outgoing(self.topics.hypernode(name), b"", retain=True))
            at.out.pop(name, None)
        at.synced = True
        while (found := self._backlog.next()) is not None:
            message, count = found
            await self._send(at, Outgoing(self.topics.events, encoded(message), expiry_s=EVENT_EXPIRY_S))
            self._backlog.sent(message, count)
        if refused is not None:
            raise refused
        self._generation = topology.generation
        us = self._own_state("online", len(at.out))
        if us.payload != at.own_state:
            await self._send_own(at, us)

    async def _bring_states(
        self, at: "_Progress", generation: int, states: dict[str, State]
    ) -> RefusedError | None:
        """Publish the changed states. Returns the error of a refused one after trying all."""
        refused: list[RefusedError] = []
        due = iter([(name, state) for name, state in states.items() if at.out.get(name) != state.digest])

        async def some() -> None:
            for name, state in due:
                try:
                    await self._send_state(at, generation, name, state)
                except RefusedError as error:
                    refused.append(error)

        for error in await asyncio.gather(*(some() for _ in range(_AT_ONCE)), return_exceptions=True):
            if error is not None:
                raise error
        return refused[0] if refused else None

    async def _send_state(self, at: "_Progress", generation: int, name: str, state: State) -> None:
        known = self._known.get(name)
        if known is None or known[0] != state.digest:
            known = self._known[name] = state.digest, generation
        await self._send(at, Outgoing(self.topics.hypernode(name), state.payload(known[1]), retain=True))
        at.out[name] = state.digest

    async def _send(self, at: "_Progress", message: Outgoing) -> None:
        self._fence.remaining_s()
        await at.session.publish(message)

    async def _send_own(self, at: "_Progress", state: Outgoing) -> None:
        await self._send(at, state)
        at.own_state = state.payload

    async def _list(self, at: "_Progress", ours: Collection[str]) -> set[str]:
        """Return HyperNodes with retained states that are not in `ours`: old ones, or of another process.

        The states in `ours` are retained by now, so a list without one of them is incomplete. The
        retained state of this collector arrives after the states of HyperNodes and marks the end of the list.
        """
        self._listed.clear()
        self._is_listed.clear()
        if not at.own_state:
            await self._send_own(at, self._own_state("syncing"))
        # QoS 0: a broker queues a limited number of messages of higher QoS and drops the rest.
        await at.session.subscribe(self.topics.hypernodes, 0, _LIST_TIMEOUT_S)
        await at.session.subscribe(self.topics.collector, 1, _LIST_TIMEOUT_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LIST_TIMEOUT_S):
                await self._is_listed.wait()
        await at.session.unsubscribe(self.topics.hypernodes)
        if missing := sum(name not in self._listed for name in ours):
            self._refused = (
                f"the broker did not return all retained states at {self.topics.hypernodes} ({missing} of "
                f"{len(ours)} are missing), so outdated states may remain there: its access rules must allow "
                "the collector to read them, and its queue for a client must hold them "
                "(mosquitto: max_queued_messages)"
            )
        return self._listed.difference(ours)

    # Callbacks of the connection

    async def _begin(self, session: Session) -> None:
        at = _Progress(session)
        self._rival, self._refused = "", None
        try:
            # Writes may be forbidden for a moment, when the Lease is renewed late: reading goes on.
            with suppress(NotLeaderError):
                await self._send_own(at, self._own_state("syncing"))
            if self._reads_findings:
                await session.subscribe(self.topics.findings)
        except RefusedError as error:
            self._refused = str(error)
        self._progress = at
        self.wake()

    async def _goodbye(self, session: Session) -> None:
        await session.publish(self._own_state("offline"))

    def _take(self, topic: str, payload: bytes, retained: bool) -> None:
        if (name := self.topics.hypernode_in(topic)) is not None:
            if payload and len(self._listed) < _MAX_LISTED:
                self._listed.add(name)
        elif topic == self.topics.collector:
            self._take_leader(payload)
        else:
            self.received(topic, payload, retained)

    def _take_leader(self, payload: bytes) -> None:
        """Handle a collector's state: this one's, the will of an earlier leader, or a rival's."""
        found = _parsed_state(payload)
        if found.get("instance") == self._identity["instance"]:
            self._is_listed.set()
            return
        if found.get("state") in ("online", "syncing"):
            self._rival = str(found.get("identity"))[:100]
            return
        self._rival = ""
        if self._progress is not None:
            self._progress.own_state = b""
        self.wake()

    def _own_state(self, state: str, hypernodes: int = 0) -> Outgoing:
        body = {"state": state, **self._identity, "generation": self._generation, "hypernodes": hypernodes}
        return Outgoing(self.topics.collector, encoded(body), retain=True)


@dataclass(slots=True)
class _Progress:
    """What the broker has in one session. `out`: digests of published states by name.

    `synced`: the broker has no other states. `own_state`: the last published state of this collector.
    """

    session: Session
    out: dict[str, bytes] = field(default_factory=dict)
    synced: bool = False
    own_state: bytes = b""


def _parsed_state(payload: bytes) -> dict[str, Any]:
    """Parse a collector's state, which any client may have written; {} if it is invalid."""
    with suppress(ValueError, RecursionError):
        found = json.loads(payload[:_MAX_STATE_BYTES])
        if isinstance(found, dict):
            return found
    return {}
