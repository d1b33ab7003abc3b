"""What is used of pysnmp: v2c, and v3 with authentication and encryption. Imported only to ask switches.

A datagram that pysnmp cannot read becomes an exception in the event loop, which would log it, and with it the
community that is in it. So datagrams are taken in behind a guard.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyasn1.type import namedtype, univ
from pysnmp.carrier.asyncio.dgram import udp, udp6
from pysnmp.entity import config
from pysnmp.entity.engine import SnmpEngine
from pysnmp.entity.rfc3413.cmdgen import BulkCommandGenerator
from pysnmp.proto import rfc1901, rfc1905
from pysnmp.proto.api import v2c
from pysnmp.proto.mpmod import rfc2576, rfc3412
from pysnmp.proto.rfc3412 import MsgAndPduDispatcher

from hyperscout_agent.snmp_access import Community, Credential
from hyperscout_agent.snmp_walk import Oid

_log = logging.getLogger(__name__)

# How exactly pysnmp's time-outs are kept.
_TICK_S: Final = 0.1
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


@dataclass(slots=True)
class ClientStats:
    """Since the start of the process."""

    requests: int = 0
    silences: int = 0  # questions that got no answer, however often they were sent
    rows: int = 0
    garbage: int = 0  # datagrams that could not be read


class Engine:
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
