"""The kinds of workloads whose pods are gangs: one entry each in `KINDS`.

An entry says which labels of a pod name its workload, its gang, its role and its position, and which function
reads the roles from the workload. The names are those of these versions:

Job, PodGroup      Kubernetes v1.36.3 and v1.37.0: k8s.io/api, batch/v1, core/v1, scheduling/v1alpha2, v1beta1
JobSet             kubernetes-sigs/jobset 08dfbdfd: api/jobset/v1alpha2/jobset_types.go
LeaderWorkerSet    kubernetes-sigs/lws 060ab4d: api/leaderworkerset/v1/leaderworkerset_types.go
MPIJob v2beta1     kubeflow/mpi-operator caa3c47: pkg/apis/kubeflow/v2beta1
other kubeflow.org kubeflow/training-operator 186ac6c6: pkg/apis/kubeflow.org/v1/common_types.go
RayCluster         ray-project/kuberay feeaf72f: ray-operator/controllers/ray/{utils/constant,common/pod}.go
Volcano's Job      volcano-sh/volcano ed72c7c8: pkg/controllers/job/job_controller_util.go
PodCliqueSet       ai-dynamo/grove fcc3b3bb: operator/api/common/{labels,namegen}.go
"""

from dataclasses import dataclass

from hyperscout_gates.workloads.kubernetes_roles import (
    of_job,
    of_jobset,
    of_leader_worker_set,
    of_pod_group,
)
from hyperscout_gates.workloads.operator_roles import (
    of_pod_clique_set,
    of_ray_cluster,
    of_training,
    of_volcano_job,
)
from hyperscout_gates.workloads.roles import RolesReader

_JOBSET = "jobset.sigs.k8s.io"
_LEADER_WORKER_SET = "leaderworkerset.sigs.k8s.io"
_TRAINING = "training.kubeflow.org"
_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """A kind of workload, and how its pods show their place. Names are labels of pods unless said otherwise.

    `versions`: API versions, the preferred one first. A pod whose controller is the workload names the
    version itself. A pod is of this kind if its controller is, unless the kind is `inner`; or else if it has
    the label `sign` (with the value `sign_value`, if there is one); or else if its controller is; or else if
    it has the field `field` of its spec: the workload's name.
    """

    kind: str
    plural: str
    versions: tuple[str, ...]
    roles: RolesReader
    called: str = ""  # kind in the names of gangs, if another API group has the same kind
    sign: str = ""
    sign_value: str = ""
    field: tuple[str, ...] = ()
    name: str = ""  # the workload's name; "" = the value of `sign`, or the name of the controller
    gang: str = ""  # name of the gang, if a workload has several gangs; "" = the workload's name
    number: str = ""  # number of the gang, which is appended to its name
    run: str = ""  # uid of the workload, if it is not the controller
    role: tuple[str, ...] = ()  # the first of these is the role; () = one role
    leads: bool = False  # the pod of position 0 is the leader, a role of its own
    index: tuple[str, ...] = ()  # the position in the role
    required: int = 0  # so many of `index`, from the first on, must be there
    last: str = ""  # value of the last label of `index` if a pod lacks it
    late: bool = False  # pods may exist before the workload does
    inner: bool = False  # may be a part of another workload

    @property
    def group(self) -> str:
        """The API group."""
        return self.versions[0].partition("/")[0]

    @property
    def gang_kind(self) -> str:
        """The kind in the names of gangs."""
        return self.called or self.kind


def _training(
    kind: str, version: str = "kubeflow.org/v1", sign: str = "", sign_value: str = ""
) -> WorkloadKind:
    return WorkloadKind(
        kind,
        f"{kind.lower()}s",
        (version,),
        of_training,
        sign=sign,
        sign_value=sign_value,
        name=f"{_TRAINING}/job-name",
        role=(f"{_TRAINING}/replica-type", f"{_TRAINING}/job-role"),
        index=(f"{_TRAINING}/replica-index",),
        last="0",  # a launcher has no index, and is the only pod of its role
    )


KINDS: tuple[WorkloadKind, ...] = (
    WorkloadKind(
        "LeaderWorkerSet",
        "leaderworkersets",
        ("leaderworkerset.x-k8s.io/v1",),
        of_leader_worker_set,
        sign=f"{_LEADER_WORKER_SET}/name",
        number=f"{_LEADER_WORKER_SET}/group-index",
        leads=True,
        index=(f"{_LEADER_WORKER_SET}/worker-index",),
        required=1,
    ),
    WorkloadKind(
        "JobSet",
        "jobsets",
        ("jobset.x-k8s.io/v1alpha2",),
        of_jobset,
        sign=f"{_JOBSET}/jobset-name",
        run=f"{_JOBSET}/jobset-uid",
        role=(f"{_JOBSET}/replicatedjob-name",),
        index=(f"{_JOBSET}/job-index", _COMPLETION_INDEX),
        required=1,
    ),
    WorkloadKind(
        "PodCliqueSet",
        "podcliquesets",
        ("grove.io/v1alpha1",),
        of_pod_clique_set,
        sign="grove.io/podgang",
        name="app.kubernetes.io/part-of",
        gang="grove.io/podgang",
        role=("grove.io/podclique",),
        index=("grove.io/podclique-pod-index",),
    ),
    # Pods of the launcher are of a Job of the MPIJob.
    _training("MPIJob", "kubeflow.org/v2beta1", f"{_TRAINING}/operator-name", "mpi-operator"),
    *map(_training, ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")),
    WorkloadKind(
        "RayCluster",
        "rayclusters",
        ("ray.io/v1",),
        of_ray_cluster,
        role=("ray.io/group",),
        index=("ray.io/worker-group-replica-index", "ray.io/replica-host-index"),
        last="0",  # a replica of one host
    ),
    WorkloadKind(
        "Job",
        "jobs",
        ("batch.volcano.sh/v1alpha1",),
        of_volcano_job,
        called="VolcanoJob",
        role=("volcano.sh/task-spec",),
        index=("volcano.sh/task-index",),
    ),
    WorkloadKind("Job", "jobs", ("batch/v1",), of_job, index=(_COMPLETION_INDEX,), inner=True),
    WorkloadKind(
        "PodGroup",
        "podgroups",
        ("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha2"),
        of_pod_group,
        field=("schedulingGroup", "podGroupName"),
        late=True,
    ),
)
BY_GROUP_AND_KIND = {(x.group, x.kind): x for x in KINDS}
BY_GANG_KIND = {x.gang_kind: x for x in KINDS}
