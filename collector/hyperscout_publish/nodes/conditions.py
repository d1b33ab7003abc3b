"""Sets the conditions FabricReady and FabricDegraded of nodes, as `condition_policy` derives them.

Only differences are written, without heartbeats. A strategic merge patch identifies conditions by their type,
so those of other writers stay. If the publisher is off, it removes its conditions. Domains with many bad
nodes are marked.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from hyperscout_kubernetes.client import STRATEGIC, Kube, Object
from hyperscout_kubernetes.nodes import DEGRADED, READY, NodeCondition, Nodes, path_of
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.units import rfc3339
from hyperscout_topology.topology import Topology

from hyperscout_publish.nodes.condition_policy import NO_EVIDENCE, FabricState, fabric_states
from hyperscout_publish.nodes.domain_marks import DomainMarks, bad_domains
from hyperscout_publish.nodes.node_writes import DryRun, Mode, all_of, for_each, nodes_known, write_patch
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
            self._states, self._bad_domains = await self._in_thread(_judged, topology, self._domain_share)
            self._for = topology
        due: dict[str, _Change] = {}
        for node in self._nodes:
            name, present = node["metadata"]["name"], node["conditions"]
            state = self._states.get(name)
            if _differs(present, state) if state is not None else present and self._mode == "off":
                due[name] = _Change(present, state)
        # Accused nodes come first: after a large fault the writes may take minutes.
        due = dict(sorted(due.items(), key=lambda item: (item[1].rank, item[0])))
        await all_of(
            partial(self._write, due),
            partial(self._marks.write, self._bad_domains, dry_run=self._mode == "dry-run"),
        )

    async def _write(self, due: Mapping[str, "_Change"]) -> None:
        if self._mode == "dry-run":
            self._dry_run.show(f"{name}: {change}" for name, change in due.items())
            return
        if not due:
            return

        async def write(name: str) -> None:
            body = {"status": {"conditions": due[name].patch(rfc3339(self._clock_ns()))}}
            await write_patch(self._kube, self._nodes.reflector, path_of(name, "status"), body, STRATEGIC)

        await for_each("nodes", list(due), write)
        _log.info("wrote the conditions of %d nodes", len(due))


def _judged(topology: Topology, share: float) -> tuple[dict[str, FabricState], dict[str, str]]:
    states = fabric_states(topology)
    return states, bad_domains(topology.hypernodes, states, share)


def _statuses(state: FabricState) -> tuple[tuple[str, str], ...]:
    return (READY, state.ready), (DEGRADED, state.degraded)


def _differs(present: Conditions, state: FabricState) -> bool:
    """Whether the conditions do not say this. A node that no fabric ever showed gets none."""
    if state.reason == NO_EVIDENCE and not present:
        return False
    return any(
        kind not in present or present[kind][:3] != (status, state.reason, state.message)
        for kind, status in _statuses(state)
    )


class _Change(NamedTuple):
    """The conditions of a node by type, as they are, and what they are to say; None = they are removed."""

    present: Conditions
    state: FabricState | None

    @property
    def rank(self) -> int:
        """The order of writes: bad nodes, unknown ones, healthy ones."""
        if self.state is None:
            return 2
        return 0 if self.state.is_bad else 1 if self.state.ready == "Unknown" else 2

    def patch(self, now: str) -> list[Object]:
        """Return the strategic merge patch of the list. `lastTransitionTime` changes only with the status."""
        if self.state is None:
            return [{"type": kind, "$patch": "delete"} for kind in sorted(self.present)]
        rows: list[Object] = []
        for kind, status in _statuses(self.state):
            was = self.present.get(kind)
            since = was.since if was is not None and was.status == status else ""
            row = {"type": kind, "status": status, "reason": self.state.reason, "message": self.state.message}
            rows.append(row | {"lastHeartbeatTime": now, "lastTransitionTime": since or now})
        return rows

    def __str__(self) -> str:
        """The change as text: `FabricReady True -> False, ... (LinksDown): 1 of 8 links down: ...`."""
        after = dict(_statuses(self.state)) if self.state is not None else {}
        flips = []
        for kind in (READY, DEGRADED):
            before = self.present[kind].status if kind in self.present else "unset"
            flips.append(f"{kind.rpartition('/')[2]} {before} -> {after.get(kind, 'unset')}")
        why = f" ({self.state.reason}): {self.state.message}" if self.state is not None else ""
        return ", ".join(flips) + why
