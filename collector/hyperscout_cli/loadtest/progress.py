"""Collects the messages of the processes, and waits for conditions."""

import asyncio
import time
from collections.abc import Callable

from hyperscout_cli.loadtest.child import LoadTestError, Message
from hyperscout_cli.loadtest.link_schedule import Change, Stamped

_SAY_EVERY_S = 5.0


class Progress:
    """The messages of all processes of a load test, on one event loop. `say` prints a line of progress."""

    def __init__(self, agents: int, processes: int, say: Callable[[str], None]) -> None:
        self.made: list[Stamped] = []
        self.seen: list[Stamped] = []
        self.nodes = 0  # that the watcher sees in the tree
        self.published_ns = 0  # when the watcher got its last event
        self.complete_ns = 0  # when it first saw all nodes
        self.pending: dict[int, bool] = {}  # link -> whether it goes down, until the watcher sees it
        self._agents = agents
        self._processes = processes
        self._say = say
        self._ready: set[int] = set()
        self._renewed: set[int] = set()
        self._states: dict[int, Message] = {}
        self._changed = asyncio.Condition()
        self._failed = ""

    async def of_agents(self, process: int, message: Message) -> None:
        async with self._changed:
            if "ready" in message:
                self._ready.add(process)
            elif "warning" in message:
                self._say(f"an agent warns: {message['warning']}")
            elif "renewed" in message:
                self._renewed.add(process)
            elif "made" in message:
                at_ns, link, down = message["made"]
                self.made.append(Stamped(at_ns, Change(link, down)))
            else:
                self._states[process] = message
            self._changed.notify_all()

    async def of_watcher(self, message: Message) -> None:
        async with self._changed:
            self.nodes, self.published_ns = message["nodes"], message["at_ns"]
            if self.nodes >= self._agents:
                self.complete_ns = self.complete_ns or self.published_ns
            for links, down in ((message["down"], True), (message["returned"], False)):
                for link in links:
                    self.seen.append(Stamped(message["at_ns"], Change(link, down)))
                    if self.pending.get(link) is down:
                        del self.pending[link]
            self._changed.notify_all()

    async def fail(self, reason: str) -> None:
        async with self._changed:
            self._failed = self._failed or reason
            self._changed.notify_all()

    @property
    def ready(self) -> bool:
        """Whether all processes of agents have built their fabric."""
        return len(self._ready) == self._processes

    @property
    def renewed(self) -> bool:
        """Whether all processes of agents have changed all findings."""
        return len(self._renewed) == self._processes

    @property
    def findings(self) -> int:
        """Number of findings that all agents have."""
        return sum(state["findings"] for state in self._states.values())

    def settled(self, since_ns: int) -> bool:
        """Whether all processes said after `since_ns` that all findings are acknowledged."""
        states = self._states.values()
        return len(states) == self._processes and all(x["settled"] and x["at_ns"] > since_ns for x in states)

    @property
    def settled_ns(self) -> int:
        """When the last process said so."""
        return max(int(state["at_ns"]) for state in self._states.values())

    def connected(self) -> str:
        """The connected agents and the published nodes in words."""
        streaming = sum(state["streaming"] for state in self._states.values())
        return f"{streaming} of {self._agents} agents are connected, {self.nodes} nodes are published"

    async def until(self, expected: str, holds: Callable[[], bool], timeout_s: float) -> None:
        """Wait until `holds`, and print progress. Raises LoadTestError."""
        give_up_s = time.monotonic() + timeout_s
        while True:
            left_s = give_up_s - time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, min(_SAY_EVERY_S, left_s))), self._changed:
                    await self._changed.wait_for(lambda: bool(self._failed) or holds())
            except TimeoutError:
                if left_s <= _SAY_EVERY_S:
                    why = f"expected within {timeout_s:g} s: {expected}; now {self.connected()}"
                    raise LoadTestError(f"{why}: give a longer --timeout, or fewer agents") from None
                self._say(self.connected())
                continue
            if self._failed:
                raise LoadTestError(self._failed)
            return

    async def quiet(self, quiet_s: float, timeout_s: float) -> None:
        """Wait until nothing was published for some seconds. Raises LoadTestError."""
        give_up_s = time.monotonic() + timeout_s
        while (rest_s := quiet_s - (time.monotonic_ns() - self.published_ns) / 1e9) > 0:
            if time.monotonic() > give_up_s:
                raise LoadTestError(f"the collector still publishes after {timeout_s:g} s without a change")
            await asyncio.sleep(rest_s)
            self.check()

    def check(self) -> None:
        """Raise LoadTestError if a process has failed."""
        if self._failed:
            raise LoadTestError(self._failed)
