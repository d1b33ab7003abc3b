"""One agent with valid credentials sends a false sweep: the picture stays, and the agent is named."""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hyperscout.v1.discovery_pb2 import SweepLease
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_agent.findings.bulk import compress
from hyperscout_collector.app.build.collector import Collector
from hyperscout_sim.fabric.fabric import Cable, SimAdapter, SimFabric
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_topology.topology import Topology
from support.agent_stream import AgentStream
from support.collector_process import channel_to
from support.collectors import at_rest, collector_settings, eight_hosts, is_whole, playing
from support.findings import adapter, sweep
from support.live import Watcher, domains, problems_shown, topology_of
from support.waiting import eventually

FABRIC = eight_hosts()
HOSTS = FABRIC.hosts
GUIDS = {x.host: x.guid for x in FABRIC.adapters}
HONEST, HOLDER = HOSTS[0], HOSTS[5]
LIAR, INVENTED = "storage-1", 0x66660000


def swapped(fabric: SimFabric, hosts: int = 4) -> SimFabric:
    """The first hosts of each leaf are on the other leaf."""
    mine = [c for c in fabric.cables if c.a in {x.guid for x in fabric.adapters}]
    half = len(mine) // 2
    pairs = list(zip(mine[:hosts], mine[half : half + hosts], strict=False))
    moved: dict[Cable, Cable] = {}
    for one, other in pairs:
        moved[one] = one._replace(b=other.b, b_port=other.b_port)
        moved[other] = other._replace(b=one.b, b_port=one.b_port)
    return replace(fabric, cables=tuple(moved.get(c, c) for c in fabric.cables))


def with_port(fabric: SimFabric) -> SimFabric:
    """The invented port is on the first leaf."""
    leaf = next(x for x in fabric.switches if x.level == 1)
    own = SimAdapter(INVENTED, INVENTED + 1, LIAR, "mlx5_0", f"{LIAR} mlx5_0")
    cable = Cable(INVENTED, 1, leaf.guid, leaf.port_count)
    return replace(fabric, adapters=(*fabric.adapters, own), cables=(*fabric.cables, cable))


async def lease_of(agent: AgentStream) -> SweepLease:
    while not (answer := await agent.read()).HasField("lease"):
        pass
    return answer.lease


async def send_sweep(
    agent: AgentStream, lease: SweepLease, text: bytes, port_guid: int, *, partial: bool = False
) -> Finding:
    bulk = compress(text)
    found = sweep(agent.node, bulk.sha256, device=lease.device, lease_id=lease.lease_id, size_bytes=len(text))
    found.sweep.port_guid, found.sweep.partial = port_guid, partial
    found.observed_at.GetCurrentTime()
    await agent.bulk(bulk.sha256, bulk.compressed)
    await agent.store(found)
    return found


def names(node: str) -> Callable[[Topology], bool]:
    return lambda topology: any(
        x.kind == "SourcesDisagree" and x.subject.name == node for x in topology.anomalies
    )


@pytest.mark.parametrize("contains_its_port", [False, True])
async def test_an_invented_port_and_swapped_hosts(tmp_path: Path, contains_its_port: bool) -> None:
    false = swapped(with_port(FABRIC) if contains_its_port else FABRIC)
    start = INVENTED if contains_its_port else None
    for _ in range(2 if contains_its_port else 1):  # and after a restart
        async with (
            Collector(collector_settings(tmp_path)) as running,
            channel_to(running.address) as channel,
            playing(running.address, FABRIC) as player,
        ):
            watcher = Watcher(running.address)
            before = await watcher.until(partial(is_whole, others=[LIAR]), "all hosts in the tree")
            await at_rest(running, player)
            async with AgentStream(running.address, LIAR, probes=("infiniband", "ibnetdiscover")) as liar:
                port = adapter(LIAR, guid=INVENTED)
                port.observed_at.GetCurrentTime()
                await liar.batch(port, full=True)
                lease = await lease_of(liar)
                await send_sweep(liar, lease, sweep_text(false, start), INVENTED + 1)
                await watcher.until(names(LIAR), "the reporter is named")
                # Without its port its lease may stay without a sweep, until it fails again.
                await at_rest(running, leases=contains_its_port)
                after = await topology_of(channel)
                assert f"the sweep of {LIAR} from mlx5_0 does not count" in await problems_shown(channel)
        assert domains(after) == domains(before)
        assert list(after.links) == list(before.links)
        kept = [(h.name, h.nodes, h.conditions) for h in before.hypernodes]
        assert [(h.name, h.nodes, h.conditions) for h in after.hypernodes] == kept


async def test_a_partial_sweep_with_swapped_hosts(tmp_path: Path) -> None:
    async with (
        Collector(collector_settings(tmp_path)) as running,
        channel_to(running.address) as channel,
        playing(running.address, FABRIC) as player,
    ):
        watcher = Watcher(running.address)
        before = await watcher.until(is_whole, "all hosts in the tree")
        await at_rest(running, player)
        async with AgentStream(running.address, LIAR, probes=("infiniband", "ibnetdiscover")) as liar:
            port = adapter(LIAR, guid=INVENTED)
            port.observed_at.GetCurrentTime()
            await liar.batch(port, full=True)
            lease = await lease_of(liar)
            text = sweep_text(swapped(with_port(FABRIC)), INVENTED)
            await send_sweep(liar, lease, text, INVENTED + 1, partial=True)
            await watcher.until(names(LIAR), "the reporter is named")
            await at_rest(running)
            after = await topology_of(channel)
    assert domains(after) == domains(before)
    assert list(after.links) == list(before.links)


async def held_lease(running: Collector, agent: AgentStream) -> SweepLease:
    """The lease that the agent holds now."""
    sweeps = running.components.ingest.sweeps
    await eventually(lambda: agent.node in {x.node for x in sweeps.leases()}, f"{agent.node} holds a lease")
    held = {x.lease_id for x in sweeps.leases() if x.node == agent.node}
    while (lease := await lease_of(agent)).lease_id not in held:
        pass
    return lease


def port_of(host: str, state: str = "ACTIVE") -> Finding:
    found = adapter(host, guid=GUIDS[host], state=state)
    found.observed_at.GetCurrentTime()
    return found


async def agents_of(
    hosts: Iterable[str], address: str, stack: AsyncExitStack, *more: Finding
) -> dict[str, AgentStream]:
    """The agents of hosts report their ports and `more`. Those of HONEST and HOLDER also sweep."""
    agents = {}
    for host in hosts:
        probes = ("infiniband", "ibnetdiscover") if host in (HONEST, HOLDER) else ("infiniband",)
        agents[host] = await stack.enter_async_context(AgentStream(address, host, probes=probes))
        await agents[host].batch(port_of(host), *(x for x in more if x.key.node == host), full=True)
    return agents


async def test_the_holder_of_the_lease_exchanges_hosts_and_the_collector_restarts(tmp_path: Path) -> None:
    """The sweep is held until the other agent sweeps the same. Meanwhile other changes are published."""
    new = swapped(FABRIC, 2)
    text = {host: sweep_text(new, GUIDS[host]) for host in (HONEST, HOLDER)}
    async with (
        Collector(collector_settings(tmp_path)) as running,
        channel_to(running.address) as channel,
        AsyncExitStack() as stack,
    ):
        watcher = Watcher(running.address)
        agents = await agents_of(HOSTS, running.address, stack)
        lease = await held_lease(running, agents[HONEST])
        await send_sweep(agents[HONEST], lease, sweep_text(FABRIC, GUIDS[HONEST]), GUIDS[HONEST] + 1)
        before = await watcher.until(is_whole, "all hosts in the tree")
        lease = await held_lease(running, agents[HOLDER])  # to confirm the first sweep
        false = await send_sweep(agents[HOLDER], lease, text[HOLDER], GUIDS[HOLDER] + 1)
        held = await watcher.until(names(HOLDER), "the reporter is named")
        assert domains(held) == domains(before)
        assert f"the sweep of {HOLDER} from mlx5_0 does not count" in await problems_shown(channel)
        await agents[HOSTS[2]].store(port_of(HOSTS[2], "DOWN"))
        down = await watcher.until(
            lambda topology: any(x.kind == "MissingLink" for x in topology.anomalies), "a port is down"
        )
        assert {x.subject.name for x in down.anomalies if x.kind == "MissingLink"} == {HOSTS[2]}
        assert domains(down) == domains(before)
    async with (
        Collector(collector_settings(tmp_path)) as running,
        channel_to(running.address) as channel,
        AsyncExitStack() as stack,
    ):
        watcher = Watcher(running.address)
        agents = await agents_of(HOSTS, running.address, stack, false)
        lease = await held_lease(running, agents[HONEST])
        held = await watcher.until(names(HOLDER), "the reporter is still named")
        assert domains(held) == domains(before)
        await send_sweep(agents[HONEST], lease, text[HONEST], GUIDS[HONEST] + 1)
        exchanged = {frozenset([*HOSTS[4:6], *HOSTS[2:4]]), frozenset([*HOSTS[:2], *HOSTS[6:]])}
        after = await watcher.until(lambda topology: domains(topology) == exchanged, "both agree")
        assert not names(HOLDER)(after)


async def test_the_holder_of_the_lease_exchanges_hosts_while_another_replica_takes_over(
    tmp_path: Path,
) -> None:
    """The new leader has the published topology and no evidence. It holds the sweep as the former one did."""
    new = swapped(FABRIC, 2)
    text = {host: sweep_text(new, GUIDS[host]) for host in (HONEST, HOLDER)}
    async with (
        Collector(collector_settings(tmp_path / "first")) as running,
        playing(running.address, FABRIC) as player,
    ):
        await Watcher(running.address).until(is_whole, "all hosts in the tree")
        await at_rest(running, player)
        before = running.components.publishing.watchers.current.topology
    flags = {"leader_election": True, "takeover_limit_s": 3600.0}
    async with (
        Collector(collector_settings(tmp_path / "second", **flags), previous=before) as running,
        channel_to(running.address) as channel,
        AsyncExitStack() as stack,
    ):
        watcher = Watcher(running.address)
        agents = await agents_of([HOLDER], running.address, stack)
        lease = await held_lease(running, agents[HOLDER])
        await send_sweep(agents[HOLDER], lease, text[HOLDER], GUIDS[HOLDER] + 1)
        agents |= await agents_of([x for x in HOSTS if x != HOLDER], running.address, stack)
        held = await watcher.until(names(HOLDER), "the reporter is named")
        assert domains(held) == {frozenset(HOSTS[:4]), frozenset(HOSTS[4:])}
        assert f"the sweep of {HOLDER} from mlx5_0 does not count" in await problems_shown(channel)
        lease = await held_lease(running, agents[HONEST])
        await send_sweep(agents[HONEST], lease, text[HONEST], GUIDS[HONEST] + 1)
        exchanged = {frozenset([*HOSTS[4:6], *HOSTS[2:4]]), frozenset([*HOSTS[:2], *HOSTS[6:]])}
        after = await watcher.until(lambda topology: domains(topology) == exchanged, "both agree")
        assert not names(HOLDER)(after)


def with_second_cables(text: str, hosts: Sequence[str]) -> str:
    """The ports of hosts on the first leaf are also shown at free ports of the second leaf.

    The text of a port names the new cable alone, and that of the first leaf still names the old one.
    """
    cables = {cable.a: cable for cable in FABRIC.cables}
    first, second = (cables[GUIDS[host]].b for host in (hosts[0], HOSTS[-1]))
    blocks = text.split("\n\n")
    for free, host in enumerate(hosts, 30):
        guid, old = GUIDS[host], f'"S-{first:016x}"[{cables[GUIDS[host]].b_port}]'
        row = f'[{free}]\t"H-{guid:016x}"[1]({guid + 1:x}) \t\t# "{host} mlx5_0" lid 9 4xHDR'
        for n, block in enumerate(blocks):
            if re.search(rf'^Switch\t\d+ "S-{second:016x}"', block, re.MULTILINE):
                blocks[n] = block.rstrip("\n") + f"\n{row}"
            elif re.search(rf'^Ca\t\d+ "H-{guid:016x}"', block, re.MULTILINE):
                assert old in block
                blocks[n] = block.replace(old, f'"S-{second:016x}"[{free}]')
    return "\n\n".join(blocks) + "\n"


async def test_ports_with_two_cables(tmp_path: Path) -> None:
    """The holder of the lease shows hosts on two leaves: each keeps its published place."""
    async with (
        Collector(collector_settings(tmp_path)) as running,
        channel_to(running.address) as channel,
        AsyncExitStack() as stack,
    ):
        watcher = Watcher(running.address)
        agents = await agents_of(HOSTS, running.address, stack)
        lease = await held_lease(running, agents[HONEST])
        await send_sweep(agents[HONEST], lease, sweep_text(FABRIC, GUIDS[HONEST]), GUIDS[HONEST] + 1)
        before = await watcher.until(is_whole, "all hosts in the tree")
        lease = await held_lease(running, agents[HOLDER])
        text = with_second_cables(sweep_text(FABRIC, GUIDS[HOLDER]).decode(), HOSTS[1:3]).encode()
        await send_sweep(agents[HOLDER], lease, text, GUIDS[HOLDER] + 1)
        await eventually(lambda: running.components.ingest.sweeps.problems, "the sweep is judged")
        await at_rest(running, leases=False)
        assert f"the sweep of {HOLDER} from mlx5_0 does not count" in await problems_shown(channel)
        assert domains(await topology_of(channel)) == domains(before)
