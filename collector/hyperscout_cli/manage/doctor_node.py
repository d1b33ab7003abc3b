"""Checks of a node through the collector: pure functions over the collector's answers."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_agent.doctor.checks import of_probe
from hyperscout_agent.doctor.facts import Check, WithoutData
from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_formats.text.counts import count
from hyperscout_formats.text.reporters import is_node
from hyperscout_runtime.errors import similar
from hyperscout_runtime.units import CLOCK_FAILED_S, CLOCK_WARNING_S
from hyperscout_topology.problems import domain_problems
from hyperscout_topology.topology import Topology

from hyperscout_cli.remote.client import Collector
from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.options import Endpoint
from hyperscout_cli.shared.tables import age

_LIST_IT = (
    "add it to expected_nodes, or to expected_nodes_file and restart the collector; in Kubernetes, check "
    "that node_selector selects it"
)
# Probes that report nothing on a node without devices for them.
_PROBES = ("infiniband", "lldp")


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """All data of a collector about one node. `findings` are those of this node."""

    node: str
    status: pb.GetStatusResponse
    topology: Topology
    findings: Sequence[pb.StoredFinding] = field(default_factory=tuple)

    @property
    def is_unexpected(self) -> bool:
        """Whether sources report the host, but it is not among the nodes of the cluster."""
        topology = self.topology
        known = any(a.node == self.node for a in topology.adapters) or self.node in topology.foreign_endpoints
        return known and self.node not in topology.nodes_without_evidence

    @property
    def agent(self) -> pb.AgentStatus | None:
        return next((agent for agent in self.status.agents if agent.node == self.node), None)


def ask_about(endpoint: Endpoint, node: str, now_ns: int) -> list[Check]:
    """Query a collector, and check its answers. A collector that does not answer is a failed check."""
    try:
        with Collector(endpoint) as connection:
            seen = NodeSeen(
                node,
                connection.status(),
                connection.topology(links=False),
                tuple(connection.findings(node)),
            )
    except CliError as error:
        todo = "run `hyperscout doctor` on the node itself"
        return [Check("collector", "failed", error.message, todo)]
    return judge(seen, now_ns)


def judge(seen: NodeSeen, now_ns: int) -> list[Check]:
    """All checks; fewer for a node without an agent."""
    found = [_collector(seen)]
    found.append(_known(seen))
    if seen.agent is not None:
        found += [_connected(seen.agent, now_ns), _clock(seen.agent), _version(seen)]
        found += list(_probes(seen))
        found += list(_silent(seen))
        found.append(_fresh(seen))
    found += list(_placed(seen))
    return found


def _collector(seen: NodeSeen) -> Check:
    status = seen.status
    if status.problems:
        return Check("collector", "warning", "; ".join(status.problems), "see `hyperscout status`")
    return Check("collector", "ok", f"version {status.version}, generation {status.generation}")


def _known(seen: NodeSeen) -> Check:
    """Whether an agent reported under this name."""
    node = seen.node
    if seen.agent is not None:
        return Check("agent", "ok", f"an agent reports as {node}")
    names = {agent.node for agent in seen.status.agents if is_node(agent.node)}
    in_tree = any(node in hypernode.nodes for hypernode in seen.topology.hypernodes)
    expected = node in seen.topology.nodes_without_evidence
    close = ", ".join(similar(node, names))
    hint = f"; similar names of agents: {close}" if close else ""
    todo = "start an agent on the node, and run `hyperscout doctor` there"
    if in_tree:
        why = f"no agent reports as {node}: its cables are known from other sources{hint}"
        return Check("agent", "warning", why, todo)
    if expected:
        return Check("agent", "failed", f"{node} is expected, but no source has reported it{hint}", todo)
    if seen.is_unexpected:
        return Check("agent", "failed", f"{node} is reported, but is not among the expected nodes", _LIST_IT)
    why = f"{node} is not expected, and no source has reported it{hint}"
    return Check("agent", "failed", why, "check its name: `hyperscout get nodes`, `kubectl get nodes`")


def _connected(agent: pb.AgentStatus, now_ns: int) -> Check:
    heard = age(agent.last_heard.ToNanoseconds(), now_ns)
    if agent.connected:
        return Check("connected", "ok", f"last heard {heard or '0s'} ago")
    why = f"its agent is not connected: last heard {heard or '?'} ago"
    return Check(
        "connected", "failed", why, "run `hyperscout doctor` on the node to see whether the agent runs"
    )


def _clock(agent: pb.AgentStatus) -> Check:
    offset_s = agent.clock_offset_s
    why = f"{abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} the collector's"
    todo = "check time synchronisation (chrony, systemd-timesyncd) on both"
    if abs(offset_s) >= CLOCK_FAILED_S:
        return Check("clock", "failed", f"{why}: validity of tokens and certificates depends on it", todo)
    if abs(offset_s) >= CLOCK_WARNING_S:
        return Check("clock", "warning", f"{why}; ages of findings are correct nevertheless", todo)
    return Check("clock", "ok", why)


def _version(seen: NodeSeen) -> Check:
    agent = seen.agent
    mine, other = (agent.version if agent else ""), seen.status.version
    if mine and mine != other:
        todo = "upgrade the older one; both work meanwhile"
        return Check("version", "warning", f"agent {mine}, collector {other}", todo)
    return Check("version", "ok", other)


def _probes(seen: NodeSeen) -> Iterator[Check]:
    """One check for each probe."""
    by_probe: dict[str, list[pb.StoredFinding]] = {}
    for stored in _newest(seen.findings):
        by_probe.setdefault(stored.finding.key.probe, []).append(stored)
    for probe in sorted(by_probe):
        yield _probe(probe, by_probe[probe])


def _newest(findings: Sequence[pb.StoredFinding]) -> Iterator[pb.StoredFinding]:
    """The newest finding of each subject: a failed one is stored beside the last one with data."""
    last: dict[tuple[str, str], pb.StoredFinding] = {}
    for stored in findings:
        key = stored.finding.key.probe, stored.finding.key.subject
        before = last.get(key)
        at_ns = stored.finding.observed_at.ToNanoseconds()
        if before is None or before.finding.observed_at.ToNanoseconds() <= at_ns:
            last[key] = stored
    yield from last.values()


def _probe(probe: str, stored: Sequence[pb.StoredFinding]) -> Check:
    outcomes = Counter(one.finding.outcome for one in stored)
    words = (
        (Outcome.OUTCOME_DATA, "data"),
        (Outcome.OUTCOME_NOTHING, "nothing"),
        (Outcome.OUTCOME_FAILED, "failed"),
    )
    counted = ", ".join(f"{outcomes[outcome]} {word}" for outcome, word in words if outcomes[outcome])
    without_data = [
        WithoutData(
            probe,
            one.finding.key.subject,
            "failed" if one.finding.outcome == Outcome.OUTCOME_FAILED else "nothing",
            one.finding.reason,
        )
        for one in stored
        if one.finding.outcome != Outcome.OUTCOME_DATA
    ]
    if not without_data:
        return Check(f"probe {probe}", "ok", counted)
    return of_probe(probe, counted, without_data, has_data=bool(outcomes[Outcome.OUTCOME_DATA]))


def _silent(seen: NodeSeen) -> Iterator[Check]:
    """Usual probes without findings."""
    heard = {stored.finding.key.probe for stored in seen.findings}
    if not heard:
        yield Check(
            "findings",
            "failed",
            "its agent has reported no finding",
            "run `hyperscout doctor` on the node: it checks devices and rights",
        )
        return
    expected = [*_PROBES, *(KINDS if heard.isdisjoint(KINDS) else ())]
    if is_node(seen.node) and (silent := [probe for probe in expected if probe not in heard]):
        why = f"no findings of {', '.join(silent)}: off in the agent's settings, or no such device"
        yield Check("silent probes", "skipped", why)


def _fresh(seen: NodeSeen) -> Check:
    stale = sum(stored.stale for stored in seen.findings)
    if stale and stale == len(seen.findings):
        return Check(
            "fresh", "failed", f"{count(stale, 'finding')}, all stale", "check why its agent does not report"
        )
    if stale:
        why = f"{stale} of {count(len(seen.findings), 'finding')} stale"
        return Check("fresh", "warning", why, f"`hyperscout get findings {seen.node}` lists them")
    return Check("fresh", "ok", f"{count(len(seen.findings), 'finding')}, none stale")


def _placed(seen: NodeSeen) -> Iterator[Check]:
    """The node's HyperNode, or why it is in none."""
    node, topology = seen.node, seen.topology
    if not is_node(node):
        return
    holding = min((h for h in topology.hypernodes if node in h.nodes), key=lambda h: h.tier, default=None)
    if holding is not None and node in topology.nodes_without_evidence:
        why = f"in {holding.name} (tier {holding.tier}) as before, but no live cable shows it"
        yield Check(
            "hierarchy", "failed", why, f"reseat its cables: `hyperscout get anomalies {node}` names them"
        )
    elif holding is not None:
        yield Check("hierarchy", "ok", f"in {holding.name} (tier {holding.tier})")
        if wrong := domain_problems(holding):
            yield Check("domain", "warning", "; ".join(wrong), "see `hyperscout status`")
    elif seen.status.HasField("held") and seen.agent is not None:
        held = seen.status.held
        why = f"it is in no HyperNode; generation {held.generation} is held: {held.reason}"
        yield Check("hierarchy", "failed", why, "see `hyperscout diff`, then `hyperscout approve`")
    elif seen.is_unexpected:
        why = "it is in no HyperNode: sources report it, but it is not among the expected nodes"
        yield Check("hierarchy", "failed", why, _LIST_IT)
    else:
        why = "it is in no HyperNode: no evidence connects it to a switch or another node"
        todo = "see the results of its probes above" if seen.findings else ""
        yield Check("hierarchy", "failed", why, todo)
