"""A gang as its pods and their owner describe it."""

from collections.abc import Mapping
from dataclasses import dataclass

from hyperscout_kubernetes.client import Object
from hyperscout_placer.cluster.request import Request

GATE = "hyperscout.io/topology"
# On pods. A gang's name and size, where no owner says them.
GANG_LABEL = "hyperscout.io/gang"
SIZE_LABEL = "hyperscout.io/gang-size"
ROLE_LABEL = "hyperscout.io/role"  # with them, where pods differ: those of one role are alike ("worker")
# On the workload, or on its pods: "hard" or "soft"; a tier's number or name; runs of ranks, "8:1,64:leaf"
# (size:tier, innermost first); "2:leaf" (most:tier) for the gang.
MODE = "hyperscout.io/mode"
HIGHEST_TIER = "hyperscout.io/highest-tier-allowed"
GROUPS = "hyperscout.io/groups"
SPREAD = "hyperscout.io/spread"
PREFER_SPREAD = "hyperscout.io/prefer-spread"


class GangError(ValueError):
    """Pods that describe no gang; says which field of what, and what to write instead."""


@dataclass(frozen=True, slots=True)
class Gang:
    """`key`: unique in the cluster and stable: "namespace/kind/name". `ranks`: the ranks by slot, in which a
    pod says where it belongs (`slot_of`). Pods of some slots may come only later (staged): the gang is
    placed whole when `ready` pods are there."""

    key: str
    kind: str
    namespace: str
    name: str
    uid: str  # of the owner ("" = plain labels): another run of the same name is another gang
    request: Request
    ranks: Mapping[str, int]
    templates: Mapping[str, Object]  # role -> a pod spec of it, for selectors, affinity and tolerations
    ready: int
