"""Collects the messages of the processes, and waits for conditions."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hyperscout_cli.loadtest.child import LoadTestError, Message
from hyperscout_cli.loadtest.link_schedule import Change

_SAY_EVERY_S = 5.0


class Progress:
    """The messages of all processes of a load test, on one event loop. `say` prints a line of progress."""

    def __init__(self, agents: int, processes: int, say: Callable[[str], None]) -> None:
        self.commands = 0  # sent to each process of agents
        self.changes = 0  # of links that are measured; the last one has this number
        self.made_ns: dict[int, int] = {}  # by number of the change
        self.seen_ns: dict[int, int] = {}
        self.pending: dict[int, tuple[bool, int]] = {}  # link -> whether it goes down, number of the change
        self.nodes = 0  # that the watcher sees in the tree
        self.published_ns = 0  # when the watcher got its last event
        self.complete_ns = 0  # when it first saw all nodes
        self.acknowledged: dict[int, Any] = {}  # the last answer of each process of agents
        self._agents = agents
        self._processes = processes
        self._say = say
        self._states: dict[int, Message] = {}  # the newest of each process of agents
        self._news = asyncio.Event()
        self._failed = ""

    def of_agents(self, process: int, message: Message) -> None:
        if "warning" in message:
            self._say(f"an agent warns: {message['warning']}")
        elif "made" in message:
            self.made_ns[message["made"]] = message["at_ns"]
        elif "acknowledged" in message:
            self.acknowledged[process] = message["acknowledged"]
        else:
            self._states[process] = message
        self._news.set()

    def published(self, at_ns: int, nodes: int, changes: Iterable[Change]) -> None:
        """What the watcher sees: the number of nodes in the tree, and the links that have changed."""
        self.nodes, self.published_ns = nodes, at_ns
        if nodes >= self._agents:
            self.complete_ns = self.complete_ns or at_ns
        for change in changes:
            goes_down, number = self.pending.get(change.link, (None, 0))
            if goes_down is change.down:
                del self.pending[change.link]
                self.seen_ns[number] = at_ns
        self._news.set()

    def fail(self, reason: str) -> None:
        self._failed = self._failed or reason
        self._news.set()

    def collector_ended(self, _: object) -> None:
        self.fail("the collector ended; if the machine lacks memory, the log of its kernel says so")

    def begin(self, change: Change) -> int:
        """The number of a change that is made now. What the watcher sees of the link belongs to it."""
        self.changes += 1
        self.pending[change.link] = change.down, self.changes
        return self.changes

    @property
    def latencies_s(self) -> Mapping[int, float]:
        """Seconds until the watcher saw a change, by its number; only of changes that it saw."""
        seen_ns = self.seen_ns
        return {n: (seen_ns[n] - at_ns) / 1e9 for n, at_ns in self.made_ns.items() if n in seen_ns}

    @property
    def ready(self) -> bool:
        """Whether all processes of agents have built their fabric."""
        return len(self._states) == self._processes

    @property
    def findings(self) -> int:
        """Number of findings that all agents have."""
        return sum(state["findings"] for state in self._states.values())

    @property
    def settled(self) -> bool:
        """Whether all findings are acknowledged, after all processes carried out the last command."""
        return all(x["settled"] and x["commands"] == self.commands for x in self._states.values())

    @property
    def settled_ns(self) -> int:
        """When the last process said so."""
        return max(int(state["at_ns"]) for state in self._states.values())

    @property
    def streaming(self) -> int:
        """Number of agents that are connected."""
        return sum(state["streaming"] for state in self._states.values())

    def connected(self) -> str:
        """The connected agents and the published nodes in words."""
        return f"{self.streaming} of {self._agents} agents are connected, {self.nodes} nodes are published"

    async def until(self, expected: str, holds: Callable[[], bool], timeout_s: float) -> None:
        """Wait until `holds`, and print progress. Raises LoadTestError."""
        give_up_s = time.monotonic() + timeout_s
        while True:
            left_s = give_up_s - time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, min(_SAY_EVERY_S, left_s))):
                    while not (self._failed or holds()):
                        self._news.clear()
                        await self._news.wait()
            except TimeoutError:
                if left_s <= _SAY_EVERY_S:
                    why = f"expected within {timeout_s:g} s: {expected}; now {self.connected()}"
                    raise LoadTestError(f"{why}: give a longer --timeout, or fewer agents") from None
                self._say(self.connected())
            else:
                return self.check()

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
