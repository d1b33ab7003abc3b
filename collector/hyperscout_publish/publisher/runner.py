"""Runs publishers: each at its own pace, always with the newest topology, until it is out.

A publisher that fails is tried again, later each time, and its trouble is shown; it holds up neither the
collector nor its siblings.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from hyperscout_topology.topology import Topology

from hyperscout_publish.publisher.base import Publisher, PublishError

_log = logging.getLogger(__name__)

_RETRY_BASE_S = 1.0
_RETRY_CAP_S = 60.0


def retry_s(failures: int) -> float:
    """How long to wait at most after so many failures in a row: any number of them."""
    return min(_RETRY_BASE_S * 2.0 ** min(failures - 1, 30), _RETRY_CAP_S)


@dataclass(slots=True)
class PublisherState:
    """What one publisher did since the start. `problem`: why the newest topology is not out; None = it is."""

    publisher: Publisher
    problem: str | None = None
    generation: int = 0  # the last one that is out
    errors: int = 0
    retries: int = 0
    _newest: Topology | None = None
    _wake: asyncio.Event = field(default_factory=asyncio.Event)


class PublisherRunner:
    """`run` once for each of `states`, as a task of its own."""

    def __init__(
        self,
        publishers: Sequence[Publisher],
        published: Callable[[Topology], None] = lambda topology: None,
        *,
        rng: Random,
    ) -> None:
        self.states = tuple(PublisherState(publisher) for publisher in publishers)
        self._published = published
        self._rng = rng
        for state in self.states:
            state.publisher.wake = state._wake.set

    def offer(self, topology: Topology) -> None:
        """A new generation; one that is not out yet is dropped."""
        for state in self.states:
            state._newest = topology
            state._wake.set()

    def wake(self) -> None:
        """What could not be done may be possible now."""
        for state in self.states:
            if state.problem is not None:
                state._wake.set()

    @property
    def problems(self) -> list[str]:
        """Why something is not out, and what publishers have to say although all is out (`notice`)."""
        said = [(s, s.problem or getattr(s.publisher, "notice", None)) for s in self.states]
        return [f"publisher {s.publisher.name}: {text}" for s, text in said if text]

    async def run(self, state: PublisherState) -> None:
        """Publish until cancelled."""
        failures = 0
        while True:
            await state._wake.wait()
            state._wake.clear()
            topology = state._newest
            if topology is None:
                continue
            state.retries += failures > 0
            try:
                await state.publisher.publish(topology)
            except PublishError as error:
                failures += 1
                self._failed(state, error)
                if error.retry:
                    await self._wait(state, retry_s(failures) * self._rng.uniform(0.5, 1.0))
                continue
            failures = 0
            if state.problem is not None:
                _log.info("publisher %s works again", state.publisher.name)
            state.problem, state.generation = None, topology.generation
            self._published(topology)

    def _failed(self, state: PublisherState, error: PublishError) -> None:
        state.errors += 1
        if state.problem is None:
            _log.error("publisher %s: %s", state.publisher.name, error)
        state.problem = str(error)

    async def _wait(self, state: PublisherState, delay_s: float) -> None:
        """Until it is time to try again, or there is something newer to try with."""
        try:
            async with asyncio.timeout(delay_s):
                await state._wake.wait()
        except TimeoutError:
            state._wake.set()
