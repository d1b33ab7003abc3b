"""Which gang a pod belongs to, and its slot there, read from the pod alone.

`kinds.KINDS` lists the workloads and what their pods carry. The labels hyperscout.io/gang and
hyperscout.io/gang-size take precedence over all workloads.
"""

from collections.abc import Iterator
from typing import NamedTuple

from hyperscout_kubernetes.client import Object
from hyperscout_kubernetes.errors import RejectedError
from hyperscout_kubernetes.paths import api_path

from hyperscout_gates.state.gang import GANG_LABEL, ROLE_LABEL, SIZE_LABEL, GangError
from hyperscout_gates.workloads.kinds import BY_GROUP_AND_KIND, KINDS, WorkloadKind
from hyperscout_gates.workloads.objects import is_number, mapping, text
from hyperscout_gates.workloads.roles import LEADER, WORKER

# Pods of these controllers are independent: each is a gang of its own unless labels define one.
_ALONE = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Node"})
_WITH_SIGN = tuple(kind for kind in KINDS if kind.sign)
_SIGNS = frozenset(kind.sign for kind in _WITH_SIGN)
_WITH_FIELD = tuple(kind for kind in KINDS if kind.field)


class Owner(NamedTuple):
    """The workload that defines the gang. `paths_of` returns its paths on the API server."""

    api_version: str
    kind: str
    namespace: str
    name: str


class Membership(NamedTuple):
    """A pod's place in a gang.

    `owner`: the object to read to know the gang, for example the JobSet above a Job; None if labels define
    the gang or the pod is a gang of one. `run`: the owner's uid (`Gang.uid`), "" if there is none or the pod
    does not carry it. `slot`: the pod's position, a slot of `Gang.ranks` ("worker/3"), or only a role
    ("worker"). A pod with only a role takes any rank of that role.
    """

    owner: Owner | None
    kind: str
    namespace: str
    name: str
    run: str
    slot: str

    @property
    def key(self) -> str:
        """The key of the gang (`Gang.key`)."""
        return f"{self.namespace}/{self.kind}/{self.name}"


def paths_of(owner: Owner) -> Iterator[str]:
    """Yield the paths on the API server, for example "/apis/batch/v1/namespaces/ns/jobs/name".

    There is one path for each API version that the object may have. Raises GangError: the pod names an owner
    that cannot exist.
    """
    kind = kind_of(owner)
    for version in dict.fromkeys((owner.api_version, *kind.versions[1:])):
        try:
            yield api_path(version, kind.plural, owner.name, namespace=owner.namespace)
        except RejectedError as error:
            raise GangError(f"its {owner.kind} cannot exist: {error}") from error


def kind_of(owner: Owner) -> WorkloadKind:
    return BY_GROUP_AND_KIND[_group_of(owner.api_version), owner.kind]


def membership(pod: Object) -> Membership:
    """Return the place of a pod in its gang. Raises GangError, also for a pod of an unknown controller."""
    metadata = mapping(pod.get("metadata"))
    name, namespace = text(metadata.get("name")), text(metadata.get("namespace"))
    if not name or not namespace:
        raise GangError("a pod without metadata.name and metadata.namespace")
    labels = mapping(metadata.get("labels"))
    if gang := text(labels.get(GANG_LABEL)):
        role = text(labels.get(ROLE_LABEL)) or WORKER
        return Membership(None, "Gang", namespace, gang, "", role)
    controller = _controller(metadata)
    kind_of_controller = text(controller.get("kind"))
    above = BY_GROUP_AND_KIND.get((_group_of(text(controller.get("apiVersion"))), kind_of_controller))
    signed = None if above is not None and not above.inner else _signed(labels)
    kind = signed or above or next((x for x in _WITH_FIELD if _in_spec(pod, x)), None)
    if kind is not None:
        signs = _Signs(kind, namespace, name, labels, pod)
        return signs.membership(controller if kind is above else {})
    if not controller or kind_of_controller in _ALONE:
        return Membership(None, "Pod", namespace, name, text(metadata.get("uid")), f"{WORKER}/0")
    raise GangError(
        f"pod {namespace}/{name}: of {kind_of_controller} {text(controller.get('name'))}, and hyperscout "
        f'cannot read the size of this kind: label its pods {GANG_LABEL}: <a name> and {SIZE_LABEL}: "<how '
        'many>"'
    )


def _group_of(api_version: str) -> str:
    return api_version.partition("/")[0]


def _signed(labels: Object) -> WorkloadKind | None:
    """Return the kind whose sign is among the labels."""
    if _SIGNS.isdisjoint(labels):
        return None
    for kind in _WITH_SIGN:
        value = text(labels.get(kind.sign))
        if value and value == (kind.sign_value or value):
            return kind
    return None


def _in_spec(pod: Object, kind: WorkloadKind) -> str:
    """Return the value of `kind.field`, the name of the workload; "" if there is none."""
    if not kind.field:
        return ""
    found = pod.get("spec")
    for field in kind.field:
        found = mapping(found).get(field)
    return text(found)


class _Signs(NamedTuple):
    """What a pod of a kind of workload carries."""

    kind: WorkloadKind
    namespace: str
    pod_name: str
    labels: Object
    pod: Object

    def membership(self, controlled: Object) -> Membership:
        """Return the pod's place. `controlled`: the reference to the workload, if it is the controller."""
        kind = self.kind
        if controlled:
            name = text(controlled.get("name"))
        else:
            name = _in_spec(self.pod, kind) or self._must(kind.name or kind.sign)
        gang = self._gang_of(name) if kind.gang else name
        if kind.number:
            gang = f"{gang}-{self._number(kind.number)}"
        version = text(controlled.get("apiVersion")) or kind.versions[0]
        run = text(controlled.get("uid")) or (text(self.labels.get(kind.run)) if kind.run else "")
        owner = Owner(version, kind.kind, self.namespace, name)
        return Membership(owner, kind.gang_kind, self.namespace, gang, run, self._slot())

    def _gang_of(self, owner: str) -> str:
        """Return the gang that the label names. It must be the owner's, because it is the key of the gang."""
        gang = self._must(self.kind.gang)
        if not is_number(gang.removeprefix(f"{owner}-").partition("-")[0]) or not gang.startswith(
            f"{owner}-"
        ):
            raise GangError(
                f"pod {self.namespace}/{self.pod_name}: label {self.kind.gang}: {gang!r}: expected a gang of "
                f"{self.kind.kind} {owner}, like {owner}-0"
            )
        return gang

    def _slot(self) -> str:
        kind = self.kind
        role = self._role()
        if not kind.index:
            return role
        index = [self.labels.get(label) for label in kind.index]
        index[: kind.required] = [self._number(label) for label in kind.index[: kind.required]]
        if kind.last and index[-1] is None:
            index[-1] = kind.last
        numbers = [str(int(x)) for x in index if is_number(x)]
        if kind.leads and numbers == ["0"]:
            role = LEADER
        # A pod that lacks a part of its position takes any rank of its role.
        return "/".join((role, *numbers)) if len(numbers) == len(kind.index) else role

    def _role(self) -> str:
        for label in self.kind.role:
            if role := text(self.labels.get(label)):
                return role
        return self._must(self.kind.role[0]) if self.kind.role else WORKER

    def _must(self, label: str) -> str:
        if value := text(self.labels.get(label)):
            return value
        raise GangError(f"pod {self.namespace}/{self.pod_name}: label {label}: missing")

    def _number(self, label: str) -> str:
        value = text(self.labels.get(label))
        if not is_number(value):
            raise GangError(
                f"pod {self.namespace}/{self.pod_name}: label {label}: {value!r}: expected a number"
            )
        return str(int(value))


def _controller(metadata: Object) -> Object:
    references = metadata.get("ownerReferences")
    for reference in references if isinstance(references, list) else []:
        if mapping(reference).get("controller") is True:
            found: Object = reference
            return found
    return {}
