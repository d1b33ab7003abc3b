"""Which gang a pod belongs to, and its slot there, read from the labels and owners of the pod alone.

controller            its pods carry
Job                   batch.kubernetes.io/job-completion-index (Indexed only)
JobSet                jobset.sigs.k8s.io/jobset-name, .../replicatedjob-name, .../job-index, and the Job's
Kubeflow training     training.kubeflow.org/job-name, .../replica-type or .../job-role, .../replica-index
LeaderWorkerSet       leaderworkerset.sigs.k8s.io/name, .../group-index, .../worker-index
any, or none          hyperscout.io/gang, hyperscout.io/gang-size: these take precedence over all others
"""

from typing import Any, NamedTuple

from hyperscout_kubernetes.client import Object
from hyperscout_kubernetes.errors import RejectedError
from hyperscout_kubernetes.paths import api_path

from hyperscout_gates.state.gang import GANG_LABEL, GATE, ROLE_LABEL, SIZE_LABEL, GangError

WORKER = "worker"  # the name of a single role
LEADER = "leader"

JOBSET = "jobset.sigs.k8s.io"
LEADER_WORKER_SET = "leaderworkerset.sigs.k8s.io"
TRAINING = "training.kubeflow.org"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"

# API group -> kind -> plural: objects that the collector may have to read ("get") to know a gang.
READ = {
    "batch": {"Job": "jobs"},
    "jobset.x-k8s.io": {"JobSet": "jobsets"},
    "leaderworkerset.x-k8s.io": {"LeaderWorkerSet": "leaderworkersets"},
    "kubeflow.org": {
        "MPIJob": "mpijobs",
        "PyTorchJob": "pytorchjobs",
        "TFJob": "tfjobs",
        "XGBoostJob": "xgboostjobs",
        "PaddleJob": "paddlejobs",
        "JAXJob": "jaxjobs",
    },
}
# Pods of these controllers are independent: each is a gang of its own unless labels define one.
_ALONE = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Node"})


class Owner(NamedTuple):
    """The workload that defines the gang. `path_of` returns its path on the API server."""

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


def is_gated(pod: Object) -> bool:
    """Return whether the pod has this collector's scheduling gate."""
    return gated(pod.get("spec"))


def gated(pod_spec: Any) -> bool:
    """Return whether a pod of this spec has this collector's scheduling gate."""
    gates = mapping(pod_spec).get("schedulingGates")
    return isinstance(gates, list) and any(mapping(gate).get("name") == GATE for gate in gates)


def path_of(owner: Owner) -> str:
    """Return the path on the API server, for example "/apis/batch/v1/namespaces/ns/jobs/name".

    Raises GangError: the pod names an owner that cannot exist.
    """
    group = owner.api_version.partition("/")[0]
    plural = READ[group][owner.kind]
    try:
        return api_path(owner.api_version, plural, owner.name, namespace=owner.namespace)
    except RejectedError as error:
        raise GangError(f"its {owner.kind} cannot exist: {error}") from error


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
    for of in (_of_leader_worker_set, _of_jobset, _of_training):
        found = of(namespace, name, labels, controller)
        if found is not None:
            return found
    kind = text(controller.get("kind"))
    group = text(controller.get("apiVersion")).partition("/")[0]
    if kind == "Job" and group == "batch":
        job, run = text(controller.get("name")), text(controller.get("uid"))
        owner = Owner("batch/v1", "Job", namespace, job)
        return Membership(owner, "Job", namespace, job, run, _slot(WORKER, labels.get(COMPLETION_INDEX)))
    if not controller or kind in _ALONE:
        return Membership(None, "Pod", namespace, name, text(metadata.get("uid")), _slot(WORKER, "0"))
    raise GangError(
        f"pod {namespace}/{name}: of {kind} {text(controller.get('name'))}, and hyperscout cannot read "
        f'the size of this kind: label its pods {GANG_LABEL}: <a name> and {SIZE_LABEL}: "<how many>"'
    )


def _of_leader_worker_set(namespace: str, pod: str, labels: Object, controller: Object) -> Membership | None:
    """Return the place of a LeaderWorkerSet's pod. Each group is a gang because groups run independently."""
    name = text(labels.get(f"{LEADER_WORKER_SET}/name"))
    if not name:
        return None
    group = _index(namespace, pod, labels, f"{LEADER_WORKER_SET}/group-index")
    index = _index(namespace, pod, labels, f"{LEADER_WORKER_SET}/worker-index")
    owner = Owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", namespace, name)
    # Its pods belong to StatefulSets, so they do not carry the uid of the LeaderWorkerSet.
    slot = _slot(WORKER if int(index) else LEADER, index)
    return Membership(owner, "LeaderWorkerSet", namespace, f"{name}-{group}", "", slot)


def _of_jobset(namespace: str, pod: str, labels: Object, controller: Object) -> Membership | None:
    name = text(labels.get(f"{JOBSET}/jobset-name"))
    if not name:
        return None
    role = text(labels.get(f"{JOBSET}/replicatedjob-name"))
    if not role:
        raise GangError(f"pod {namespace}/{pod}: label {JOBSET}/replicatedjob-name: missing")
    job = _index(namespace, pod, labels, f"{JOBSET}/job-index")
    owner = Owner("jobset.x-k8s.io/v1alpha2", "JobSet", namespace, name)
    run = text(labels.get(f"{JOBSET}/jobset-uid"))
    slot = _slot(f"{role}/{job}", labels.get(COMPLETION_INDEX))
    if slot.count("/") < 2:  # the Job is not Indexed
        slot = role
    return Membership(owner, "JobSet", namespace, name, run, slot)


def _of_training(namespace: str, pod: str, labels: Object, controller: Object) -> Membership | None:
    """Return the place of a training job's pod.

    A PyTorchJob and similar kinds own their pods. The launcher of an MPIJob is a pod of a Job of the MPIJob.
    """
    name = text(labels.get(f"{TRAINING}/job-name"))
    if not name:
        return None
    kind, version, run = (text(controller.get(field)) for field in ("kind", "apiVersion", "uid"))
    if kind not in READ["kubeflow.org"] or not version.startswith("kubeflow.org/"):
        if text(labels.get(f"{TRAINING}/operator-name")) != "mpi-operator":
            return None
        kind, version, run = "MPIJob", "kubeflow.org/v2beta1", ""
    role = text(labels.get(f"{TRAINING}/replica-type")) or text(labels.get(f"{TRAINING}/job-role"))
    if not role:
        raise GangError(f"pod {namespace}/{pod}: label {TRAINING}/replica-type: missing")
    owner = Owner(version, kind, namespace, name)
    # A launcher has no index, or index 0 like a worker. It is the only pod of its role.
    slot = _slot(role, labels.get(f"{TRAINING}/replica-index", "0"))
    return Membership(owner, kind, namespace, name, run, slot)


def _slot(front: str, index: Any) -> str:
    index = text(index)
    return f"{front}/{int(index)}" if index.isascii() and index.isdigit() and len(index) < 10 else front


def _index(namespace: str, pod: str, labels: Object, label: str) -> str:
    value = text(labels.get(label))
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise GangError(f"pod {namespace}/{pod}: label {label}: {value!r}: expected a number")
    return str(int(value))


def _controller(metadata: Object) -> Object:
    references = metadata.get("ownerReferences")
    for reference in references if isinstance(references, list) else []:
        if mapping(reference).get("controller") is True:
            found: Object = reference
            return found
    return {}


def mapping(value: Any) -> Object:
    """Return `value` if it is a dict, else {}."""
    return value if isinstance(value, dict) else {}


def text(value: Any) -> str:
    """Return `value` if it is a string, else ""."""
    return value if isinstance(value, str) else ""
