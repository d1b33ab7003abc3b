"""Manages the dissecting process: starts it for a frame, kills it when it hangs, ends it when idle.

The agent validates every answer, because a hostile frame may have compromised the dissecting process.
"""

import asyncio
import contextlib
import json
import struct
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import cast

from hyperscout_formats.facts.facts import LldpNeighbour

from hyperscout_agent.runtime.subprocesses import end_process, kill_group
from hyperscout_agent.runtime.waiting import Wait, wait

_LENGTH = struct.Struct("!I")
_MAX_ANSWER_BYTES = 64 * 1024
_STDERR_BYTES = 4096
# The first frame includes the start of Python and scapy (0.5 s on an idle machine). Others take under 1 ms.
_TIMEOUT_S = 30.0
_IDLE_S = 10.0
_COMMAND = (sys.executable, "-m", "hyperscout_agent.lldp.dissector")
_MAX_TEXTS = 64
_MAX_TEXT_CHARS = 1024
_MAX_TTL_S = 65_535


class UnreadableError(Exception):
    """The frame is not valid LLDP. The message gives the reason."""


class DissectorError(Exception):
    """The dissecting process could not start or failed. The frame may be valid."""


class Dissector:
    """Runs at most one dissecting process, which handles one frame at a time."""

    def __init__(
        self,
        command: Sequence[str] = _COMMAND,
        *,
        timeout_s: float = _TIMEOUT_S,
        idle_s: float = _IDLE_S,
        wait: Wait = wait,
    ) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._idle_s = idle_s
        self._wait = wait
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._used = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Process id of the running process, or None."""
        return self._process.pid if self._process else None

    async def dissect(self, frame: bytes) -> LldpNeighbour:
        """Return the neighbour in a frame. Raises UnreadableError or DissectorError.

        After DissectorError the next frame starts a new process.
        """
        async with self._lock:
            try:
                async with asyncio.timeout(self._timeout_s):
                    process = self._process = self._process or await self._start()
                    answer = await self._ask(process, frame)
            except TimeoutError:
                await self._end()
                raise DissectorError(f"no answer in {self._timeout_s:g} s") from None
            except (OSError, asyncio.IncompleteReadError) as error:
                said = await self._last_words()
                raise DissectorError(f"it ended: {said or type(error).__name__}") from error
            except BaseException:
                await self._end()
                raise
            self._used.set()
            try:
                return _read_answer(answer)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                await self._end()
                raise DissectorError(f"nonsense from the dissecting process: {error}") from error

    async def end_when_idle(self) -> None:
        """Run until cancelled. End the process when it was idle for `idle_s`, and on cancellation."""
        try:
            while True:
                await self._used.wait()
                self._used.clear()
                await self._wait(self._used, self._idle_s)
                if not self._used.is_set():
                    async with self._lock:
                        await self._end()
        finally:
            await self._end()

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=_STDERR_BYTES,
        )

    async def _ask(self, process: asyncio.subprocess.Process, frame: bytes) -> bytes:
        stdin = cast("asyncio.StreamWriter", process.stdin)
        stdout = cast("asyncio.StreamReader", process.stdout)
        stdin.write(_LENGTH.pack(len(frame)) + frame)
        await stdin.drain()
        (size,) = _LENGTH.unpack(await stdout.readexactly(_LENGTH.size))
        if size > _MAX_ANSWER_BYTES:
            raise ConnectionError(f"an answer of {size} bytes")
        return await stdout.readexactly(size)

    async def _last_words(self) -> str:
        """End the process and return the last line of its stderr (a missing scapy, a crash)."""
        said = b""
        if self._process is not None:
            kill_group(self._process)
            stderr = cast("asyncio.StreamReader", self._process.stderr)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    said = await stderr.read(_STDERR_BYTES)
        await self._end()
        lines = said.decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else ""

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            cast("asyncio.StreamWriter", process.stdin).close()
            await end_process(process)


def _read_answer(text: bytes) -> LldpNeighbour:
    """Parse and validate an answer.

    Raises UnreadableError when the answer is an error, and ValueError, TypeError, KeyError or RecursionError
    when it is malformed.
    """
    answer = json.loads(text)
    if "error" in answer:
        raise UnreadableError(str(answer["error"])[:300])
    given = answer["neighbour"]
    values = {field.name: given[field.name] for field in fields(LldpNeighbour)}
    ttl_s = values.pop("ttl_s")
    addresses = values.pop("management_addresses")
    capabilities = values.pop("capabilities")
    if type(ttl_s) is not int or not 0 <= ttl_s <= _MAX_TTL_S:
        raise ValueError("a TTL that is none")
    for texts in (list(values.values()), addresses, capabilities):
        if not isinstance(texts, list) or len(texts) > _MAX_TEXTS:
            raise ValueError("a list that is none")
        if not all(isinstance(one, str) and len(one) <= _MAX_TEXT_CHARS for one in texts):
            raise ValueError("a text that is none")
    return LldpNeighbour(
        **values, ttl_s=ttl_s, management_addresses=tuple(addresses), capabilities=tuple(capabilities)
    )
