"""A played agent of role fabric and the whole collector: tiers above the leaves come from switches alone."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hyperscout.v1 import topology_pb2 as pb
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.status.status import problems
from hyperscout_collector.evidence.rows import FAILED
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.shapes import clos2
from hyperscout_topology.topology import Topology
from support.collectors import collector_settings, nodes_by_tier
from support.rest_collector import status_of
from support.waiting import TIMEOUT_S, eventually

FABRIC = clos2(leaves=2, hosts_per_leaf=4, spines=2)
HOSTS = sorted(FABRIC.hosts)


class Rig:
    """A collector with agents of 8 hosts under 2 leaves and 2 spines, and one that asks the switches."""

    def __init__(
        self,
        folder: Path,
        *,
        previous: Topology | None = None,
        player: type[Player] = Player,
        **settings: Any,
    ) -> None:
        flags = {"takeover_limit_s": 10 * TIMEOUT_S, **settings}
        self.collector = Collector(collector_settings(folder, **flags), previous=previous)
        self.player: Player
        self._kind = player

    async def __aenter__(self) -> "Rig":
        await self.collector.start()
        self.player = self._kind(FABRIC, [self.collector.address], crawl="crawl", refresh_interval_s=3600)
        self._task = asyncio.create_task(self.player.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.collector.stop()

    @property
    def topology(self) -> Topology:
        return self.collector.watchers.current.topology

    async def until(self, condition: Callable[[Topology], object]) -> Topology:
        await eventually(lambda: condition(self.topology), lambda: told(self.topology))
        return self.topology


def told(topology: Topology) -> str:
    return "\n".join(map(str, (*topology.hypernodes, *topology.anomalies)))


WHOLE = {1: [HOSTS[:4], HOSTS[4:]], 2: [HOSTS]}


def said(topology: Topology, kind: str) -> list[str]:
    """Messages of a condition, where it is True."""
    return [
        c.message for h in topology.hypernodes for c in h.conditions if (c.type, c.status) == (kind, "True")
    ]


async def test_two_tiers_out_of_what_switches_say(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        topology = await rig.until(lambda t: nodes_by_tier(t) == WHOLE)
        assert topology.nodes_without_evidence == ()
        assert "fabric/crawl" not in told(topology)
        # The crawler begins at what the hosts heard.
        crawl = rig.player.crawl
        assert crawl is not None
        await rig.until(lambda _: len(crawl.seeds) == 4)

        cable = rig.player.fabric.between("leaf-01", "spine-01")[0]
        rig.player.cut(cable)
        topology = await rig.until(lambda t: said(t, "Degraded"))
        (message,) = said(topology, "Degraded")
        assert f"leaf-01/swp{cable.a_port}" in message, "both of its ends are named"
        assert f"spine-01/swp{cable.b_port}" in message
        assert nodes_by_tier(topology) == WHOLE
        rig.player.restore(cable)
        await rig.until(lambda t: not said(t, "Degraded"))


async def test_a_switch_that_is_off_is_named_and_the_tiers_stay(tmp_path: Path) -> None:
    """It answers no request any more, and its neighbours say that their ports to it are dark."""
    async with Rig(tmp_path) as rig:
        await rig.until(lambda t: nodes_by_tier(t) == WHOLE)
        spine = rig.player.fabric.find("spine-01")
        rig.player.pull(spine)
        topology = await rig.until(lambda t: said(t, "Degraded"))
        assert "spine-01" in " ".join(said(topology, "Degraded"))
        assert nodes_by_tier(topology) == WHOLE
        (silent,) = [
            row
            for row in rig.collector.components.evidence.state.rows_of_node("fabric/crawl")
            if row.rank == FAILED
        ]
        assert silent.reason == "no answer"
        rig.player.push_back(spine)
        await rig.until(lambda t: not said(t, "Degraded"))


async def test_a_crawler_may_go_and_come_back(tmp_path: Path) -> None:
    """What it said last stands while no reporter says otherwise."""
    async with Rig(tmp_path) as rig:
        await rig.until(lambda t: nodes_by_tier(t) == WHOLE)
        await rig.player.kill_crawl()
        status = await listed(rig, lambda agents: not agents["fabric/crawl"].connected)
        assert status["fabric/crawl"].findings == 4
        assert nodes_by_tier(rig.topology) == WHOLE
        rig.player.revive_crawl()
        await listed(rig, lambda agents: agents["fabric/crawl"].connected)
        assert nodes_by_tier(rig.topology) == WHOLE


class Late(Player):
    """No crawler asks switches until `asks`."""

    asks = False

    def revive_crawl(self) -> None:
        if self.asks and self.crawl is None:  # the player itself may come to it only now
            super().revive_crawl()


async def test_a_new_leader_waits_for_a_look_at_the_switches(tmp_path: Path) -> None:
    """Its evidence is empty, all hosts are heard at once, the crawl begins anew: no tier goes meanwhile."""
    async with Rig(tmp_path / "first") as rig:
        published = await rig.until(lambda t: nodes_by_tier(t) == WHOLE)
    async with Rig(tmp_path / "second", previous=published, player=Late) as rig:
        hosts = len(HOSTS)
        await listed(
            rig, lambda agents: sum(a.connected and a.findings > 0 for a in agents.values()) == hosts
        )
        assert await wording(rig, "waits for readings of switches (leaf-01, leaf-02, spine-01 and 1 more)")
        assert rig.topology.generation == published.generation
        assert isinstance(rig.player, Late)
        rig.player.asks = True
        rig.player.revive_crawl()
        assert await wording(rig, "")
        await listed(rig, lambda agents: "fabric/crawl" in agents)
        assert nodes_by_tier(rig.topology) == WHOLE
        assert {h.name for h in rig.topology.hypernodes} == {h.name for h in published.hypernodes}


async def wording(rig: Rig, words: str) -> bool:
    """Until what a take-over waits for is this; "" = for nothing more."""

    def is_said() -> bool:
        said = [problem for problem in problems(rig.collector.components) if "infers nothing yet" in problem]
        return any(problem.endswith(words) for problem in said) if words else not said

    return await eventually(is_said)


async def listed(
    rig: Rig, condition: Callable[[dict[str, pb.AgentStatus]], object]
) -> dict[str, pb.AgentStatus]:
    """Agents of the status, by name, once they are so."""

    def agents() -> dict[str, pb.AgentStatus]:
        return {agent.node: agent for agent in status_of(rig.collector).agents}

    await eventually(lambda: condition(agents()))
    return agents()
