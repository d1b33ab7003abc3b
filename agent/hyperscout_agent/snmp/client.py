"""Walks switches over SNMP: sends a walk's requests, passes on the answers, and explains failures.

One client serves one crawl. The engine's state (clocks, engine ids and localised keys of switches) ends with
it. So a replaced switch needs no special case, and changed credentials leave nothing behind.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from hyperscout_agent.snmp.access import Credential, User
from hyperscout_agent.snmp.outcomes import Answer, ClientStats, SilentError, SwitchError, named
from hyperscout_agent.snmp.v2c import CommunityAsker
from hyperscout_agent.snmp.v3 import UserAsker
from hyperscout_agent.snmp.walk import MAX_ROWS, Oid, Walk, WalkError

# A walk with more rows than this continues only when no other walk is as long, to limit memory use.
_LONG_ROWS: Final = 20_000


class SnmpClient:
    """Walks switches. `timeout_s`: seconds until a request is repeated, up to `retries` times."""

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
        """Walk the subtrees in `wanted` and return the walk with all rows. Raises SwitchError.

        `first`: called after the first answer; if it returns False, the walk ends and None is returned.
        """
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
        """Close all sockets. They are closed after one iteration of the event loop."""
        self._communities.close()
        for asker in self._users.values():
            asker.close()
        self._users.clear()
        await asyncio.sleep(0)

    async def _ask(self, address: str, credential: Credential, walk: Walk, question: tuple[Oid, int]) -> None:
        """Send one request and pass its result to the walk. Raises SwitchError."""
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
        """Send one request with the credential. Raises SilentError and SwitchError."""
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
    """A context manager for a lock that may be acquired inside the block. Releases it at the end."""

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


# Errors of a switch when its access control denies the requested view.
_NOT_SHOWN: Final = frozenset({"authorizationError", "noAccess"})
