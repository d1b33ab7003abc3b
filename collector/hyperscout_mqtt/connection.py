"""The connection to an MQTT broker, kept up for ever: made anew, later each time, whenever it is gone.

Nothing is kept for the broker here: who wants something out says it again to the next session.
Source: MQTT Version 5.0 (OASIS).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from random import Random

from hyperscout_runtime.bounded_executor import BoundedExecutor

from hyperscout_mqtt.client import TIMEOUT_S, Access, BrokerError, Client, Take, read_secrets
from hyperscout_mqtt.counters import MqttCounters
from hyperscout_mqtt.envelope import Outgoing

_log = logging.getLogger(__name__)

_GOODBYE_S = 2.0
_RETRY_BASE_S, _RETRY_CAP_S = 1.0, 60.0
_STEADY_S = 30.0  # a connection that held this long was a good one
_IN_FLIGHT = 16
_HEADERS_BYTES = 256  # of a packet, about


class RefusedError(BrokerError):
    """The broker stands, and does not take this message."""


class Session:
    """One connection while it stands. Raises BrokerError where the broker does not do what it is asked."""

    def __init__(self, client: Client, access: Access, counters: MqttCounters) -> None:
        self._max_packet_bytes = int(getattr(client.limits, "MaximumPacketSize", 0)) or 1 << 28
        self._qos = min(access.qos, int(getattr(client.limits, "MaximumQoS", 2)))
        self._client = client
        self._counters = counters
        self._room = asyncio.Semaphore(_IN_FLIGHT)

    async def publish(self, message: Outgoing) -> None:
        """Until the broker has it (QoS 1, 2) or it is on its way (0). Raises RefusedError too."""
        size_bytes = len(message.payload) + len(message.topic) + _HEADERS_BYTES
        if size_bytes > self._max_packet_bytes:
            raise RefusedError(
                f"{message.topic} has {size_bytes} bytes, and the broker takes {self._max_packet_bytes}: "
                "raise its limit (mosquitto: max_packet_size)"
            )
        self._counters.waiting += 1
        try:
            async with self._room:
                refused = await self._client.publish(message, self._qos)
        finally:
            self._counters.waiting -= 1
        if refused:
            raise RefusedError(f"{message.topic}: {refused}: the broker's access rules must let us write it")
        self._counters.published_total += 1

    async def subscribe(self, topic: str, qos: int = 1, timeout_s: float = TIMEOUT_S) -> None:
        """Ask for what is sent there. The broker may send all retained messages before its answer."""
        with _named(topic):
            refused = await self._client.subscribe(topic, qos, timeout_s)
        if refused:
            raise RefusedError(f"{topic}: {refused}: the broker's access rules must let us read it")

    async def unsubscribe(self, topic: str) -> None:
        with _named(topic):
            await self._client.unsubscribe(topic)

    def drop(self, reason: str) -> None:
        """Give it up; another is made."""
        self._client.drop(reason)


@contextlib.contextmanager
def _named(topic: str) -> Iterator[None]:
    """Put the topic before the message of a BrokerError."""
    try:
        yield
    except BrokerError as error:
        raise BrokerError(f"{topic}: {error}") from error


class Connection:
    """`run` as a task. `problem`: why it does not stand; None while it does.

    `will()`: what the broker says of us when we are gone without a word. `begin(session)` when it stands,
    `goodbye(session)` before we leave in peace, `failed()` each time that it does not stand any more.
    `tried` is set after the first attempt, whatever came of it. `timer`: monotonic seconds.
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
        """Keep it up until cancelled."""
        failures = 0
        while True:
            began_s = self._timer()
            try:
                reason = await self._once()
            except BrokerError as error:
                reason = str(error)
            finally:
                self._counters.connected = False
            failures = 1 if self._timer() - began_s >= _STEADY_S else failures + 1
            delay_s = min(_RETRY_BASE_S * 2.0 ** min(failures - 1, 30), _RETRY_CAP_S)
            delay_s *= self._rng.uniform(0.5, 1.0)
            problem = f"{self._access.broker}: {reason}"
            if failures == 1 or not (self.problem or "").startswith(problem):
                _log.warning("MQTT broker %s", problem)
            self.problem = f"{problem} (failure {failures}, tried again within {_RETRY_CAP_S:g} s)"
            self.tried.set()
            self._failed()
            await self._sleep(delay_s)

    async def _once(self) -> str:
        """From connecting to the end. Returns why it ended; raises BrokerError where it did not begin."""
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
