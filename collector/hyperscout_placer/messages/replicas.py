"""Counts how many equal replicas fit in a cluster, for schedulers that choose the cluster of a workload.

A required node affinity that needs the label of a tier to exist, `hyperscout.io/leaf`, limits all replicas to
one domain of that tier. The label itself is not looked for: all nodes of the hierarchy count.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hyperscout.v1 import estimator_pb2, placement_pb2
from hyperscout_topology.names import tier_level

from hyperscout_placer.book.reservation import NotReadyError
from hyperscout_placer.cluster.capacity import Capacity, Mask
from hyperscout_placer.cluster.forest import Forest, ForestError, Tiers
from hyperscout_placer.cluster.request import Request, RequestError, ends
from hyperscout_placer.messages.requests import request_of
from hyperscout_placer.solve.estimate import Estimate

LABEL_PREFIX: Final = "hyperscout.io/"  # followed by the name of a tier
_NUMBERED = re.compile(r"tier-([0-9]{1,4})", re.ASCII)
_MOST = 2**31 - 1


def replica_request(
    requirements: estimator_pb2.ReplicaRequirements, cluster: str, capacity: Capacity
) -> tuple[Request, int | None]:
    """The request for one replica, and the tier of which one domain holds all replicas; None = no limit.

    Resources that no node reports do not count. Raises RequestError, and NotReadyError if none counts.
    """
    asked = requirements.resource_request
    resources = {name: asked[name].string for name in asked if capacity.has(name)}
    if not asked:
        raise NotReadyError("the claim names no resources, so replicas cannot be counted")
    if not resources:
        names = ", ".join(sorted(asked)[:3])
        raise NotReadyError(f"{names}: no node reports it, so replicas cannot be counted")
    claim = requirements.node_claim
    workers = placement_pb2.Workers(
        count=1, resources=resources, node_selector=claim.node_selector, tolerations=claim.tolerations
    )
    tier, terms = _tier_of(claim.node_affinity.node_selector_terms, capacity.forest)
    if terms:
        required = placement_pb2.NodeSelector(node_selector_terms=terms)
        workers.affinity.node_affinity.required_during_scheduling_ignored_during_execution.CopyFrom(required)
    message = placement_pb2.PlaceRequest(parts=[placement_pb2.Part(workers=workers)], clusters=[cluster])
    return request_of(message, capacity.forest), tier


def replicas(capacity: Capacity, request: Request, masks: Mapping[str, Mask], tier: int | None) -> int:
    """How many replicas fit in the cluster of `replica_request`, in one domain of the tier."""
    (kind,) = ends(request.gang)
    estimate = Estimate(capacity, request, masks, capacity.forest.barred(request.avoid, request.cluster))
    fits = estimate.fit(kind)
    found = fits.sum() if tier is None else estimate.summed(fits, 0, tier).max(initial=0)
    return min(int(found), _MOST)


def _tier_of(
    terms: Iterable[placement_pb2.NodeSelectorTerm], forest: Forest
) -> tuple[int | None, list[placement_pb2.NodeSelectorTerm]]:
    """The lowest tier that all terms name, and the terms without tiers; no term = each node matches."""
    number_of = Tiers(forest).at_most
    found: list[set[int]] = []
    others: list[placement_pb2.NodeSelectorTerm] = []
    is_any = False  # a term with nothing but a tier matches each node of the hierarchy
    for term in terms:
        tiers = [_tier(x, number_of) for x in term.match_expressions]
        rest = [x for x, tier in zip(term.match_expressions, tiers, strict=True) if tier is None]
        found.append({tier for tier in tiers if tier is not None})
        others.append(placement_pb2.NodeSelectorTerm(match_expressions=rest, match_fields=term.match_fields))
        is_any = is_any or bool(found[-1] and not rest and not term.match_fields)
    common = set.intersection(*found) if found else set[int]()
    return min(common, default=None), [] if is_any else others


def _tier(found: placement_pb2.NodeSelectorRequirement, number_of: Callable[[str], int]) -> int | None:
    """The tier whose label must exist; None = the requirement is another one."""
    name = found.key.removeprefix(LABEL_PREFIX)
    if found.operator != "Exists" or name == found.key:
        return None
    match = _NUMBERED.fullmatch(name)
    if match is None and tier_level(name) is None:
        return None
    try:
        return number_of(match[1] if match else name) or None
    except ForestError as error:
        raise RequestError(f"node_affinity: {found.key}: {error}") from error
