"""Converts placements to protobuf messages, and messages to the JSON of `place -o json`.

Requests are converted in `requests`. Their JSON is that of their message.
"""

from collections.abc import Callable, Sequence
from typing import Any

from hyperscout.v1 import placement_pb2 as pb
from hyperscout_runtime.units import rfc3339

from hyperscout_placer.book.failed_nodes import Failed, FailedNode
from hyperscout_placer.book.reservation import Reservation
from hyperscout_placer.cluster.allreduce import Predicted, predict
from hyperscout_placer.cluster.answer import Cost, Placement, Refusal
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.numa_zones import Zone
from hyperscout_placer.cluster.request import Group, Range, Request, Workers, ranks, size
from hyperscout_placer.cluster.speeds import TierSpeed
from hyperscout_placer.solve.elastic import at_least, at_most, elastic_parts, with_counts
from hyperscout_placer.solve.explain import Candidate, Explanation


def placement_message(
    gang: str,
    request: Request,
    answer: Placement | Refusal,
    forest: Forest,
    predicted: Predicted | None = None,
) -> pb.Placement:
    if isinstance(answer, Refusal):
        return pb.Placement(gang=gang, placed=False, reason=answer.reason, exact=answer.proven)
    return _placed_message(gang, request, answer, forest.top, predicted)


def held_message(held: Reservation, tiers: int, predicted: Predicted | None = None) -> pb.Placement:
    """The message of a gang's reservation, on a hierarchy with `tiers` tiers."""
    message = _placed_message(held.gang, held.request, held.placement, tiers, predicted)
    message.holder = held.holder
    message.reserved_at.FromNanoseconds(held.reserved_ns)
    if held.expires_ns:
        message.expires_at.FromNanoseconds(held.expires_ns)
    message.failed_nodes.extend(failed_message(held.failed))
    return message


def failed_message(failed: Failed) -> list[pb.FailedNode]:
    found = []
    for x in failed:
        message = pb.FailedNode(node=x.node)
        message.reported_at.FromNanoseconds(x.reported_ns)
        if x.down_ns:
            message.down_at.FromNanoseconds(x.down_ns)
        found.append(message)
    return found


def failed_of(message: pb.Placement) -> Failed:
    """The inverse of `failed_message`."""
    return tuple(
        FailedNode(x.node, x.reported_at.ToNanoseconds(), x.down_at.ToNanoseconds())
        for x in message.failed_nodes
    )


def _placed_message(
    gang: str, request: Request, answer: Placement, tiers: int, predicted: Predicted | None
) -> pb.Placement:
    assignment, request = pb.Assignment, with_counts(request, answer.counts)
    message = pb.Placement(
        gang=gang,
        placed=True,
        tier=answer.tier,
        hypernode=answer.hypernode,
        assignments=[
            assignment(rank=rank, node=node, role=worker.role)
            for rank, (node, worker) in enumerate(zip(answer.nodes, ranks(request.gang), strict=True))
        ],
        domains=domains_used(answer.cost, tiers),
        nodes=answer.cost.nodes,
        reason="; ".join(answer.relaxed),
        cost=cost_message(answer.cost),
        exact=answer.exact,
        bound=None if answer.bound is None else cost_message(answer.bound),
        predicted=predicted_message(predicted),
        elastic=map(_elastic_message, elastic_parts(request.gang)),
        cluster=answer.cluster,
    )
    if message.elastic:
        message.min_workers, message.max_workers = size(at_least(request).gang), size(at_most(request).gang)
    for one, zone in zip(message.assignments, answer.zones, strict=False):  # () = no worker needs one zone
        if zone is not None and zone.number is not None:
            one.numa_zone = zone.number
            one.nics.extend(zone.nics)
    return message


def _elastic_message(elastic: tuple[Group | Workers, Range]) -> pb.ElasticPart:
    part, limits = elastic
    return pb.ElasticPart(
        count=part.count,
        min_count=limits.least,
        max_count=limits.most,
        size=size(part) // part.count,
        role=part.role if isinstance(part, Workers) else "",
    )


def placement_of(message: pb.Placement) -> Placement:
    """The placement in a message with `placed` true; the inverse of `placement_message`."""
    return Placement(
        tuple(one.node for one in message.assignments),
        message.tier if message.HasField("tier") else None,
        message.hypernode if message.HasField("hypernode") else None,
        _cost(message.cost),
        message.exact,
        _cost(message.bound) if message.HasField("bound") else None,
        (message.reason,) if message.reason else (),
        _zones(message),
        tuple(part.count for part in message.elastic),
    )


def _zones(message: pb.Placement) -> tuple[Zone | None, ...]:
    if not any(one.HasField("numa_zone") for one in message.assignments):
        return ()
    return tuple(
        Zone(one.numa_zone, tuple(one.nics)) if one.HasField("numa_zone") else None
        for one in message.assignments
    )


def domains_used(cost: Cost, tiers: int) -> dict[int, int]:
    """Number of used domains by tier. From the gang's own tier up it is 1."""
    below = {cost.top - 1 - i: count for i, count in enumerate(cost.domains)}
    return {tier: below.get(tier, 1) for tier in range(1, tiers + 1)}


def cost_message(cost: Cost) -> pb.PlacementCost:
    return pb.PlacementCost(
        top=cost.top,
        domains=cost.domains,
        nodes=cost.nodes,
        degraded=cost.degraded,
        fragmentation=cost.fragmentation,
        above=cost.above,
        whole=cost.whole,
        widths=cost.widths,
        unpreferred=cost.unpreferred,
    )


def predicted_for(
    answer: Placement | Refusal, forest: Forest, speeds: Sequence[TierSpeed]
) -> Predicted | None:
    """The prediction for a placement; None where some ranks stay on nodes that are not in any fabric now."""
    if isinstance(answer, Refusal) or not all(node in forest.index for node in answer.nodes):
        return None
    return predict(forest, speeds, answer.nodes)


def predicted_message(predicted: Predicted | None) -> pb.AllReduce | None:
    if predicted is None:
        return None
    return pb.AllReduce(
        ring_s=predicted.ring_s,
        tree_s=predicted.tree_s,
        message_bytes=predicted.message_bytes,
        measured=predicted.measured,
        hops=[
            pb.HopSpeed(
                tier=x.tier,
                tier_name=x.tier_name,
                latency_us=x.latency_us,
                latency_source=x.latency_source,
                bandwidth_gbps=x.bandwidth_gbps,
                bandwidth_source=x.bandwidth_source,
            )
            for x in predicted.hops
        ],
        sources=predicted.sources,
    )


def explanation_message(
    gang: str, request: Request, explanation: Explanation, forest: Forest
) -> pb.ExplainPlacementResponse:
    return pb.ExplainPlacementResponse(
        placement=placement_message(gang, request, explanation.answer, forest, explanation.predicted),
        candidates=map(_candidate_message, explanation.candidates),
        considered=explanation.considered,
        text=explanation.text,
    )


def _candidate_message(candidate: Candidate) -> pb.PlacementCandidate:
    return pb.PlacementCandidate(
        hypernode=candidate.hypernode,
        tier=candidate.tier,
        free=candidate.free,
        cost=None if candidate.cost is None else cost_message(candidate.cost),
        predicted=predicted_message(candidate.predicted),
        why=candidate.why,
    )


def _cost(message: pb.PlacementCost) -> Cost:
    return Cost(
        message.top,
        tuple(message.domains),
        message.nodes,
        message.degraded,
        tuple(message.fragmentation),
        tuple(message.above),
        message.whole,
        tuple(message.widths),
        unpreferred=message.unpreferred,
    )


# JSON of `place -o json`


def placement_json(message: pb.Placement) -> dict[str, Any]:
    """The object of `place -o json`: keys in a fixed order, None for missing values.

    `bound`, `gang`, `holder`, `reservedAt`, `expiresAt`, `failedNodes`, `elastic`, `minWorkers`, `maxWorkers`
    and `cluster` are at the end, and only where they are set.
    """
    found: dict[str, Any] = {
        "placed": message.placed,
        "tier": message.tier if message.HasField("tier") else None,
        "hypernode": message.hypernode if message.HasField("hypernode") else None,
        "assignments": list(map(_assignment_json, message.assignments)),
        "domains": {str(tier): message.domains[tier] for tier in sorted(message.domains)},
        "nodes": message.nodes,
        "cost": _if_set(message, "cost", _cost_json),
        "exact": message.exact,
        "predicted": _if_set(message, "predicted", _predicted_json),
        "reason": message.reason,
    }
    if message.HasField("bound"):
        found["bound"] = _cost_json(message.bound)
    if message.gang:
        found["gang"] = message.gang
    if message.holder:
        found["holder"] = message.holder
    for key, field in (("reservedAt", "reserved_at"), ("expiresAt", "expires_at")):
        if message.HasField(field):  # type: ignore[arg-type]
            found[key] = rfc3339(getattr(message, field).ToNanoseconds())
    if message.failed_nodes:
        found["failedNodes"] = [_failed_json(x) for x in message.failed_nodes]
    if message.elastic:
        found["elastic"] = [_elastic_json(x) for x in message.elastic]
        found["minWorkers"], found["maxWorkers"] = message.min_workers, message.max_workers
    if message.cluster:
        found["cluster"] = message.cluster
    return found


def _elastic_json(part: pb.ElasticPart) -> dict[str, Any]:
    return {
        "count": part.count,
        "minCount": part.min_count,
        "maxCount": part.max_count,
        "size": part.size,
        "role": part.role,
    }


def _assignment_json(one: pb.Assignment) -> dict[str, Any]:
    """`numaZone` and `nics` are there only if the worker has a NUMA zone."""
    zone = {"numaZone": one.numa_zone, "nics": list(one.nics)} if one.HasField("numa_zone") else {}
    return {"rank": one.rank, "node": one.node, "role": one.role, **zone}


def _failed_json(failed: pb.FailedNode) -> dict[str, Any]:
    down = rfc3339(failed.down_at.ToNanoseconds()) if failed.HasField("down_at") else None
    return {
        "node": failed.node,
        "reportedAt": rfc3339(failed.reported_at.ToNanoseconds()),
        "downAt": down,
    }


def _if_set(message: pb.Placement | pb.PlacementCandidate, field: Any, as_json: Callable[[Any], Any]) -> Any:
    return as_json(getattr(message, field)) if message.HasField(field) else None


def _cost_json(cost: pb.PlacementCost) -> dict[str, Any]:
    return {
        "top": cost.top,
        "domains": list(cost.domains),
        "nodes": cost.nodes,
        "degraded": cost.degraded,
        "fragmentation": list(cost.fragmentation),
        "above": list(cost.above),
        "whole": cost.whole,
        "widths": list(cost.widths),
        "unpreferred": cost.unpreferred,
    }


def _predicted_json(predicted: pb.AllReduce) -> dict[str, Any]:
    return {
        "ringS": predicted.ring_s,
        "treeS": predicted.tree_s,
        "messageBytes": predicted.message_bytes,
        "measured": predicted.measured,
        "sources": predicted.sources,
        "hops": [
            {
                "tier": x.tier,
                "tierName": x.tier_name,
                "latencyUs": x.latency_us,
                "latencySource": x.latency_source,
                "bandwidthGbps": x.bandwidth_gbps,
                "bandwidthSource": x.bandwidth_source,
            }
            for x in predicted.hops
        ],
    }


def explained_json(message: pb.ExplainPlacementResponse) -> dict[str, Any]:
    """The object of `explain-placement -o json`."""
    return {"placement": placement_json(message.placement), **explanation_json(message)}


def explanation_json(message: pb.ExplainPlacementResponse) -> dict[str, Any]:
    """The candidates of `explain-placement -o json`, without the placement."""
    return {
        "candidates": [_candidate_json(x) for x in message.candidates],
        "considered": message.considered,
        "text": message.text,
    }


def _candidate_json(candidate: pb.PlacementCandidate) -> dict[str, Any]:
    return {
        "hypernode": candidate.hypernode,
        "tier": candidate.tier,
        "free": candidate.free,
        "cost": _if_set(candidate, "cost", _cost_json),
        "predicted": _if_set(candidate, "predicted", _predicted_json),
        "why": candidate.why,
    }
