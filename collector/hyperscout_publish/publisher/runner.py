"""Runs publishers: each at its own pace, always with the newest topology, until it is published.

A publisher that fails is retried with increasing delay, and its problem is reported; that includes an
exception that it does not expect. It blocks neither the collector nor other publishers.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from hyperscout_runtime.backoff import Backoff
from hyperscout_runtime.errors import described
from hyperscout_topology.topology import Topology

from hyperscout_publish.publisher.base import Publisher, PublishError

_log = logging.getLogger(__name__)

_RETRY_BASE_S = 1.0
_RETRY_CAP_S = 60.0


@dataclass(slots=True)
class PublisherState:
    """State of a publisher. `problem`: why the newest topology is not published; None if it is."""

    publisher: Publisher
    problem: str | None = None
    generation: int = 0  # the last one that was published
    errors: int = 0
    retries: int = 0
    _newest: Topology | None = None
    _wake: asyncio.Event = field(default_factory=asyncio.Event)


class PublisherRunner:
    """Runs publishers. Call `run` once for each of `states`, as a separate task."""

    def __init__(self, publishers: Sequence[Publisher], *, rng: Random) -> None:
        self.states = tuple(PublisherState(publisher) for publisher in publishers)
        self._rng = rng
        for state in self.states:
            state.publisher.wake.subscribe(state._wake.set)

    def offer(self, topology: Topology) -> None:
        """Offer a new generation. It replaces one that is not published yet."""
        for state in self.states:
            state._newest = topology
            state._wake.set()

    def wake(self) -> None:
        """Retry failed publishers at once, because the cause may be gone."""
        for state in self.states:
            if state.problem is not None:
                state._wake.set()

    @property
    def problems(self) -> list[str]:
        """Problems of publishers, and the `notice` of publishers without problem."""
        messages = [(s, s.problem or getattr(s.publisher, "notice", None)) for s in self.states]
        return [f"publisher {s.publisher.name}: {text}" for s, text in messages if text]

    async def run(self, state: PublisherState) -> None:
        """Publish until cancelled."""
        backoff = Backoff(_RETRY_BASE_S, _RETRY_CAP_S, self._rng)
        while True:
            await state._wake.wait()
            state._wake.clear()
            topology = state._newest
            if topology is None:
                continue
            state.retries += backoff.failures > 0
            try:
                await state.publisher.publish(topology)
            except Exception as error:
                self._failed(state, error)
                delay_s = backoff.next_s()
                if not isinstance(error, PublishError) or error.retry:
                    await self._wait(state, delay_s)
                continue
            backoff.reset()
            if state.problem is not None:
                _log.info("publisher %s works again", state.publisher.name)
            state.problem, state.generation = None, topology.generation

    def _failed(self, state: PublisherState, error: Exception) -> None:
        state.errors += 1
        expected = isinstance(error, PublishError)
        problem = str(error) if expected else f"an internal error: {described(error)}"
        if problem != state.problem:
            _log.error(
                "publisher %s: %s", state.publisher.name, problem, exc_info=None if expected else error
            )
        state.problem = problem

    async def _wait(self, state: PublisherState, delay_s: float) -> None:
        """Wait until a retry is due, or there is a newer topology or a call of `wake`."""
        try:
            async with asyncio.timeout(delay_s):
                await state._wake.wait()
        except TimeoutError:
            state._wake.set()
