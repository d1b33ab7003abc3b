"""aiomqtt's client, and what it keeps to itself: what the broker allows, why it refuses a message, and an end
that always comes.

A refused message (an access rule that is missing) would pass for one that is out, and a broker that stands
still would keep the socket for as long as it likes.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiomqtt
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from hyperscout_collector.mqtt.payloads import SCHEMA_VERSION, Outgoing
from hyperscout_collector.mqtt.topics import Broker

_T = TypeVar("_T")
_NO_REASON = "Unspecified error"  # what paho makes of a socket that failed
TIMEOUT_S = 10.0  # for an answer of the broker
_KEEPALIVE_S = 20
_MAX_PACKET_BYTES = 4 * 1024 * 1024  # states of our own come back when they are listed
_RECEIVE_MAXIMUM = 100  # messages of QoS 1 and 2 on their way to us
_MAX_SECRET_BYTES = 64 * 1024  # the protocol has no longer ones
# Topic, payload, and whether the broker had kept it from before. Must not block, and must not raise.
Take = Callable[[str, bytes, bool], None]


class BrokerError(Exception):
    """The broker is not there, does not let us in, or does not take a message. Says what to do."""


@dataclass(frozen=True, slots=True)
class Access:
    """How to get in. Files are read at each connect: they are renewed in place."""

    broker: Broker
    client_id: str
    qos: int
    user: str = ""
    password_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


class _Overheard(logging.Handler):
    """Both libraries log what they send, at times with its content: none of it goes anywhere. But why a
    socket failed stands nowhere else."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()

    def logger(self) -> logging.Logger:
        found = logging.Logger("mqtt", logging.ERROR)  # noqa: LOG001 - of this connection, and of no tree
        found.addHandler(self)
        return found


class Client(aiomqtt.Client):
    """One connection, made once. `limits`: what the broker said of itself, once it is connected."""

    def __init__(self, access: Access, secrets: "Secrets", will: Outgoing, take: Take) -> None:
        self._overheard = _Overheard()
        super().__init__(
            access.broker.host,
            access.broker.port,
            username=access.user or None,
            password=secrets.password,
            logger=self._overheard.logger(),
            identifier=access.client_id,
            protocol=aiomqtt.ProtocolVersion.V5,
            will=aiomqtt.Will(
                will.topic, will.payload, access.qos, will.retain, _properties(will, PacketTypes.WILLMESSAGE)
            ),
            timeout=TIMEOUT_S,
            keepalive=_KEEPALIVE_S,
            clean_start=True,
            properties=_connect_properties(),
            tls_context=secrets.tls,
            socket_options=((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),),  # what is small need not wait
        )
        self.limits: Properties | None = None
        self._access = access
        self._take = take
        self._acks: dict[int, asyncio.Future[str]] = {}
        self._dropped: asyncio.Future[str] = self._loop.create_future()

    async def connected(self) -> None:
        """Connect. Raises BrokerError."""
        opening = asyncio.ensure_future(self.__aenter__())
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._close_when)
            raise
        except aiomqtt.MqttCodeError as error:
            raise BrokerError(self._why(error)) from error
        except (aiomqtt.MqttError, OSError, ValueError) as error:
            raise BrokerError(f"{error or type(error).__name__}") from error

    async def sent(self, message: Outgoing, qos: int) -> str:
        """Returns why the broker refuses it; "" = it has it, or (QoS 0) it is on its way.

        Raises BrokerError.
        """
        info = self._client.publish(
            message.topic, message.payload, qos, message.retain, _properties(message, PacketTypes.PUBLISH)
        )
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise BrokerError("the connection is gone")
        ack = self._acks[info.mid] = self._loop.create_future()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                refused: str = await ack
                return refused
        except TimeoutError:
            raise BrokerError(f"no answer within {TIMEOUT_S:g} s") from None
        finally:
            self._acks.pop(info.mid, None)

    async def gone(self) -> str:
        """Wait for the end of the connection. Returns why it ended."""
        ended = asyncio.ensure_future(self._ended())
        try:
            await asyncio.wait((ended, self._dropped), return_when=asyncio.FIRST_COMPLETED)
            return self._dropped.result() if self._dropped.done() else ended.result()
        finally:
            ended.cancel()

    async def _ended(self) -> str:
        try:
            async for _ in self.messages:
                pass
        except aiomqtt.MqttError as error:
            cause = error.__cause__
            return self._why(cause) if isinstance(cause, aiomqtt.MqttCodeError) else self._why_lost()
        return "the broker closed the connection"

    def drop(self, reason: str) -> None:
        """Give it up: it does not do what it should."""
        if not self._dropped.done():
            self._dropped.set_result(reason)

    async def leave(self) -> None:
        """Say good-bye, so that the will is not read."""
        with contextlib.suppress(aiomqtt.MqttError):
            await self.__aexit__(None, None, None)

    def close(self) -> None:
        """Let go of the socket, whatever state it is in."""
        self.drop("closed")
        for ack in self._acks.values():
            if not ack.done():
                ack.set_exception(BrokerError("the connection is gone"))
                ack.exception()
        self._client.reinitialise()
        if self._disconnected.done():
            self._disconnected.exception()  # nobody else may have asked

    async def _wait_for(self, fut: Awaitable[_T], timeout: float | None) -> _T:  # noqa: ASYNC109 - theirs
        """As the library does it, but whoever is told to end does so: before Python 3.12 `asyncio.wait_for`
        forgets a cancellation that comes together with the answer."""
        try:
            async with asyncio.timeout(self.timeout if timeout is None else timeout):
                return await fut
        except TimeoutError:
            raise aiomqtt.MqttError("no answer in time") from None

    def _close_when(self, opened: "asyncio.Future[Any]") -> None:
        """It was connected after nobody wanted it any more."""
        if not opened.cancelled():
            opened.exception()
        self.close()

    def _why(self, error: aiomqtt.MqttCodeError) -> str:
        """A reason code in words, with what to do about those that a person can do something about."""
        said = str(error.rc) if error.rc is not None else str(error)
        if said == _NO_REASON:
            return self._why_lost()
        hints = {
            "Not authorized": "look at mqtt_user, mqtt_password_file and the broker's access rules",
            "Bad user name or password": "look at mqtt_user and mqtt_password_file",
            "Session taken over": f"another client has the id {self._access.client_id!r}, "
            "and each needs one of its own: mqtt_client_id",
            "Unsupported protocol version": "it must speak MQTT 5",
            "Packet too large": "raise the broker's limit (mosquitto: max_packet_size)",
        }
        hint = next((hint for word, hint in hints.items() if word.lower() in said.lower()), "")
        return f"{said}{'; ' if hint else ''}{hint}"

    def _why_lost(self) -> str:
        if self._overheard.last:
            return f"the connection was lost: {self._overheard.last}"
        # So a broker ends, and so some of them make room for another client of this name.
        return (
            "the connection was lost without a reason; if that goes on, another client may have the id "
            f"{self._access.client_id!r}: mqtt_client_id"
        )

    # What paho calls, always on the loop once it is connected

    def _on_connect(
        self, client: Any, userdata: Any, flags: Any, reason_code: Any, properties: Properties | None = None
    ) -> None:
        self.limits = properties
        super()._on_connect(client, userdata, flags, reason_code, properties)

    def _on_disconnect(
        self, client: Any, userdata: Any, flags: Any, reason_code: Any, properties: Any = None
    ) -> None:
        if not self._connected.done():  # the other end may find our certificate wanting at any time
            self._connected.set_exception(aiomqtt.MqttCodeError(reason_code))
        super()._on_disconnect(client, userdata, flags, reason_code, properties)

    def _on_publish(
        self, client: Any, userdata: Any, mid: int, reason_code: Any, properties: Properties
    ) -> None:
        ack = self._acks.pop(mid, None)
        if ack is not None and not ack.done():
            ack.set_result(str(reason_code) if reason_code.is_failure else "")

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:
        with contextlib.suppress(UnicodeDecodeError):  # of a topic: no broker passes that on
            self._take(message.topic, message.payload, message.retain)


@dataclass(frozen=True, slots=True)
class Secrets:
    """What files say. Never printed."""

    password: str | None
    tls: ssl.SSLContext | None

    def __repr__(self) -> str:
        return "Secrets()"


def read_secrets(access: Access) -> Secrets:
    """Blocks: for a thread. Raises BrokerError that names the file."""
    password = None
    if access.password_file is not None:
        try:
            password = access.password_file.read_text("utf-8")[:_MAX_SECRET_BYTES].rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise BrokerError(f"mqtt_password_file {access.password_file}: no UTF-8") from error
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
    found.SessionExpiryInterval = 0  # what came while we were away is told anew by who said it
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
