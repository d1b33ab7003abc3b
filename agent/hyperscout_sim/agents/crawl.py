"""Runs the simulated agent of role `fabric`, which reports whole switches as the real SNMP crawl does.

The simulated answer of a switch goes through the real reader. Only the query itself is left out.
"""

from hyperscout.v1.discovery_pb2 import Seeds
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_formats.facts.wire import switch_table_to_proto
from hyperscout_formats.snmp.switch import read
from hyperscout_formats.text.reporters import fabric_reporter

from hyperscout_sim.agents.agent import Played, World
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.readings.lldp import mac_of, management_address
from hyperscout_sim.readings.snmp import walks

PROBE = "snmp"


class PlayedCrawl(Played):
    """Streams the findings of all switches."""

    def __init__(self, name: str, world: World, instance: int, seed: str) -> None:
        super().__init__(fabric_reporter(name), world, instance, [PROBE], seed, {"seeds": [self._take_seeds]})
        self.seeds: tuple[str, ...] = ()  # addresses of switches, from the collector

    def look(self, fabric: SimFabric) -> None:
        """Read all switches in their current state. A switch that was removed is reported as "no answer"."""
        answered = set()
        for switch, rows in walks(fabric):
            address = management_address(switch)
            finding = self._finding(PROBE, mac_of(switch.guid))
            finding.switch_table.CopyFrom(switch_table_to_proto(read(rows, switch.name, address)))
            answered.add(finding.key.subject)
            self.store.put(finding)
        for chassis in self.store.subjects(PROBE) - answered:
            silent = self._finding(PROBE, chassis, Outcome.OUTCOME_FAILED)
            silent.reason = "no answer"
            self.store.put(silent)

    def _take_seeds(self, seeds: Seeds) -> None:
        self.seeds = tuple(seeds.addresses)
