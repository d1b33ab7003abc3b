"""Builds a gang from its pods: their owner, the expected number of pods, and the rank of each pod.

Sizes and roles come from the workload (the owner). Resource needs come from the pods if there are any,
because admission may have changed them. Nothing here performs I/O: the caller reads the owner from the API
server.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hyperscout_formats.text.counts import count
from hyperscout_formats.text.host_list import natural_key
from hyperscout_kubernetes.client import Object
from hyperscout_placer.cluster.forest import Tiers
from hyperscout_placer.cluster.quantity import Needs, QuantityError, is_extended, needs
from hyperscout_placer.cluster.request import MAX_KINDS, MAX_WORKERS, Workers
from hyperscout_placer.demands.eligible import DEMANDS, demands_key, excess

from hyperscout_gates.state.gang import GANG_LABEL, GROUPS, PREFER_GROUPS, SIZE_LABEL, Gang, GangError
from hyperscout_gates.workloads.constraints import (
    check_names,
    constraints_of,
    least_of,
    request_of,
)
from hyperscout_gates.workloads.kinds import BY_GANG_KIND
from hyperscout_gates.workloads.membership import Membership, membership
from hyperscout_gates.workloads.objects import is_gated, is_number, mapping, text
from hyperscout_gates.workloads.roles import WORKER, Role, Workload, gated_ones, roles_of, with_least


@dataclass(frozen=True, slots=True)
class _Filled:
    """A role and the resource needs of its pods."""

    role: Role
    spec: Object
    needs: Needs


def gang_of(pods: Sequence[Object], owner: Object | None, tiers: Tiers, running: int = 0) -> Gang:
    """Return the gang of live pods that share one `Membership.key`. Raises GangError.

    `owner`: the object that `Membership.owner` names; None if that is None. Missing pods are assumed to
    match the owner's templates, or the other pods. Pods of an earlier run of the owner are
    ignored. Roles with equal needs are merged in a gang of many roles, or with groups of ranks. `running`:
    number of pods of the gang beside `pods`.
    """
    members = sorted(((membership(pod), pod) for pod in pods), key=lambda x: natural_key(_name(x[1])))
    if not members:
        raise GangError("a gang without pods")
    first = members[0][0]
    for other, pod in members:
        if other.key != first.key:
            raise GangError(f"pod {_name(pod)}: of gang {other.key}, not of {first.key}")
        if other.owner and first.owner and other.owner.name != first.owner.name:
            raise GangError(
                f"pod {_name(pod)}: of {first.kind} {other.owner.name}, not of {first.owner.name} as the "
                f"other pods of gang {first.key}: correct its labels"
            )
    what = f"{first.kind} {first.namespace}/{first.owner.name if first.owner else first.name}"
    if first.owner is None:
        uid, roles = first.run, _of_labels(first, members)
        annotated = None
    else:
        if owner is None:
            raise GangError(f"{what}: it is not there, or may not be read")
        metadata = mapping(owner.get("metadata"))
        uid, annotated = text(metadata.get("uid")), (what, mapping(metadata.get("annotations")))
        members = [(m, pod) for m, pod in members if not (m.run and uid and m.run != uid)]
        seen = {m.slot for m, _ in members}
        workload = Workload(what, owner, first.name, seen, len(members) + running)
        roles = roles_of(workload, BY_GANG_KIND[first.kind].roles)
    filled = _filled(what, roles, members)
    for one in filled:
        if words := excess(one.spec):
            raise GangError(f"{what}: role {one.role.name}: {words}")
    constraints = constraints_of(annotated, ((f"pod {_name(pod)}", _annotations(pod)) for _, pod in members))
    if gated := [(f"pod {_name(pod)}", _annotations(pod)) for _, pod in members if is_gated(pod)]:
        check_names([*([annotated] if annotated else ()), *gated])
    number = sum(one.role.size for one in filled)
    last = with_least([one.role for one in filled], least_of(constraints, number))[-1]
    missing = None if last.least is None else last.size - min(last.size, last.least)
    ready = sum(one.role.size for one in filled if not one.role.later) or filled[0].role.size
    vendors = any(_asks_vendor(one.needs) for one in filled)

    # The role of a rank is in the placement. Many roles, or groups across them, are too much for the placer.
    apart = len(filled) <= MAX_KINDS and constraints.keys().isdisjoint((GROUPS, PREFER_GROUPS))
    workers = [Workers(x.role.size, x.needs, x.role.name) for x in filled] if apart else _merged(filled)
    parts = [(x, not vendors or _asks_vendor(x.resources)) for x in workers]
    slots = (slot for one in filled for slot in one.role.slots())
    return Gang(
        key=first.key,
        kind=first.kind,
        uid=uid,
        request=request_of(what, parts, constraints, tiers, missing),
        ranks={slot: rank for rank, slot in enumerate(slots)},
        templates={one.role.name: one.spec for one in filled},
        ready=ready,
        least=ready if last.later else ready - (missing or 0),
    )


def _of_labels(first: Membership, members: Sequence[tuple[Membership, Object]]) -> list[Role]:
    """Return the roles of a single pod, or of pods with labels that define the gang."""
    if first.kind == "Pod":
        return [Role(WORKER, (1,), members[0][1])]
    number, says = 0, ""
    for _, pod in members:
        value = text(mapping(mapping(pod.get("metadata")).get("labels")).get(SIZE_LABEL))
        if not (is_number(value) and 1 <= int(value) <= MAX_WORKERS):
            raise GangError(
                f"pod {_name(pod)}: label {SIZE_LABEL}: {value!r}: "
                f'write how many pods are in {GANG_LABEL}={first.name}, as "4"'
            )
        if says and number != int(value):
            raise GangError(
                f"pod {_name(pod)}: label {SIZE_LABEL}: {value}, but pod {says} of gang {first.name} "
                f"says {number}: write the same on all"
            )
        number, says = int(value), _name(pod)
    if len(members) > number:
        raise GangError(
            f"gang {first.namespace}/{first.name}: it has {count(len(members), 'pod')}, and their label "
            f"{SIZE_LABEL} says {number}: write {len(members)}, or another {GANG_LABEL} on some"
        )
    counts = Counter(member.slot for member, _ in members)
    # Missing pods count for the last role by name until they appear.
    counts[max(counts)] += number - len(members)
    return [Role(role, (counts[role],), {}, seated=False) for role in sorted(counts)]


def _filled(what: str, roles: Sequence[Role], members: Sequence[tuple[Membership, Object]]) -> list[_Filled]:
    """Return the roles with gated pods, and the needs of those pods. Raises GangError."""
    by_role: dict[str, list[Object]] = {}
    for member, pod in members:
        by_role.setdefault(member.slot.partition("/")[0], []).append(pod)
    ours = gated_ones([(role.name, role.template) for role in roles])
    ours |= {role for role, pods in by_role.items() if any(is_gated(pod) for pod in pods)}
    found: list[_Filled] = []
    for role in roles:
        if role.name not in ours:
            continue
        pods = by_role.get(role.name, [])
        if pods:
            spec, need = mapping(pods[0].get("spec")), _needs_of(pods[0])
            _alike(what, role.name, pods, need)
        else:
            spec = mapping(role.template.get("spec"))
            try:
                need = needs(spec)
            except QuantityError as error:
                raise GangError(f"{what}: template of {role.name}: spec.{error}") from error
        found.append(_Filled(role, spec, need))
    return found


def _alike(what: str, role: str, pods: Sequence[Object], need: Needs) -> None:
    """Check that pods of one role are interchangeable. Raises GangError."""
    first = mapping(pods[0].get("spec"))
    for pod in pods[1:]:
        spec = mapping(pod.get("spec"))
        if _needs_of(pod) != need or any(spec.get(field) != first.get(field) for field in DEMANDS):
            raise GangError(
                f"{what}: pods {_name(pods[0])} and {_name(pod)} are both {role} but differ in resources, "
                "nodeSelector, affinity or tolerations: write the same in both, or make them of two roles"
            )


def _merged(roles: Sequence[_Filled]) -> list[Workers]:
    """Return workers in rank order, with roles of equal needs that may run on the same nodes merged.

    A merged role has the name of the largest one and the number of others, for example "a+3", so that no role
    has ranks of another. Roles in which a pod takes any rank stay separate, because ranks are assigned by
    role name.
    """
    kinds = [(x.needs, demands_key(x.spec), "" if x.role.seated else x.role.name) for x in roles]
    number = Counter(kinds)
    largest: dict[tuple[Needs, str, str], Role] = {}
    for kind, one in zip(kinds, roles, strict=True):
        if kind not in largest or one.role.size > largest[kind].size:
            largest[kind] = one.role
    workers: list[Workers] = []
    for kind, one in zip(kinds, roles, strict=True):
        more = f"+{number[kind] - 1}" if number[kind] > 1 else ""
        name, before = f"{largest[kind].name}{more}", 0
        if workers and workers[-1].role == name:
            before = workers.pop().count
        workers.append(Workers(before + one.role.size, one.needs, name))
    return workers


def _needs_of(pod: Object) -> Needs:
    kept: Needs | None = pod.get("needs")
    if kept is not None:
        return kept
    try:
        return needs(mapping(pod.get("spec")))
    except QuantityError as error:
        raise GangError(f"pod {_name(pod)}: spec.{error}") from error


def _asks_vendor(need: Needs) -> bool:
    return any(is_extended(name) for name, _ in need)


def _annotations(pod: Object) -> Object:
    return mapping(mapping(pod.get("metadata")).get("annotations"))


def _name(pod: Object) -> str:
    metadata = mapping(pod.get("metadata"))
    return f"{text(metadata.get('namespace'))}/{text(metadata.get('name'))}"
