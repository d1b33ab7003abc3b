"""The placement decision of a gang, stored in one ConfigMap per gang before the first gate opens.

A collector reads it at start. If a gate is open, the rest of the gang follows the same plan. Stored plans are
parsed strictly: an invalid one is rejected with a reason.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, cast

from hyperscout_kubernetes.client import Object
from hyperscout_placer.cluster.answer import Cost, Placement
from hyperscout_placer.cluster.numa_zones import Zone
from hyperscout_placer.cluster.request import (
    MAX_DEPTH,
    MAX_PARTS,
    MAX_WORKERS,
    Group,
    Mode,
    Packing,
    Range,
    Request,
    Spread,
    Workers,
    size,
)

PREFIX = "hyperscout-gang-"
LABELS = {"app.kubernetes.io/managed-by": "hyperscout", "app.kubernetes.io/component": "gang-plan"}
SELECTOR = ",".join(f"{name}={value}" for name, value in LABELS.items())
_TEXT, _PACKED = "plan.json", "plan.json.z"
_PACK_FROM_BYTES = 32 * 1024  # smaller plans stay readable with kubectl
_MAX_BYTES = 900_000  # of stored data; the server accepts 1 MiB for the whole object
_MAX_READ_BYTES = 64 << 20  # unpacked size: 1,000,000 ranks with long names
_VERSION = 1
_MAX_INT = 2**62


class PlanError(ValueError):
    """A stored object is not a valid plan, or a plan is too large to store."""


@dataclass(frozen=True, slots=True)
class GangPlan:
    """Nodes by rank for the gang `key`. `uid`: of its owner ("" = labels only).

    `pods`: rank by pod uid, for pods that carry no slot of their own. `moves`: pods that run on other nodes
    than these are deleted, because the gang moves. `accepted`: number of degraded links that it used when it
    was placed as a whole, or moved; None = unknown.
    """

    key: str
    uid: str
    kind: str
    request: Request
    placement: Placement
    pods: Mapping[str, int] = field(default_factory=dict)
    moves: bool = False
    accepted: int | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.placement.nodes

    def with_ranks(self, request: Request) -> "GangPlan":
        """Return the plan with only the first ranks: those of `request`."""
        number, old = size(request.gang), self.placement
        nodes = old.nodes[:number]
        cost = replace(old.cost, nodes=len(set(nodes)))
        less = replace(
            old, nodes=nodes, zones=old.zones[:number], cost=cost, exact=False, bound=None, counts=()
        )
        pods = {uid: rank for uid, rank in self.pods.items() if rank < number}
        return replace(self, request=request, placement=less, pods=pods)


def name_of(key: str, uid: str) -> str:
    """Return the name of a gang's ConfigMap."""
    return PREFIX + hashlib.sha256(f"{key}\0{uid}".encode()).hexdigest()[:20]


def to_object(plan: GangPlan, namespace: str) -> Object:
    """Return the ConfigMap of a plan. Raises PlanError if it is too large."""
    placement, cost = plan.placement, plan.placement.cost
    rest = cost.above, cost.whole, cost.widths
    stored = {
        "version": _VERSION,
        "gang": plan.key,
        "uid": plan.uid,
        "kind": plan.kind,
        "digest": "",  # collectors of version 0.1.0 expect a text
        "request": _request_out(plan.request),
        # Run-length encoding: consecutive ranks are often on one node.
        "nodes": [[node, len(list(run))] for node, run in groupby(placement.nodes)],
        "tier": placement.tier,
        "hypernode": placement.hypernode,
        "cost": [cost.top, cost.domains, cost.nodes, cost.degraded, cost.fragmentation],
        **({"costRest": rest} if any(rest) else {}),
        **({"unpreferred": cost.unpreferred} if cost.unpreferred else {}),
        "exact": placement.exact,
        "pods": dict(sorted(plan.pods.items())),
        **({"moves": True} if plan.moves else {}),
        **({} if plan.accepted is None else {"accepted": plan.accepted}),
        **({"zones": _zones_out(placement.zones)} if placement.zones else {}),
    }
    text = json.dumps(stored, separators=(",", ":")).encode()
    data: Object = {"data": {_TEXT: text.decode()}}
    if len(text) > _PACK_FROM_BYTES:
        data = {"binaryData": {_PACKED: base64.b64encode(zlib.compress(text, 9)).decode()}}
        text = data["binaryData"][_PACKED].encode()
    if len(text) > _MAX_BYTES:
        raise PlanError(f"the plan of {plan.key} takes {len(text)} bytes; the limit is {_MAX_BYTES}")
    metadata = {"name": name_of(plan.key, plan.uid), "namespace": namespace, "labels": dict(LABELS)}
    metadata["annotations"] = {"hyperscout.io/gang": plan.key}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **data}


def from_object(found: Object) -> GangPlan:
    """Parse a ConfigMap. Raises PlanError and no other error."""
    try:
        plan = _plan_in(json.loads(_text_of(found)))
        name, expected = found["metadata"]["name"], name_of(plan.key, plan.uid)
    except PlanError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise PlanError(f"not a valid plan: {type(error).__name__}: {error}") from error
    if name != expected:
        raise PlanError(f"metadata.name: {name!r}: expected {expected!r} for the plan of {plan.key}")
    return plan


def _text_of(found: Object) -> bytes:
    packed = (found.get("binaryData") or {}).get(_PACKED)
    if packed is None:
        return _str(found["data"][_TEXT]).encode()
    unpack = zlib.decompressobj()
    try:
        text = unpack.decompress(base64.b64decode(_str(packed), validate=True), _MAX_READ_BYTES)
    except zlib.error as error:
        raise PlanError(f"not a valid plan: {error}") from error
    if not unpack.eof:
        raise PlanError(f"the packed plan is cut off, or is larger than {_MAX_READ_BYTES} bytes")
    return text


def _plan_in(found: Any) -> GangPlan:
    if found["version"] != _VERSION:
        raise PlanError(f"version: {found['version']!r}: expected {_VERSION}")
    request = _request_in(found["request"])
    count = size(request.gang)
    if not 1 <= count <= MAX_WORKERS:
        raise PlanError(f"request: {count} workers: expected 1 to {MAX_WORKERS}")
    nodes: list[str] = []
    for node, length in found["nodes"]:
        if not 1 <= _int(length) <= count - len(nodes):
            raise PlanError(
                f"nodes: a run of {length} ranks after {len(nodes)} others: expected {count} ranks in all"
            )
        nodes += [_str(node)] * length
    if len(nodes) != count:
        raise PlanError(f"nodes: {len(nodes)} nodes for {count} ranks")
    pods = {_str(uid): _int(rank) for uid, rank in found["pods"].items()}
    if len(set(pods.values())) != len(pods) or not all(rank < count for rank in pods.values()):
        raise PlanError(f"pods: expected different ranks below {count}")
    tier, hypernode = found["tier"], found["hypernode"]
    return GangPlan(
        _str(found["gang"]),
        _str(found["uid"]),
        _str(found["kind"]),
        request,
        Placement(
            tuple(nodes),
            None if tier is None else _int(tier),
            None if hypernode is None else _str(hypernode),
            _cost_in(found, request),
            _bool(found["exact"]),
            zones=_zones_in(found.get("zones", []), count),
        ),
        pods,
        _bool(found.get("moves", False)),
        _int(found["accepted"]) if "accepted" in found else None,
    )


# The plan's own format of a request: stable even if the API's format changes


def _request_out(request: Request) -> Object:
    found: Object = {"gang": _part_out(request.gang), "mode": request.mode}
    if request.avoid:
        found["avoid"] = sorted(request.avoid)
    if request.use_down:
        found["useDown"] = True
    if request.packing != "compact":
        found["packing"] = request.packing
    return found


def _part_out(part: Group | Workers) -> Object:
    elastic = {} if part.elastic is None else {"elastic": [part.elastic.least, part.elastic.most]}
    if isinstance(part, Workers):
        resources = [list(x) for x in part.resources]
        return {"workers": part.count, "role": part.role, "resources": resources, **elastic}
    found: Object = {"groups": part.count, "parts": [_part_out(inner) for inner in part.parts], **elastic}
    if part.tier is not None:
        found["tier"] = part.tier
    if (spread := part.spread) is not None:
        found["spread"] = [spread.most, spread.tier, spread.required]
    if part.preferred is not None:
        found["preferred"] = part.preferred
    if part.even is not None:
        found["even"] = part.even
    return found


def _request_in(found: Any) -> Request:
    mode = found["mode"]
    if mode not in ("hard", "soft"):
        raise PlanError(f"mode: {mode!r}: expected hard or soft")
    gang = _part_in(found["gang"], 0)
    if not isinstance(gang, Group) or gang.count != 1:
        raise PlanError("gang: expected one group")
    avoid = frozenset(map(_str, found.get("avoid", [])))
    packing = found.get("packing", "compact")
    if packing not in ("compact", "fragments"):
        raise PlanError(f"packing: {packing!r}: expected compact or fragments")
    use_down = _bool(found.get("useDown", False))
    return Request(gang, cast("Mode", mode), avoid, use_down, packing=cast("Packing", packing))


def _part_in(found: Any, depth: int) -> Group | Workers:
    if depth > MAX_DEPTH + 1:
        raise PlanError(f"groups are nested more than {MAX_DEPTH + 1} deep")
    if "workers" in found:
        resources = tuple((_str(name), _int(amount)) for name, amount in found["resources"])
        return Workers(_int(found["workers"]), resources, _str(found["role"]), _elastic_in(found))
    parts = found["parts"]
    if not isinstance(parts, list) or not 1 <= len(parts) <= MAX_PARTS:
        raise PlanError(f"parts: expected 1 to {MAX_PARTS}")
    spread: Spread | None = None
    if "spread" in found:
        most, tier, required = found["spread"]
        spread = Spread(_int(most), _int(tier), _bool(required))
    tiers = (_int(found[x]) if x in found else None for x in ("tier", "preferred", "even"))
    tier_of, preferred, even = tiers
    inside = tuple(_part_in(x, depth + 1) for x in parts)
    return Group(_int(found["groups"]), inside, tier_of, spread, preferred, even, _elastic_in(found))


def _elastic_in(found: Any) -> Range | None:
    if "elastic" not in found:
        return None
    least, most = found["elastic"]
    return Range(_int(least), _int(most))


def _zones_out(zones: tuple[Zone | None, ...]) -> list[object]:
    """Runs of ranks: [number of ranks] without a zone, [number of ranks, zone or null, NICs] with one."""
    runs = ((zone, len(list(run))) for zone, run in groupby(zones))
    return [[length] if zone is None else [length, zone.number, list(zone.nics)] for zone, length in runs]


def _zones_in(found: Any, count: int) -> tuple[Zone | None, ...]:
    zones: list[Zone | None] = []
    for length, *rest in found:
        if not 1 <= _int(length) <= count - len(zones):
            raise PlanError(f"zones: a run of {length} ranks after {len(zones)} others: expected {count}")
        zone = None
        if rest:
            number, nics = rest
            zone = Zone(None if number is None else _int(number), tuple(map(_str, nics)))
        zones += [zone] * length
    if zones and len(zones) != count:
        raise PlanError(f"zones: {len(zones)} zones for {count} ranks")
    return tuple(zones)


def _cost_in(found: Any, request: Request) -> Cost:
    top, domains, nodes, degraded, fragmentation = found["cost"]
    above, whole, widths = found.get("costRest", ((), 0, ()))
    left = tuple(map(_int, fragmentation))
    return Cost(
        _int(top),
        tuple(map(_int, domains)),
        _int(nodes),
        _int(degraded),
        left,
        tuple(map(_int, above)),
        _int(whole),
        tuple(map(_int, widths)),
        fragments=left if request.packing == "fragments" else (),
        unpreferred=_int(found.get("unpreferred", 0)),
    )


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_INT:
        raise PlanError(f"{str(value)[:40]!r}: expected a number, 0 or more")
    return value


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise PlanError(f"{str(value)[:40]!r}: expected a text")
    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise PlanError(f"{str(value)[:40]!r}: expected true or false")
    return value
