"""Honest changes of a fabric: each is published, and the collector calls no sweep false in the end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hyperscout_collector.app.build.collector import Collector
from hyperscout_runtime.clock import Clock, boottime_ns
from hyperscout_runtime.units import NS
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import clos2, rail_optimised
from hyperscout_topology.topology import Topology
from support.collector_process import channel_to
from support.collectors import at_rest, collector_settings, host_cable, playing
from support.live import Watcher, domains, problems_shown, topology_of
from support.waiting import eventually

FABRIC = clos2(leaves=8, hosts_per_leaf=4, spines=2)  # 48 cables: more than two changes are wholesale
HOSTS = FABRIC.hosts
LEAVES = [x.guid for x in FABRIC.switches if x.level == 1]
Change = Callable[[Player, Collector], None]


def shows(fabric: SimFabric) -> Callable[[Topology], bool]:
    wanted = {
        frozenset(((f"{c.a:016x}", str(c.a_port)), (f"{c.b:016x}", str(c.b_port)))) for c in fabric.cables
    }

    def shown(topology: Topology) -> bool:
        links = {frozenset(((x.a_device, x.a_port), (x.b_device, x.b_port))) for x in topology.links}
        return links == wanted

    return shown


def domains_of(fabric: SimFabric) -> set[frozenset[str]]:
    """The hosts of each leaf."""
    hosts: dict[int, set[str]] = {}
    node_of = fabric.node_map()
    for cable in fabric.cables:
        if cable.a in node_of:
            hosts.setdefault(cable.b, set()).add(node_of[cable.a])
    return {frozenset(found) for found in hosts.values()}


def rewire(player: Player, fabric: SimFabric) -> None:
    """The agents live in another fabric from now on. Hosts that are new in it get agents."""
    player.rewire(fabric)
    for host in fabric.hosts:
        if host not in player.agents:
            player.revive(host)


def holder(collector: Collector) -> str:
    return collector.components.ingest.sweeps.leases()[0].node


def is_held(collector: Collector) -> bool:
    return bool(collector.components.ingest.sweeps.problems)


class Moved(Clock):
    """A clock that a test moves ahead."""

    def __init__(self) -> None:
        self.ahead_ns = 0
        super().__init__(steady_ns=lambda: boottime_ns() + self.ahead_ns)


@asynccontextmanager
async def hurrying(collector: Collector) -> AsyncIterator[None]:
    """The clock jumps to the time for which the collector waits, to publish changed links or to infer."""
    clock, pipeline = collector._clock, collector.components.inference.pipeline
    assert isinstance(clock, Moved)

    async def hurry() -> None:
        while True:
            await asyncio.sleep(0.05)
            times = (pipeline._tick_at_ns, pipeline._refresh_at_ns, pipeline._held_until_ns)
            due_ns = min((at_ns for at_ns in times if at_ns is not None), default=0)
            if (ahead_ns := due_ns - clock.now_ns()) > 0:
                clock.ahead_ns += ahead_ns
                pipeline._wake.set()

    task = asyncio.create_task(hurry())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def collecting(folder: Path) -> AsyncIterator[tuple[Collector, Moved]]:
    clock = Moved()
    async with Collector(collector_settings(folder), clock=clock) as running:
        yield running, clock


async def is_published(collector: Collector, player: Player, *, tree: bool = True) -> None:
    """The collector publishes the fabric as it is now, and comes to rest without a complaint."""
    async with hurrying(collector):
        await Watcher(collector.address).until(shows(player.fabric), "the links of the fabric")
        await at_rest(collector, player)
    async with channel_to(collector.address) as channel:
        topology = await topology_of(channel)
        assert "does not count" not in await problems_shown(channel)
    assert shows(player.fabric)(topology)
    assert [x.message for x in topology.anomalies if x.kind == "SourcesDisagree"] == []
    if tree:
        assert domains(topology) == domains_of(player.fabric)


# The changes


def pulled_cable(player: Player, collector: Collector) -> None:
    player.cut(host_cable(player, HOSTS[9]))


def moved_cable(player: Player, _: Collector) -> None:
    """The host is on a free port of another leaf."""
    old = host_cable(player, HOSTS[9])
    new = old._replace(b=LEAVES[0], b_port=40)
    rewire(player, replace(FABRIC, cables=tuple(new if c == old else c for c in FABRIC.cables)))


def moved_rack(player: Player, _: Collector) -> None:
    """All hosts of one leaf are exchanged with those of another."""
    mine = [host_cable(player, host) for host in HOSTS]
    for one, other in zip(mine[:4], mine[20:24], strict=True):
        player.miswire(one, other)


def replaced_host(player: Player, collector: Collector, host: str = HOSTS[9]) -> None:
    """The host has the same name and cable, and an adapter with other GUIDs."""
    old = next(x for x in FABRIC.adapters if x.host == host)
    new = replace(old, guid=old.guid ^ 0xABC000, port_guid=old.port_guid ^ 0xABC000)
    rewire(
        player,
        replace(
            FABRIC,
            adapters=tuple(new if x == old else x for x in FABRIC.adapters),
            cables=tuple(c._replace(a=new.guid) if c.a == old.guid else c for c in FABRIC.cables),
        ),
    )


def replaced_holder(player: Player, collector: Collector) -> None:
    replaced_host(player, collector, holder(collector))


def replaced_hosts(player: Player, _: Collector) -> None:
    """The adapters of half of the hosts have other GUIDs."""
    guid = {x.guid: x.guid ^ 0xABC000 for x in FABRIC.adapters[:16]}
    rewire(
        player,
        replace(
            FABRIC,
            adapters=tuple(
                replace(x, guid=guid[x.guid], port_guid=x.port_guid ^ 0xABC000) if x.guid in guid else x
                for x in FABRIC.adapters
            ),
            cables=tuple(c._replace(a=guid.get(c.a, c.a)) for c in FABRIC.cables),
        ),
    )


def replaced_leaf(player: Player, _: Collector, leaf: int = LEAVES[3]) -> None:
    new = leaf ^ 0xABC000
    rewire(
        player,
        replace(
            FABRIC,
            switches=tuple(replace(x, guid=new) if x.guid == leaf else x for x in FABRIC.switches),
            cables=tuple(
                c._replace(a=new if c.a == leaf else c.a, b=new if c.b == leaf else c.b)
                for c in FABRIC.cables
            ),
        ),
    )


def replaced_leaf_of_the_holder(player: Player, collector: Collector) -> None:
    replaced_leaf(player, collector, host_cable(player, holder(collector)).b)


def new_racks(player: Player, _: Collector) -> None:
    """Two leaves more, with new hosts. Earlier devices keep their GUIDs."""
    rewire(player, clos2(leaves=10, hosts_per_leaf=4, spines=2))


def dead_spine(player: Player, _: Collector) -> None:
    player.pull(next(x.guid for x in FABRIC.switches if x.level == 2))


CHANGES: list[tuple[Change, bool]] = [
    (pulled_cable, False),
    (moved_cable, True),
    (moved_rack, True),
    (replaced_host, True),
    (replaced_holder, True),
    (replaced_hosts, True),
    (replaced_leaf, True),
    (replaced_leaf_of_the_holder, True),
    (new_racks, True),
    (dead_spine, True),
]


@pytest.mark.parametrize(("change", "tree"), CHANGES)
async def test_a_change_is_published(tmp_path: Path, change: Change, tree: bool) -> None:
    async with collecting(tmp_path) as (running, _), playing(running.address, FABRIC) as player:
        await is_published(running, player)
        change(player, running)
        await is_published(running, player, tree=tree)


@pytest.mark.parametrize("of_the_holder", [False, True])
async def test_a_dead_leaf_whose_agents_still_call_their_ports_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_the_holder: bool
) -> None:
    async with collecting(tmp_path) as (running, _), playing(running.address, FABRIC) as player:
        await is_published(running, player)
        first, observe = holder(running), player.observe
        on_holders = host_cable(player, first).b
        leaf = on_holders if of_the_holder else next(x for x in LEAVES if x != on_holders)
        with monkeypatch.context() as patch:  # of the holder's leaf the holder alone: others get its lease
            silent = [first] if of_the_holder else HOSTS
            patch.setattr(player, "observe", lambda host: None if host in silent else observe(host))
            player.pull(leaf)
            await is_published(running, player, tree=False)
        for host in HOSTS:
            player.observe(host)
        await is_published(running, player, tree=False)
        player.push_back(leaf)
        await is_published(running, player)


async def test_the_holder_disconnects_and_its_successor_sweeps_a_changed_fabric(tmp_path: Path) -> None:
    async with (
        collecting(tmp_path) as (running, clock),
        playing(running.address, FABRIC) as player,
    ):
        await is_published(running, player)
        gone = holder(running)
        await player.kill(gone)
        streams = running.components.ingest.sweeps._streams
        await eventually(lambda: streams.get(gone) is None, "the stream of the holder ends")
        clock.ahead_ns += 31 * NS
        await eventually(lambda: holder(running) != gone, "another holder")
        leaf = host_cable(player, gone).b
        mine = [host_cable(player, host) for host in HOSTS if host_cable(player, host).b != leaf]
        for one, other in zip(mine[:4], mine[8:12], strict=True):
            player.miswire(one, other)
        await is_published(running, player)


async def test_two_rails_as_two_fabrics(tmp_path: Path) -> None:
    fabric = rail_optimised(units=8, hosts_per_unit=4, rails=2, spines_per_rail=2)
    async with collecting(tmp_path) as (running, _), playing(running.address, fabric) as player:
        await is_published(running, player, tree=False)
        mine = [host_cable(player, host) for host in fabric.hosts]
        for one, other in zip(mine[:4], mine[20:24], strict=True):
            player.miswire(one, other)
        await is_published(running, player, tree=False)


async def test_a_fabric_that_changed_while_the_collector_was_down(tmp_path: Path) -> None:
    async with collecting(tmp_path) as (running, _), playing(running.address, FABRIC) as player:
        await is_published(running, player)
    mine = {c.a: c for c in FABRIC.cables}
    hosts = [c for c in FABRIC.cables if c.a in FABRIC.node_map()]
    order = [*hosts[8:], *hosts[:8]]
    new = {a: mine[a.a]._replace(b=b.b, b_port=b.b_port) for a, b in zip(hosts, order, strict=True)}
    changed = replace(FABRIC, cables=tuple(new.get(c, c) for c in FABRIC.cables))
    async with collecting(tmp_path) as (running, _), playing(running.address, changed) as player:
        await is_published(running, player)


async def test_a_restart_without_a_change(tmp_path: Path) -> None:
    for _ in range(2):
        async with (
            collecting(tmp_path) as (running, _),
            playing(running.address, FABRIC) as player,
        ):
            await is_published(running, player)


@pytest.mark.parametrize("waits", [False, True])
async def test_power_up_bit_by_bit(tmp_path: Path, waits: bool) -> None:
    async with collecting(tmp_path) as (running, _), playing(running.address, FABRIC) as player:
        for switch in FABRIC.switches:
            player.pull(switch.guid)
        for switch in sorted(FABRIC.switches, key=lambda x: x.guid % 7):
            player.push_back(switch.guid)
            if waits:
                await Watcher(running.address).until(shows(player.fabric), f"{switch.name} is on")
            else:
                await asyncio.sleep(0)
        await is_published(running, player)


async def test_a_single_agent_counts(tmp_path: Path) -> None:
    async with (
        collecting(tmp_path) as (running, _),
        playing(running.address, FABRIC, hosts=HOSTS[:1]) as player,
    ):
        await is_published(running, player)
        assert [x.unconfirmed for x in running.components.ingest.sweeps.leases()] == [True]
        moved_rack(player, running)
        await is_published(running, player)


async def test_the_last_agent_counts_after_a_time_without_others(tmp_path: Path) -> None:
    async with (
        collecting(tmp_path) as (running, _),
        playing(running.address, FABRIC, hosts=(HOSTS[0], HOSTS[9])) as player,
    ):
        await is_published(running, player)
        gone = next(host for host in player.agents if host != holder(running))
        await player.kill(gone)
        streams = running.components.ingest.sweeps._streams
        await eventually(lambda: streams.get(gone) is None, "one agent is left")
        moved_rack(player, running)
        await eventually(lambda: is_held(running), "the sweep is held")
        await is_published(running, player)  # the clock jumps on while the sweep is held
