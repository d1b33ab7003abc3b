"""Taints nodes with degraded links of their own, as `taint_policy` decides, and removes the taints again.

A node's taints are one list with several writers. The publisher reads it, changes only its own entry, and
writes it at the version that was read. If the policy is disabled, remaining taints of hyperscout are removed.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from hyperscout_kubernetes.client import Kube
from hyperscout_kubernetes.errors import ConflictError
from hyperscout_kubernetes.event_recorder import EventRecorder
from hyperscout_kubernetes.nodes import Nodes, path_of
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_topology.topology import Topology

from hyperscout_publish.nodes.node_writes import DryRun, Mode, for_each, nodes_known, write_patch
from hyperscout_publish.nodes.taint_policy import (
    TaintDecision,
    TaintPolicy,
    TaintSettings,
    Trouble,
    lines,
    say_over,
    troubles,
)
from hyperscout_publish.publisher.base import Alarm, Publisher

_log = logging.getLogger(__name__)

KEY = "hyperscout.io/degraded"
EFFECT = "NoSchedule"
_TRIES = 5  # of one write, after conflicts

Taint = Mapping[str, Any]


def is_ours(taint: Taint) -> bool:
    """Return whether key and effect match. The same key with another effect belongs to another owner."""
    return taint.get("key") == KEY and taint.get("effect") == EFFECT


def with_ours(taints: Collection[Taint]) -> list[Taint]:
    """Return the list with hyperscout's taint; all others unchanged."""
    return [*taints] if any(map(is_ours, taints)) else [*taints, {"key": KEY, "effect": EFFECT}]


def without_ours(taints: Collection[Taint]) -> list[Taint]:
    """Return the list without hyperscout's taint; all others unchanged."""
    return [taint for taint in taints if not is_ours(taint)]


class TaintsPublisher(Publisher):
    """Publishes taints. `mode` "off" only removes taints from earlier runs.

    `say` receives the changes of a dry run. `notice`: set if the cap prevents taints.
    `events`: posts Events on nodes. `clock_ns`: Unix ns.
    """

    name = "taints"

    def __init__(
        self,
        kube: Kube,
        nodes: Nodes,
        mode: Mode,
        settings: TaintSettings,
        say: Callable[[str], None],
        *,
        events: EventRecorder | None = None,
        clock_ns: Callable[[], int],
    ) -> None:
        super().__init__()
        self.notice: str | None = None
        self.alarm = Alarm(self.wake)
        self._kube = kube
        self._nodes = nodes
        self._mode = mode
        self._settings = settings
        self._policy = TaintPolicy(settings)
        self._clock_ns = clock_ns
        self._events = events
        self._dry_run = DryRun("taints of nodes", say)
        self._in_thread = BoundedExecutor("publish-taints")

    async def publish(self, topology: Topology) -> None:
        """Set and remove the taints that are due. Raises PublishError."""
        await nodes_known(self._nodes)
        if self._mode == "off":
            left = sorted(self._tainted())
            await self._write(TaintDecision(clear=tuple(left)), {})
            return
        found = await self._in_thread(troubles, topology, self._settings)
        now_ns = self._clock_ns()
        names = self._nodes.names
        decision = self._policy.decide(found, names, self._tainted(), now_ns)
        self._notify(say_over(decision, self._policy.limit(len(names)), len(names)))
        self.alarm.set(decision.wait_s(now_ns))
        if self._mode == "dry-run":
            self._dry_run.show(lines(decision, found))
            return
        for line in lines(decision, found):
            _log.warning("%s", line)
        await self._write(decision, found)

    def _tainted(self) -> set[str]:
        return {n["metadata"]["name"] for n in self._nodes if any(map(is_ours, n["spec"]["taints"]))}

    def _notify(self, notice: str | None) -> None:
        if notice is not None and self.notice is None:
            _log.warning("%s", notice)
        self.notice = notice

    async def _write(self, decision: TaintDecision, found: Mapping[str, Trouble]) -> None:
        async def clear(name: str) -> None:
            if await self._change(name, without_ours):
                self._event(name, "Normal", "LinksHealthy", f"the taint {KEY}:{EFFECT} is removed")

        async def taint(name: str) -> None:
            if await self._change(name, with_ours):
                self._event(name, "Warning", "LinksDegraded", f"tainted {KEY}:{EFFECT}: {found[name].why}")

        # Removed taints free capacity under the cap, so they come first.
        await for_each("nodes", decision.clear, clear)
        await for_each("nodes", decision.taint, taint)

    def _event(self, name: str, severity: str, reason: str, message: str) -> None:
        node = self._nodes.get(name)
        if self._events is not None and node is not None:
            about = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
            self._events.record(about, severity, reason, message)

    async def _change(self, name: str, change: Callable[[Collection[Taint]], list[Taint]]) -> bool:
        """Read, change and write at the version that was read; repeat after a conflict.

        Returns whether the taints were changed.
        """
        path = path_of(name)
        for tries_left in reversed(range(_TRIES)):
            node = await self._kube.get(path)
            before = node["spec"].get("taints") or []
            after = change(before)
            if after == before:
                self._nodes.reflector.learn(node)
                return False
            body = {
                "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
                "spec": {"taints": after or None},
            }
            try:
                await write_patch(self._kube, self._nodes.reflector, path, body)
            except ConflictError:
                if not tries_left:
                    raise
                continue
            return True
        return False
