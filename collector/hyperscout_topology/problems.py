"""Lists the problems of a topology and of the collector that published it, one line each."""

from collections.abc import Collection, Mapping, Sequence
from heapq import nsmallest
from typing import TYPE_CHECKING

from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_formats.text.counts import and_more, count
from hyperscout_formats.text.host_list import fold
from hyperscout_formats.text.reporters import FABRIC_PROBES, SWITCH_PROBE, is_fabric, is_node
from hyperscout_runtime.units import CLOCK_FAILED_S

from hyperscout_topology.gaps import gap_lines
from hyperscout_topology.health import marks
from hyperscout_topology.topology import HyperNode, Topology

if TYPE_CHECKING:
    from hyperscout.v1.topology_pb2 import GetStatusResponse

_MAX_NAMED = 10
_NO_HYPERNODES = "no HyperNodes"  # the beginning of the problem that explains it
_OUTCOMES = {"data": "has data on", "failed": "failed on", "nothing": "found nothing on"}
# Probes of nodes that see links. Those without findings are named too: they are off, or see no device. As a
# rule, a cluster has one kind of accelerators.
_LINK_PROBES = ("lldp", "infiniband", "ibnetdiscover")


def problems_of(current: "GetStatusResponse", topology: Topology) -> list[str]:
    """Every problem of the collector and the topology, one line each."""
    away = {agent.node for agent in current.agents if not agent.connected}
    blind = {
        agent.node
        for agent in current.agents
        if is_fabric(agent.node) and agent.findings and agent.findings == agent.failed_findings
    }
    return all_problems(current, topology, away, blind, topology_problems(topology))


def all_problems(
    current: "GetStatusResponse",
    topology: Topology,
    away: Collection[str],
    blind: Collection[str],
    in_topology: Sequence[str],
) -> list[str]:
    """Like `problems_of`, for a caller that knows the parts. `agents` of `current` are not read.

    `away`: agents that are not connected. `blind`: agents of role fabric with failed findings only.
    `in_topology`: the result of `topology_problems`.
    """
    wrong = [f"collector: {problem}" for problem in current.problems]
    if not topology.hypernodes and not any(line.startswith(_NO_HYPERNODES) for line in current.problems):
        wrong.append("no HyperNodes yet")
    if current.HasField("held"):
        held = current.held
        wrong.append(
            f"generation {held.generation} is held: {held.reason} (`hyperscout diff`, `hyperscout approve`)"
        )
    if away:
        wrong.append(f"{count(len(away), 'agent')} not connected: {_some(away)}")
    # A single switch that does not answer is reported by its own finding; large fabrics always have one.
    wrong += [
        f"{node} has only failed findings (`hyperscout get findings {node} -o wide`)"
        for node in sorted(blind)
    ]
    for lease in current.leases:
        if lease.partial:
            reason = lease.partial_reason or "partial sweep"
            wrong.append(f"sweep from {lease.node} {lease.device}/{lease.port}: {reason}")
    return [*wrong, *in_topology]


def why_no_hypernodes(nodes: int, outcomes: Mapping[str, Mapping[str, int]]) -> str:
    """One sentence: what is missing for HyperNodes, and which commands explain it.

    `nodes`: number of nodes that report. `outcomes`: by probe that sees links, the number of its reporters by
    outcome ("data", "nothing", "failed").
    """
    if not nodes:
        return f"{_NO_HYPERNODES}: no node reports; `hyperscout doctor` on a node says why"
    seen = [
        f"{probe} " + " and ".join(_on(probe, outcome, n) for outcome, n in sorted(by_outcome.items()))
        for probe, by_outcome in sorted(outcomes.items())
    ]
    expected = [*_LINK_PROBES, *(KINDS if outcomes.keys().isdisjoint(KINDS) else ())]
    if silent := [probe for probe in expected if probe not in outcomes]:
        seen.append(f"no findings of {', '.join(silent)} (off, or no such port or device)")
    report = "1 node reports" if nodes == 1 else f"{nodes} nodes report"
    if any("data" in by_outcome for by_outcome in outcomes.values()):
        report += ", but no links of which a HyperNode can be made"
    else:
        report += " no usable link"
    return (
        f"{_NO_HYPERNODES}: {report}: {', '.join(seen)}; "
        "`hyperscout doctor NODE` and `hyperscout get findings -o wide` say why"
    )


def why_no_sweeps(nodes: Collection[str], off: Collection[str], failures: Mapping[str, str]) -> str:
    """One sentence: whose InfiniBand ports no agent sweeps, why, and what to set.

    `off`: those of the nodes whose agents do not sweep. `failures`: why the sweeps of others failed.
    """
    causes = []
    if failures:
        node = min(failures)
        causes.append(
            f"the probe ibnetdiscover failed on {count(len(failures), 'node')}, on {node}: {failures[node]}; "
            f"`hyperscout doctor {node}` says what is missing"
        )
    if off:
        where = f"on {count(len(off), 'node')} ({_some(off)})" if failures else "there"
        causes.append(
            f"the probe ibnetdiscover is off {where}; in the Helm chart set agent.infiniband.resourceName, "
            "and agent.infiniband.nodeSelector so that it selects these nodes; without the chart set "
            "ibnetdiscover.enabled"
        )
    return (
        f"no InfiniBand sweeps: no agent sweeps from the active ports of {count(len(nodes), 'node')} "
        f"({_some(nodes)}): {'; and '.join(causes)}"
    )


def _on(probe: str, outcome: str, reporters: int) -> str:
    noun = "agent" if probe == SWITCH_PROBE or probe in FABRIC_PROBES else "node"
    return f"{_OUTCOMES[outcome]} {count(reporters, noun)}"


def topology_problems(topology: Topology) -> list[str]:
    """The part of `problems_of` that follows from the topology alone."""
    wrong = []
    missing = topology.nodes_without_evidence
    if missing:
        wrong.append(f"{count(len(missing), 'node')} without evidence: {_some(missing)}")
    wrong += gap_lines(topology)
    for h in topology.hypernodes:
        wrong += domain_problems(h)
    return wrong


def domain_problems(h: HyperNode) -> list[str]:
    """The unhealthy conditions of a HyperNode, one line each."""
    return [f"{h.name}: {mark} ({reason}): {message}" for mark, reason, message in marks(h)]


def agent_notes(current: "GetStatusResponse", topology: Topology) -> list[str]:
    """What is not right at agents while the topology may be whole, one line each.

    `hyperscout doctor NODE` names the same as failed. An agent that is not connected or has only failed
    findings of a fabric is one of `problems_of`.
    """
    placed = {node for h in topology.hypernodes if not h.children for node in h.nodes}
    connected = [agent for agent in current.agents if agent.connected]
    notes = []
    for names, have in (
        ([a.node for a in connected if a.failed_findings], "with failed findings"),
        ([a.node for a in connected if not a.findings], "without findings"),
        ([a.node for a in connected if abs(a.clock_offset_s) >= CLOCK_FAILED_S], "with a wrong clock"),
        ([a.node for a in connected if is_node(a.node) and a.node not in placed], "in no HyperNode"),
    ):
        if names:
            why = "`hyperscout doctor NODE` says why"
            notes.append(f"{count(len(names), 'agent')} {have}: {_some(names)} ({why})")
    if current.stale_findings:
        of = f"{current.stale_findings} of {count(current.findings, 'finding')}"
        notes.append(f"{of} stale (`hyperscout get findings` lists them)")
    return notes


def _some(names: Collection[str]) -> str:
    return fold(nsmallest(_MAX_NAMED, names)) + and_more(len(names) - _MAX_NAMED)
