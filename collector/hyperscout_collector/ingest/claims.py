"""Records in PostgreSQL which streams this replica has, some at a time."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import grpc
from hyperscout_runtime.bounded_executor import BoundedExecutor

from hyperscout_collector.ingest.streams import AgentStream, StreamEndedError
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.replicas import Change, Claim, LostClaim, Mark, ReplicaTables

_log = logging.getLogger(__name__)

_AT_ONCE = 500  # changes of one transaction, for which other replicas wait
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class _Waiting:
    change: Change
    done: "asyncio.Future[int] | None"  # the number of the batch; None = it is repeated until it is stored


class Claims:
    """A `StreamOwner`. Run `run` as a task.

    `load(nodes)` brings the evidence of claimed nodes into memory before their streams begin. It raises
    StoreError. `drop(nodes)` is called for as many streams that have ended.
    """

    def __init__(
        self,
        tables: ReplicaTables,
        *,
        load: Callable[[Sequence[str]], Awaitable[None]],
        drop: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        self._tables = tables
        self._load = load
        self._drop = drop
        self._waiting: list[_Waiting] = []
        self._answered = 0  # the highest number of a batch that the store has answered
        self._work = asyncio.Event()
        self._in_thread = BoundedExecutor("claims")

    async def claim(self, stream: AgentStream) -> None:
        """See `StreamOwner`. A claim of a caller that is cancelled ends at once."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        hello = stream.hello
        self._put(_Waiting(Claim(stream.node, hello.instance, hello.SerializeToString()), done))
        try:
            stream.claimed = await asyncio.shield(done)
        except asyncio.CancelledError:
            done.add_done_callback(lambda done: self._unwanted(stream, done))
            raise
        except StoreError as error:
            raise StreamEndedError(grpc.StatusCode.UNAVAILABLE, f"no stream is taken: {error}") from error
        if not stream.claimed:
            raise StreamEndedError(
                grpc.StatusCode.ABORTED,
                f"a newer agent of {stream.node} is connected to another replica: stop the older process, "
                "or give each machine a name of its own",
            )

    def ended(self, stream: AgentStream) -> None:
        self._put(_Waiting(Mark(stream.node, stream.claimed, ended=True), None))

    def full_state(self, stream: AgentStream) -> None:
        """The stream has sent its full state, and it is stored."""
        self._put(_Waiting(Mark(stream.node, stream.claimed, ended=False), None))

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            if not await self.flush():
                await asyncio.sleep(_RETRY_S)
                self._work.set()

    async def flush(self) -> bool:
        """Write what waits. Returns False if a part has to be written again."""
        while self._waiting:
            some, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            try:
                numbers = await self._in_thread(self._tables.change, [one.change for one in some])
                ends = [one.change.node for one in some if isinstance(one.change, Mark) and one.change.ended]
                claims = [
                    one.change.node
                    for one, number in zip(some, numbers, strict=True)
                    if number and isinstance(one.change, Claim)
                ]
            except StoreError as error:
                self._repeat_later(some)
                for one in some:
                    if one.done is not None:
                        one.done.set_exception(error)
                        one.done.exception()  # marks it as retrieved when its caller was cancelled
                return False
            self._answered = max(self._answered, *numbers)
            failure: StoreError | None = None
            if claims:
                try:
                    await self._load(claims)
                except StoreError as error:
                    failure = error
            for one, number in zip(some, numbers, strict=True):
                if one.done is None:
                    continue
                if failure is None or not number:
                    one.done.set_result(number)
                else:
                    one.done.set_exception(failure)
                    one.done.exception()
                    self._put(_Waiting(Mark(one.change.node, number, ended=True), None))
            if ends:
                await self._drop(ends)
        return True

    def _repeat_later(self, some: Sequence[_Waiting]) -> None:
        """The store may have `some`, whose answer was an error: repeat ends, and end what was claimed."""
        repeated = [one for one in some if one.done is None]
        lost = {LostClaim(one.change.node, self._answered) for one in some if one.done is not None}
        lost -= {one.change for one in (*repeated, *self._waiting)}
        self._waiting = [*repeated, *(_Waiting(one, None) for one in lost), *self._waiting]

    def _put(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        self._work.set()

    def _unwanted(self, stream: AgentStream, done: "asyncio.Future[int]") -> None:
        with contextlib.suppress(StoreError):
            if stream_number := done.result():
                stream.claimed = stream_number
                self.ended(stream)
