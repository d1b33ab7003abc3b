"""Builders of Kubernetes objects as an API server returns them. A test names only what matters to it."""

from collections.abc import Mapping
from typing import Any

from hyperscout_gates.state.gang import GATE
from hyperscout_publish.hypernodes.wanted import OWNER_LABELS

Object = dict[str, Any]


def pod(name: str, spec: Object | None = None, *, status: Object | None = None, **metadata: Any) -> Object:
    """A gated pod with one container that requests nothing. `spec` replaces fields of its spec."""
    containers = [{"name": "c", "image": "none.invalid/none"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"schedulingGates": [{"name": GATE}], "containers": containers, **(spec or {})},
        "status": status or {},
    }


def node(
    name: str = "n1",
    *,
    ready: str | None = "True",
    reason: str = "",
    spec: Object | None = None,
    allocatable: Mapping[str, str] | None = None,
    **metadata: Any,
) -> Object:
    """A node. `ready`: the status of its condition Ready; None = it has no condition."""
    conditions = [] if ready is None else [{"type": "Ready", "status": ready, "reason": reason}]
    status: Object = {"conditions": conditions}
    if allocatable is not None:
        status["allocatable"] = dict(allocatable)
    return {"metadata": {"name": name, "uid": "u", **metadata}, "spec": spec or {}, "status": status}


def hypernode_object(
    name: str,
    *members: str,
    tier: int = 1,
    tier_name: str = "",
    labels: Mapping[str, str] = OWNER_LABELS,
) -> Object:
    """A HyperNode with members by exact match: nodes at tier 1, HyperNodes above."""
    kind = "Node" if tier == 1 else "HyperNode"
    spec: Object = {"tier": tier}
    if tier_name:
        spec["tierName"] = tier_name
    if members:
        spec["members"] = [{"type": kind, "selector": {"exactMatch": {"name": m}}} for m in members]
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": spec,
    }


def preferred_affinity(*terms: tuple[int, Object]) -> Object:
    """The part of a pod's spec that prefers nodes: weights and node selector terms."""
    preferred = [{"weight": weight, "preference": term} for weight, term in terms]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def node_affinity(*terms: Object) -> Object:
    """The part of a pod's spec that requires one of these node selector terms."""
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
