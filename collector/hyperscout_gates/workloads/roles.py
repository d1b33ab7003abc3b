"""Roles of a workload's gang: how many pods each role has, and which roles start later."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from hyperscout_kubernetes.client import Object
from hyperscout_placer.cluster.request import MAX_PARTS, MAX_WORKERS

from hyperscout_gates.state.gang import GangError
from hyperscout_gates.workloads.membership import (
    LEADER,
    LEADER_WORKER_SET,
    WORKER,
    Membership,
    gated,
    mapping,
    text,
)


@dataclass(frozen=True, slots=True)
class Role:
    """A role. `slots`: in rank order. `template`: of its pods (metadata and spec).

    `later`: its pods are created only when others run, or by another controller. `seated`: each pod carries
    its own slot.
    """

    name: str
    slots: tuple[str, ...]
    template: Object
    later: bool = False
    seated: bool = True


def roles_of(owner: Object, member: Membership, seen: Collection[str] = ()) -> list[Role]:
    """Return the roles in rank order, without roles that have no pods. Raises GangError.

    `member`: one of the pods. `seen`: the slots that pods carry.
    """
    what = f"{member.kind} {member.namespace}/{member.owner.name if member.owner else member.name}"
    spec = mapping(owner.get("spec"))
    if member.kind == "Job":
        roles = [_of_job(what, "spec", spec, WORKER)]
    elif member.kind == "JobSet":
        roles = list(_of_jobset(what, spec))
    elif member.kind == "LeaderWorkerSet":
        roles = list(_of_leader_worker_set(what, owner, spec))
    else:
        roles = list(_of_training(what, spec, seen))
    if sum(len(role.slots) for role in roles) > MAX_WORKERS:
        raise GangError(f"{what}: more than {MAX_WORKERS} pods")
    roles = [role for role in roles if role.slots]
    if not roles:
        raise GangError(f"{what}: it has no pods to place: its counts are 0")
    return roles


def _of_job(what: str, field: str, spec: Object, name: str, prefix: str = "") -> Role:
    """Return a Job's role with as many slots as pods run at once.

    If an Indexed Job has more completions, later pods take the ranks of those that ended.
    """
    parallelism = count(what, f"{field}.parallelism", spec.get("parallelism"))
    completions = count(what, f"{field}.completions", spec.get("completions"), MAX_WORKERS)
    slots = (f"{prefix or name}/{i}" for i in range(min(parallelism, completions)))
    return Role(name, tuple(slots), mapping(spec.get("template")))


def _of_jobset(what: str, spec: Object) -> Iterator[Role]:
    listed = spec.get("replicatedJobs")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_PARTS:
        raise GangError(f"{what}: spec.replicatedJobs: expected 1 to {MAX_PARTS} of them")
    order = text(mapping(spec.get("startupPolicy")).get("startupPolicyOrder"))
    # A job waits for those before it, directly or through a chain. Only waits for a part of the gang count: a
    # job without gated pods may run and end before the gang is placed.
    in_gang = gated_ones([(text(mapping(x).get("name")), _job_template(x)) for x in listed])
    waits: dict[str, bool] = {}  # by name: whether the job waits for a part of the gang
    earlier = False
    for i, replicated in enumerate(listed):
        field = f"spec.replicatedJobs[{i}]"
        name = text(mapping(replicated).get("name"))
        if not name or name in waits:
            raise GangError(f"{what}: {field}.name: {name!r}: expected a name that is used once")
        after = [text(mapping(x).get("name")) for x in _list(what, f"{field}.dependsOn", replicated)]
        waits[name] = (order == "InOrder" and earlier) or any(waits.get(x) or x in in_gang for x in after)
        earlier = earlier or name in in_gang
        job = mapping(mapping(replicated.get("template")).get("spec"))
        slots: list[str] = []
        replicas = count(what, f"{field}.replicas", replicated.get("replicas"))
        for k in range(replicas):
            one = _of_job(what, f"{field}.template.spec", job, name, f"{name}/{k}")
            slots += one.slots
            if len(slots) > MAX_WORKERS:
                raise GangError(f"{what}: {field}: more than {MAX_WORKERS} pods")
            if not one.slots:
                break
        seated = job.get("completionMode") == "Indexed"
        yield Role(name, tuple(slots), _job_template(replicated), waits[name], seated)


def gated_ones(templates: list[tuple[str, Object]]) -> set[str]:
    """Return the roles with gated pods: those with the gate in their templates.

    If no template has it, an admission policy adds it to the pods of all roles.
    """
    named = {name for name, template in templates if gated(template.get("spec"))}
    return named or {name for name, _ in templates}


def _job_template(replicated: object) -> Object:
    job = mapping(mapping(mapping(replicated).get("template")).get("spec"))
    return mapping(job.get("template"))


def _list(what: str, field: str, holder: Object) -> list[object]:
    listed = holder.get(field.rpartition(".")[2]) or []
    if not isinstance(listed, list) or len(listed) > MAX_PARTS:
        raise GangError(f"{what}: {field}: expected a list of at most {MAX_PARTS}")
    return listed


def _of_leader_worker_set(what: str, owner: Object, spec: Object) -> Iterator[Role]:
    template = mapping(spec.get("leaderWorkerTemplate"))
    size = count(what, "spec.leaderWorkerTemplate.size", template.get("size"))
    if size < 1:
        raise GangError(f"{what}: spec.leaderWorkerTemplate.size: {size}: expected 1 or more")
    workers = mapping(template.get("workerTemplate"))
    leader = mapping(template.get("leaderTemplate")) or workers
    annotations = mapping(mapping(owner.get("metadata")).get("annotations"))
    # With an exclusive topology, the workers are created once the leader's node is known.
    after_leader = (
        text(spec.get("startupPolicy")) == "LeaderReady"
        or f"{LEADER_WORKER_SET}/exclusive-topology" in annotations
    )
    yield Role(LEADER, (f"{LEADER}/0",), leader)
    yield Role(WORKER, tuple(f"{WORKER}/{i}" for i in range(1, size)), workers, later=after_leader)


# Roles that others connect to come first, so that rank 0 is where the frameworks expect it.
_FIRST = ("chief", "master")


def _of_training(what: str, spec: Object, seen: Collection[str]) -> Iterator[Role]:
    """Yield the roles of any kubeflow.org kind from its `<framework>ReplicaSpecs`, by replica type."""
    field = next((name for name in spec if name.endswith("ReplicaSpecs")), "")
    replicas = mapping(spec.get(field))
    if not field or not 1 <= len(replicas) <= MAX_PARTS:
        raise GangError(f"{what}: spec: expected replica specs by type, like {{Worker: {{replicas: 8}}}}")
    launcher_works = spec.get("runLauncherAsWorker") is True
    # Newer operators treat such a launcher as worker 0 and number the others from 1.
    base = 1 if launcher_works and "worker/0" not in seen else 0

    def order(name: str) -> tuple[int, str]:
        role = name.lower()
        if role == "launcher":
            # It only starts the workers, so it comes after them and worker i has rank i.
            return (0 if launcher_works else 2), role
        return (0 if role in _FIRST else 1), role

    for name in sorted(replicas, key=order):
        role = name.lower()
        one = mapping(replicas[name])
        number = count(what, f"spec.{field}.{name}.replicas", one.get("replicas"))
        slots = tuple(f"{role}/{base + i}" for i in range(number))
        if role == "launcher":
            slots = (f"{role}/0",)[:number]  # a Job of one pod
        # The launcher is created through a Job, possibly only once the workers are ready.
        yield Role(role, slots, mapping(one.get("template")), later=role == "launcher" and len(replicas) > 1)


def count(what: str, field: str, value: object, default: int = 1) -> int:
    """Return a valid count, or `default` if `value` is None. Raises GangError."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_WORKERS:
        raise GangError(f"{what}: {field}: {str(value)[:40]!r}: expected a number from 0 to {MAX_WORKERS}")
    return value
