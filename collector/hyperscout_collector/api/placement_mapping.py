"""Requests and placements between messages and values. The JSON of a request is that of its message."""

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hyperscout.v1 import placement_pb2 as pb

from hyperscout_collector.placer.allreduce import Predicted
from hyperscout_collector.placer.answer import Cost, Placement, Refusal
from hyperscout_collector.placer.defrag import Plan
from hyperscout_collector.placer.explain import Candidate, Explanation
from hyperscout_collector.placer.forest import Forest, ForestError
from hyperscout_collector.placer.quantity import QuantityError, amount
from hyperscout_collector.placer.repair import Improvement, Move, Repair
from hyperscout_collector.placer.request import (
    MAX_PARTS,
    ONE_WORKER,
    Group,
    Mode,
    Request,
    RequestError,
    Spread,
    Workers,
    checked,
    ranks,
)
from hyperscout_collector.topology import rfc3339

if TYPE_CHECKING:  # `hyperscout place` on files wants no event loop
    from hyperscout_collector.placements import Held

MAX_NAME_CHARS = 317  # of a resource (253 of its prefix, a slash, 63), and of a gang
MAX_ROLE_CHARS = 63
MAX_AVOID = 100_000
_MAX_DEPTH = 32  # twice what `checked` lets pass, so that it is the one to say so
_MILLI = "cpu"

_MODES: dict[int, Mode] = {
    pb.PLACEMENT_MODE_UNSPECIFIED: "hard",
    pb.PLACEMENT_MODE_HARD: "hard",
    pb.PLACEMENT_MODE_SOFT: "soft",
}
_WHERE = re.compile(r"gang((?:\.parts\[\d+\])*)(.*)", re.DOTALL)


# What is asked


def request_of(message: pb.PlaceRequest, forest: Forest) -> Request:
    """Raises RequestError that names the field: unknown tier or node, bad quantity, count out of range."""

    def tier(where: str, text: str) -> int:
        try:
            return forest.tier(text[:MAX_NAME_CHARS])
        except ForestError as error:
            raise RequestError(f"{where}: {error}") from error

    _check_names(message.avoid, forest)
    try:
        return checked(_request(message, tier), forest.top)
    except RequestError as error:
        raise RequestError(_as_in_message(str(error), message)) from error


def stored_request(message: pb.PlaceRequest) -> Request:
    """What `request_message` wrote, whatever hierarchy there is by now. Raises RequestError."""

    def tier(where: str, text: str) -> int:
        if not text.isdecimal():
            raise RequestError(f"{where}: {text!r}: expected a number")
        return int(text)

    return _request(message, tier)


def request_message(request: Request, gang: str = "") -> pb.PlaceRequest:
    """The other way round: tiers are numbers in it, and quantities in base units."""
    soft = request.mode == "soft"
    return pb.PlaceRequest(
        gang=gang,
        mode=pb.PLACEMENT_MODE_SOFT if soft else pb.PLACEMENT_MODE_HARD,
        highest_tier_allowed=_tier_text(request.gang.tier),
        parts=[_part_message(part) for part in request.gang.parts],
        spread=_spread_message(request.gang.spread),
        avoid=sorted(request.avoid),
        use_down=request.use_down,
    )


def _request(message: pb.PlaceRequest, tier: Callable[[str, str], int]) -> Request:
    if message.mode not in _MODES:
        raise RequestError(f"mode: {message.mode}: expected hard or soft")
    highest = message.highest_tier_allowed
    gang = Group(
        1,
        _parts(message.parts, "parts", tier, 0),
        tier("highest_tier_allowed", highest) if highest else None,
        _spread(message, "spread", tier),
    )
    return Request(gang, _MODES[message.mode], frozenset(message.avoid), message.use_down)


def _parts(
    parts: Iterable[pb.Part], where: str, tier: Callable[[str, str], int], depth: int
) -> tuple[Group | Workers, ...]:
    if depth > _MAX_DEPTH:
        raise RequestError(f"{where}: groups within groups, more than {_MAX_DEPTH} deep")
    found: list[Group | Workers] = []
    for i, part in enumerate(parts):
        if i >= MAX_PARTS:
            raise RequestError(f"{where}: at most {MAX_PARTS}")
        kind = part.WhichOneof("part")
        at = f"{where}[{i}].{kind}"
        if kind == "workers":
            found.append(_workers(part.workers, at))
        elif kind == "group":
            group = part.group
            found.append(
                Group(
                    group.count,
                    _parts(group.parts, f"{at}.parts", tier, depth + 1),
                    tier(f"{at}.tier", group.tier) if group.tier else None,
                    _spread(group, f"{at}.spread", tier),
                )
            )
        else:
            raise RequestError(f"{where}[{i}]: neither workers nor a group")
    return tuple(found)


def _workers(message: pb.Workers, where: str) -> Workers:
    if len(message.role) > MAX_ROLE_CHARS:
        raise RequestError(f"{where}.role: {len(message.role)} characters: at most {MAX_ROLE_CHARS}")
    resources = []
    for name, text in sorted(message.resources.items()):
        at = f"{where}.resources[{name[:MAX_NAME_CHARS]!r}]"
        if not name.strip() or len(name) > MAX_NAME_CHARS:
            raise RequestError(f"{at}: a resource has a name of 1 to {MAX_NAME_CHARS} characters")
        try:
            need = amount(name, text)
        except QuantityError as error:
            raise RequestError(f"{at}: {error}") from error
        if need:  # of nothing there is always enough
            resources.append((name, need))
    needs = tuple(resources) if message.resources else ONE_WORKER
    return Workers(message.count, needs, message.role or "worker")


def _spread(
    message: pb.PlaceRequest | pb.Group, where: str, tier: Callable[[str, str], int]
) -> Spread | None:
    if not message.HasField("spread"):
        return None
    spread = message.spread
    if not spread.tier:
        raise RequestError(f'{where}.tier: missing: the number or name of a tier, or "node"')
    at = 0 if spread.tier in ("0", "node") else tier(f"{where}.tier", spread.tier)
    return Spread(spread.most, at, not spread.preferred)


def _check_names(avoid: Iterable[str], forest: Forest) -> None:
    names = list(avoid)
    if len(names) > MAX_AVOID:
        raise RequestError(f"avoid: {len(names)} names: at most {MAX_AVOID}")
    unknown = [(i, name) for i, name in enumerate(names) if name not in forest.index]
    if not unknown:
        return
    hypernodes = {name for layer in forest.layers for name in layer.names}
    for i, name in unknown:
        if name not in hypernodes:
            raise RequestError(f"avoid[{i}]: {name[:MAX_NAME_CHARS]!r}: neither a node nor a HyperNode")


def _as_in_message(error: str, message: pb.PlaceRequest) -> str:
    """The field that an error of `checked` names, as it is called in the message."""
    match = _WHERE.fullmatch(error)
    if match is None:
        return error
    path, rest = match.groups()
    if not path:
        if rest.startswith(".tier"):
            return f"highest_tier_allowed{rest.removeprefix('.tier')}"
        return rest.removeprefix(".") if rest.startswith(".") else f"parts{rest}"
    where, parts = [], message.parts
    for index in map(int, re.findall(r"\d+", path)):
        kind = parts[index].WhichOneof("part")
        where.append(f"parts[{index}].{kind}")
        parts = parts[index].group.parts
    return ".".join(where) + rest


def _part_message(part: Group | Workers) -> pb.Part:
    if isinstance(part, Workers):
        resources = {
            name: f"{need}m" if name == _MILLI else str(need)
            for name, need in part.resources
            if part.resources != ONE_WORKER
        }
        return pb.Part(workers=pb.Workers(count=part.count, resources=resources, role=part.role))
    return pb.Part(
        group=pb.Group(
            count=part.count,
            tier=_tier_text(part.tier),
            parts=[_part_message(inner) for inner in part.parts],
            spread=_spread_message(part.spread),
        )
    )


def _tier_text(tier: int | None) -> str:
    return "" if tier is None else str(tier)


def _spread_message(spread: Spread | None) -> pb.Spread | None:
    if spread is None:
        return None
    return pb.Spread(most=spread.most, tier=str(spread.tier), preferred=not spread.required)


# What is answered


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


def held_message(held: "Held", tiers: int, predicted: Predicted | None = None) -> pb.Placement:
    """What a gang holds, on a hierarchy of that many tiers."""
    message = _placed_message(held.gang, held.request, held.placement, tiers, predicted)
    message.holder = held.holder
    message.reserved_at.FromNanoseconds(held.reserved_ns)
    if held.expires_ns:
        message.expires_at.FromNanoseconds(held.expires_ns)
    return message


def _placed_message(
    gang: str, request: Request, answer: Placement, tiers: int, predicted: Predicted | None
) -> pb.Placement:
    assignment = pb.Assignment
    return pb.Placement(
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
    )


def placement_of(message: pb.Placement) -> Placement:
    """The other way round, for one that is placed."""
    return Placement(
        tuple(one.node for one in message.assignments),
        message.tier if message.HasField("tier") else None,
        message.hypernode if message.HasField("hypernode") else None,
        _cost(message.cost),
        message.exact,
        _cost(message.bound) if message.HasField("bound") else None,
        (message.reason,) if message.reason else (),
    )


def domains_used(cost: Cost, tiers: int) -> dict[int, int]:
    """By tier; from the gang's own tier up it is one domain."""
    below = {cost.top - 1 - i: count for i, count in enumerate(cost.domains)}
    return {tier: below.get(tier, 1) for tier in range(1, tiers + 1)}


def cost_message(cost: Cost) -> pb.PlacementCost:
    return pb.PlacementCost(
        top=cost.top,
        domains=cost.domains,
        nodes=cost.nodes,
        degraded=cost.degraded,
        fragmentation=cost.fragmentation,
    )


def predicted_message(predicted: Predicted | None) -> pb.AllReduce | None:
    if predicted is None:
        return None
    return pb.AllReduce(
        ring_s=predicted.ring_s,
        tree_s=predicted.tree_s,
        message_bytes=predicted.message_bytes,
        measured=predicted.measured,
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


def repair_message(gang: str, request: Request, found: Repair | Refusal, forest: Forest) -> pb.RepairResponse:
    if isinstance(found, Refusal):
        return pb.RepairResponse(placement=placement_message(gang, request, found, forest))
    return pb.RepairResponse(
        placement=placement_message(gang, request, found.placement, forest),
        moves=moves_message(found.moves),
        kept_tier=found.kept_tier,
    )


def improve_message(
    gang: str, request: Request, found: Improvement | None, forest: Forest
) -> pb.ImproveResponse:
    if found is None:
        return pb.ImproveResponse(better=False)
    return pb.ImproveResponse(
        better=True,
        moves=moves_message(found.moves),
        placement=placement_message(gang, request, found.placement, forest),
        gain=found.gain,
        price=found.price,
    )


def defragment_message(
    gang: str, request: Request, found: Plan | Refusal, forest: Forest
) -> pb.DefragmentResponse:
    if isinstance(found, Refusal):
        return pb.DefragmentResponse(placement=placement_message(gang, request, found, forest))
    return pb.DefragmentResponse(
        placement=placement_message(gang, request, found.placement, forest),
        gangs=[pb.GangMoves(gang=name, moves=moves_message(moves)) for name, moves in found.moves],
        moved=found.moved,
    )


def moves_message(moves: Iterable[Move]) -> list[pb.Move]:
    return [pb.Move(rank=x.rank, source=x.source, target=x.target) for x in moves]


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
    )


# As `place -o json` prints it


def placement_json(message: pb.Placement) -> dict[str, Any]:
    """The object of `place -o json`: keys in a fixed order, None for what there is not.

    Name, holder, times and bound stand at its end, where there are any.
    """
    found: dict[str, Any] = {
        "placed": message.placed,
        "tier": message.tier if message.HasField("tier") else None,
        "hypernode": message.hypernode if message.HasField("hypernode") else None,
        "assignments": [{"rank": x.rank, "node": x.node, "role": x.role} for x in message.assignments],
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
    return found


def _if_set(message: pb.Placement, field: Any, as_json: Callable[[Any], Any]) -> Any:
    return as_json(getattr(message, field)) if message.HasField(field) else None


def _cost_json(cost: pb.PlacementCost) -> dict[str, Any]:
    return {
        "top": cost.top,
        "domains": list(cost.domains),
        "nodes": cost.nodes,
        "degraded": cost.degraded,
        "fragmentation": list(cost.fragmentation),
    }


def _predicted_json(predicted: pb.AllReduce) -> dict[str, Any]:
    return {
        "ringS": predicted.ring_s,
        "treeS": predicted.tree_s,
        "messageBytes": predicted.message_bytes,
        "measured": predicted.measured,
    }
