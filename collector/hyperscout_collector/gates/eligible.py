"""Which nodes a pod may run on, by the rules of kube-scheduler: selectors, affinity, taints."""

from collections.abc import Callable

from hyperscout_collector.kube.client import Object
from hyperscout_collector.placer.capacity import Mask
from hyperscout_collector.placer.forest import Forest


def demands_key(pod_spec: Object) -> str:
    """The same text for pods that may run on the same nodes: the mask's `key`, to cache masks by."""
    raise NotImplementedError


def mask_for(pod_spec: Object, node: Callable[[str], Object | None], forest: Forest) -> Mask:
    """`node`: what is kept of a node (kube/nodes.py), by name; None = it is not there."""
    raise NotImplementedError


def may_run(pod_spec: Object, node: Object) -> bool:
    """On this one node (as kept)."""
    raise NotImplementedError
