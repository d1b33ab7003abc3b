"""What is free on each node of the cluster: what it can give, less what its pods request. Kept as they
come and go, never counted anew.
"""

from collections.abc import Collection

from hyperscout_collector.kube.client import Object


def kept_pod(pod: Object) -> Object:
    """What is kept of a pod: for `Reflector(keep=...)`.

    {"metadata": {"name", "namespace", "uid"}, "spec": {"nodeName": ...}, "status": {"phase": ...},
    "needs": tuple} and, where its node is not chosen yet, of metadata labels, annotations, ownerReferences,
    creationTimestamp and deletionTimestamp, and of spec what decides where it may run and what it needs.
    """
    raise NotImplementedError


class Room:
    """Everything returns the names of the nodes whose room is another now."""

    def node(self, before: Object | None, after: Object | None) -> frozenset[str]:
        """A node as kept (kube/nodes.py) came (None before), changed or went (None after)."""
        raise NotImplementedError

    def pod(self, before: Object | None, after: Object | None) -> frozenset[str]:
        """A pod as kept came, changed or went."""
        raise NotImplementedError

    def assume(self, uid: str, node: str, needs: Collection[tuple[str, int]]) -> frozenset[str]:
        """A pod that was told to run there counts there from now on, until `pod` says where it runs, or
        `forget`."""
        raise NotImplementedError

    def forget(self, uid: str) -> frozenset[str]:
        """It will not run there after all."""
        raise NotImplementedError

    def of(self, node: str) -> dict[str, int] | None:
        """What is free there, of the resources that pods ask for; {} where it takes no work, None where there
        is no such node. "workers": 1 where no pod on it asks for an extended resource, else 0."""
        raise NotImplementedError

    def all(self) -> dict[str, dict[str, int]]:
        """Of all nodes."""
        raise NotImplementedError
