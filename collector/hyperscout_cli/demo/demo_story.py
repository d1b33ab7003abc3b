"""The steps of the demo: changes to the simulated fabric, and the expected changes of the topology."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from hyperscout.v1.topology_pb2 import WatchTopologyResponse
from hyperscout_sim.fabric.fabric import Cable, SimFabric
from hyperscout_topology.proto import after_event
from hyperscout_topology.topology import HyperNode, Topology

from hyperscout_cli.demo.demo_collector import DemoError
from hyperscout_cli.shared.kinds import hypernodes
from hyperscout_cli.shared.tables import Table, lines

STEP_TIMEOUT_S = 120.0
_MOST_ROWS = 40  # of a table


class Faults(Protocol):
    """Changes to a simulated fabric (`hyperscout_sim.agents.player.Player`)."""

    def cut(self, cable: Cable) -> None: ...

    def restore(self, cable: Cable) -> None: ...

    def pull(self, switch: int) -> None: ...

    def push_back(self, switch: int) -> None: ...


class Witness(Protocol):
    """Reads the published objects from a cluster (`demo_kubernetes`) as text. Raises DemoError.

    `asked`: the command that it runs.
    """

    asked: str

    async def whole(self, names: frozenset[str]) -> str: ...

    async def turned(self, name: str, degraded: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and its repair (each a word and an action); `nodes` are those of the degraded HyperNode.

    `named`: names that the condition's message must contain.
    """

    what: str
    harm: tuple[str, Callable[[], None]]
    heal: tuple[str, Callable[[], None]]
    nodes: frozenset[str]
    named: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """One line of the summary."""

    what: str
    saw: str
    after_s: float


class View:
    """The published hierarchy, with a method that waits for a state of it.

    `clock`: monotonic seconds. The reader of the watch stream calls `feed`.
    """

    def __init__(self, clock: Callable[[], float], wall_ns: Callable[[], int]) -> None:
        self.clock = clock
        self._wall_ns = wall_ns
        self.topology = Topology(0)  # what is published now
        self._changed = asyncio.Condition()
        self._failed: DemoError | None = None

    def table(self, names: frozenset[str] | None = None) -> Iterator[str]:
        """The HyperNode table, or some of its rows."""
        table = hypernodes(self.topology, self._wall_ns())
        rows = tuple(row for row in table.rows if names is None or row.name in names)
        yield from lines(Table(table.kind, table.headings, table.more, rows[:_MOST_ROWS]))
        if len(rows) > _MOST_ROWS:
            yield f"... and {len(rows) - _MOST_ROWS} more\n"

    async def feed(self, event: WatchTopologyResponse) -> None:
        """Apply one event of the stream."""
        async with self._changed:
            self.topology = after_event(self.topology, event)
            self._changed.notify_all()

    async def fail(self, error: DemoError) -> None:
        """End all waiting with an error."""
        async with self._changed:
            self._failed = error
            self._changed.notify_all()

    async def until(self, expected: str, holds: Callable[[Topology], bool], timeout_s: float) -> float:
        """Wait until `holds` is true. Returns the seconds that it took. Raises DemoError."""
        begun = self.clock()

        def settled() -> bool:
            return self._failed is not None or holds(self.topology)

        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(settled)
        except TimeoutError as error:
            if not settled():  # an event may arrive together with the end of the wait
                degraded = [
                    f"{h.name}: {message}\n"
                    for h in self.topology.hypernodes
                    for status, message in [condition(h, "Degraded")]
                    if status == "True"
                ]
                shown = "".join([*self.table(), *degraded])
                raise DemoError(f"expected within {timeout_s:g} s: {expected}; now:\n{shown}") from error
        if self._failed is not None:
            raise self._failed
        return self.clock() - begun


def condition(hypernode: HyperNode | None, kind: str) -> tuple[str, str]:
    """(status, message) of a condition; ("", "") if there is none."""
    found = [c for c in hypernode.conditions if c.type == kind] if hypernode else []
    return (found[0].status, found[0].message) if found else ("", "")


def holding(topology: Topology, nodes: frozenset[str]) -> HyperNode | None:
    """The lowest HyperNode with exactly these nodes."""
    return next((h for h in topology.hypernodes if frozenset(h.nodes) == nodes), None)


async def run_story(
    fabric: SimFabric,
    faults: Faults,
    view: View,
    say: Callable[[str], None],
    timeout_s: float = STEP_TIMEOUT_S,
    witness: Witness | None = None,
) -> list[Seen]:
    """Run all steps. Returns the observations. Raises DemoError that says what was expected."""
    seen = []
    hosts = fabric.hosts
    say(f"waiting for the {len(fabric.truth.tiers)} tiers of {len(hosts)} nodes to be found ...")
    wanted = [set(tier) for tier in fabric.truth.tiers]
    expected = f"HyperNodes as the {len(hosts)} nodes are cabled"
    after_s = await view.until(expected, lambda t: by_tier(t) == wanted and _well(t), timeout_s)
    found = ", ".join(f"{len(tier)} of tier {i}" for i, tier in enumerate(wanted, 1))
    seen.append(Seen("agents stream", f"HyperNodes as cabled: {found}", after_s))
    say("found, just as it is cabled:\n" + "".join(view.table()))

    if witness is not None:
        names = frozenset(h.name for h in view.topology.hypernodes)
        say(f"{witness.asked}\n" + await witness.whole(names))

    for fault in _faults(fabric, faults):
        seen += await _see(fault, view, say, timeout_s, witness)
    if by_tier(view.topology) != wanted:
        raise DemoError("a fault has moved nodes to other HyperNodes")
    return seen


def _faults(fabric: SimFabric, faults: Faults) -> Iterator[Fault]:
    owner = fabric.node_map()
    cable = next(c for c in fabric.cables if c.a in owner)
    leaf = fabric.truth.tiers[0][fabric.truth.domain_of()[owner[cable.a]]]
    up, down = fabric.name_of(cable.b), fabric.name_of(cable.a)
    yield Fault(
        f"cable {down} -> {up}",
        ("cut", lambda: faults.cut(cable)),
        ("put back", lambda: faults.restore(cable)),
        leaf,
        (owner[cable.a], up),
    )
    switch = next(s for s in fabric.switches if s.level == 2)
    yield Fault(
        f"switch {switch.name}",
        ("pulled", lambda: faults.pull(switch.guid)),
        ("pushed back", lambda: faults.push_back(switch.guid)),
        _below(fabric, switch.guid),
        (switch.name,),
    )


async def _see(
    fault: Fault, view: View, say: Callable[[str], None], timeout_s: float, witness: Witness | None
) -> list[Seen]:
    """Cause the fault and wait for Degraded with the right message; repair it and wait for recovery."""

    def degraded(topology: Topology) -> bool:
        status, message = condition(holding(topology, fault.nodes), "Degraded")
        return status == "True" and all(name in message for name in fault.named)

    def well(topology: Topology) -> bool:
        return condition(holding(topology, fault.nodes), "Degraded")[0] == "False"

    seen = []
    for (word, act), holds, expected in (
        (fault.harm, degraded, "Degraded"),
        (fault.heal, well, "well again"),
    ):
        say(f"{fault.what} is {word} ...")
        act()
        after_s = await view.until(f"a HyperNode {expected}, since {fault.what} is {word}", holds, timeout_s)
        touched = holding(view.topology, fault.nodes)
        assert touched is not None  # noqa: S101 (it holds)
        _, message = condition(touched, "Degraded")
        say(f"seen after {after_s:.2f} s: {message}\n" + "".join(view.table(frozenset([touched.name]))))
        seen.append(Seen(f"{fault.what} {word}", f"{touched.name} {expected}", after_s))
        if witness is not None:
            begun = view.clock()
            shown = await witness.turned(touched.name, "True" if holds is degraded else "False")
            later_s = view.clock() - begun
            say(f"{witness.asked} --watch, {later_s:.2f} s after that at the latest\n{shown}")
    return seen


def by_tier(topology: Topology) -> list[set[frozenset[str]]]:
    found: dict[int, set[frozenset[str]]] = {}
    for h in topology.hypernodes:
        found.setdefault(h.tier, set()).add(frozenset(h.nodes))
    return [found[tier] for tier in sorted(found)]


def _well(topology: Topology) -> bool:
    return all(condition(h, "Degraded")[0] != "True" for h in topology.hypernodes)


def _below(fabric: SimFabric, switch: int) -> frozenset[str]:
    """All nodes of the pod that a level-2 switch serves."""
    leaves = {c.a for c in fabric.cables if c.b == switch}
    owner = fabric.node_map()
    hosts = {owner[c.a] for c in fabric.cables if c.b in leaves and c.a in owner}
    return next(pod for pod in fabric.truth.tiers[1] if hosts <= pod)
