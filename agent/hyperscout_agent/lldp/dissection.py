"""Manages the dissecting process: starts it for a frame, kills it when it hangs, ends it when idle.

The agent validates every answer, because a hostile frame may have compromised the dissecting process.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from hyperscout_formats.facts.facts import LldpNeighbour

from hyperscout_agent.runtime.subprocesses import LineWorker, WorkerEndedError
from hyperscout_agent.runtime.tasks import Wait, wait

_MAX_ANSWER_BYTES = 64 * 1024
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
        self, command: Sequence[str] = _COMMAND, *, timeout_s: float = _TIMEOUT_S, wait: Wait = wait
    ) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._wait = wait
        self._worker: LineWorker | None = None
        self._lock = asyncio.Lock()
        self._used = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Process id of the running process, or None."""
        return self._worker.pid if self._worker else None

    async def dissect(self, frame: bytes) -> LldpNeighbour:
        """Return the neighbour in a frame. Raises UnreadableError or DissectorError.

        After DissectorError the next frame starts a new process.
        """
        async with self._lock:
            try:
                async with asyncio.timeout(self._timeout_s):
                    if self._worker is None:
                        self._worker = await LineWorker.start(self._command, line_bytes=_MAX_ANSWER_BYTES)
                    await self._worker.write(frame.hex().encode())
                    neighbour = _neighbour(await self._worker.read())
            except UnreadableError:
                raise
            except BaseException as error:
                await self._end()
                if (reason := self._reason(error)) is None:
                    raise
                raise DissectorError(reason) from error
            finally:
                self._used.set()
            return neighbour

    async def end_when_idle(self) -> None:
        """Run until cancelled. End the process when it was idle for 10 s, and on cancellation."""
        try:
            while True:
                await self._used.wait()
                self._used.clear()
                await self._wait(self._used, _IDLE_S)
                if not self._used.is_set():
                    async with self._lock:
                        await self._end()
        finally:
            await self._end()

    def _reason(self, error: BaseException) -> str | None:
        """Return the text for a failure of the process, None for another exception."""
        match error:
            case TimeoutError():
                return f"the dissecting process did not answer in {self._timeout_s:g} s"
            case WorkerEndedError():
                return f"the dissecting process ended: {str(error) or 'no output on stderr'}"
            case OSError():
                return f"the dissecting process cannot be started: {error.strerror or error}"
            case ValueError() | TypeError() | KeyError() | RecursionError():
                return f"the dissecting process sent an invalid answer: {error}"
        return None

    async def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.end()


def _neighbour(line: bytes) -> LldpNeighbour:
    """Parse and validate an answer.

    Raises UnreadableError when the answer is an error, and ValueError, TypeError, KeyError or RecursionError
    when it is malformed.
    """
    answer = json.loads(line)
    if "error" in answer:
        raise UnreadableError(str(answer["error"])[:300])
    given = answer["neighbour"]
    checks: Mapping[str, Callable[[Any], Any]] = {
        "ttl_s": _ttl,
        "management_addresses": _texts,
        "capabilities": _texts,
    }
    values: dict[str, Any] = {}
    for field in fields(LldpNeighbour):
        check: Callable[[Any], Any] = checks.get(field.name, _text)
        values[field.name] = check(given[field.name])
    return LldpNeighbour(**values)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT_CHARS:
        raise ValueError(f"expected a text of at most {_MAX_TEXT_CHARS} characters")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MAX_TEXTS:
        raise ValueError(f"expected a list of at most {_MAX_TEXTS} texts")
    return tuple(map(_text, value))


def _ttl(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_TTL_S:
        raise ValueError(f"expected a TTL of 0 to {_MAX_TTL_S} s")
    return value
