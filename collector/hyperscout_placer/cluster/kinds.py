"""Which workers of a gang are alike: they need the same and may use the same nodes, whatever their role."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.request import Group, Workers, counted, ends

Kind = tuple[tuple[tuple[str, int], ...], str | None]  # resources, key of the mask


def kind_of(workers: Workers, masks: Mapping[str, Mask]) -> Kind:
    """Equal for workers that are alike."""
    mask = masks.get(workers.role)
    return workers.resources, None if mask is None else mask.key


def reference_of(gang: Group, masks: Mapping[str, Mask]) -> tuple[Workers, int]:
    """The most numerous workers that are alike (the first of equals): one of their parts, their number."""
    total: Counter[Kind] = Counter()
    first: dict[Kind, Workers] = {}
    for workers, count in counted(gang):
        kind = kind_of(workers, masks)
        total[kind] += count
        first.setdefault(kind, workers)
    kind = max(total, key=total.__getitem__)
    return first[kind], total[kind]


def merged(gang: Group, masks: Mapping[str, Mask]) -> Group:
    """The same gang with one role for workers that are alike; neighbours among them are one part.

    A placement of it is one of the gang, because the ranks keep their order.
    """
    roles: dict[Kind, str] = {}
    for workers in ends(gang):
        roles.setdefault(kind_of(workers, masks), workers.role)

    def of(group: Group) -> Group:
        parts: list[Group | Workers] = []
        for part in group.parts:
            if isinstance(part, Group):
                parts.append(of(part))
                continue
            one = replace(part, role=roles[kind_of(part, masks)])
            last = parts[-1] if parts else None
            if isinstance(last, Workers) and (last.resources, last.role) == (one.resources, one.role):
                parts[-1] = replace(one, count=last.count + one.count)
            else:
                parts.append(one)
        return replace(group, parts=tuple(parts))

    return of(gang)
