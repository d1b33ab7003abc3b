"""Played agents, against a collector that stores what it is sent."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from hyperscout.v1.discovery_pb2 import StreamFindingsResponse, SweepLease, SweepRevoke
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_runtime.credentials import Credentials
from hyperscout_sim.agents.player import Player
from hyperscout_sim.agents.schedule import spread
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.nvlink import dead_link, hgx_host, pcie_host
from hyperscout_sim.fabric.shapes import rail_optimised, single_rack
from support.fake_collector import FakeCollector
from support.fake_time import FakeTime
from support.waiting import TIMEOUT_S, eventually, until

FABRIC = rail_optimised(2, 3, 2, 2)
LEASE = SweepLease(lease_id="L1", device="mlx5_0", port=1, interval_s=3600)


@asynccontextmanager
async def played(fabric: SimFabric, **options: Any) -> AsyncIterator[tuple[FakeCollector, Player]]:
    collector = await FakeCollector().start()
    player = Player(fabric, [collector.target], **options)
    task = asyncio.create_task(player.run())
    try:
        yield collector, player
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await collector.stop()


def state(collector: FakeCollector, host: str, device: str) -> str:
    finding = collector.evidence.get((host, "infiniband", f"{device}/1"))
    return finding.infiniband.state if finding else ""


def sweep(collector: FakeCollector, digest_not: bytes = b"") -> Callable[[], bool]:
    """Whether a sweep, another one than that, has arrived with its text."""

    def arrived() -> bool:
        return any(
            f.sweep.sha256 in collector.bulks and f.sweep.sha256 != digest_not
            for (_, probe, _), f in collector.evidence.items()
            if probe == "ibnetdiscover"
        )

    return arrived


def swept(collector: FakeCollector) -> tuple[str, bytes]:
    """Host and digest of the one sweep there is."""
    [(host, digest)] = [
        (host, f.sweep.sha256)
        for (host, probe, _), f in collector.evidence.items()
        if probe == "ibnetdiscover"
    ]
    return host, digest


@pytest.mark.parametrize("connections", [None, 2])
async def test_every_host_reports_its_own_ports(connections: int | None) -> None:
    async with played(FABRIC, connections=connections) as (collector, _):
        await collector.until(lambda: len(collector.evidence) == len(FABRIC.adapters))
        by_guid = {f.infiniband.node_guid: key for key, f in collector.evidence.items()}
        assert by_guid == {x.guid: (x.host, "infiniband", f"{x.device}/1") for x in FABRIC.adapters}
        assert {f.infiniband.state for f in collector.evidence.values()} == {"ACTIVE"}
        assert {f.infiniband.rate_gbps for f in collector.evidence.values()} == {200.0}
        assert len({hello.instance for hello in collector.hellos}) == len(FABRIC.hosts)


async def test_a_cut_cable_shows_at_once_at_its_host_and_comes_back() -> None:
    [cable] = FABRIC.between("node-0002 mlx5_1", "leaf-u01-r1")
    async with played(FABRIC) as (collector, player):
        await collector.until(lambda: len(collector.evidence) == len(FABRIC.adapters))
        player.cut(cable)
        await collector.until(lambda: state(collector, "node-0002", "mlx5_1") == "DOWN")
        down = {key for key, f in collector.evidence.items() if f.infiniband.state == "DOWN"}
        assert down == {("node-0002", "infiniband", "mlx5_1/1")}
        player.restore(cable)
        await collector.until(lambda: state(collector, "node-0002", "mlx5_1") == "ACTIVE")
        assert collector.evidence["node-0002", "infiniband", "mlx5_1/1"].infiniband.link_downed == 1
        assert player.fabric == FABRIC


async def test_a_pulled_switch_takes_its_hosts_ports_down() -> None:
    leaf = FABRIC.find("leaf-u02-r0")
    async with played(FABRIC) as (collector, player):
        await collector.until(lambda: len(collector.evidence) == len(FABRIC.adapters))
        player.pull(leaf)
        hosts = ("node-0004", "node-0005", "node-0006")
        await collector.until(lambda: all(state(collector, h, "mlx5_0") == "DOWN" for h in hosts))
        assert sum(f.infiniband.state == "DOWN" for f in collector.evidence.values()) == 3
        player.push_back(leaf)
        await collector.until(lambda: all(state(collector, h, "mlx5_0") == "ACTIVE" for h in hosts))


async def test_a_leased_agent_sweeps_its_plane_and_again_when_a_far_cable_goes() -> None:
    [far] = FABRIC.between("leaf-u01-r0", "spine-r0-01")
    async with played(FABRIC) as (collector, player):
        await collector.until(lambda: len(collector.evidence) == len(FABRIC.adapters))
        await collector.send(StreamFindingsResponse(lease=LEASE))
        await collector.until(sweep(collector))
        host, digest = swept(collector)
        finding = collector.evidence[host, "ibnetdiscover", "mlx5_0/1"]
        assert finding.sweep.lease_id == "L1"
        assert not finding.sweep.partial
        text = parse(collector.bulks[digest])
        in_plane = [c for c in FABRIC.components() if FABRIC.find(f"{host} mlx5_0") in c]
        assert set(text.guid.tolist()) == in_plane[0]
        player.cut(far)
        await collector.until(sweep(collector, digest))
        _, digest = swept(collector)
        assert len(parse(collector.bulks[digest]).device) == len(text.device) - 2


async def test_a_part_of_the_agents_sweeps_a_fabric_that_other_players_change() -> None:
    """Only its hosts report, each with its own credentials. A change makes no agent sweep."""
    hosts, asked = FABRIC.hosts[1:3], []

    def credentials(host: str) -> Credentials:
        asked.append(host)
        return Credentials()

    [elsewhere] = FABRIC.between("node-0004 mlx5_0", "leaf-u02-r0")
    [own] = FABRIC.between("node-0002 mlx5_0", "leaf-u01-r0")
    async with played(FABRIC, part=hosts, credentials=credentials) as (collector, player):
        await collector.until(lambda: len(collector.evidence) == 4)
        assert {node for node, _, _ in collector.evidence} == set(hosts)
        assert sorted(asked) == sorted(hosts)
        player.cut(elsewhere)
        await collector.send(StreamFindingsResponse(lease=LEASE))
        await collector.until(sweep(collector))
        _, digest = swept(collector)
        guids = parse(collector.bulks[digest]).guid.tolist()
        assert FABRIC.find("node-0001 mlx5_0") in guids
        assert elsewhere.a not in guids
        player.cut(own)
        await collector.until(lambda: state(collector, "node-0002", "mlx5_0") == "DOWN")
        assert swept(collector)[1] == digest
    await eventually(lambda: not any(x.name.startswith("player-sweeps") for x in threading.enumerate()))
    assert not player.agents


async def test_a_sweep_from_a_port_without_cable_is_partial() -> None:
    async with played(single_rack(1)) as (collector, player):
        await collector.until(lambda: len(collector.evidence) == 1)
        player.cut(player.fabric.cables[0])
        await collector.send(StreamFindingsResponse(lease=LEASE))
        await collector.until(sweep(collector))
        finding = collector.evidence["node-0001", "ibnetdiscover", "mlx5_0/1"]
        assert finding.sweep.partial
        assert "only its own adapter" in finding.sweep.partial_reason


async def test_a_revoked_lease_ends_the_sweeping() -> None:
    async with played(single_rack(2)) as (collector, player):
        await collector.until(lambda: len(collector.evidence) == 2)
        await collector.send(StreamFindingsResponse(lease=LEASE))
        await collector.until(sweep(collector))
        host, digest = swept(collector)
        revoke = SweepRevoke(lease_id="L1", reason="moved")
        await collector.send(StreamFindingsResponse(revoke=revoke))
        await until(lambda: player.agents[host].lease is None)
        other = next(c for c in player.fabric.cables if c.a != player.fabric.find(f"{host} mlx5_0"))
        player.cut(other)
        await collector.until(lambda: any(f.infiniband.state == "DOWN" for f in collector.evidence.values()))
        assert swept(collector) == (host, digest)


async def test_a_lease_on_a_device_that_is_not_there_fails() -> None:
    async with played(single_rack(1)) as (collector, _):
        await collector.until(lambda: len(collector.evidence) == 1)
        await collector.send(StreamFindingsResponse(lease=SweepLease(lease_id="x", device="mlx5_9", port=1)))
        key = ("node-0001", "ibnetdiscover", "mlx5_9/1")
        await collector.until(lambda: key in collector.evidence)
        assert collector.evidence[key].outcome == Outcome.OUTCOME_FAILED


async def test_a_killed_agent_is_silent_and_comes_back_as_a_new_instance() -> None:
    async with played(single_rack(2)) as (collector, player):
        await collector.until(lambda: len(collector.evidence) == 2)
        await player.kill("node-0001")
        await collector.until(lambda: collector.ended_streams == 1)
        player.cut(player.fabric.cables[0])
        player.revive("node-0001")
        await collector.until(lambda: state(collector, "node-0001", "mlx5_0") == "DOWN")
        first, second = [h.instance for h in collector.hellos if h.node == "node-0001"]
        assert second > first
        with pytest.raises(ValueError, match="already running"):
            player.revive("node-0001")


async def test_a_miswired_pair_is_seen_in_the_next_sweep_and_undone() -> None:
    [one] = FABRIC.between("node-0001 mlx5_0", "leaf-u01-r0")
    [other] = FABRIC.between("node-0004 mlx5_0", "leaf-u02-r0")
    async with played(FABRIC) as (collector, player):
        await collector.until(lambda: len(collector.evidence) == len(FABRIC.adapters))
        now = player.miswire(one, other)
        assert player.fabric.between("node-0001 mlx5_0", "leaf-u02-r0") == [now[0]]
        assert player.fabric.between("node-0004 mlx5_0", "leaf-u01-r0") == [now[1]]
        assert set(player.miswire(*now)) == {one, other}
        assert player.fabric == FABRIC


async def test_a_cut_cable_stays_cut_when_it_is_miswired() -> None:
    player = Player(FABRIC, ["127.0.0.1:1"])
    [one] = FABRIC.between("node-0001 mlx5_0", "leaf-u01-r0")
    [other] = FABRIC.between("node-0004 mlx5_0", "leaf-u02-r0")
    player.cut(one)
    moved, _ = player.miswire(one, other)
    assert moved not in player.fabric.cables
    player.restore(moved)
    assert moved in player.fabric.cables


async def test_an_agent_that_ends_leaves_the_shared_connection_to_the_others() -> None:
    async with played(single_rack(2), connections=1) as (collector, player):
        await collector.until(lambda: len(collector.evidence) == 2)
        await player.kill("node-0001")
        player.cut(player.fabric.cables[1])
        await collector.until(lambda: state(collector, "node-0002", "mlx5_0") == "DOWN")
        assert player.agents["node-0002"].uplink.stats.sessions == 1


async def test_what_the_fabric_lacks_cannot_be_touched() -> None:
    player = Player(FABRIC, ["127.0.0.1:1"])
    stranger = FABRIC.cables[0]._replace(a_port=9)
    for act in (player.cut, player.restore):
        with pytest.raises(KeyError, match="no such cable"):
            act(stranger)
    with pytest.raises(KeyError, match="no such cable"):
        player.miswire(FABRIC.cables[0], stranger)
    with pytest.raises(KeyError, match="no switch"):
        player.pull(1)


async def test_lldp_is_heard_where_a_cable_is_and_nothing_where_none_is() -> None:
    collector = await FakeCollector().start()
    player = Player(FABRIC, [collector.target], lldp=True)
    task = asyncio.create_task(player.run())
    key = ("node-0004", "lldp", "eth1")
    try:
        await collector.until(lambda: len(collector.evidence) == 2 * len(FABRIC.adapters))
        finding = collector.evidence[key]
        assert finding.outcome == Outcome.OUTCOME_DATA
        [switch] = finding.lldp.neighbours
        assert (switch.system_name, switch.port_id, finding.lldp.speed_mbps) == (
            "leaf-u02-r1",
            "swp1",
            200_000,
        )
        player.cut(*FABRIC.between("node-0004 mlx5_1", "leaf-u02-r1"))
        await collector.until(lambda: collector.evidence[key].outcome == Outcome.OUTCOME_NOTHING)
        assert not collector.evidence[key].lldp.carrier
        assert collector.evidence[key].reason == "no carrier"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await collector.stop()


async def test_at_most_64_agents_connect_at_a_time() -> None:
    time = FakeTime()
    collector = await FakeCollector(answer_hello=grpc.StatusCode.UNAVAILABLE).start()
    fabric = single_rack(70)
    player = Player(fabric, [collector.target], clock=time.clock, wall_ns=time.wall_ns, wait=time.wait)
    task = asyncio.create_task(player.run())
    try:
        await collector.until(lambda: len({hello.node for hello in collector.hellos}) == 64)
        await time.pass_s(5)
        assert len(player.agents) == 64, "none of them is connected"
        await player.kill(fabric.hosts[0])
        await time.pass_s(1)
        assert len(player.agents) == 64, "the next one has the place of the one that ended"
        collector.answer_hello = None
        async with asyncio.timeout(TIMEOUT_S):
            while len(player.agents) < 69:
                await time.pass_s(1)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await collector.stop()


async def test_agents_are_spread_over_the_addresses_and_move_to_the_next() -> None:
    collectors = [await FakeCollector().start() for _ in range(2)]
    fabric = single_rack(4)
    player = Player(fabric, spread(fabric.hosts, [x.target for x in collectors]))
    task = asyncio.create_task(player.run())
    first, second = collectors
    try:
        await eventually(lambda: player.streaming == 4)
        assert {hello.node for hello in first.hellos} == {"node-0001", "node-0003"}
        assert {hello.node for hello in second.hellos} == {"node-0002", "node-0004"}
        await first.stop()
        await second.until(lambda: {hello.node for hello in second.hellos} == set(fabric.hosts))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await second.stop()


async def test_every_agent_looks_again_after_a_while_and_sends_what_grew_old() -> None:
    time = FakeTime()
    collector = await FakeCollector().start()
    player = Player(
        single_rack(3), [collector.target], clock=time.clock, wall_ns=time.wall_ns, wait=time.wait
    )
    task = asyncio.create_task(player.run())
    try:
        await collector.until(lambda: len(collector.evidence) == 3)
        first = {key: f.observed_at.ToNanoseconds() for key, f in collector.evidence.items()}
        async with asyncio.timeout(TIMEOUT_S):
            while not all(f.observed_at.ToNanoseconds() > first[k] for k, f in collector.evidence.items()):
                await time.pass_s(10)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await collector.stop()


def links_up(collector: FakeCollector, host: str) -> dict[str, int]:
    """GPU -> active NVLinks, by what has arrived of a host."""
    return {
        subject: sum(x.active for x in finding.gpu.links)
        for (node, probe, subject), finding in collector.evidence.items()
        if (node, probe) == (host, "nvlink")
    }


async def test_gpus_are_reported_by_their_address_and_change_live() -> None:
    well = hgx_host("node-0001")
    gpus = {"node-0001": well, "node-0002": pcie_host("node-0002", gpus=2)}
    async with played(FABRIC, gpus=gpus) as (collector, player):
        await collector.until(lambda: links_up(collector, "node-0001") == {x.pci_address: 18 for x in well})
        await collector.until(lambda: set(links_up(collector, "node-0002").values()) == {0})
        assert all("nvlink" in hello.probes for hello in collector.hellos)
        player.set_gpus("node-0001", dead_link(well, 3, 5))
        await collector.until(lambda: links_up(collector, "node-0001")[well[3].pci_address] == 17)
        player.set_gpus("node-0001", well[:2])  # six are lost: no finding says that they are there
        await collector.until(lambda: len(links_up(collector, "node-0001")) == 2)
        assert len(links_up(collector, "node-0002")) == 2


async def test_without_gpus_no_agent_has_the_probe() -> None:
    async with played(FABRIC) as (collector, player):
        await collector.until(lambda: len(collector.hellos) == len(FABRIC.hosts))
        assert not any("nvlink" in hello.probes for hello in collector.hellos)
        with pytest.raises(ValueError, match="make the player with"):
            player.set_gpus("node-0001", ())


# --- an agent of role fabric


def up(collector: FakeCollector, switch: str) -> int:
    """Ports with a carrier that the crawl tells of at a switch; -1 = it does not answer, or is not known."""
    for (node, probe, _), finding in collector.evidence.items():
        ports = finding.switch_table.ports
        if (node, probe) == ("fabric/crawl", "snmp") and any(port.system_name == switch for port in ports):
            return sum(port.carrier for port in ports)
    return -1


def all_answer(collector: FakeCollector) -> bool:
    return all(up(collector, switch.name) > 0 for switch in FABRIC.switches)


async def test_a_crawl_tells_of_all_switches_and_cables_are_ethernet_alone() -> None:
    async with played(FABRIC, crawl="crawl") as (collector, player):
        await collector.until(lambda: all_answer(collector))
        await eventually(lambda: player.settled and player.streaming == len(FABRIC.hosts) + 1)
        assert {probe for _, probe, _ in collector.evidence} == {"lldp", "snmp"}
        leaf = next(x for x in FABRIC.switches if x.level == 1)
        cable = next(c for c in FABRIC.cables if c.b == leaf.guid)
        cabled = up(collector, leaf.name)
        player.cut(cable)
        await collector.until(lambda: up(collector, leaf.name) == cabled - 1)
        player.restore(cable)
        await collector.until(lambda: up(collector, leaf.name) == cabled)


async def test_a_crawl_can_be_killed_and_a_switch_be_silent() -> None:
    async with played(FABRIC, crawl="crawl") as (collector, player):
        await collector.until(lambda: all_answer(collector))
        leaf = next(x for x in FABRIC.switches if x.level == 1)
        player.pull(leaf.guid)

        def silent() -> list[str]:
            found = (f for (_, probe, _), f in collector.evidence.items() if probe == "snmp")
            return [f.reason for f in found if f.outcome == Outcome.OUTCOME_FAILED]

        await collector.until(lambda: silent() == ["no answer"])
        await player.kill_crawl()
        with pytest.raises(ValueError, match="no agent that reads switches"):
            await player.kill_crawl()
        player.push_back(leaf.guid)
        player.revive_crawl()
        with pytest.raises(ValueError, match="already running"):
            player.revive_crawl()
        await collector.until(lambda: up(collector, leaf.name) > 0)


async def test_without_a_crawl_there_is_none_to_revive() -> None:
    async with played(FABRIC) as (_, player):
        with pytest.raises(ValueError, match="made without `crawl`"):
            player.revive_crawl()
