"""Asks switches over SNMP: questions of a walk out, answers in, and what went wrong in words to act on.

One client serves one crawl: what an engine has learnt of switches (their clocks, their ids, keys made for
them) goes with it, so a switch that was replaced needs no special case, and credentials that were changed do
not linger.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from hyperscout_formats import snmp_varbinds
from hyperscout_formats.errors import FormatError
from hyperscout_formats.snmp_rows import Row
from pysnmp.proto import errind

from hyperscout_agent.snmp_access import Credential, User
from hyperscout_agent.snmp_engine import ClientStats, Engine, SwitchError
from hyperscout_agent.snmp_walk import MAX_ROWS, Oid, Walk, WalkError

# Whatever pysnmp does with an answer, a question ends this long after it should have.
_GRACE_S: Final = 2.0
# A walk that got this long goes on when no other one is as long: rows of several would fill the memory.
_LONG_ROWS: Final = 20_000


class _Silent(Exception):  # noqa: N818 - what happened
    """No answer in time."""


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
        self._engines: dict[object, Engine] = {}
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
            if isinstance(trouble, errind.RequestTimedOut | str):  # a text: an answer to something else
                raise _Silent
            raise SwitchError(_refusal(trouble, credential))
        if status:
            return status.prettyPrint(), []
        try:
            return "", snmp_varbinds.parse(varbinds)
        except FormatError:
            self._stats.garbage += 1
            raise _Silent from None

    def _engine(self, credential: Credential) -> Engine:
        """Communities share one; a user has one alone, for engines tell users apart by their name."""
        key = credential if isinstance(credential, User) else None
        engine = self._engines.get(key)
        if engine is None:
            engine = self._engines[key] = Engine(self._stats)
        return engine

    def _silence(self, credential: Credential, *, begun: bool) -> str:
        took = f"no answer in {self._timeout_s * (self._retries + 1):g} s"
        if begun:
            return f"{took}, in the middle of it"
        what = "has another privacy password there" if isinstance(credential, User) else "is not its own"
        return f"{took}: it is down, lets nobody ask from here, or {_of(credential)} {what}"


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
