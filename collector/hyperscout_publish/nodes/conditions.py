"""Sets the conditions FabricReady and FabricDegraded of nodes, as `condition_policy` derives them.

Only differences are written, without heartbeats. A strategic merge patch identifies conditions by their type,
so those of other writers stay. If the publisher is off, it removes its conditions. Domains with many bad
nodes are marked.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from hyperscout_kubernetes.client import MANAGER, STRATEGIC, Kube, Object
from hyperscout_kubernetes.nodes import DEGRADED, READY, NodeCondition, Nodes, path_of
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.units import rfc3339
from hyperscout_topology.topology import Topology

from hyperscout_publish.nodes.condition_policy import NO_EVIDENCE, FabricState, fabric_states
from hyperscout_publish.nodes.domain_marks import DomainMarks, bad_domains
from hyperscout_publish.nodes.node_writes import DryRun, Mode, for_each, nodes_known
from hyperscout_publish.publisher.base import Publisher

_log = logging.getLogger(__name__)

Conditions = Mapping[str, NodeCondition]


class NodeConditionsPublisher(Publisher):
    """Publishes conditions of nodes. `mode` "off" only removes conditions from earlier runs.

    `say` receives the changes of a dry run. `domain_share`: share of bad nodes above which `marks` marks a
    domain. `clock_ns`: Unix ns.
    """

    name = "node-conditions"

    def __init__(
        self,
        kube: Kube,
        nodes: Nodes,
        mode: Mode,
        say: Callable[[str], None],
        marks: DomainMarks,
        *,
        domain_share: float,
        clock_ns: Callable[[], int],
    ) -> None:
        super().__init__()
        self._kube = kube
        self._nodes = nodes
        self._mode = mode
        self._marks = marks
        self._domain_share = domain_share
        self._clock_ns = clock_ns
        self._dry_run = DryRun("conditions of nodes", say)
        self._for: Topology | None = None
        self._states: Mapping[str, FabricState] = {}
        self._bad_domains: Mapping[str, str] = {}
        self._in_thread = BoundedExecutor("publish-node-conditions")

    async def publish(self, topology: Topology) -> None:
        """Write the conditions that differ. Raises PublishError."""
        await nodes_known(self._nodes)
        if self._mode != "off" and topology is not self._for:
            self._states = await self._in_thread(fabric_states, topology)
            self._bad_domains = bad_domains(topology.hypernodes, self._states, self._domain_share)
            self._for = topology
        await self._marks.write(self._bad_domains, dry_run=self._mode == "dry-run")
        due: dict[str, _Change] = {}
        for node in self._nodes:
            name, present = node["metadata"]["name"], node["conditions"]
            wanted = {} if self._mode == "off" else _wanted(self._states.get(name), present)
            if wanted is not None and _facts(wanted) != _facts(present):
                due[name] = _Change(present, wanted)
        # Accused nodes come first: after a large fault the writes may take minutes.
        due = dict(sorted(due.items(), key=lambda item: (item[1].rank, item[0])))
        if self._mode == "dry-run":
            self._dry_run.show(f"{name}: {change}" for name, change in due.items())
        elif due:
            await self._write(due)

    async def _write(self, due: Mapping[str, "_Change"]) -> None:
        async def write(name: str) -> None:
            answer = await self._kube.write(
                "PATCH",
                path_of(name, "status"),
                {"status": {"conditions": due[name].patch(rfc3339(self._clock_ns()))}},
                content=STRATEGIC,
                query={"fieldManager": MANAGER},
            )
            self._nodes.reflector.learn(answer)

        await for_each("nodes", list(due), write)
        _log.info("wrote the conditions of %d nodes", len(due))


class _Change(NamedTuple):
    """The conditions of a node by type, as they are and as they are to be."""

    present: Conditions
    wanted: Conditions

    @property
    def rank(self) -> int:
        """The order of writes: bad nodes, unknown ones, healthy ones."""
        ready, degraded = (self.wanted[t].status if t in self.wanted else "" for t in (READY, DEGRADED))
        return 0 if ready == "False" or degraded == "True" else 1 if ready == "Unknown" else 2

    def patch(self, now: str) -> list[Object]:
        """Return the strategic merge patch of the list. `lastTransitionTime` changes only with the status."""
        rows: list[Object] = [
            {"type": kind, "$patch": "delete"} for kind in sorted(self.present.keys() - self.wanted.keys())
        ]
        for kind, c in self.wanted.items():
            was = self.present.get(kind)
            since = was.since if was is not None and was.status == c.status else ""
            row = {"type": kind, "status": c.status, "reason": c.reason, "message": c.message}
            rows.append(row | {"lastHeartbeatTime": now, "lastTransitionTime": since or now})
        return rows

    def __str__(self) -> str:
        """The change as text: `FabricReady True -> False, ... (LinksDown): 1 of 8 links down: ...`."""
        flips = []
        for kind in (READY, DEGRADED):
            before, after = (x[kind].status if kind in x else "unset" for x in self)
            flips.append(f"{kind.rpartition('/')[2]} {before} -> {after}")
        why = self.wanted.get(READY)
        return ", ".join(flips) + (f" ({why.reason}): {why.message}" if why is not None else "")


def _wanted(state: FabricState | None, present: Conditions) -> Conditions | None:
    """Return the conditions of a node; None if they stay as they are.

    A node that no fabric ever showed, such as one without such ports, gets none.
    """
    if state is None or (state.reason == NO_EVIDENCE and not present):
        return None
    return {
        READY: NodeCondition(state.ready, state.reason, state.message),
        DEGRADED: NodeCondition(state.degraded, state.reason, state.message),
    }


def _facts(conditions: Conditions) -> dict[str, NodeCondition]:
    """Return conditions without their times."""
    return {kind: c._replace(since="") for kind, c in conditions.items()}
