"""Roles of a gang: how many pods each role has, in which order of ranks, and which roles start later."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from hyperscout_kubernetes.client import Object
from hyperscout_placer.cluster.request import MAX_WORKERS

from hyperscout_gates.state.gang import GangError
from hyperscout_gates.workloads.objects import gated, mapping

WORKER = "worker"  # the name of a single role
LEADER = "leader"


@dataclass(frozen=True, slots=True)
class Role:
    """A role. `template`: of its pods (metadata and spec).

    `counts`: the number of pods, or of replicas and of pods in each. `later`: its pods are created only when
    others run, or by another controller. `seated`: each pod carries its own slot. `first`: number of the
    first pod. `least`: number of pods that are enough; None = all. It counts for the last role.
    """

    name: str
    counts: tuple[int, ...]
    template: Object
    later: bool = False
    seated: bool = True
    first: int = 0
    least: int | None = None

    @property
    def size(self) -> int:
        """The number of pods."""
        return prod(self.counts)

    def slots(self) -> Iterator[str]:
        """Yield the slots in rank order, for example "worker/0" or "workers/0/0"."""
        for index in product(*(range(self.first, self.first + count) for count in self.counts)):
            yield "/".join((self.name, *map(str, index)))


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload as read from the API server.

    `what`: its kind and name for messages. `gang`: name of the gang; a workload may have several. `seen`:
    the slots that pods carry. `pods`: number of pods of the gang that wait or run.
    """

    what: str
    owner: Object
    gang: str
    seen: Collection[str]
    pods: int

    @property
    def name(self) -> str:
        return str(mapping(self.owner.get("metadata")).get("name"))

    @property
    def spec(self) -> Object:
        return mapping(self.owner.get("spec"))

    @property
    def annotations(self) -> Object:
        return mapping(mapping(self.owner.get("metadata")).get("annotations"))


def with_least(roles: Sequence[Role], least: int | None) -> list[Role]:
    """Return the roles with `least` pods of all of them together as the minimum; None = no minimum is given.

    Only pods of the last role can be missing, and at least one of them is there.
    """
    if not roles or least is None:
        return list(roles)
    *others, last = roles
    number = max(1, least - sum(role.size for role in others))
    return [*others, replace(last, least=min(number, last.size))]


# Returns the roles of a gang in rank order. Raises GangError.
RolesReader = Callable[[Workload], Iterable[Role]]


def roles_of(workload: Workload, reader: RolesReader) -> list[Role]:
    """Return the roles in rank order, without roles that have no pods. Raises GangError."""
    roles: list[Role] = []
    names: set[str] = set()
    total = 0
    for role in reader(workload):
        if role.name in names:
            raise GangError(f"{workload.what}: two of its roles are called {role.name!r}: rename one")
        names.add(role.name)
        total += role.size
        if total > MAX_WORKERS:
            raise GangError(
                f"{workload.what}: {role.name}: more than {MAX_WORKERS} pods with the roles before it: "
                "lower the counts"
            )
        if role.size:
            roles.append(role)
    if not roles:
        raise GangError(f"{workload.what}: it has no pods to place: its counts are 0")
    return roles


def gated_ones(templates: list[tuple[str, Object]]) -> set[str]:
    """Return the roles with gated pods: those with the gate in their templates.

    If no template has it, an admission policy adds it to the pods of all roles.
    """
    named = {name for name, template in templates if gated(template.get("spec"))}
    return named or {name for name, _ in templates}


class Stages:
    """Which roles wait for a role of the gang, directly or through a chain.

    Only waits for a part of the gang count: pods without the gate may run and end before the gang is placed.
    """

    def __init__(self, templates: Iterable[tuple[str, Object]], *, in_order: bool = False) -> None:
        self._in_gang = gated_ones(list(templates))
        self._in_order = in_order
        self._waits: dict[str, bool] = {}
        self._earlier = False

    def waits(self, name: str, after: Iterable[str]) -> bool:
        """Return whether the next role waits. `after`: names of the roles on which it depends."""
        found = self._in_order and self._earlier
        found = found or any(self._waits.get(x) or x in self._in_gang for x in after)
        self._waits[name] = found
        self._earlier = self._earlier or name in self._in_gang
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._waits
