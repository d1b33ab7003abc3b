"""Converts placement requests from protobuf messages to values, and back.

Every error names its field as it is called in the message. Tiers are numbers or names. Quantities are
Kubernetes quantities.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hyperscout.v1 import placement_pb2 as pb
from hyperscout_formats.text.reporters import ANY_CLUSTER

from hyperscout_placer.cluster.forest import Forest, ForestError, Tiers
from hyperscout_placer.cluster.message_text import with_tier_names
from hyperscout_placer.cluster.numa_zones import in_one_zone, is_zone_resource, without_share, zone_share
from hyperscout_placer.cluster.quantity import QuantityError, amount
from hyperscout_placer.cluster.request import (
    MAX_PARTS,
    MAX_RESOURCES,
    ONE_WORKER,
    Group,
    Mode,
    Packing,
    Range,
    Request,
    RequestError,
    Spread,
    Workers,
    checked,
    unconstrained,
)
from hyperscout_placer.messages.demands import demands_of, put_demands

MAX_NAME_CHARS = 317  # of a resource (prefix 253, slash, name 63), and of a gang
MAX_ROLE_CHARS = 63
MAX_AVOID = 100_000
MAX_PARTS_IN_ALL = 256  # each part takes an array over all nodes, and several ms of a thread
_MAX_DEPTH = 32  # twice the limit of `checked`, so that `checked` reports the error
_MILLI = "cpu"

_MODES: dict[int, Mode] = {
    pb.PLACEMENT_MODE_UNSPECIFIED: "hard",
    pb.PLACEMENT_MODE_HARD: "hard",
    pb.PLACEMENT_MODE_SOFT: "soft",
}
_PACKINGS: dict[int, Packing] = {
    pb.PACKING_UNSPECIFIED: "compact",
    pb.PACKING_COMPACT: "compact",
    pb.PACKING_FRAGMENTS: "fragments",
}
_WHERE = re.compile(r"gang((?:\.parts\[\d+\])*)(.*)", re.DOTALL)


def request_of(message: pb.PlaceRequest, forest: Forest) -> Request:
    """The request in a message. Raises RequestError that names the field.

    Errors are for example an unknown name of a tier or node, a bad quantity, or a count out of range. A
    request that only an absent tier makes invalid is `impossible`.
    """
    tiers = Tiers(forest)

    def tier(where: str, text: str) -> int:
        read = tiers.over if where == "even" or where.endswith("spread.tier") else tiers.at_most
        try:
            return read(text[:MAX_NAME_CHARS])
        except ForestError as error:
            raise RequestError(f"{where}: {error}") from error

    _check_parts(message.parts)
    if not forest.layers:  # no tier and no name exists: `place` refuses the request
        return checked(Request(unconstrained(_request(message, lambda where, text: 0).gang)), 0)
    _check_names(message.avoid, forest)
    clusters = _clusters(message.clusters, forest)
    try:
        asked = replace(_request(message, tier), cluster=clusters[0], replaced=tiers.replaced)
        if len(clusters) > 1:
            asked = replace(asked, clusters=clusters)
        loose = checked(replace(asked, gang=unconstrained(asked.gang)), 0)
    except RequestError as error:
        raise RequestError(_as_in_message(str(error), message)) from error
    try:
        return checked(asked, forest.top)
    except RequestError as error:
        text = with_tier_names(_as_in_message(str(error), message), forest)
        if not tiers.replaced:
            raise RequestError(text) from error
        return replace(loose, impossible=text)


def stored_request(message: pb.PlaceRequest) -> Request:
    """The request that `request_message` wrote, independent of the present topology. Raises RequestError."""

    def tier(where: str, text: str) -> int:
        if not text.isdecimal():
            raise RequestError(f"{where}: {text!r}: expected a number")
        return int(text)

    request = _request(message, tier)
    return replace(request, cluster=message.clusters[0]) if message.clusters else request


def request_message(request: Request, gang: str = "") -> pb.PlaceRequest:
    """The message of a request. Tiers are numbers in it, and quantities are in base units."""
    soft = request.mode == "soft"
    message = pb.PlaceRequest(
        gang=gang,
        mode=pb.PLACEMENT_MODE_SOFT if soft else pb.PLACEMENT_MODE_HARD,
        highest_tier_allowed=_tier_text(request.gang.tier),
        parts=[_part_message(part) for part in request.gang.parts],
        spread=_spread_message(request.gang.spread),
        avoid=sorted(request.avoid),
        use_down=request.use_down,
        even=_tier_text(request.gang.even),
        priority=request.priority,
        packing=pb.PACKING_FRAGMENTS if request.packing == "fragments" else pb.PACKING_COMPACT,
        clusters=request.clusters or ([request.cluster] if request.cluster else ()),
    )
    put_demands(request.demands, message.parts)
    return message


def _request(message: pb.PlaceRequest, tier: Callable[[str, str], int]) -> Request:
    if message.mode not in _MODES:
        raise RequestError(f"mode: {message.mode}: expected hard or soft")
    if message.packing not in _PACKINGS:
        raise RequestError(f"packing: {message.packing}: expected compact or fragments")
    highest = message.highest_tier_allowed
    gang = Group(
        1,
        _parts(message.parts, "parts", tier, 0),
        tier("highest_tier_allowed", highest) if highest else None,
        _spread(message, "spread", tier),
        even=tier("even", message.even) if message.even else None,
    )
    return Request(
        gang,
        _MODES[message.mode],
        frozenset(message.avoid),
        message.use_down,
        demands_of(message.parts),
        message.priority,
        _PACKINGS[message.packing],
    )


def _parts(
    parts: Iterable[pb.Part], where: str, tier: Callable[[str, str], int], depth: int
) -> tuple[Group | Workers, ...]:
    if depth > _MAX_DEPTH:
        raise RequestError(f"{where}: groups are nested more than {_MAX_DEPTH} deep")
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
                    tier(f"{at}.preferred", group.preferred) if group.preferred else None,
                    elastic=_elastic(group),
                )
            )
        else:
            raise RequestError(f"{where}[{i}]: expected workers or a group")
    return tuple(found)


def _workers(message: pb.Workers, where: str) -> Workers:
    if len(message.role) > MAX_ROLE_CHARS:
        raise RequestError(f"{where}.role: {len(message.role)} characters: at most {MAX_ROLE_CHARS}")
    if len(message.resources) > MAX_RESOURCES:  # before the resources are read: there may be a million
        raise RequestError(f"{where}.resources: {len(message.resources)} of them: at most {MAX_RESOURCES}")
    resources = []
    for name, text in sorted(message.resources.items()):
        at = f"{where}.resources[{name[:MAX_NAME_CHARS]!r}]"
        if not name.strip() or len(name) > MAX_NAME_CHARS:
            raise RequestError(f"{at}: a resource has a name of 1 to {MAX_NAME_CHARS} characters")
        if is_zone_resource(name):
            raise RequestError(f"{at}: expected the name of a resource; set single_numa for one NUMA zone")
        try:
            need = amount(name, text)
        except QuantityError as error:
            raise RequestError(f"{at}: {error}") from error
        if need:  # an amount of 0 constrains nothing
            resources.append((name, need))
    needs = tuple(resources) if message.resources else ONE_WORKER
    if message.single_numa:
        try:
            needs = in_one_zone(needs)
        except ValueError as error:
            raise RequestError(f"{where}.single_numa: {error}") from error
    return Workers(message.count, needs, message.role or "worker", _elastic(message))


def _elastic(message: pb.Workers | pb.Group) -> Range | None:
    return Range(message.min_count, message.count) if message.min_count else None


def _spread(
    message: pb.PlaceRequest | pb.Group, where: str, tier: Callable[[str, str], int]
) -> Spread | None:
    if not message.HasField("spread"):
        return None
    spread = message.spread
    if not spread.tier:
        raise RequestError(f'{where}.tier: missing: the number or name of a tier, or "node"')
    return Spread(spread.most, tier(f"{where}.tier", spread.tier), not spread.preferred)


def _check_parts(parts: Sequence[pb.Part]) -> None:
    """Refuse a message with too many parts before it is read. Raises RequestError."""
    left, waiting = MAX_PARTS_IN_ALL, [parts]
    while waiting:
        for part in waiting.pop():
            left -= 1
            if left < 0:
                raise RequestError(f"parts: more than {MAX_PARTS_IN_ALL} in total, including nested groups")
            if part.WhichOneof("part") == "group":
                waiting.append(part.group.parts)


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
            raise RequestError(
                f"avoid[{i}]: {name[:MAX_NAME_CHARS]!r}: unknown: expected the name of a node or HyperNode"
            )


def _clusters(names: Sequence[str], forest: Forest) -> tuple[str, ...]:
    """The clusters that a request names, at least one. Raises RequestError."""
    known = tuple(forest.clusters) or ("",)
    if ANY_CLUSTER in names:
        if len(names) > 1:
            raise RequestError(f"clusters: {ANY_CLUSTER}: expected no other name beside it")
        return known
    for i, name in enumerate(names or ("",)):
        if name not in known:
            there = ", ".join(x or '""' for x in known)
            raise RequestError(
                f"clusters[{i}]: {name[:MAX_NAME_CHARS]!r}: no node of this cluster is in the topology: "
                f"expected {ANY_CLUSTER}, or some of {there}"
            )
    return tuple(dict.fromkeys(names)) or ("",)


def _as_in_message(error: str, message: pb.PlaceRequest) -> str:
    """The error of `checked` with the field named as in the message."""
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
    # The counts as they were requested; a placement has the number that was placed.
    most, least = (part.count, 0) if part.elastic is None else (part.elastic.most, part.elastic.least)
    if isinstance(part, Workers):
        resources = {
            name: f"{need}m" if name == _MILLI else str(need)
            for name, need in without_share(part.resources)
            if part.resources != ONE_WORKER
        }
        single_numa = zone_share(part.resources) is not None
        return pb.Part(
            workers=pb.Workers(
                count=most, min_count=least, resources=resources, role=part.role, single_numa=single_numa
            )
        )
    return pb.Part(
        group=pb.Group(
            count=most,
            min_count=least,
            tier=_tier_text(part.tier),
            parts=[_part_message(inner) for inner in part.parts],
            spread=_spread_message(part.spread),
            preferred=_tier_text(part.preferred),
        )
    )


def _tier_text(tier: int | None) -> str:
    return "" if tier is None else str(tier)


def _spread_message(spread: Spread | None) -> pb.Spread | None:
    if spread is None:
        return None
    return pb.Spread(most=spread.most, tier=str(spread.tier), preferred=not spread.required)
