"""From pods to the gang that they are: whose they are, how many there will be, who has which rank.

Sizes and roles come from the workload (its owner), what a pod needs from the pods themselves where there are
any: admission may have added to them. All of it is pure: who calls reads the owner from the API server.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from hyperscout_collector.gates.gang import Gang
from hyperscout_collector.kube.client import Object


class Owner(NamedTuple):
    """The workload that says what the gang is: of which `path_of` is the address."""

    api_version: str
    kind: str
    namespace: str
    name: str


class Tiers(Protocol):
    """What is used of a Forest."""

    @property
    def top(self) -> int: ...

    def tier(self, text: str) -> int: ...


def is_gated(pod: Object) -> bool:
    """Whether our gate holds it."""
    raise NotImplementedError


def owner_of(pod: Object) -> Owner | None:
    """What has to be read to know the pod's gang: the JobSet above its Job, from labels. None: nothing, its
    labels say it all, or it is a gang of one. Raises GangError for a pod of a controller that is not known.
    """
    raise NotImplementedError


def path_of(owner: Owner) -> str:
    """Where the API server has it: "/apis/batch/v1/namespaces/ns/jobs/name"."""
    raise NotImplementedError


def gang_key(pod: Object) -> str:
    """The key of the gang that it belongs to: `Gang.key`. Raises GangError."""
    raise NotImplementedError


def run_of(pod: Object) -> str:
    """The uid of its owner: `Gang.uid`. "" where there is none."""
    raise NotImplementedError


def slot_of(pod: Object) -> str:
    """Where in the gang it says to belong: a slot of `Gang.ranks` ("worker/3"), or a role ("worker"): any
    slot of that role. See `seats`."""
    raise NotImplementedError


def gang_of(pods: Sequence[Object], owner: Object | None, tiers: Tiers) -> Gang:
    """The gang of pods of one `gang_key` that live. `owner`: what `owner_of` names, None where that is None.

    Where fewer than `ready` pods are given, those that lack are taken to be as the owner's templates say (or
    like the others). Pods of an earlier run of the owner (`run_of`) are passed over. Raises GangError.
    """
    raise NotImplementedError


def seats(gang: Gang, pods: Iterable[Object], taken: Mapping[str, int]) -> dict[str, int]:
    """A rank for each pod, by its uid. `taken`: ranks that are given away already, by pod uid: kept. A pod
    gets the rank of its slot, else the first free one of its role; none is left out of the answer when all
    are taken. The same for any order of the pods."""
    raise NotImplementedError
