"""Permanent connection to an MQTT broker: reconnects with exponential back-off whenever it is lost.

This module keeps no messages for the broker. The caller publishes them again in the next session.
Source: MQTT Version 5.0 (OASIS).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from random import Random

from hyperscout_runtime.backoff import Backoff
from hyperscout_runtime.bounded_executor import BoundedExecutor

from hyperscout_mqtt.client import TIMEOUT_S, Access, BrokerError, Client, Take, read_secrets
from hyperscout_mqtt.counters import MqttCounters
from hyperscout_mqtt.envelope import Outgoing

_log = logging.getLogger(__name__)

_GOODBYE_S = 2.0
_RETRY_BASE_S, _RETRY_CAP_S = 1.0, 60.0
_STEADY_S = 30.0  # a connection that lasted this long resets the back-off
_IN_FLIGHT = 16
_HEADERS_BYTES = 256  # estimated size of a packet's headers


class RefusedError(BrokerError):
    """The broker is connected but refuses this message or subscription."""


class Session:
    """One connection while it is open. Its methods raise BrokerError if the broker fails a request."""

    def __init__(self, client: Client, access: Access, counters: MqttCounters) -> None:
        self._max_packet_bytes = int(getattr(client.limits, "MaximumPacketSize", 0)) or 1 << 28
        self._qos = min(access.qos, int(getattr(client.limits, "MaximumQoS", 2)))
        self._client = client
        self._counters = counters
        self._slots = asyncio.Semaphore(_IN_FLIGHT)

    async def publish(self, message: Outgoing) -> None:
        """Return once the broker has the message (QoS 1, 2) or it is sent (QoS 0).

        Raises RefusedError if the broker does not accept it.
        """
        size_bytes = len(message.payload) + len(message.topic) + _HEADERS_BYTES
        if size_bytes > self._max_packet_bytes:
            raise RefusedError(
                f"{message.topic} has {size_bytes} bytes; the broker accepts at most "
                f"{self._max_packet_bytes}: raise its limit (mosquitto: max_packet_size)"
            )
        self._counters.waiting += 1
        try:
            async with self._slots:
                refused = await self._client.publish(message, self._qos)
        finally:
            self._counters.waiting -= 1
        if refused:
            raise RefusedError(
                f"{message.topic}: {refused}: the broker's access rules must let the collector publish it"
            )
        self._counters.published_total += 1

    async def subscribe(self, topic: str, qos: int = 1, timeout_s: float = TIMEOUT_S) -> None:
        """Subscribe to a topic. The broker may send all retained messages before its response."""
        with _named(topic):
            refused = await self._client.subscribe(topic, qos, timeout_s)
        if refused:
            raise RefusedError(
                f"{topic}: {refused}: the broker's access rules must let the collector read it"
            )

    async def unsubscribe(self, topic: str) -> None:
        with _named(topic):
            await self._client.unsubscribe(topic)

    def drop(self, reason: str) -> None:
        """End this connection. `Connection.run` opens another."""
        self._client.drop(reason)


@contextlib.contextmanager
def _named(topic: str) -> Iterator[None]:
    """Prefix the message of a BrokerError with the topic."""
    try:
        yield
    except BrokerError as error:
        raise BrokerError(f"{topic}: {error}") from error


class Connection:
    """Keeps a connection open; run `run` as a task.

    `problem`: why there is no connection; None while there is one.
    `will()`: returns the message that the broker publishes when the connection is lost without DISCONNECT.
    `begin(session)`: called after each connect.
    `goodbye(session)`: called before DISCONNECT when `run` is cancelled.
    `failed()`: called each time a connection attempt fails or a connection ends.
    `tried`: set after the first attempt, successful or not.
    `timer`: returns monotonic seconds.
    """

    def __init__(
        self,
        access: Access,
        counters: MqttCounters,
        *,
        will: Callable[[], Outgoing],
        begin: Callable[[Session], Awaitable[None]],
        goodbye: Callable[[Session], Awaitable[None]],
        take: Take,
        failed: Callable[[], None],
        rng: Random,
        timer: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.problem: str | None = f"not connected to {access.broker} yet"
        self.tried = asyncio.Event()
        self._access = access
        self._counters = counters
        self._will = will
        self._begin = begin
        self._goodbye = goodbye
        self._take = take
        self._failed = failed
        self._rng = rng
        self._timer = timer
        self._sleep = sleep
        self._in_thread = BoundedExecutor("mqtt-secrets")

    async def run(self) -> None:
        """Connect and reconnect until cancelled."""
        backoff = Backoff(_RETRY_BASE_S, _RETRY_CAP_S, self._rng)
        while True:
            began_s = self._timer()
            try:
                reason = await self._once()
            except BrokerError as error:
                reason = str(error)
            finally:
                self._counters.connected = False
            if self._timer() - began_s >= _STEADY_S:
                backoff.reset()
            delay_s = backoff.next_s()
            problem = f"{self._access.broker}: {reason}"
            if backoff.failures == 1 or not (self.problem or "").startswith(problem):
                _log.warning("MQTT broker %s", problem)
            self.problem = f"{problem} (failure {backoff.failures}, next attempt within {_RETRY_CAP_S:g} s)"
            self.tried.set()
            self._failed()
            await self._sleep(delay_s)

    async def _once(self) -> str:
        """Open one connection and wait for its end. Returns the reason; raises BrokerError if it fails."""
        secrets = await self._in_thread(read_secrets, self._access)
        client = Client(self._access, secrets, self._will(), self._take)
        try:
            await client.connect()
            session = Session(client, self._access, self._counters)
            self._counters.connected = True
            self._counters.connects_total += 1
            _log.info("connected to the MQTT broker %s", self._access.broker)
            try:
                self.problem = None
                await self._begin(session)
                self.tried.set()
                return await client.gone()
            except asyncio.CancelledError:
                with contextlib.suppress(BrokerError, TimeoutError):
                    async with asyncio.timeout(_GOODBYE_S):
                        await self._goodbye(session)
                        await client.leave()
                raise
        finally:
            client.close()
