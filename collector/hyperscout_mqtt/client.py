"""One MQTT 5 connection: paho-mqtt's public callbacks and `loop_*` calls on the collector's event loop.

The client reports the broker's limits, the reason for each refused message, and the end of the connection.
Every wait has a time limit, and `close` never waits.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperscout_runtime.bounded_executor import BoundedExecutor
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from hyperscout_mqtt.envelope import SCHEMA_VERSION, Outgoing
from hyperscout_mqtt.topics import Broker

_NO_REASON = "Unspecified error"  # paho's reason code for a socket failure
TIMEOUT_S = 10.0  # for a response of the broker
_KEEPALIVE_S = 20
_MISC_S = 1.0  # between two checks of paho's keep-alive timers
_MAX_PACKET_BYTES = 4 * 1024 * 1024  # a listing returns this collector's own states
_RECEIVE_MAXIMUM = 100  # unacknowledged messages of QoS 1 and 2 from the broker
_MAX_SECRET_BYTES = 65_535  # MQTT 5.0, 1.5.6
# Called with topic, payload, and whether the message was retained. It must not block and must not raise.
Take = Callable[[str, bytes, bool], None]


class BrokerError(Exception):
    """The broker is unreachable, refuses the connection or does not respond. The message contains a hint."""


@dataclass(frozen=True, slots=True)
class Access:
    """Address and credentials. The files are read at each connect because they are renewed in place."""

    broker: Broker
    client_id: str
    qos: int
    user: str = ""
    password_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


class _ErrorLog(logging.Handler):
    """Keeps paho's last error line, the only source of the reason for a socket failure.

    Other lines are not logged because they can quote message contents.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()

    def logger(self) -> logging.Logger:
        found = logging.Logger("mqtt", logging.ERROR)  # noqa: LOG001 - of this connection, and of no tree
        found.addHandler(self)
        return found


class Client:
    """A single connection. `limits`: the broker's CONNACK properties, set by `connect`."""

    def __init__(self, access: Access, secrets: "Secrets", will: Outgoing, take: Take) -> None:
        self.limits: Properties | None = None
        self._access = access
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[str] = self._loop.create_future()
        self._answers: dict[int, asyncio.Future[Any]] = {}  # by packet identifier
        self._socket: socket.socket | None = None  # set while the event loop watches it
        self._misc: asyncio.TimerHandle | None = None
        self._rest: asyncio.Handle | None = None
        self._errors = _ErrorLog()
        self._paho = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=access.client_id, protocol=mqtt.MQTTv5
        )
        self._paho.enable_logger(self._errors.logger())
        if access.user:
            self._paho.username_pw_set(access.user, secrets.password)
        if secrets.tls is not None:
            self._paho.tls_set_context(secrets.tls)
        properties = _properties(will, PacketTypes.WILLMESSAGE)
        self._paho.will_set(will.topic, will.payload, access.qos, will.retain, properties)

    async def connect(self) -> None:
        """Connect and wait for the broker's CONNACK. Raises BrokerError."""
        # Name resolution, TCP and TLS block, so they run in a thread.
        opening = asyncio.ensure_future(BoundedExecutor("mqtt-connect")(self._open))
        try:
            await asyncio.shield(opening)
            self._watch()
            async with asyncio.timeout(TIMEOUT_S):
                await self._opened
        except asyncio.CancelledError:
            opening.add_done_callback(self._close_when)
            raise
        except TimeoutError as error:
            raise BrokerError(str(error) or "no answer in time") from error
        except (OSError, ValueError) as error:
            raise BrokerError(f"{error or type(error).__name__}") from error

    async def publish(self, message: Outgoing, qos: int) -> str:
        """Publish a message. Returns the broker's reason to refuse it; "" if the broker accepted it.

        With QoS 0, "" means that the message was sent. Raises BrokerError.
        """
        properties = _properties(message, PacketTypes.PUBLISH)
        info = self._paho.publish(message.topic, message.payload, qos, message.retain, properties)
        reason: ReasonCode = await self._answer(info.rc, info.mid, TIMEOUT_S)
        return str(reason) if reason.is_failure else ""

    async def subscribe(self, topic: str, qos: int, timeout_s: float) -> str:
        """Subscribe. Returns the broker's reason to refuse; "" if subscribed. Raises BrokerError."""
        reasons: list[ReasonCode] = await self._answer(*self._paho.subscribe(topic, qos), timeout_s)
        return next((str(reason) for reason in reasons if reason.is_failure), "")

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe and wait for the broker's response. Raises BrokerError."""
        await self._answer(*self._paho.unsubscribe(topic), TIMEOUT_S)

    async def gone(self) -> str:
        """Wait for the end of the connection. Returns the reason."""
        return await asyncio.shield(self._gone)

    def drop(self, reason: str) -> None:
        """End the connection for this reason. `gone` returns it."""
        self._end(reason)

    async def leave(self) -> None:
        """Send DISCONNECT, so that the broker discards the will, and wait until it is sent."""
        if self._paho.disconnect() == MQTTErrorCode.MQTT_ERR_SUCCESS:
            await self.gone()

    def close(self) -> None:
        """Close the socket at once, in any state of the connection."""
        self._end("closed")
        self._unwatch()
        if (found := self._paho.socket()) is not None:
            found.close()

    def _open(self) -> None:
        """Open the connection. Blocks, so it runs in a thread.

        The callbacks are set later, so all of them run on the event loop.
        """
        broker = self._access.broker
        self._paho.connect(
            broker.host, broker.port, _KEEPALIVE_S, clean_start=True, properties=_connect_properties()
        )

    def _close_when(self, opened: "asyncio.Future[None]") -> None:
        """Close the connection if `connect` was cancelled while its thread was running."""
        if not opened.cancelled():
            opened.exception()
        self.close()

    async def _answer(self, error: MQTTErrorCode, mid: int | None, timeout_s: float) -> Any:
        """Wait for the broker's response to a packet and return it. Raises BrokerError.

        `asyncio.wait_for` is not used: before Python 3.12 it loses a cancellation that arrives together with
        the response.
        """
        if error != MQTTErrorCode.MQTT_ERR_SUCCESS or mid is None or self._gone.done():
            raise BrokerError("the connection is lost")
        answer = self._answers[mid] = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise BrokerError(f"no response within {timeout_s:g} s") from None
        finally:
            self._answers.pop(mid, None)

    def _answered(self, mid: int, answer: Any) -> None:
        waiting = self._answers.pop(mid, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _end(self, reason: str) -> None:
        """Mark the connection as ended. All pending requests fail."""
        if self._gone.done():
            return
        self._gone.set_result(reason)
        gone = BrokerError("the connection is lost")
        failures = [(self._opened, BrokerError(reason)), *((one, gone) for one in self._answers.values())]
        for waiting, error in failures:
            if not waiting.done():
                waiting.set_exception(error)
                waiting.exception()  # retrieved here because the caller may no longer await it

    # The socket on the event loop

    def _watch(self) -> None:
        """Register the socket with the event loop. Raises BrokerError if the connection has already ended."""
        found = self._paho.socket()
        if not isinstance(found, socket.socket) or self._gone.done():
            raise BrokerError(self._why_lost())
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = found
        paho = self._paho
        paho.on_connect, paho.on_disconnect = self._on_connect, self._on_disconnect
        paho.on_publish = lambda _, __, mid, reason, ___: self._answered(mid, reason)
        paho.on_subscribe = lambda _, __, mid, reasons, ___: self._answered(mid, reasons)
        paho.on_unsubscribe = lambda _, __, mid, reasons, ___: self._answered(mid, reasons)
        paho.on_message = self._on_message
        paho.on_socket_close = lambda *_: self._unwatch()
        paho.on_socket_register_write = lambda *_: self._watch_writes(found)
        paho.on_socket_unregister_write = lambda *_: self._unwatch_writes(found)
        self._loop.add_reader(found, self._readable)
        if paho.want_write():
            self._watch_writes(found)
        self._look_at_timers()

    def _watch_writes(self, found: socket.socket) -> None:
        self._loop.add_writer(found, self._step, self._paho.loop_write)

    def _unwatch_writes(self, found: socket.socket) -> None:
        self._loop.remove_writer(found)

    def _unwatch(self) -> None:
        for handle in (self._misc, self._rest):
            if handle is not None:
                handle.cancel()
        self._misc = self._rest = None
        if self._socket is None:
            return
        found, self._socket = self._socket, None
        self._loop.remove_reader(found)
        self._loop.remove_writer(found)
        self._paho.on_socket_close = None  # paho calls these for a closed socket too
        self._paho.on_socket_register_write = None
        self._paho.on_socket_unregister_write = None

    def _step(self, process: Callable[[], MQTTErrorCode]) -> None:
        """Run one of paho's `loop_*` calls. They raise if a packet is malformed."""
        try:
            process()
        except Exception as error:  # a malformed packet can raise any exception
            self._end(f"the broker sent an unreadable packet: {type(error).__name__}")

    def _readable(self) -> None:
        if self._rest is None:
            self._read()

    def _read(self) -> None:
        """Read one packet, and schedule another read if TLS has more decrypted data.

        The event loop does not see data that TLS has already read from the socket.
        """
        self._rest = None
        self._step(self._paho.loop_read)
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            self._rest = self._loop.call_soon(self._read)

    def _look_at_timers(self) -> None:
        self._step(self._paho.loop_misc)
        if self._socket is not None and not self._gone.done():
            self._misc = self._loop.call_later(_MISC_S, self._look_at_timers)

    # paho's callbacks

    def _on_connect(
        self, client: mqtt.Client, userdata: Any, flags: Any, reason: ReasonCode, properties: Any
    ) -> None:
        self.limits = properties
        if reason.is_failure:
            self._end(self._why(str(reason)))
        elif not self._opened.done():
            self._opened.set_result(None)

    def _on_disconnect(
        self, client: mqtt.Client, userdata: Any, flags: Any, reason: ReasonCode, properties: Any
    ) -> None:
        code = str(reason)
        lost = code == _NO_REASON or not reason.is_failure
        self._end(self._why_lost() if lost else self._why(code))

    def _on_message(self, client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        with contextlib.suppress(UnicodeDecodeError):  # invalid topic; brokers do not forward those
            self._take(message.topic, bytes(message.payload), message.retain)

    def _why(self, code: str) -> str:
        """Return a reason code as text, with a hint where the operator can act."""
        hints = {
            "Not authorized": "check mqtt_user, mqtt_password_file and the broker's access rules",
            "Bad user name or password": "check mqtt_user and mqtt_password_file",
            "Session taken over": f"another client uses the client id {self._access.client_id!r}; "
            "set a different mqtt_client_id",
            "Unsupported protocol version": "the broker must support MQTT 5",
            "Packet too large": "raise the broker's limit (mosquitto: max_packet_size)",
        }
        hint = next((hint for word, hint in hints.items() if word.lower() in code.lower()), "")
        return f"{code}{'; ' if hint else ''}{hint}"

    def _why_lost(self) -> str:
        if self._errors.last:
            return f"the connection was lost: {self._errors.last}"
        # A broker that stops ends a connection this way. Some do so when another client takes this id.
        return (
            "the connection was lost without a reason; if this repeats, another client may use the client id "
            f"{self._access.client_id!r}: set a different mqtt_client_id"
        )


@dataclass(frozen=True, slots=True)
class Secrets:
    """Secrets read from files. Their values are never printed."""

    password: str | None
    tls: ssl.SSLContext | None

    def __repr__(self) -> str:
        return "Secrets()"


def read_secrets(access: Access) -> Secrets:
    """Read the password file and the TLS files. Blocks, so call it in a thread.

    Raises BrokerError that names the file.
    """
    password = None
    if access.password_file is not None:
        try:
            with access.password_file.open("rb") as file:
                found = file.read(_MAX_SECRET_BYTES + 2).rstrip(b"\r\n")
            if len(found) > _MAX_SECRET_BYTES:
                raise BrokerError(
                    f"mqtt_password_file {access.password_file}: more than {_MAX_SECRET_BYTES} bytes"
                )
            password = found.decode()
        except UnicodeDecodeError as error:
            raise BrokerError(f"mqtt_password_file {access.password_file}: not UTF-8") from error
        except OSError as error:
            raise BrokerError(f"mqtt_password_file {access.password_file}: {error.strerror}") from error
    if not access.broker.tls:
        return Secrets(password, None)
    try:
        tls = ssl.create_default_context(cafile=access.ca)
    except OSError as error:
        raise BrokerError(f"mqtt_tls_ca {access.ca}: {error}") from error
    if access.cert is not None:
        try:
            tls.load_cert_chain(access.cert, access.key)
        except OSError as error:
            raise BrokerError(f"mqtt_tls_cert {access.cert}, mqtt_tls_key {access.key}: {error}") from error
    return Secrets(password, tls)


def _connect_properties() -> Any:
    found: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    found.SessionExpiryInterval = 0  # publishers send again what this client missed
    found.MaximumPacketSize = _MAX_PACKET_BYTES
    found.ReceiveMaximum = _RECEIVE_MAXIMUM
    return found


def _properties(message: Outgoing, packet: int) -> Any:
    found: Any = Properties(packet)  # type: ignore[no-untyped-call]
    found.PayloadFormatIndicator = 1  # UTF-8
    found.ContentType = "application/json"
    found.UserProperty = ("schema-version", SCHEMA_VERSION)
    if message.expiry_s is not None:
        found.MessageExpiryInterval = message.expiry_s
    return found
