"""Runs the simulated agent of role `fabric`, which reports whole switches as the real SNMP crawl does.

The simulated answer of a switch goes through the real reader. Only the query itself is left out.
"""

import asyncio
from random import Random

from hyperscout.v1.discovery_pb2 import Hello, Seeds
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome
from hyperscout_agent.findings.store import FindingStore
from hyperscout_agent.uplink.uplink import Uplink
from hyperscout_formats.facts.wire import switch_table_to_proto
from hyperscout_formats.snmp.switch import read
from hyperscout_formats.text.reporters import fabric_reporter

from hyperscout_sim.agents.agent import VERSION, World
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.readings.lldp import mac_of, management_address
from hyperscout_sim.readings.snmp import walks

PROBE = "snmp"


class PlayedCrawl:
    """Streams the findings of all switches until `stop`. Use it from one event loop."""

    def __init__(self, name: str, world: World, instance: int, seed: str) -> None:
        self.reporter = fabric_reporter(name)
        self.store = FindingStore(self.reporter, world.clock)
        self.seeds: tuple[str, ...] = ()  # addresses of switches, from the collector
        self._world = world
        self._task: asyncio.Task[None] | None = None
        self.uplink = Uplink(
            world.targets,
            self.store,
            Hello(version=VERSION, probes=[PROBE], instance=instance),
            directives={"seeds": [self._take_seeds]},
            clock=world.clock,
            wall_ns=world.wall_ns,
            rng=Random(seed),  # noqa: S311 - spreads reconnects
            channel=world.channel,
        )

    def start(self) -> None:
        self._task = asyncio.create_task(self.uplink.run(), name=self.reporter)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def look(self, fabric: SimFabric) -> None:
        """Read all switches in their current state. A switch that was removed is reported as "no answer"."""
        answered = set()
        for switch, rows in walks(fabric):
            address = management_address(switch)
            finding = self._finding(mac_of(switch.guid), Outcome.OUTCOME_DATA)
            finding.switch_table.CopyFrom(switch_table_to_proto(read(rows, switch.name, address)))
            answered.add(finding.key.subject)
            self.store.put(finding)
        for chassis in self.store.subjects(PROBE) - answered:
            silent = self._finding(chassis, Outcome.OUTCOME_FAILED)
            silent.reason = "no answer"
            self.store.put(silent)

    def _finding(self, chassis: str, outcome: "Outcome.ValueType") -> Finding:
        key = FindingKey(node=self.reporter, probe=PROBE, subject=chassis)
        finding = Finding(key=key, outcome=outcome)
        finding.observed_at.FromNanoseconds(self._world.wall_ns())
        return finding

    def _take_seeds(self, seeds: Seeds) -> None:
        self.seeds = tuple(seeds.addresses)
