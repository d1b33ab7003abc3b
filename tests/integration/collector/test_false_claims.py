"""One agent with valid credentials reports what is not its own: nothing changes for the others."""

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from hyperscout.v1.finding_pb2 import Finding, Outcome
from hyperscout_collector.app.build.collector import Collector
from hyperscout_formats.facts.facts import LldpPort, SwitchPort
from hyperscout_formats.facts.wire import lldp_to_proto, switch_port_to_proto
from hyperscout_topology.topology import Topology
from support.agent_stream import AgentStream
from support.collector_process import channel_to
from support.collectors import QUICK, at_rest, eight_hosts, is_whole, playing, tls_settings
from support.findings import adapter
from support.identities import Family
from support.live import Watcher, problems_shown, topology_of
from support.switched import Wiring, chassis, clos

FABRIC = eight_hosts()
HOSTS = FABRIC.hosts
LIAR, VICTIM = HOSTS[-1], HOSTS[0]
GUIDS = {x.host: x.guid for x in FABRIC.adapters}


def names_the_liar(topology: Topology) -> bool:
    return any(x.kind == "SourcesDisagree" and x.subject.name == LIAR for x in topology.anomalies)


async def test_an_agent_that_claims_all_adapters_calls_them_down_and_counts_flaps(
    tmp_path: Path, family: Family
) -> None:
    async with Collector(tls_settings(tmp_path, family, **QUICK)) as running:
        async with (
            channel_to(running.address, family.channel()) as channel,
            playing(running.address, FABRIC, credentials=lambda _: family.client()) as player,
        ):
            watcher = Watcher(running.address, family.channel())
            before = await watcher.until(is_whole, "all hosts in the tree")
            await player.kill(LIAR)
            credentials = family.channel(f"node/{LIAR}")
            async with AgentStream(running.mtls_address, LIAR, credentials=credentials, instance=2) as liar:
                claims = [
                    adapter(LIAR, f"mlx5_{i}", guid=guid, state="DOWN" if host != LIAR else "ACTIVE")
                    for i, (host, guid) in enumerate(GUIDS.items())
                ]
                for claim in claims:
                    claim.observed_at.GetCurrentTime()
                assert await liar.store(*claims, full=True) == []
                await watcher.until(names_the_liar, "the liar is named")
                await at_rest(running, player)
                for claim in claims:
                    claim.infiniband.link_downed += 100
                    claim.observed_at.GetCurrentTime()
                assert await liar.store(*claims) == []
                await watcher.until(lambda x: any(a.kind == "ErroringLink" for a in x.anomalies), "flaps")
                await at_rest(running, player)
                after = await topology_of(channel)
                assert {a.subject.name for a in after.anomalies if a.kind == "ErroringLink"} == {LIAR}
                assert f"{LIAR} reports 7 adapters of other nodes as its own" in await problems_shown(channel)
            check_unharmed(before, after)
        async with channel_to(running.address, family.channel()) as channel:
            before = await topology_of(channel)
    async with (
        Collector(tls_settings(tmp_path, family, **QUICK)) as again,
        channel_to(again.address, family.channel()) as channel,
    ):
        await at_rest(again)
        check_unharmed(before, await topology_of(channel))


async def test_a_switch_that_reports_another_one_and_renames_a_third(tmp_path: Path, family: Family) -> None:
    """Three hosts on each of two leaves, below a spine that has no agent."""
    inputs = Wiring(
        clos(spines=1, rails=1),
        agents=[*(f"h{u}{i}" for u in (1, 2) for i in (1, 2, 3)), "leaf-1a", "leaf-2a"],
    ).inputs()
    async with (
        Collector(tls_settings(tmp_path, family, **QUICK)) as running,
        channel_to(running.address, family.channel()) as channel,
        AsyncExitStack() as stack,
    ):
        watcher, agents = Watcher(running.address, family.channel()), {}
        for reporter, ports in (*inputs.lldp.items(), *inputs.switch_ports.items()):
            identity = reporter if "/" in reporter else f"node/{reporter}"
            stream = AgentStream(running.mtls_address, reporter, credentials=family.channel(identity))
            agents[reporter] = await stack.enter_async_context(stream)
            assert await agents[reporter].store(*(finding_of(reporter, x) for x in ports), full=True) == []
        before = await watcher.until(lambda x: len(x.links) == 8 and len(x.hypernodes) == 3, "two leaves")
        assert {s.name for s in before.switches} == {"leaf-1a", "leaf-2a", "spine-1"}

        false = [
            replace(
                port,
                interface=f"{prefix}{port.interface}",
                chassis_id=chassis(name),
                system_name=name,
                neighbours=tuple(
                    replace(x, system_name="zzz") if x.chassis_id == chassis("spine-1") else x
                    for x in port.neighbours
                ),
            )
            for port in inputs.switch_ports["switch/leaf-1a"]
            for prefix, name in (("", "leaf-1a"), ("x", "leaf-2a"))
        ]
        liar = agents["switch/leaf-1a"]
        assert await liar.store(*(finding_of("switch/leaf-1a", x) for x in false)) == []

        def is_named(topology: Topology) -> bool:
            told = [x.message for x in topology.anomalies if x.subject.name == "leaf-1a"]
            return any("reports ports of 1 other switch: leaf-2a" in x for x in told) and any(
                f"reports spine-1 ({chassis('spine-1')}) as zzz" in x for x in told
            )

        await watcher.until(is_named, "both are named")
        await at_rest(running)
        after = await topology_of(channel)
        assert after.switches == before.switches
        assert list(after.links) == list(before.links)
        assert [(h.name, h.nodes) for h in after.hypernodes] == [(h.name, h.nodes) for h in before.hypernodes]
        other = [h for h in before.hypernodes if h.tier == 1 and "h21" in h.nodes]
        assert [h for h in after.hypernodes if h.tier == 1 and "h21" in h.nodes] == other
        assert "switch/leaf-1a reports ports of 1 other switch" in await problems_shown(channel)


def finding_of(reporter: str, port: LldpPort | SwitchPort) -> Finding:
    found = Finding(outcome=Outcome.OUTCOME_DATA)
    found.observed_at.GetCurrentTime()
    found.key.node, found.key.subject = reporter, port.interface
    if isinstance(port, LldpPort):
        found.key.probe = "lldp"
        found.lldp.CopyFrom(lldp_to_proto(port))
    else:
        found.key.probe = "switch"
        found.switch_port.CopyFrom(switch_port_to_proto(port))
    return found


def check_unharmed(before: Topology, after: Topology) -> None:
    assert is_whole(after)
    assert list(after.links) == list(before.links)
    assert {x for x in after.adapters if x.node != LIAR} == {x for x in before.adapters if x.node != LIAR}
    about_others = {x.kind for x in after.anomalies if x.kind != "ErroringLink" or x.subject.name != LIAR}
    assert about_others == {"SourcesDisagree"}
    victims = [h for h in before.hypernodes if h.tier == 1 and VICTIM in h.nodes]
    assert victims
    assert [h for h in after.hypernodes if h.tier == 1 and VICTIM in h.nodes] == victims
