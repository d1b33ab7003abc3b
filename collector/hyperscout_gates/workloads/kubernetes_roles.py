"""Roles of the workloads of Kubernetes and its special interest groups."""

from collections.abc import Iterator

from hyperscout_kubernetes.client import Object
from hyperscout_placer.cluster.request import MAX_WORKERS

from hyperscout_gates.state.gang import GANG_LABEL, SIZE_LABEL, GangError
from hyperscout_gates.workloads.objects import count, is_number, mapping, some, text
from hyperscout_gates.workloads.roles import LEADER, WORKER, Role, Stages, Workload

_MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"  # of Kueue's partial admission
_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"


def of_job(workload: Workload) -> Iterator[Role]:
    what, spec = workload.what, workload.spec
    number, least = _at_once(what, "spec", spec), workload.annotations.get(_MIN_PARALLELISM)
    if least is not None and not is_number(least):
        raise GangError(f"{what}: annotation {_MIN_PARALLELISM}: {str(least)[:40]!r}: expected a number")
    enough = None if least is None else max(1, int(least))
    yield Role(WORKER, (number,), mapping(spec.get("template")), least=enough)


def _at_once(what: str, field: str, spec: Object) -> int:
    """Return how many pods of a Job run at once.

    If an Indexed Job has more completions, later pods take the ranks of those that ended.
    """
    parallelism = count(what, f"{field}.parallelism", spec.get("parallelism"))
    completions = count(what, f"{field}.completions", spec.get("completions"), MAX_WORKERS)
    return min(parallelism, completions)


def of_jobset(workload: Workload) -> Iterator[Role]:
    what, spec = workload.what, workload.spec
    listed = [mapping(x) for x in some(what, "spec.replicatedJobs", spec.get("replicatedJobs"), 1)]
    order = text(mapping(spec.get("startupPolicy")).get("startupPolicyOrder"))
    stages = Stages(((text(x.get("name")), _job_template(x)) for x in listed), in_order=order == "InOrder")
    for i, replicated in enumerate(listed):
        field = f"spec.replicatedJobs[{i}]"
        name = text(replicated.get("name"))
        if not name or name in stages:
            raise GangError(f"{what}: {field}.name: {name!r}: expected a name that is used once")
        depends = some(what, f"{field}.dependsOn", replicated.get("dependsOn"))
        later = stages.waits(name, [text(mapping(x).get("name")) for x in depends])
        job = mapping(mapping(replicated.get("template")).get("spec"))
        replicas = count(what, f"{field}.replicas", replicated.get("replicas"))
        counts = replicas, _at_once(what, f"{field}.template.spec", job)
        seated = job.get("completionMode") == "Indexed"
        yield Role(name, counts, _job_template(replicated), later, seated)


def _job_template(replicated: Object) -> Object:
    job = mapping(mapping(replicated.get("template")).get("spec"))
    return mapping(job.get("template"))


def of_leader_worker_set(workload: Workload) -> Iterator[Role]:
    """Yield the roles of one group. Each group is a gang because groups run independently."""
    what, spec = workload.what, workload.spec
    template = mapping(spec.get("leaderWorkerTemplate"))
    size = count(what, "spec.leaderWorkerTemplate.size", template.get("size"))
    if size < 1:
        raise GangError(f"{what}: spec.leaderWorkerTemplate.size: {size}: expected 1 or more")
    workers = mapping(template.get("workerTemplate"))
    leader = mapping(template.get("leaderTemplate")) or workers
    # With an exclusive topology, the workers are created once the leader's node is known.
    after_leader = text(spec.get("startupPolicy")) == "LeaderReady" or _EXCLUSIVE in workload.annotations
    yield Role(LEADER, (1,), leader)
    yield Role(WORKER, (size - 1,), workers, later=after_leader, first=1)


def of_pod_group(workload: Workload) -> Iterator[Role]:
    """Yield the role of a PodGroup. It has no template: its pods show their needs and their number."""
    what = workload.what
    policy = mapping(workload.spec.get("schedulingPolicy"))
    gang = policy.get("gang")
    if not isinstance(gang, dict):
        raise GangError(
            f"{what}: spec.schedulingPolicy.gang: missing, so its pods are no gang: make a PodGroup with "
            f'gang: {{minCount: <how many>}}, or label its pods {GANG_LABEL} and {SIZE_LABEL}: "<how many>"'
        )
    least = count(what, "spec.schedulingPolicy.gang.minCount", gang.get("minCount"), 0)
    yield Role(WORKER, (max(least, workload.pods) if least else 0,), {}, seated=False, least=least)
