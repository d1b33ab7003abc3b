"""Asks switches over SNMP: questions of a walk out, answers in, and what went wrong in words to act on.

One client serves one crawl: what an engine has learnt of switches (their clocks, their ids, keys made for
them) goes with it, so a switch that was replaced needs no special case, and credentials that were changed do
not linger.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from hyperscout_agent.snmp.access import Credential, User
from hyperscout_agent.snmp.outcomes import Answer, ClientStats, SilentError, SwitchError, named
from hyperscout_agent.snmp.v2c import CommunityAsker
from hyperscout_agent.snmp.v3 import UserAsker
from hyperscout_agent.snmp.walk import MAX_ROWS, Oid, Walk, WalkError

# A walk that got this long goes on when no other one is as long: rows of several would fill the memory.
_LONG_ROWS: Final = 20_000


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
        self._communities = CommunityAsker(stats)
        self._users: dict[User, UserAsker] = {}
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
        self._communities.close()
        for asker in self._users.values():
            asker.close()
        self._users.clear()
        await asyncio.sleep(0)

    async def _ask(self, address: str, credential: Credential, walk: Walk, question: tuple[Oid, int]) -> None:
        """One question, and its answer into the walk."""
        before = len(walk)
        try:
            error, rows = await self._send(address, credential, question)
        except SilentError:
            self._stats.silences += 1
            if not walk.silent():
                raise SwitchError(self._silence(credential, begun=before > 0)) from None
            return
        if error:
            if not before and error in _NOT_SHOWN:
                raise SwitchError(f"{error}: its view does not let {named(credential)} read LLDP-MIB")
            walk.refused(error)
        else:
            walk.answered(rows)
            self._stats.rows += len(walk) - before

    async def _send(self, address: str, credential: Credential, question: tuple[Oid, int]) -> Answer:
        """Raises SilentError, SwitchError."""
        self._stats.requests += 1
        where, timeout_s, retries = (address, self._port), self._timeout_s, self._retries
        if not isinstance(credential, User):
            return await self._communities.bulk(where, credential, question, timeout_s, retries)
        asker = self._users.get(credential)
        if asker is None:
            asker = self._users[credential] = UserAsker(credential, self._stats)
        return await asker.bulk(where, question, timeout_s, retries)

    def _silence(self, credential: Credential, *, begun: bool) -> str:
        took = f"no answer in {self._timeout_s * (self._retries + 1):g} s"
        if begun:
            return f"{took}, in the middle of it"
        what = "has another privacy password there" if isinstance(credential, User) else "is not its own"
        return f"{took}: it is down, does not answer this host, or {named(credential)} {what}"


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
