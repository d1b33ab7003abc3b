"""Cluster nodes: which are expected, which accept work, and their labels.

A node object has kilobytes of images and heartbeats. The collector keeps a few hundred bytes of it. A
heartbeat does not change the part that is kept.
"""

from collections.abc import Iterator, Mapping
from random import Random
from sys import intern
from typing import NamedTuple

from hyperscout_runtime.signals import Signal

from hyperscout_kubernetes.client import Kube, Object
from hyperscout_kubernetes.paths import api_path
from hyperscout_kubernetes.reflector import Reflector

PATH = api_path("v1", "nodes")
# The annotation with the labels that the collector set under keys of other projects.
LABELS_SET = "hyperscout.io/labels-set"
# The annotation that Slinky reads, and the one with the value that the collector set in it.
SLINKY_SPEC = "topology.slinky.slurm.net/spec"
SLINKY_SET = "hyperscout.io/slinky-set"
# Types of the conditions that the collector sets.
READY = "hyperscout.io/FabricReady"
DEGRADED = "hyperscout.io/FabricDegraded"


class NodeCondition(NamedTuple):
    """A condition of a node, without its type and heartbeat. `since`: its lastTransitionTime."""

    status: str
    reason: str
    message: str
    since: str = ""


def kept(node: Object) -> Object:
    """Return the part of a node object that is kept."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    conditions: list[Object] = status.get("conditions") or []
    annotations = metadata.get("annotations") or {}
    ready: Object = next((c for c in conditions if c.get("type") == "Ready"), {})
    return {
        "metadata": {
            "name": metadata["name"],
            "uid": metadata.get("uid", ""),
            "labels": metadata.get("labels") or {},
            # Nodes of one leaf share these texts.
            "labels_set": intern(annotations.get(LABELS_SET) or ""),
            "slinky_spec": intern(annotations.get(SLINKY_SPEC) or ""),
            "slinky_set": intern(annotations.get(SLINKY_SET) or ""),
        },
        "spec": {"unschedulable": bool(spec.get("unschedulable")), "taints": spec.get("taints") or []},
        "conditions": {c["type"]: _condition(c) for c in conditions if c.get("type") in (READY, DEGRADED)},
        "ready": {"status": ready.get("status", "Unknown"), "reason": ready.get("reason", "")},
        # Quantities are text, by resource name.
        "allocatable": status.get("allocatable") or {},
    }


def _condition(found: Object) -> NodeCondition:
    # Thousands of nodes share the texts.
    keys = ("status", "reason", "message", "lastTransitionTime")
    return NodeCondition(*(intern(found.get(key) or "") for key in keys))


def path_of(name: str, subresource: str | None = None) -> str:
    """Return the path of a node. Raises RejectedError: not a valid name."""
    return api_path("v1", "nodes", name, subresource=subresource)


def why_down(node: Object) -> str | None:
    """Return a short reason why the node accepts no work; None if it accepts work."""
    if node["ready"]["status"] != "True":
        reason = node["ready"]["reason"]
        return f"NotReady: {reason}" if reason else "NotReady"
    return "cordoned" if node["spec"]["unschedulable"] else None


class Nodes:
    """Follows the nodes that a label selector matches (`kubectl -l`; "" matches all nodes).

    The signal `changed(before, after)` is emitted for each node that appears, disappears or changes in the
    part that `kept` returns, for example a label, a taint or the Ready condition. `before` is None for a new
    node, `after` is None for a removed node.
    """

    def __init__(self, kube: Kube, selector: str, *, rng: Random) -> None:
        self.changed = Signal[[Object | None, Object | None]]()
        self.reflector = Reflector(
            kube,
            PATH,
            query={"labelSelector": selector} if selector else {},
            keep=kept,
            changed=lambda name, before, after: self.changed(before, after),
            rng=rng,
        )

    def __iter__(self) -> Iterator[Object]:
        return iter(self.reflector)

    def get(self, name: str) -> Object | None:
        return self.reflector.get(name)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(node["metadata"]["name"] for node in self.reflector)

    def labels_of(self, name: str) -> Mapping[str, str]:
        node = self.reflector.get(name)
        return node["metadata"]["labels"] if node else {}
