"""Queries switches over SNMPv3, authenticated and encrypted, through pysnmp.

pysnmp raises an exception for a datagram that it cannot decode. The event loop would log it with the
datagram, so datagrams pass through a guard. The agent imports this module only when it queries switches.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from hyperscout_formats.snmp import rows as snmp_rows
from hyperscout_formats.snmp.rows import Row
from pysnmp.carrier.asyncio.dgram import udp, udp6
from pysnmp.entity import config
from pysnmp.entity.engine import SnmpEngine
from pysnmp.entity.rfc3413.cmdgen import BulkCommandGenerator
from pysnmp.proto import errind, rfc1902
from pysnmp.proto.api import v2c

from hyperscout_agent.snmp.access import User
from hyperscout_agent.snmp.outcomes import Answer, ClientStats, SilentError, SwitchError, named
from hyperscout_agent.snmp.walk import Oid

_log = logging.getLogger(__name__)

# The resolution of pysnmp's time-outs.
_TICK_S: Final = 0.1
_AUTH: Final[Mapping[str, Any]] = {
    "SHA": config.USM_AUTH_HMAC96_SHA,
    "SHA-224": config.USM_AUTH_HMAC128_SHA224,
    "SHA-256": config.USM_AUTH_HMAC192_SHA256,
    "SHA-384": config.USM_AUTH_HMAC256_SHA384,
    "SHA-512": config.USM_AUTH_HMAC384_SHA512,
}
# Key extension for keys longer than the digest: Blumenthal's draft as in net-snmp, or Reeder's draft (-C) as
# in Cisco IOS.
_PRIV: Final[Mapping[str, Any]] = {
    "AES": config.USM_PRIV_CFB128_AES,
    "AES-192": config.USM_PRIV_CFB192_AES_BLUMENTHAL,
    "AES-256": config.USM_PRIV_CFB256_AES_BLUMENTHAL,
    "AES-192-C": config.USM_PRIV_CFB192_AES,
    "AES-256-C": config.USM_PRIV_CFB256_AES,
}
_GRACE_S: Final = 2.0  # beyond pysnmp's own time-out
# Kind of a row and conversion of its value, by ASN.1 tag. Other tags mean that there is no value.
_VALUES: Final[Mapping[Any, tuple[str, Callable[[Any], snmp_rows.Value]]]] = {
    rfc1902.Integer32.tagSet: (snmp_rows.INTEGER, int),
    rfc1902.OctetString.tagSet: (snmp_rows.STRING, bytes),
    rfc1902.ObjectIdentifier.tagSet: (snmp_rows.OID, tuple),
    rfc1902.IpAddress.tagSet: (snmp_rows.ADDRESS, bytes),
    rfc1902.Counter32.tagSet: (snmp_rows.COUNTER, int),
    rfc1902.Unsigned32.tagSet: (snmp_rows.GAUGE, int),
    rfc1902.TimeTicks.tagSet: (snmp_rows.TICKS, int),
    rfc1902.Opaque.tagSet: (snmp_rows.OPAQUE, bytes),
    rfc1902.Counter64.tagSet: (snmp_rows.COUNTER64, int),
}


class UserAsker:
    """Sends requests as one user, because a pysnmp engine distinguishes users only by name."""

    def __init__(self, user: User, stats: ClientStats) -> None:
        self._user = user
        self._stats = stats
        self._engine = SnmpEngine()
        self._generator = BulkCommandGenerator()
        self._targets: dict[tuple[str, int], str] = {}

    async def bulk(
        self, address: tuple[str, int], question: tuple[Oid, int], timeout_s: float, retries: int
    ) -> Answer:
        """Send a GETBULK request and repeat it up to `retries` times. Raises SilentError and SwitchError.

        pysnmp's own retries are not used, because a failing retry would end its timer.
        """
        for _ in range(retries + 1):
            try:
                async with asyncio.timeout(timeout_s + _GRACE_S):
                    trouble, status, varbinds = await self._once(address, question, timeout_s)
            except TimeoutError:
                continue
            if trouble is None:
                return Answer(status.prettyPrint() if status else "", _rows(varbinds))
            if not isinstance(trouble, errind.RequestTimedOut | str):  # a str: an answer to another request
                raise SwitchError(_refusal(trouble, self._user))
        raise SilentError

    def close(self) -> None:
        self._engine.close_dispatcher()

    async def _once(
        self, address: tuple[str, int], question: tuple[Oid, int], timeout_s: float
    ) -> tuple[Any, Any, Any]:
        """Send once. Returns pysnmp's error, the switch's error status, and the variable bindings."""
        done: asyncio.Future[tuple[Any, Any, Any]] = asyncio.get_running_loop().create_future()

        def answered(_: Any, __: Any, trouble: Any, status: Any, ___: Any, varbinds: Any, ____: Any) -> None:
            if not done.done():
                done.set_result((trouble, status, varbinds))

        start, repetitions = question
        try:
            target = self._target(address, timeout_s)
            binds = [(v2c.ObjectIdentifier(start), v2c.null)]
            self._generator.send_varbinds(self._engine, target, None, "", 0, repetitions, binds, answered)
        except Exception as error:  # the text of pysnmp's exceptions may contain the request
            raise SwitchError(f"could not be asked: {type(error).__name__}") from None
        return await done

    def _target(self, address: tuple[str, int], timeout_s: float) -> str:
        name = self._targets.get(address)
        if name is not None:
            return name
        if not self._targets:
            config.add_v3_user(
                self._engine,
                self._user.name,
                _AUTH[self._user.auth],
                self._user.auth_password.reveal(),
                _PRIV[self._user.priv],
                self._user.priv_password.reveal(),
            )
            config.add_target_parameters(self._engine, "user", self._user.name, "authPriv", 3)
        family = udp6 if ":" in address[0] else udp
        if config.get_transport(self._engine, family.DOMAIN_NAME) is None:
            transport = (_Udp6 if family is udp6 else _Udp)()
            transport.stats = self._stats
            config.add_transport(self._engine, family.DOMAIN_NAME, transport.open_client_mode())
            self._engine.transport_dispatcher.set_timer_resolution(_TICK_S)
        name = self._targets[address] = f"t{len(self._targets)}"
        config.add_target_address(
            self._engine, name, family.DOMAIN_NAME, address, "user", round(timeout_s * 100), 0
        )
        return name


class _Guarded:
    """A mix-in for pysnmp transports that drops and counts datagrams that pysnmp cannot decode."""

    stats: ClientStats

    def register_callback(self, callback: Callable[[Any, Any, bytes], None]) -> None:
        def guarded(transport: Any, address: Any, datagram: bytes) -> None:
            try:
                callback(transport, address, datagram)
            except Exception as error:  # a datagram may have any content
                self.stats.garbage += 1
                _log.debug("a datagram that cannot be read: %s", type(error).__name__)

        super().register_callback(guarded)  # type: ignore[misc]  # of the transport beside this class


class _Udp(_Guarded, udp.UdpAsyncioTransport):  # type: ignore[misc]  # pysnmp ships no types
    pass


class _Udp6(_Guarded, udp6.Udp6AsyncioTransport):  # type: ignore[misc]
    pass


def _rows(varbinds: Any) -> list[Row]:
    """Convert variable bindings up to the first without a value, which is the end of the MIB view."""
    found = []
    for oid, value in varbinds:
        known = _VALUES.get(value.tagSet)
        if known is None:
            break
        kind, read = known
        found.append(Row(tuple(oid), kind, read(value)))
    return found


def _refusal(trouble: Any, user: User) -> str:
    """Describe an error of pysnmp or of the switch without its own text, which may quote the request."""
    whose = named(user)
    match type(trouble).__name__:
        case "UnknownUserName" | "UnknownSecurityName":
            return f"the switch does not know {whose}"
        case "WrongDigest" | "AuthenticationFailure" | "AuthenticationError":
            return f"{whose}: the switch has another authentication password or protocol"
        case "DecryptionError":
            return f"{whose}: the switch has another privacy password or protocol"
        case "UnsupportedSecurityLevel" | "UnsupportedAuthProtocol" | "UnsupportedPrivProtocol":
            return f"{whose}: the switch lacks its authentication or encryption (authPriv is needed)"
        case "NotInTimeWindow":
            return "the clock of its SNMP engine was set back: the next crawl queries it again"
        case name:
            return f"SNMP says {name}"
