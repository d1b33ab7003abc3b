"""Pods of the API server, their form for the state machine, and the patch that opens a gate.

The patch also records in an annotation where the pod was sent, so that a collector that starts later can read
it. The annotation contains the pod's uid, so that a copy of it on another pod is ignored.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hyperscout_kubernetes.client import Object
from hyperscout_kubernetes.paths import api_path
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.demands.eligible import DEMANDS
from hyperscout_runtime.units import rfc3339
from hyperscout_topology.names import tier_level, tier_name

from hyperscout_gates.degradation.hook import hook_of
from hyperscout_gates.state.events import Open, Pod
from hyperscout_gates.state.gang import GATE
from hyperscout_gates.workloads.membership import membership
from hyperscout_gates.workloads.node_resources import IDENTITY, kept_pod
from hyperscout_gates.workloads.objects import is_gated, mapping, text

PATH = api_path("v1", "pods")
PLACED = "hyperscout.io/placed"
# For the pod, which can read them through the downward API: its rank, the number of ranks, the name by which
# other pods reach rank 0, and where the plan has its devices.
RANK = "hyperscout.io/rank"
RANKS = "hyperscout.io/ranks"
COORDINATOR = "hyperscout.io/coordinator"
NUMA_ZONE = "hyperscout.io/numa-zone"
NICS = "hyperscout.io/nics"
_LEAF = tier_name(1)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NAME = "metadata.name"
_KEPT = ("labels", "ownerReferences", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a pod was sent, and when (Unix seconds)."""

    rank: int
    node: str
    at_s: float


def keep(pod: Object) -> Object:
    """Return the part of a pod to store: that of `kept_pod` and, in "gate", what `seen` needs.

    Only pods with this collector's gate or annotation have "gate".
    """
    kept = kept_pod(pod)
    gated, mark = is_gated(pod), mark_of(pod)
    if not gated and mark is None:
        return kept
    metadata, hook = pod["metadata"], hook_of(pod)
    kept["metadata"] = kept["metadata"] | {k: metadata[k] for k in _KEPT if k in metadata}
    kept["spec"] = kept["spec"] | {k: pod["spec"][k] for k in IDENTITY if k in pod["spec"]}
    kept["gate"] = {
        "gated": gated,
        "mark": mark,
        "stuck_s": _unschedulable_since_s(pod, mark),
        "hook": hook,
        "demands": None if hook is None else _demands(mapping(pod.get("spec")), mark),
        # Once the pod has a node, the version is not needed: no patch or deletion follows.
        "version": "" if kept["spec"].get("nodeName") else metadata.get("resourceVersion", ""),
    }
    return kept


def is_ours(kept: Object | None) -> bool:
    return kept is not None and "gate" in kept


def seen(kept: Object) -> Pod:
    """Return the pod as the state machine uses it. Raises GangError."""
    metadata, gate, priority = kept["metadata"], kept["gate"], kept["spec"].get("priority")
    mark: Mark | None = gate["mark"]
    phase = kept["status"].get("phase")
    references = metadata.get("ownerReferences") or []
    return Pod(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        slot=membership(kept).slot,
        host=_host_of(kept),
        gated=gate["gated"],
        rank=mark.rank if mark else None,
        pin=mark.node if mark else "",
        node=kept["spec"].get("nodeName") or "",
        succeeded=phase == "Succeeded",
        failed=phase == "Failed",
        going="deletionTimestamp" in metadata,
        owned=any(isinstance(r, dict) and r.get("controller") is True for r in references),
        created_s=seconds(metadata.get("creationTimestamp")),
        priority=priority if type(priority) is int else 0,
        stuck_since_s=gate["stuck_s"],
        version=gate["version"],
    )


def _host_of(kept: Object) -> str | None:
    """Return the name by which other pods reach this one; "" if there is none, None if it is its node's.

    A pod has a name in DNS only with a host name in a subdomain: that of a headless Service. The name of the
    pod does not count, because cluster DNS has no record for it.
    """
    spec = kept["spec"]
    if spec.get("hostNetwork") is True:
        return None
    hostname, subdomain = text(spec.get("hostname")), text(spec.get("subdomain"))
    return f"{hostname}.{subdomain}.{kept['metadata']['namespace']}.svc" if hostname and subdomain else ""


def mark_of(pod: Object) -> Mark | None:
    """Return what this collector's patch wrote; None if there is no valid mark or another pod's."""
    metadata = pod["metadata"]
    written = (metadata.get("annotations") or {}).get(PLACED)
    if not isinstance(written, str) or len(written) > 1024:
        return None
    try:
        found = json.loads(written)
        rank, node = found["rank"], found["node"]
        ours = found["pod"] == metadata.get("uid") and isinstance(node, str) and type(rank) is int
        return Mark(rank, node, seconds(found.get("time"))) if ours and rank >= 0 else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def labels_at(forest: Forest, node: str) -> dict[str, str]:
    """Return the labels with leaf and accelerator domain of a pod on the node. One host alone is none."""
    at = forest.index.get(node)
    found: dict[str, str] = {}
    for layer in forest.layers if at is not None else ():
        domain = int(layer.of_node[at])
        is_alone = layer.stop[domain] - layer.start[domain] == 1
        if layer.tier_name == _LEAF or (tier_level(layer.tier_name) == 0 and not is_alone):
            found[f"hyperscout.io/{layer.tier_name}"] = layer.names[domain]
    return found


def opening(kept: Object, asked: Open, now_ns: int, labels: Mapping[str, str]) -> Object:
    """Return the strategic merge patch that removes this collector's gate and pins the pod to a node.

    Other gates remain. The pin is added to the node affinity that the pod already has. `labels` are added.
    """
    metadata, zone = kept["metadata"], asked.zone
    affinity = (kept["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    pinned = [{**term, "matchFields": [*(term.get("matchFields") or []), _pin(asked.node)]} for term in terms]
    told = {"pod": metadata["uid"], "rank": asked.rank, "node": asked.node, "time": rfc3339(now_ns)}
    annotations = {PLACED: json.dumps(told), RANK: str(asked.rank), RANKS: str(asked.ranks)}
    if asked.coordinator:
        annotations[COORDINATOR] = asked.coordinator
    if zone is not None and zone.number is not None:
        annotations |= {NUMA_ZONE: str(zone.number), NICS: ",".join(zone.nics)}
    guard = {"uid": metadata["uid"]}  # the patch conflicts if the name belongs to another pod by now
    if terms != [{}] and kept["gate"]["version"]:
        guard["resourceVersion"] = kept["gate"]["version"]  # keep a term that another client adds
    return {
        "metadata": {**guard, "annotations": annotations, **({"labels": {**labels}} if labels else {})},
        "spec": {
            "schedulingGates": [{"$patch": "delete", "name": GATE}],
            "affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": pinned}}},
        },
    }


def _demands(spec: Object, mark: Mark | None) -> Object:
    """Return the fields of a pod's spec that decide where it may run, without the pin of `opening`."""
    found = {key: spec[key] for key in DEMANDS if key in spec}
    affinity = mapping(found.get("affinity"))
    nodes = mapping(affinity.get("nodeAffinity"))
    terms = mapping(nodes.get(_REQUIRED)).get("nodeSelectorTerms")
    if mark is None or not isinstance(terms, list):
        return found
    free = [_without_pin(mapping(term), mark.node) for term in terms]
    required = {_REQUIRED: {"nodeSelectorTerms": free}} if any(free) else {}
    others = {key: value for key, value in nodes.items() if key != _REQUIRED}
    return found | {"affinity": affinity | {"nodeAffinity": others | required}}


def _without_pin(term: Object, node: str) -> Object:
    fields = term.get("matchFields")
    fields = list(fields) if isinstance(fields, list) else []
    if fields and fields[-1] == _pin(node):
        fields.pop()
    return {key: value for key, value in (term | {"matchFields": fields}).items() if value}


def _pin(node: str) -> Object:
    return {"key": _NAME, "operator": "In", "values": [node]}


def deletion(pod: Pod) -> Object:
    """Return delete options for this version of the pod. A pod bound in the meantime is not deleted."""
    guard = {"uid": pod.uid} | ({"resourceVersion": pod.version} if pod.version else {})
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": guard}


def path_of(pod: Pod) -> str:
    """Return the path of a pod. Raises RejectedError: not a valid name."""
    return api_path("v1", "pods", pod.name, namespace=pod.namespace)


def _unschedulable_since_s(pod: Object, mark: Mark | None) -> float | None:
    """Return since when the scheduler finds no node for the pod (Unix seconds); None if it is not stuck.

    The condition's own transition time may be that of the gate, so the time of the patch is the lower bound.
    """
    if mark is None:
        return None
    for condition in (pod.get("status") or {}).get("conditions") or ():
        said = condition.get("type"), condition.get("status"), condition.get("reason")
        if said == ("PodScheduled", "False", "Unschedulable"):
            return max(mark.at_s, seconds(condition.get("lastTransitionTime")))
    return None


def seconds(time: Any) -> float:
    """Return the Unix seconds of an API timestamp; 0 if it is invalid."""
    try:
        return datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp()
    except (TypeError, ValueError):
        return 0.0
