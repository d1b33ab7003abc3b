"""Serves `GET /v1/stream`: generations as server-sent events, with flow control.

A reader that reads nothing occupies only its connection's buffer. After `_STALL_S` the collector sends it an
`error` event with the problem `too-slow`, and disconnects it at the latest `_LINGER_S` later.

The format is text/event-stream (WHATWG HTML, 9.2). A snapshot has many `data:` lines, and its `event:` line
comes last. So a reader that is cut off within a snapshot receives an `error` event and never a partial
snapshot.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace

from hyperscout_topology import objects
from hyperscout_topology.diff import Diff
from hyperscout_topology.topology import Topology
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from hyperscout_collector.identity.access import Access
from hyperscout_collector.identity.callers import AccessError, Caller
from hyperscout_collector.serve.fanout.channel import Channel, Form, Reader, TooSlowError
from hyperscout_collector.serve.fanout.hub import Hub
from hyperscout_collector.serve.http.counters import RestCounters
from hyperscout_collector.serve.http.problems import ProblemError, of_access
from hyperscout_collector.serve.http.protocol import ABORT

BEAT_S = 15.0  # interval of comments: proxies cut silent connections, and credentials are checked again
RESUME_S = 120.0
MAX_DELTAS = 512
MAX_BYTES = 16 * 1024 * 1024
SPACING_S = 0.5  # minimum time between deltas: faster changes are combined
_REPLAY = 0.5
_STALL_S = 20.0  # a reader that takes less than one chunk in this time is too slow
_LINGER_S = 10.0  # time to deliver the error event to such a reader
_CHUNK_BYTES = 64 * 1024
_BEAT = b": beat\n\n"
_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # without it nginx buffers events
)
MAX_READERS = 1000


class Stream:
    """The channel of server-sent events. Run `run` as a task.

    `epoch`: a text that is unique to this collector process, so that the generations of two processes are not
    confused. `limit`: readers at once.
    """

    def __init__(self, hub: Hub, epoch: str, limit: int, counters: RestCounters) -> None:
        self.epoch = epoch
        self.counters = counters
        self._hub = hub
        self._limit = limit
        self._news = asyncio.Event()
        form = Form(
            lambda topology: tuple(encoded_snapshot(topology, epoch)),
            lambda diff: encoded_delta(diff, epoch),
            MAX_DELTAS,
            MAX_BYTES,
            replay=_REPLAY,
            restarts=False,
            resume_s=RESUME_S,
        )
        self.channel = Channel(form, hub.current_topology)
        hub.published.subscribe(self._news.set)

    def __len__(self) -> int:
        return len(self.channel)

    async def run(self) -> None:
        """Make a delta of each new generation while there are readers."""
        while True:
            await self._news.wait()
            self._news.clear()
            if await self.channel.advance(self._hub.current.topology):
                await asyncio.sleep(SPACING_S)

    def close(self, problem: ProblemError) -> None:
        """End all streams, present and future ones."""
        self.channel.close(problem)

    def join(self, since: str) -> Reader:
        """Add a reader. `since`: the id of the last event that it has, "" = none. Raises ProblemError."""
        if len(self) >= self._limit:
            raise ProblemError(
                429, "busy", f"{len(self)} readers are connected, which is the limit: try again later"
            )
        reader = self.channel.join(generation_of(since, self.epoch))
        self._news.set()
        self.counters.readers += 1
        self.counters.readers_total += 1
        return reader

    def leave(self, reader: Reader) -> None:
        self.channel.leave(reader)
        self.counters.readers -= 1


class StreamResponse:
    """The ASGI response of the stream.

    `reader` has joined the stream before and leaves it at the end. The access of `caller` is checked again
    during the stream.
    """

    def __init__(self, stream: Stream, reader: Reader, access: Access, caller: Caller) -> None:
        self._stream = stream
        self._reader = reader
        self._access = access
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        disconnected = asyncio.create_task(_disconnected(receive))
        disconnected.add_done_callback(self._reader.disconnect)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            problem = await self._send_events(send)
            if problem is not None:
                async with asyncio.timeout(_LINGER_S):
                    text = json.dumps(problem.document(Request(scope).url.path))
                    await _send(send, f"event: error\ndata: {text}\n\n".encode())
                    await send({"type": "http.response.body"})
        except TimeoutError:
            scope["state"][ABORT]()
        finally:
            self._stream.leave(self._reader)
            disconnected.cancel()

    async def _send_events(self, send: Send) -> ProblemError | None:
        """Send events until the stream ends. Returns the problem that ended it; None = the reader left."""
        messages = self._stream.channel.messages(self._reader, beat_s=BEAT_S)
        try:
            if self._reader.next >= 0:  # it resumes: confirm the connection
                await self._send_chunk(send, _BEAT)
            async with contextlib.aclosing(messages) as chunks:
                async for chunk in chunks:
                    await self._send_chunk(send, _BEAT if chunk is None else chunk)
                    # Only the last chunk of an event ends with an empty line.
                    self._stream.counters.events_total += chunk is not None and chunk.endswith(b"\n\n")
        except AccessError as error:
            return of_access(error)
        except ProblemError as problem:
            return problem
        except TooSlowError:
            return self._too_slow("the next delta is no longer stored")
        except TimeoutError:
            return self._too_slow(f"the reader read nothing for {_STALL_S:g} s")
        return None

    async def _send_chunk(self, send: Send, chunk: bytes) -> None:
        """Send a chunk. Raises AccessError if the caller's credentials expired, TimeoutError."""
        if self._access.over(self._caller):
            self._caller = await self._access.still_admitted(self._caller, "get")
        async with asyncio.timeout(_STALL_S):
            await _send(send, chunk)

    def _too_slow(self, why: str) -> ProblemError:
        self._stream.counters.dropped_total += 1
        return ProblemError(429, "too-slow", f"{why}: connect again")


async def _send(send: Callable[[dict[str, object]], Awaitable[None]], data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# Events


def generation_of(ident: str, epoch: str) -> int | None:
    """The generation of an event id; None = it has none, or is of another collector process.

    An id without an epoch is a generation of this process.
    """
    number, dash, of = ident.partition("-")
    if (dash and of != epoch) or not (number.isascii() and number.isdecimal() and len(number) < 20):
        return None
    return int(number)


def encoded_delta(diff: Diff, epoch: str) -> bytes:
    """The event with a delta. Blocks: call it in a thread."""
    text = json.dumps(objects.delta(diff), separators=(",", ":"))
    return f"id: {diff.new.generation}-{epoch}\nevent: delta\ndata: {text}\n\n".encode()


def encoded_snapshot(topology: Topology, epoch: str) -> Iterator[bytes]:
    """The event with a whole topology, in chunks that end at the end of a line. Blocks."""
    kept: list[str] = []
    size = 0
    for line in _lines(objects.topology_json(replace(topology, devices={}))):
        kept.append(f"data: {line}\n")
        size += len(line) + 7
        if size >= _CHUNK_BYTES:
            yield "".join(kept).encode()
            kept.clear()
            size = 0
    kept.append(f"id: {topology.generation}-{epoch}\nevent: snapshot\n\n")
    yield "".join(kept).encode()


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """The lines of a text that is given in pieces."""
    rest = ""
    for piece in pieces:
        *whole, rest = (rest + piece).split("\n")
        yield from whole
    if rest:
        yield rest
