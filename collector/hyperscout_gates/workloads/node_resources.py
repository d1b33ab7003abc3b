"""Free resources of each node: allocatable resources less the requests of its pods, updated incrementally.

100,000 pods take about ten megabytes: a bound pod is stored as its name, node and requests, and pods with
equal requests share them.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from hyperscout_kubernetes.client import Object
from hyperscout_kubernetes.nodes import why_down
from hyperscout_placer.cluster.quantity import Needs, QuantityError, amount, is_extended, needs
from hyperscout_placer.cluster.request import WORKERS

from hyperscout_gates.workloads.objects import mapping

# All pods in the same phase share these objects, so they must never be modified.
_NOT_OVER: Object = {"phase": ""}
_STATUSES: Mapping[str, Object] = {phase: {"phase": phase} for phase in ("Succeeded", "Failed")}
# Fields of the spec that define a pod's gang, and by which name other pods reach it.
IDENTITY = ("schedulingGroup", "hostname", "subdomain", "hostNetwork")
# Fields of an unbound pod that define its gang and where it may run.
_METADATA = ("labels", "annotations", "ownerReferences", "creationTimestamp")
_SPEC = (
    "schedulingGates",
    "nodeSelector",
    "affinity",
    "tolerations",
    "overhead",
    "resources",
    "priority",
    *IDENTITY,
)
_ONE_POD: Needs = (("pods", 1),)

_MAX_SHARED = 4096  # different requests of pods, and allocatable resources of nodes


def kept_pod(pod: Object) -> Object:
    """Return the part of a pod to store, for `Reflector(keep=...)`.

    {"metadata": {"name", "namespace", "uid"}, "spec": {"nodeName": ...}, "status": {"phase": ...},
    "needs": tuple}, and deletionTimestamp if the pod is being deleted. The phase is "" until the pod has
    ended, so that the part of a pod that starts to run does not change. An unbound pod also has labels,
    annotations, ownerReferences and creationTimestamp, and the fields of its spec that define where it may
    run and what it requests. "needs" is None if the requests are invalid or the bound pod has ended.
    """
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    node = spec.get("nodeName") or ""
    status = _STATUSES.get(str(mapping(pod.get("status")).get("phase")), _NOT_OVER)
    try:
        need = None if status is not _NOT_OVER and node else _shared(needs(spec))
    except QuantityError:
        need = None
    kept = {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "uid": metadata.get("uid", ""),
    }
    if "deletionTimestamp" in metadata:
        kept["deletionTimestamp"] = metadata["deletionTimestamp"]
    if node:
        return {"metadata": kept, "spec": _bound(str(node)), "status": status, "needs": need}
    kept |= {key: metadata[key] for key in _METADATA if key in metadata}
    waiting = {key: spec[key] for key in _SPEC if key in spec}
    for key in ("containers", "initContainers"):
        if isinstance(spec.get(key), list):
            waiting[key] = [_resources_of(container) for container in spec[key]]
    return {"metadata": kept, "spec": waiting, "status": status, "needs": need}


def _resources_of(container: Any) -> Object:
    found = mapping(container)
    return {key: found[key] for key in ("resources", "restartPolicy") if key in found}


# All pods with equal values share these objects, so they must never be modified.
@lru_cache(maxsize=200_000)
def _bound(node: str) -> Object:
    return {"nodeName": node}


@lru_cache(maxsize=_MAX_SHARED)
def _shared(need: Needs) -> Needs:
    return need


@dataclass(slots=True)
class _Node:
    """`gives`: its allocatable resources; None while only its pods are known. `used`: requests of its pods.

    `used` contains no zeros. `vendors`: number of pods that request an extended resource.
    """

    gives: Mapping[str, int] | None = None
    takes_work: bool = False
    used: dict[str, int] = field(default_factory=dict)
    vendors: int = 0


class FreeResources:
    """Free resources of all nodes. Each update returns the nodes with changed free resources."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}

    def node(self, before: Object | None, after: Object | None) -> frozenset[str]:
        """Update a node (in stored form). `before` is None for a new node, `after` for a removed one."""
        found = after or before
        if found is None:
            return frozenset()
        name = found["metadata"]["name"]
        if after is None:
            known = self._nodes.get(name)
            if known is None or known.gives is None:
                return frozenset()
            known.gives, known.takes_work = None, False
            self._drop(name, known)
            return frozenset((name,))
        known = self._nodes.setdefault(name, _Node())
        gives, takes_work = _gives(after["allocatable"]), why_down(after) is None
        if known.gives is not None and (known.gives, known.takes_work) == (gives, takes_work):
            return frozenset()
        known.gives, known.takes_work = gives, takes_work
        return frozenset((name,))

    def pod(self, before: Object | None, after: Object | None) -> frozenset[str]:
        """Update a pod (in stored form). It counts if it has a node and has not ended."""
        was, now = _on(before), _on(after)
        if was == now:
            return frozenset()
        changed: set[str] = set()
        for told, sign in ((was, -1), (now, 1)):
            if told:
                self._add(*told, sign)
                changed.add(told[0])
        nodes = self._nodes
        return frozenset(x for x in changed if (known := nodes.get(x)) and known.gives is not None)

    def of(self, node: str) -> dict[str, int] | None:
        """Return the free resources of a node, never below 0; {} if it accepts no work, None if unknown.

        "workers" is 1 if no pod on the node requests an extended resource, else 0.
        """
        known = self._nodes.get(node)
        if known is None or known.gives is None:
            return None
        if not known.takes_work:
            return {}
        used = known.used
        free = {name: max(value - used.get(name, 0), 0) for name, value in known.gives.items()}
        free[WORKERS] = 0 if known.vendors else 1
        return free

    def all(self) -> dict[str, dict[str, int]]:
        """Return the free resources of all known nodes."""
        found = ((name, self.of(name)) for name in self._nodes)
        return {name: room for name, room in found if room is not None}

    def _add(self, name: str, need: Needs, sign: int) -> None:
        known = self._nodes.setdefault(name, _Node())
        for resource, value in need:
            total = known.used.get(resource, 0) + sign * value
            if total:
                known.used[resource] = total
            else:
                known.used.pop(resource, None)
        known.vendors += sign * any(is_extended(resource) for resource, _ in need)
        self._drop(name, known)

    def _drop(self, name: str, known: _Node) -> None:
        """Forget a node that is gone and has no pods left."""
        if known.gives is None and not known.used and not known.vendors:
            self._nodes.pop(name, None)


def _on(pod: Object | None) -> tuple[str, Needs] | None:
    """Return the node on which a pod counts, and its requests; None if it does not count."""
    if pod is None or has_ended(pod):
        return None
    node = pod["spec"].get("nodeName")
    # A pod with unknown requests counts as one pod.
    return (node, _ONE_POD if pod["needs"] is None else pod["needs"]) if node else None


def has_ended(pod: Object) -> bool:
    """Return whether a pod (in stored form) has ended."""
    return pod["status"].get("phase") in _STATUSES


def _gives(allocatable: Mapping[str, str]) -> Mapping[str, int]:
    """Return allocatable resources as numbers. Invalid quantities are ignored."""
    return _parsed(tuple(allocatable.items()))


@lru_cache(maxsize=_MAX_SHARED)
def _parsed(allocatable: tuple[tuple[str, str], ...]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for name, text in allocatable:
        with suppress(QuantityError):
            found[name] = amount(name, str(text))
    return {name: value for name, value in found.items() if value}
