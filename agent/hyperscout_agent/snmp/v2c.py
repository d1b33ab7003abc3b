"""Queries switches over SNMPv2c, with one UDP socket for each address family and its own decoder.

Datagrams are not logged, because they contain the community.
"""

import asyncio
import logging
import secrets
import socket
from typing import Any, Final

from hyperscout_formats.snmp.message import get_bulk, response
from hyperscout_formats.text.errors import FormatError

from hyperscout_agent.snmp.access import Community
from hyperscout_agent.snmp.outcomes import Answer, ClientStats, SilentError
from hyperscout_agent.snmp.walk import Oid

_log = logging.getLogger(__name__)

_NUMBER_BITS: Final = 31


class CommunityAsker:
    """Sends requests with any community. Close it on the event loop that used it."""

    def __init__(self, stats: ClientStats) -> None:
        self._stats = stats
        self._sockets: dict[socket.AddressFamily, asyncio.Task[_Socket]] = {}

    async def bulk(
        self,
        address: tuple[str, int],
        credential: Community,
        question: tuple[Oid, int],
        timeout_s: float,
        retries: int,
    ) -> Answer:
        """Send a GETBULK request and repeat it up to `retries` times. Raises SilentError."""
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        opening = self._sockets.get(family)
        if opening is None:
            opening = self._sockets[family] = asyncio.create_task(_opened(family, self._stats))
        try:
            found = await asyncio.shield(opening)
        except OSError:
            self._sockets.pop(family, None)
            raise SilentError from None
        return await found.ask(address, credential.community.reveal().encode(), question, timeout_s, retries)

    def close(self) -> None:
        for opening in self._sockets.values():
            if opening.done():
                _close(opening)
            else:
                opening.add_done_callback(_close)
        self._sockets.clear()


class _Socket(asyncio.DatagramProtocol):
    def __init__(self, stats: ClientStats) -> None:
        self._stats = stats
        self._waiting: dict[int, tuple[bytes, asyncio.Future[Answer]]] = {}

    def connection_made(self, transport: Any) -> None:
        self.transport: asyncio.DatagramTransport = transport

    async def ask(
        self,
        address: tuple[str, int],
        community: bytes,
        question: tuple[Oid, int],
        timeout_s: float,
        retries: int,
    ) -> Answer:
        """Send a request and wait for its answer. Raises SilentError."""
        number = secrets.randbits(_NUMBER_BITS)
        while number in self._waiting:
            number = secrets.randbits(_NUMBER_BITS)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (community, answer)
        request = get_bulk(community, number, *question)
        try:
            for _ in range(retries + 1):
                self.transport.sendto(request, address)
                await asyncio.wait((answer,), timeout=timeout_s)
                if answer.done():
                    return answer.result()
        finally:
            del self._waiting[number]
        raise SilentError

    def datagram_received(self, data: bytes, address: Any) -> None:
        """Match an answer by request number and community: a switch may answer from another address."""
        try:
            found = response(data)
        except FormatError:
            self._stats.garbage += 1
            _log.debug("a datagram that cannot be read")
            return
        community, answer = self._waiting.get(found.number, (b"", None))
        if answer is not None and not answer.done() and found.community == community:
            answer.set_result(Answer(found.error, found.rows))

    def error_received(self, exc: Exception) -> None:
        """Log an unreachable address. The request ends with its time-out."""
        _log.debug("a request that cannot be sent: %s", type(exc).__name__)


async def _opened(family: socket.AddressFamily, stats: ClientStats) -> _Socket:
    """Open a socket of an address family. Raises OSError."""
    loop = asyncio.get_running_loop()
    _, found = await loop.create_datagram_endpoint(lambda: _Socket(stats), family=family)
    return found


def _close(opening: "asyncio.Task[_Socket]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().transport.close()
