"""Bind each switch agent to the one switch that it runs on.

The name of a switch agent comes from its certificate (`switch/NAME`), but the agent may report any chassis
id. A chassis id whose neighbours hear the name of an agent belongs to that agent. An agent whose name no
neighbour hears (certificates are named otherwise, neighbours have no agents) has the chassis id of most of
its ports, unless that belongs to another agent. Ports under other chassis ids do not count.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hyperscout_formats.facts.facts import LldpNeighbour, LldpPort, SwitchPort
from hyperscout_formats.text.counts import count, first_few
from hyperscout_formats.text.reporters import plain_switch_name, switch_reporter
from hyperscout_topology.topology import Anomaly, Endpoint

from hyperscout_inference.ethernet.switch_names import Vote, Votes, add_vote, elected
from hyperscout_inference.fabric.inputs import FabricInputs

_SOURCE = "switch"
_NAMED = 3  # switches that a message names at most


def with_own_ports(inputs: FabricInputs, earlier: Mapping[str, str]) -> tuple[FabricInputs, list[Anomaly]]:
    """Return the inputs without the ports that switch agents report of other switches, and one finding for
    each current agent that does. The order of the evidence does not matter.

    `earlier`: the published names of switches, by chassis id.
    """
    if not inputs.switch_ports:
        return inputs, []
    identities = _Identities(inputs, earlier)
    kept: dict[str, tuple[SwitchPort, ...]] = {}
    anomalies = []
    for reporter, ports in sorted(inputs.switch_ports.items()):
        bound = identities.chassis_of(reporter)
        kept[reporter] = tuple(port for port in ports if port.chassis_id == bound)
        foreign = {port.chassis_id for port in ports} - {bound}
        if foreign and reporter not in inputs.silent:
            anomalies.append(identities.finding(reporter, bound, foreign))
    return replace(inputs, switch_ports=kept), anomalies


class _Identities:
    """The names under which neighbours hear the chassis ids that switch agents report."""

    def __init__(self, inputs: FabricInputs, earlier: Mapping[str, str]) -> None:
        self._earlier = earlier
        self._ports = {
            reporter: Counter(port.chassis_id for port in ports)
            for reporter, ports in inputs.switch_ports.items()
        }
        self._votes: Votes = {}
        self._hear: dict[tuple[str, str], set[str]] = {}  # neighbours, by chassis id and name
        for by, port, neighbour in _heard_by(inputs):
            add_vote(self._votes, neighbour.chassis_id, by, Vote(True, neighbour.system_name, port))
            self._hear.setdefault(
                (neighbour.chassis_id, plain_switch_name(neighbour.system_name)), set()
            ).add(by)
        self._agents = {
            plain_switch_name(reporter) for reporter in inputs.switch_ports if reporter not in inputs.silent
        }
        self._of_agent: dict[str, str] = {}  # by name: the chassis id that several neighbours hear under it
        for chassis, name in sorted(self._hear):
            if name in self._agents and self._announces(chassis, name):
                self._of_agent.setdefault(name, chassis)

    def chassis_of(self, reporter: str) -> str | None:
        """Return the chassis id of the switch that the agent runs on; None = it reports only others."""
        ports, own = self._ports[reporter], plain_switch_name(reporter)
        heard = {chassis: self._heard(chassis, reporter) for chassis in ports}
        mine = [c for c, name in heard.items() if name == own or self._announces(c, own, reporter)]
        if not mine:
            is_elsewhere = own in self._of_agent
            mine = [c for c, name in heard.items() if not name or not (is_elsewhere or name in self._agents)]
        return min(mine, key=lambda chassis: (-ports[chassis], chassis), default=None)

    def finding(self, reporter: str, bound: str | None, foreign: set[str]) -> Anomaly:
        names = [f"{self._heard(chassis, reporter) or 'a switch'} ({chassis})" for chassis in sorted(foreign)]
        text = (
            f"{reporter} reports ports of {count(len(foreign), 'other switch')}: "
            f"{first_few(names, _NAMED)}; neighbours do not hear its name there, and these ports do not count"
        )
        device = bound or self._of_agent.get(plain_switch_name(reporter), reporter)
        subject = Endpoint(device, reporter.removeprefix(switch_reporter("")))
        return Anomaly("SourcesDisagree", subject, None, None, (_SOURCE,), 0.9, text)

    def _announces(self, chassis: str, name: str, without: str = "") -> bool:
        """Return whether several neighbours hear a chassis id under this name: a switch announces both, even
        if another switch has its chassis id, too."""
        return len(self._hear.get((chassis, name), set()) - {without}) > 1

    def _heard(self, chassis: str, reporter: str) -> str:
        """Return the name under which neighbours except `reporter` hear a switch, else the earlier one."""
        votes = {by: vote for by, vote in self._votes.get(chassis, {}).items() if by != reporter}
        return plain_switch_name(elected(votes, self._earlier.get(chassis, "")))


def _heard_by(inputs: FabricInputs) -> Iterator[tuple[str, str, LldpNeighbour]]:
    """Yield what current reporters hear: the reporter, its port and the neighbour."""
    heard: list[tuple[str, Sequence[LldpPort | SwitchPort]]]
    heard = [*inputs.lldp.items(), *inputs.switch_ports.items()]
    heard = [(by, ports) for by, ports in heard if by not in inputs.silent]
    heard += [(f"{x.source} {x.table.addresses}", x.table.ports) for x in inputs.tables if not x.silent]
    for by, ports in heard:
        for port in ports:
            for neighbour in port.neighbours:
                if neighbour.system_name:
                    yield by, port.interface, neighbour
