"""Bodies of HyperNodes for the API server, and the merge of their conditions. Performs no I/O."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyperscout_formats.text.counts import count
from hyperscout_kubernetes.paths import api_path
from hyperscout_runtime.units import rfc3339
from hyperscout_topology.health import HEALTHY
from hyperscout_topology.topology import Condition

from hyperscout_publish.hypernodes.plan import (
    EXACT,
    Delete,
    LetGo,
    Members,
    Present,
    Write,
    members_of,
    name_of,
)
from hyperscout_publish.hypernodes.wanted import (
    API_VERSION,
    KIND,
    MEASURED_ANNOTATIONS,
    NODES_ANNOTATION,
    OWNER,
    OWNER_LABELS,
    Wanted,
)

COLLECTION = api_path(API_VERSION, "hypernodes")
OURS = frozenset(HEALTHY)  # condition types that this collector writes
_MAX_MESSAGE = 32768  # metav1.Condition


def path_of(name: str, subresource: str | None = None) -> str:
    """Return the path of a HyperNode. Raises RejectedError: not a valid name."""
    return api_path(API_VERSION, "hypernodes", name, subresource=subresource)


def reference(name: str, found: dict[str, Any] | None) -> dict[str, str]:
    """Return a reference to a HyperNode for an Event. `found`: the object, or None if it does not exist."""
    uid = found["metadata"].get("uid", "") if found else ""
    return {"apiVersion": API_VERSION, "kind": KIND, "name": name, "uid": uid}


def kept(found: dict[str, Any]) -> dict[str, Any]:
    """Return a HyperNode without managedFields, with two fields derived from them.

    `editor`: the last other manager that changed it. `owned`: the annotations that this collector owns.
    """
    metadata = dict(found["metadata"])
    fields: Sequence[Mapping[str, Any]] = metadata.pop("managedFields", None) or ()
    if fields:
        found = {**found, "owned": _owned(fields)}
    others = [f for f in fields if f.get("manager") != "hyperscout" and not f.get("subresource")]
    newest = max(others, key=lambda f: str(f.get("time", "")), default=None)
    return {**found, "metadata": metadata, "editor": str(newest.get("manager", "")) if newest else ""}


def _owned(fields: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    owned: set[str] = set()
    for f in fields:
        if f.get("manager") == OWNER and not f.get("subresource"):
            metadata = (f.get("fieldsV1") or {}).get("f:metadata") or {}
            owned.update(metadata.get("f:annotations") or ())
    return tuple(key for key in MEASURED_ANNOTATIONS if f"f:{key}" in owned)


def body_of(
    write: Write, there: Present | None, found: Mapping[str, Any] | None, without: Sequence[str]
) -> Any:
    """Return the apply body of a write that is not a deletion. `without`: fields that the CRD's spec lacks.

    An update contains uid and resourceVersion of the object that was read. If the object has changed or was
    recreated since, the server refuses the update and the object is read again.
    """
    metadata: dict[str, Any] = {"name": name_of(write), "labels": dict(OWNER_LABELS)}
    if found is not None:
        metadata |= {key: found["metadata"][key] for key in ("uid", "resourceVersion")}
    if isinstance(write, LetGo):
        if there is None:
            raise ValueError(f"{write.name} does not exist")
        count, spec = there.nodes_annotation, _spec(there.tier, there.tier_name, _listed(write.left))
        annotations = dict(there.annotations)
    elif isinstance(write, Delete):
        raise TypeError("a deletion has no body")
    else:
        w = write.wanted
        count, spec = str(w.count), _spec(w.tier, w.tier_name, w.members())
        annotations = dict(w.annotations)
    if count:
        annotations[NODES_ANNOTATION] = count
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": {key: value for key, value in spec.items() if key not in without},
    }


def _spec(tier: int, tier_name: str, members: list[dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = {"tier": tier}
    if tier_name:
        spec["tierName"] = tier_name
    if members:  # the schema rejects an empty list
        spec["members"] = members
    return spec


def _listed(members: Members) -> list[dict[str, Any]]:
    return [
        {"type": kind, "selector": {EXACT: {"name": value}} if how == EXACT else json.loads(value)}
        for kind, how, value in sorted(members)
    ]


@dataclass(frozen=True, slots=True)
class Flip:
    """A condition that changed its status or is unhealthy from the start. `before` is "" if it was unset."""

    condition: Condition
    before: str

    @property
    def is_good(self) -> bool:
        return self.condition.status == HEALTHY[self.condition.type]


def merged(
    found: Mapping[str, Any], conditions: Sequence[Condition], now_ns: int
) -> tuple[list[dict[str, Any]], list[Flip]] | None:
    """Return the new conditions of `found` and the status changes; None if it has these conditions already.

    The conditions of other writers are preserved. `lastTransitionTime` changes only with the status,
    whichever writer set it before.
    """
    old: Sequence[Mapping[str, Any]] = (found.get("status") or {}).get("conditions") or ()
    before = {c.get("type"): c for c in old}
    generation = found["metadata"].get("generation", 0)
    flips: list[Flip] = []
    ours = {}
    for c in conditions:
        was = before.get(c.type, {})
        same = was.get("status") == c.status
        since = was.get("lastTransitionTime") if same else None
        ours[c.type] = {
            "type": c.type,
            "status": c.status,
            "reason": c.reason,
            "message": c.message[:_MAX_MESSAGE],
            "lastTransitionTime": since or rfc3339(c.since_ns or now_ns),
            "observedGeneration": generation,
        }
        if not same and (was or c.status != HEALTHY[c.type]):
            flips.append(Flip(c, str(was.get("status", ""))))
    new = [dict(c) for c in old if c.get("type") not in OURS] + [ours[c.type] for c in conditions]
    if sorted(new, key=_by_type) == sorted(map(dict, old), key=_by_type):
        return None
    return new, flips


def _by_type(condition: Mapping[str, Any]) -> str:
    return str(condition.get("type"))


def status_body(found: Mapping[str, Any], conditions: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the apply body for the status, at the resourceVersion that `conditions` were merged with."""
    metadata = {key: found["metadata"][key] for key in ("name", "uid", "resourceVersion")}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "status": {"conditions": conditions},
    }


def differences(there: Mapping[str, Present], wanted: Mapping[str, Wanted]) -> Iterator[str]:
    """Yield the changes that publishing would make, as text: `+` new, `-` removed, `~` changed."""
    for name in sorted(wanted.keys() | there.keys()):
        p, w = there.get(name), wanted.get(name)
        if w is None:
            if p is not None and p.ours:
                yield f"- hypernode {name}  tier {p.tier} {p.tier_name}".rstrip()
            continue
        members = members_of(w.members())
        if p is None:
            yield f"+ hypernode {name}  tier {w.tier} {w.tier_name}  {count(w.count, 'node')}"
            continue
        changes = [f"+ {m.kind} {m.value}" for m in sorted(members - p.members)]
        changes += [f"- {m.kind} {m.value}" for m in sorted(p.members - members)]
        if (p.tier, p.tier_name) != (w.tier, w.tier_name):
            changes.append(f"tier {p.tier} {p.tier_name} -> {w.tier} {w.tier_name}")
        if changes:
            yield f"~ hypernode {name}: {'; '.join(changes)}"
