"""Infers a topology from a snapshot of the evidence, and lets the generations decide whether to publish it.

    evidence, cluster -> sweeps -> infer -> takeover, drift from the blueprint -> Generations -> Decision

The methods of `Inference` block for seconds on a large fabric. The pipeline calls them in its thread, one at
a time: `Generations` is a state machine. After a takeover the published topology replaces the inferred one
until the takeover is complete (`decisions.publication.takeover`).
"""

import contextlib
import gc
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hyperscout_formats.infiniband.ibnetdiscover import SWITCH
from hyperscout_formats.text.reporters import FABRIC_PROBES, cluster_of, is_node
from hyperscout_inference.fabric.identify import announced_names
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.hierarchy import infer_without_conditions
from hyperscout_inference.hierarchy.conditions import ConditionFacts, with_conditions
from hyperscout_inference.hierarchy.history import forget
from hyperscout_inference.labels.cloud_labels import Keys, domains_of
from hyperscout_inference.labels.nvlink_labels import labelled_gpus
from hyperscout_runtime.errors import described
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.inference.cluster import ClusterView
from hyperscout_collector.app.inference.failures import Failure
from hyperscout_collector.decisions.publication.generations import Decision, Generations
from hyperscout_collector.decisions.publication.membership import nodes_of
from hyperscout_collector.decisions.publication.quarantine import Missing, marked, why_lacking
from hyperscout_collector.decisions.publication.takeover import Takeover
from hyperscout_collector.evidence.measurements import PairTables
from hyperscout_collector.evidence.snapshot import Resolved, Snapshot, resolve, stale_nodes, stale_switches
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.evidence.switch_tables import chassis_ids

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disable the cyclic garbage collector within the block.

    Inference leaves almost no cyclic garbage, but it allocates so many objects that the garbage collector
    would traverse all evidence repeatedly.
    """
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


@dataclass(frozen=True, slots=True)
class InferenceSettings:
    """`node_map`: adapter GUID -> host. `cloud_labels`: the label keys of nodes, per cloud. `nvlink_labels`:
    the label keys that name NVLink domains."""

    options: InferOptions = field(default_factory=InferOptions)
    node_map: Mapping[int, str] = field(default_factory=dict)
    cloud_labels: tuple[Keys, ...] = ()
    nvlink_labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one inference.

    `stale`, `stale_switches`: when each stale node or switch was last seen, Unix ns.
    `lacks`: why the published topology replaces the inferred one; "" = it does not.
    """

    resolved: Resolved
    inferred: Topology
    stale: Mapping[str, int]
    stale_switches: Mapping[str, int]
    is_takeover: bool = False
    lacks: str = ""
    decision: Decision = field(default_factory=Decision)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _AcceptedLosses:
    """The nodes and links that were missing when an operator accepted the wiring as it is."""

    nodes: frozenset[str]
    anomalies: frozenset[tuple[str, str, str, str, str]]

    @classmethod
    def of(cls, topology: Topology) -> "_AcceptedLosses":
        missing = (x.key for x in topology.anomalies if x.kind in ("MissingLink", "MissingSwitch"))
        return cls(frozenset(topology.nodes_without_evidence), frozenset(missing))

    def any_in(self, topology: Topology) -> bool:
        return not self.nodes.isdisjoint(topology.nodes_without_evidence) or any(
            x.key in self.anomalies for x in topology.anomalies
        )


class Inference:
    """Infers, and offers the results to `generations`. `timer`: monotonic seconds.

    `measured_enough`: whether measured latency may place nodes without link evidence. `add_health` adds the
    health of ports to the inputs. `add_drift` adds the differences from the blueprint to the topology.
    `alone`: the nodes and devices whose sweeps no other agent can confirm.
    """

    def __init__(
        self,
        settings: InferenceSettings,
        texts: SweepTexts,
        generations: Generations,
        *,
        timer: Callable[[], float],
        takeover: Takeover | None = None,
        measured_enough: Callable[[], bool] = lambda: True,
        add_health: Callable[[FabricInputs], FabricInputs] = lambda inputs: inputs,
        add_drift: Callable[[Topology], Topology] = lambda topology: topology,
        alone: Callable[[], Collection[tuple[str, str]]] = frozenset,
    ) -> None:
        self.generations = generations
        self.takeover = takeover
        self._settings = settings
        self._texts = texts
        self._timer = timer
        self._measured_enough = measured_enough
        self._add_health = add_health
        self._add_drift = add_drift
        self._alone = alone
        self._accepted: _AcceptedLosses | None = None

    @property
    def published(self) -> Topology | None:
        return self.generations.published

    def with_labels(self, inputs: FabricInputs, view: ClusterView) -> FabricInputs:
        """The inputs with what the labels of nodes say; the same object if they say nothing else."""
        labels = domains_of(view.labels, self._settings.cloud_labels)
        gpus = labelled_gpus(view.labels, self._settings.nvlink_labels)
        if labels == inputs.labels and gpus == inputs.labelled_gpus:
            return inputs
        return replace(inputs, labels=labels, labelled_gpus=gpus)

    def accept_losses(self, topology: Topology) -> None:
        """Forget the nodes, links and switches that are missing from this topology. Does not block."""
        self._accepted = _AcceptedLosses.of(topology)
        self.generations.accept()

    @uncollected()
    def run(
        self, evidence: Snapshot, view: ClusterView, now_ns: int, missing: Sequence[Missing], since_ns: int
    ) -> Result:
        """Infer, and let the generations decide.

        `missing`: the reporters that are set aside. `since_ns`: when inference began to fail, if it fails.
        """
        began_s = self._timer()
        resolved = self._resolved(evidence, view)
        self._texts.keep_only({row.sha256 for row in evidence.sweeps if row.sha256 is not None})
        published, failing = self.published, ""
        takeover = self._takeover_in_progress(resolved, evidence, view, now_ns)
        if takeover is not None and published is not None:
            stale, switches = takeover.stale(now_ns), takeover.stale_switches(now_ns)
            result = Result(resolved, published, stale, switches, is_takeover=True)
        else:
            topology = marked(self._topology_of(resolved, view), missing, published)
            stale, switches = stale_nodes(evidence, topology), stale_switches(evidence)
            if self.takeover is not None:
                stale = self.takeover.stale(now_ns) | stale
                switches = self.takeover.stale_switches(now_ns, evidence.switches) | switches
            result = Result(resolved, topology, stale, switches)
            if published is not None and (lacks := why_lacking(topology, missing, published)):
                result = replace(result, inferred=published, lacks=lacks)
                failing = str(Failure(since_ns, lacks))
        decision = self.offer(result, view, now_ns, failing)
        return replace(result, decision=decision, seconds=self._timer() - began_s)

    @uncollected()
    def error_of(self, evidence: Snapshot, view: ClusterView) -> str | None:
        """The exception of an inference from this evidence; None = it raises none. The result is dropped."""
        try:
            # A trial must not change the shared table of pairs.
            resolved = self._resolved(replace(evidence, pair_tables=PairTables()), view)
            # Also what the generations would raise.
            stale_nodes(evidence, with_conditions(self._topology_of(resolved, view)))
            stale_switches(evidence)
        except Exception as error:
            return described(error)
        return None

    def offer(self, result: Result, view: ClusterView, now_ns: int, failing: str) -> Decision:
        """Offer a result to the generations with the present state of the cluster.

        `failing`: why the result is not newer, "" = it is the newest.
        """
        down = view.down(result.inferred, self.published)
        facts = ConditionFacts(down, result.stale, result.stale_switches, failing=failing)
        is_inferred = not (result.is_takeover or result.lacks)
        return self.generations.offer(view.marked(result.inferred), now_ns, facts, is_inferred=is_inferred)

    def _resolved(self, evidence: Snapshot, view: ClusterView) -> Resolved:
        names: Mapping[str, str] = {}
        node_map, previous = self._settings.node_map, self._previous()
        if view.others is not None:
            nodes = {*(view.expected or ()), *filter(is_node, evidence.reporters)}
            names = announced_names(nodes)
            # A whole name of a node means that node, also if another cluster has a node of that name.
            known = ((guid, x if x in nodes else names.get(x, x)) for guid, x in node_map.items())
            node_map = {guid: node for guid, node in known if node}
        resolved = resolve(evidence, self._texts, node_map, previous, self._alone(), names)
        return replace(resolved, inputs=self.with_labels(resolved.inputs, view))

    def _topology_of(self, resolved: Resolved, view: ClusterView) -> Topology:
        options = self._settings.options
        if options.cluster_nodes is None and view.expected is not None:
            options = replace(options, cluster_nodes=view.expected)
        if not self._measured_enough():
            options = replace(options, latency_places=False)
        found = infer_without_conditions(self._add_health(resolved.inputs), options, self._previous())
        if (self._settings.cloud_labels or self._settings.nvlink_labels) and view.unknown:
            # Their labels, which may be all that shows these nodes, cannot be read.
            lacking = (x for x in found.nodes_without_evidence if cluster_of(x) not in view.unknown)
            found = replace(found, nodes_without_evidence=tuple(lacking))
        return self._add_drift(found)

    def _previous(self) -> Topology | None:
        """The published topology without accepted losses: inference continues from it."""
        published, accepted = self.published, self._accepted
        if accepted is None or published is None:
            return published
        if not accepted.any_in(published):
            self._accepted = None
            return published
        return forget(published, accepted.nodes, accepted.anomalies)

    def _takeover_in_progress(
        self, resolved: Resolved, snapshot: Snapshot, view: ClusterView, now_ns: int
    ) -> Takeover | None:
        takeover, published = self.takeover, self.published
        if takeover is None or not takeover.active or published is None:
            return None
        sweeps = [
            [f"{guid:016x}" for guid in x.sweep.guid[x.sweep.kind == SWITCH].tolist()]
            for x in resolved.inputs.sweeps
            if not x.partial and x.observed_at_ns >= _due_ns(x.source, takeover, snapshot)
        ]
        chassis = {
            name: {port.chassis_id for port in ports} for name, ports in resolved.inputs.switch_ports.items()
        } | chassis_ids(snapshot.tables)
        # Agents of a cluster that is away cannot connect: their tokens cannot be reviewed.
        away = (x for x in nodes_of(published.hypernodes) if cluster_of(x) in view.unknown)
        down = {*view.down(published), *away}
        if not takeover.ended(now_ns, down, sweeps, chassis, snapshot.unsure):
            return takeover
        after_s = (now_ns - takeover.started_ns) / NS
        _log.info("take-over complete after %.1f s; no report from: %s", after_s, takeover.waits_for())
        return None


def _due_ns(probe: str, takeover: Takeover, snapshot: Snapshot) -> int:
    """The earliest time, Unix ns, from which a sweep of this source counts for a takeover.

    An agent sweeps at once when the new leader grants it a lease, so its sweep must be newer than the
    takeover. The reading of a fabric manager comes with the full state of the agent that queried it, so it
    counts as long as it is not stale.
    """
    return snapshot.limit_ns if probe in FABRIC_PROBES else takeover.started_ns
