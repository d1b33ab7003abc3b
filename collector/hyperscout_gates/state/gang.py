"""A gang as described by its pods and their owner."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hyperscout_kubernetes.client import Object
from hyperscout_placer.cluster.request import Request, size

GATE = "hyperscout.io/topology"
# Labels on pods: a gang's name and size, if no owner defines them.
GANG_LABEL = "hyperscout.io/gang"
SIZE_LABEL = "hyperscout.io/gang-size"
ROLE_LABEL = "hyperscout.io/role"  # optional with them: pods of one role are interchangeable ("worker")
# Annotations on the workload or its pods. MODE is "hard" or "soft". HIGHEST_TIER is a tier's number or name.
# GROUPS are runs of ranks, size:tier with the innermost first, for example "8:1,64:leaf"; PREFER_GROUPS the
# same for preferred tiers. SPREAD and PREFER_SPREAD are most:tier for the gang, for example "2:leaf". EVEN is
# a tier over whose domains the gang is split evenly.
# NUMA is "single". PACKING is "compact" or "fragments". MIN_COUNT is the least number of pods with which an
# elastic gang runs.
MODE = "hyperscout.io/mode"
HIGHEST_TIER = "hyperscout.io/highest-tier-allowed"
GROUPS = "hyperscout.io/groups"
PREFER_GROUPS = "hyperscout.io/prefer-groups"
SPREAD = "hyperscout.io/spread"
NUMA = "hyperscout.io/numa"
PREFER_SPREAD = "hyperscout.io/prefer-spread"
EVEN = "hyperscout.io/even"
PACKING = "hyperscout.io/packing"
MIN_COUNT = "hyperscout.io/min-count"


class GangError(ValueError):
    """Pods that describe no gang. The message contains the object, the field and what to write."""


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang. Pods of some slots may come later (staged): it is placed once `ready` pods exist.

    Only the last part of the request may be elastic, so that ranks keep their numbers when the gang grows or
    shrinks. It is placed with `least` pods, too, if no more come.

    `key`: "namespace/kind/name", unique in the cluster and stable. `ranks`: rank by slot (see `Membership`).
    """

    key: str
    kind: str
    uid: str  # of the owner ("" = labels only); another run of the same name is another gang
    request: Request
    ranks: Mapping[str, int]
    templates: Mapping[str, Object]  # role -> pod spec, for selectors, affinity and tolerations
    ready: int
    least: int = 0  # 0 = `ready`


def with_ranks(request: Request, number: int) -> Request:
    """The request with so many ranks, or the next larger number that its last part can have."""
    *others, last = request.gang.parts
    if last.elastic is None:
        return request
    one, rest = size(last) // last.count, size(request.gang) - size(last)
    copies = min(max(-(-(number - rest) // one), last.elastic.least), last.elastic.most)
    return replace(request, gang=replace(request.gang, parts=(*others, replace(last, count=copies))))


def is_elastic(request: Request) -> bool:
    return request.gang.parts[-1].elastic is not None


def is_resized(request: Request, other: Request) -> bool:
    """Whether two requests differ at most in the number and limits of their last part."""

    def rest(of: Request) -> Request:
        *others, last = of.gang.parts
        return replace(of, gang=replace(of.gang, parts=(*others, replace(last, count=1, elastic=None))))

    return rest(request) == rest(other)
