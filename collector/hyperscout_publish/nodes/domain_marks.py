"""Marks domains in which many nodes are bad: a label on the HyperNode, and one Event when it is set.

A large fault changes the conditions of many nodes. A repair of all of them at once is seldom right, and the
mark says that their domain is the place to look at. The label is the memory: no restart repeats the Event.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from hyperscout_formats.text.counts import first_few
from hyperscout_kubernetes.client import Kube
from hyperscout_kubernetes.event_recorder import EventRecorder
from hyperscout_kubernetes.reflector import Reflector
from hyperscout_topology.topology import HyperNode

from hyperscout_publish.hypernodes.objects import path_of, reference
from hyperscout_publish.hypernodes.plan import is_ours
from hyperscout_publish.nodes.condition_policy import FabricState
from hyperscout_publish.nodes.node_writes import DryRun, for_each, write_patch

_log = logging.getLogger(__name__)

LABEL = "hyperscout.io/many-nodes-bad"
_NAMED = 5  # nodes in an Event


def bad_domains(
    hypernodes: Iterable[HyperNode], states: Mapping[str, FabricState], share: float
) -> dict[str, str]:
    """Return the domains of several nodes of which more than `share` are bad, with a text for the Event."""
    reasons = {node: state.reason for node, state in states.items() if state.is_bad}
    found = {}
    for h in hypernodes if reasons else ():
        bad = [f"{node} ({reasons[node]})" for node in h.nodes if node in reasons]
        if len(h.nodes) > 1 and len(bad) > share * len(h.nodes):
            found[h.name] = f"{len(bad)} of {len(h.nodes)} nodes are bad: {first_few(bad, _NAMED)}"
    return found


class DomainMarks:
    """Labels HyperNodes of this collector. `hypernodes`: as a watch shows them. `say`: for a dry run."""

    def __init__(
        self, kube: Kube, hypernodes: Reflector, events: EventRecorder, say: Callable[[str], None]
    ) -> None:
        self._kube = kube
        self._hypernodes = hypernodes
        self._events = events
        self._dry_run = DryRun("labels of HyperNodes", say)

    async def write(self, bad: Mapping[str, str], *, dry_run: bool) -> None:
        """Mark these domains, by name with a text, and no others. Raises PublishError.

        A HyperNode that does not exist yet is marked by a later call.
        """
        due = sorted(
            found["metadata"]["name"]
            for found in self._hypernodes
            if is_ours(found) and (LABEL in found["metadata"]["labels"]) != (found["metadata"]["name"] in bad)
        )
        if dry_run:
            self._dry_run.show(
                f"{name}: {LABEL} (new): {bad[name]}" if name in bad else f"{name}: {LABEL} (removed)"
                for name in due
            )
        elif due:
            await for_each("HyperNodes", due, lambda name: self._mark(name, bad.get(name)))

    async def _mark(self, name: str, why: str | None) -> None:
        body = {"metadata": {"labels": {LABEL: None if why is None else "true"}}}
        answer = await write_patch(self._kube, self._hypernodes, path_of(name), body)
        if why is not None:
            _log.warning("HyperNode %s: %s", name, why)
            self._events.record(reference(name, answer), "Warning", "ManyNodesBad", why)
