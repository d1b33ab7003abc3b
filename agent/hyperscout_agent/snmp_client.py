"""Asks switches over SNMP, with pysnmp: v2c, and v3 with authentication and encryption.

The only part that knows pysnmp, and imported only where switches are asked. One client serves one crawl: what
an engine has learnt of switches (their clocks, their ids, keys made for them) goes with it, so a switch that
was replaced needs no special case, and credentials that were changed do not linger.

A datagram that pysnmp cannot read becomes an exception in the event loop, which would log it, and with it the
community that is in it. So datagrams are taken in behind a guard.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hyperscout_formats import snmp_varbinds
from hyperscout_formats.errors import FormatError
from hyperscout_formats.snmp_rows import Row
from pyasn1.type import namedtype, univ
from pysnmp.carrier.asyncio.dgram import udp, udp6
from pysnmp.entity import config
from pysnmp.entity.engine import SnmpEngine
from pysnmp.entity.rfc3413.cmdgen import BulkCommandGenerator
from pysnmp.proto import errind, rfc1901, rfc1905
from pysnmp.proto.api import v2c
from pysnmp.proto.mpmod import rfc2576, rfc3412
from pysnmp.proto.rfc3412 import MsgAndPduDispatcher

from hyperscout_agent.snmp_access import Community, Credential, User
from hyperscout_agent.snmp_walk import MAX_ROWS, Oid, Walk, WalkError

_log = logging.getLogger(__name__)

# How exactly pysnmp's time-outs are kept.
_TICK_S: Final = 0.1
# Whatever pysnmp does with an answer, a question ends this long after it should have.
_GRACE_S: Final = 2.0
# A walk that got this long goes on when no other one is as long: rows of several would fill the memory.
_LONG_ROWS: Final = 20_000

_AUTH: Final[Mapping[str, Any]] = {
    "SHA": config.USM_AUTH_HMAC96_SHA,
    "SHA-224": config.USM_AUTH_HMAC128_SHA224,
    "SHA-256": config.USM_AUTH_HMAC192_SHA256,
    "SHA-384": config.USM_AUTH_HMAC256_SHA384,
    "SHA-512": config.USM_AUTH_HMAC384_SHA512,
}
# Keys longer than the digest: Blumenthal's draft, as net-snmp has it; that of Reeder (-C), as Cisco has it.
_PRIV: Final[Mapping[str, Any]] = {
    "AES": config.USM_PRIV_CFB128_AES,
    "AES-192": config.USM_PRIV_CFB192_AES_BLUMENTHAL,
    "AES-256": config.USM_PRIV_CFB256_AES_BLUMENTHAL,
    "AES-192-C": config.USM_PRIV_CFB192_AES,
    "AES-256-C": config.USM_PRIV_CFB256_AES,
}


class SwitchError(Exception):
    """A switch gave nothing that is of use; says why, in words that hold no secret."""


class _Silent(Exception):  # noqa: N818 - what happened
    """No answer in time."""


@dataclass(slots=True)
class ClientStats:
    """Since the start of the process."""

    requests: int = 0
    silences: int = 0  # questions that got no answer, however often they were sent
    rows: int = 0
    garbage: int = 0  # datagrams that could not be read


class SnmpClient:
    """`timeout_s`: until a question is sent again, which is done `retries` times."""

    def __init__(
        self, *, port: int, timeout_s: float, retries: int, stats: ClientStats, max_rows: int = MAX_ROWS
    ) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._retries = retries
        self._stats = stats
        self._max_rows = max_rows
        self._engines: dict[object, _Engine] = {}
        self._long = asyncio.Lock()

    async def walk(
        self,
        address: str,
        credential: Credential,
        wanted: Sequence[Oid],
        first: Callable[[Walk], bool],
    ) -> Walk | None:
        """All rows of the wanted parts. `first` is asked after the first answer whether to go on; None = it
        said no. Raises SwitchError."""
        walk = Walk(wanted, max_rows=self._max_rows)
        asked = False
        try:
            async with _Held(self._long) as long:
                while (question := walk.next) is not None:
                    await self._ask(address, credential, walk, question)
                    if not asked and not first(walk):
                        return None
                    asked = True
                    if len(walk) > _LONG_ROWS:
                        await long.hold()
        except WalkError as error:
            raise SwitchError(str(error)) from None
        return walk

    async def close(self) -> None:
        """End all of it. Sockets are closed when the loop has turned once."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()
        await asyncio.sleep(0)

    async def _ask(self, address: str, credential: Credential, walk: Walk, question: tuple[Oid, int]) -> None:
        """One question, and its answer into the walk."""
        before = len(walk)
        try:
            error, rows = await self._send(address, credential, question)
        except _Silent:
            self._stats.silences += 1
            if not walk.silent():
                raise SwitchError(self._silence(credential, begun=before > 0)) from None
            return
        if error:
            if not before and error in _NOT_SHOWN:
                raise SwitchError(f"{error}: its view does not let {_of(credential)} read LLDP-MIB")
            walk.refused(error)
        else:
            walk.answered(rows)
            self._stats.rows += len(walk) - before

    async def _send(
        self, address: str, credential: Credential, question: tuple[Oid, int]
    ) -> tuple[str, list[Row]]:
        """The name of the error that came, and rows. Raises _Silent, SwitchError."""
        self._stats.requests += 1
        engine = self._engine(credential)
        limit_s = self._timeout_s * (self._retries + 1)
        try:
            async with asyncio.timeout(limit_s + _GRACE_S):
                trouble, status, varbinds = await engine.bulk(
                    (address, self._port), credential, question, self._timeout_s, self._retries
                )
        except TimeoutError:
            raise _Silent from None
        if trouble is not None:
            if isinstance(trouble, errind.RequestTimedOut):
                raise _Silent
            raise SwitchError(_refusal(trouble, credential))
        if status:
            return status.prettyPrint(), []
        try:
            return "", snmp_varbinds.parse(varbinds)
        except FormatError:
            self._stats.garbage += 1
            raise _Silent from None

    def _engine(self, credential: Credential) -> "_Engine":
        """Communities share one; a user has one alone, for engines tell users apart by their name."""
        key = credential if isinstance(credential, User) else None
        engine = self._engines.get(key)
        if engine is None:
            engine = self._engines[key] = _Engine(self._stats)
        return engine

    def _silence(self, credential: Credential, *, begun: bool) -> str:
        took = f"no answer in {self._timeout_s * (self._retries + 1):g} s"
        if begun:
            return f"{took}, in the middle of it"
        what = "has another privacy password there" if isinstance(credential, User) else "is not its own"
        return f"{took}: it is down, lets nobody ask from here, or {_of(credential)} {what}"


class _Engine:
    """One engine of pysnmp, and what it was told of targets."""

    def __init__(self, stats: ClientStats) -> None:
        self._stats = stats
        self._engine = SnmpEngine(msgAndPduDsp=_Ticking())
        for model in (_V2c(), _V3()):
            self._engine.message_processing_subsystems[model.MESSAGE_PROCESSING_MODEL_ID] = model
        self._generator = _Bulk()
        self._names: dict[object, str] = {}

    async def bulk(
        self,
        address: tuple[str, int],
        credential: Credential,
        question: tuple[Oid, int],
        timeout_s: float,
        retries: int,
    ) -> tuple[Any, Any, Any]:
        """What pysnmp says of it: its error, that of the switch, and variable bindings as they came."""
        done: asyncio.Future[tuple[Any, Any, Any]] = asyncio.get_running_loop().create_future()

        def answered(trouble: Any, status: Any, varbinds: Any) -> None:
            if not done.done():
                done.set_result((trouble, status, varbinds))

        start, repetitions = question
        try:
            target = self._target(address, self._security(credential), timeout_s, retries)
            self._generator.send_varbinds(
                self._engine, target, None, "", 0, repetitions, [(start, v2c.null)], answered
            )
        except Exception as error:  # whatever it is: its text may hold what was to be sent
            raise SwitchError(f"could not be asked: {type(error).__name__}") from None
        return await done

    def close(self) -> None:
        self._engine.close_dispatcher()

    def _security(self, credential: Credential) -> str:
        """The name that credentials have in this engine."""
        name = self._names.get(credential)
        if name is not None:
            return name
        name = self._names[credential] = f"c{len(self._names)}"
        if isinstance(credential, Community):
            config.add_v1_system(self._engine, name, credential.community.reveal())
            config.add_target_parameters(self._engine, name, name, "noAuthNoPriv", 1)
            return name
        config.add_v3_user(
            self._engine,
            credential.name,
            _AUTH[credential.auth],
            credential.auth_password.reveal(),
            _PRIV[credential.priv],
            credential.priv_password.reveal(),
        )
        config.add_target_parameters(self._engine, name, credential.name, "authPriv", 3)
        return name

    def _target(self, address: tuple[str, int], security: str, timeout_s: float, retries: int) -> str:
        name = self._names.get((address, security))
        if name is not None:
            return name
        udp_of = udp6 if ":" in address[0] else udp
        if config.get_transport(self._engine, udp_of.DOMAIN_NAME) is None:
            transport = (_Udp6 if udp_of is udp6 else _Udp)()
            transport.stats = self._stats
            config.add_transport(self._engine, udp_of.DOMAIN_NAME, transport.open_client_mode())
            self._engine.transport_dispatcher.set_timer_resolution(_TICK_S)
        name = self._names[address, security] = f"t{len(self._names)}"
        config.add_target_address(
            self._engine, name, udp_of.DOMAIN_NAME, address, security, round(timeout_s * 100), retries
        )
        return name


class _Guarded:
    """Drops what cannot be read, and counts it; who asked is told by the time-out."""

    stats: ClientStats
    _callback_function: Callable[[Any, Any, bytes], None] | None

    def datagram_received(self, datagram: bytes, address: Any) -> None:
        if self._callback_function is None:
            return  # closed
        try:
            self._callback_function(self, address, datagram)
        except Exception as error:  # anybody may send anything
            self.stats.garbage += 1
            _log.debug("a datagram that cannot be read: %s", type(error).__name__)


class _Udp(_Guarded, udp.UdpAsyncioTransport):  # type: ignore[misc]  # pysnmp ships no types
    pass


class _Udp6(_Guarded, udp6.Udp6AsyncioTransport):  # type: ignore[misc]
    pass


class _Ticking(MsgAndPduDispatcher):  # type: ignore[misc]
    """Goes on after a question that cannot be sent again, or no other would ever time out."""

    def receive_timer_tick(self, *arguments: Any) -> None:
        try:
            super().receive_timer_tick(*arguments)
        except Exception as error:
            _log.debug("a question that cannot be sent again: %s", type(error).__name__)


class _Bulk(BulkCommandGenerator):  # type: ignore[misc]
    """Hands an answer's variable bindings on as they came."""

    def process_response_varbinds(self, _: Any, __: Any, trouble: Any, pdu: Any, context: Any) -> None:
        answered = context[-2]
        if trouble:
            answered(trouble, 0, b"")
        else:
            answered(None, pdu.getComponentByPosition(1), bytes(pdu.getComponentByPosition(3)))


def _unread(spec: Any, name: str, inner: Any) -> Any:
    """A type like `spec`, of which the part of that name is `inner`."""
    types = (
        namedtype.NamedType(name, inner) if one.name == name else one for one in spec.componentType.namedTypes
    )
    return type(spec.__name__, (spec,), {"componentType": namedtype.NamedTypes(*types)})


# pysnmp takes a tenth of a millisecond for a variable, nearly all of it to make objects of them. So in an
# answer they are left as they are (`Any`), for our own reader, which takes a twentieth of that.
_Response = _unread(rfc1905.ResponsePDU, "variable-bindings", univ.Any())
_Pdus = _unread(rfc1905.PDUs, "response", _Response())
_Scoped = _unread(rfc3412.ScopedPDU, "data", _Pdus())


class _V2c(rfc2576.SnmpV2cMessageProcessingModel):  # type: ignore[misc]
    SNMP_MSG_SPEC = _unread(rfc1901.Message, "data", _Pdus())


class _V3(rfc3412.SnmpV3MessageProcessingModel):  # type: ignore[misc]
    SNMP_MSG_SPEC = _unread(
        rfc3412.SNMPv3Message, "msgData", _unread(rfc3412.ScopedPduData, "plaintext", _Scoped())()
    )


class _Held:
    """A lock that is taken at some time or not at all, and given back in the end."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._held = False

    async def hold(self) -> None:
        if not self._held:
            await self._lock.acquire()
            self._held = True

    async def __aenter__(self) -> "_Held":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._held:
            self._lock.release()


# What a switch says to one who may see nothing of what was asked.
_NOT_SHOWN: Final = frozenset({"authorizationError", "noAccess"})


def _of(credential: Credential) -> str:
    """Which entry of the settings it is."""
    what = "user" if isinstance(credential, User) else "community"
    return f"the {what} of snmp.access for {credential.ranges}"


def _refusal(trouble: Any, credential: Credential) -> str:
    """What pysnmp or the switch has against it, in words; none of theirs, which may quote what was sent."""
    whose = _of(credential)
    match type(trouble).__name__:
        case "UnknownUserName" | "UnknownSecurityName":
            return f"{whose} is not known there"
        case "WrongDigest" | "AuthenticationFailure" | "AuthenticationError":
            return f"{whose}: its authentication password or protocol is another one there"
        case "DecryptionError":
            return f"{whose}: its privacy password or protocol is another one there"
        case "UnsupportedSecurityLevel" | "UnsupportedAuthProtocol" | "UnsupportedPrivProtocol":
            return f"{whose}: it has no such authentication or encryption there (authPriv is needed)"
        case "NotInTimeWindow":
            return "its SNMP engine's clock went back: it is asked anew at the next crawl"
        case name:
            return f"SNMP says {name}"
