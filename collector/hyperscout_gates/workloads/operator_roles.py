"""Roles of the workloads of operators: Kubeflow, KubeRay, Volcano, Grove."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hyperscout_kubernetes.client import Object
from hyperscout_placer.cluster.request import MAX_PARTS

from hyperscout_gates.state.gang import GangError
from hyperscout_gates.workloads.objects import count, is_number, mapping, some, text
from hyperscout_gates.workloads.roles import Role, Stages, Workload, with_least

# Roles that others connect to come first, so that rank 0 is where the frameworks expect it.
_FIRST = ("chief", "master")
_HEAD = "headgroup"  # value of the label ray.io/group of a head


def of_training(workload: Workload) -> list[Role]:
    """Return the roles of any kubeflow.org kind from its `<framework>ReplicaSpecs`, by replica type."""
    what, spec = workload.what, workload.spec
    field = next((name for name in spec if name.endswith("ReplicaSpecs")), "")
    replicas = mapping(spec.get(field))
    if not field or not 1 <= len(replicas) <= MAX_PARTS:
        raise GangError(f"{what}: spec: expected replica specs by type, like {{Worker: {{replicas: 8}}}}")
    launcher_works = spec.get("runLauncherAsWorker") is True
    # Newer operators treat such a launcher as worker 0 and number the others from 1.
    base = 1 if launcher_works and "worker/0" not in workload.seen else 0

    def order(name: str) -> tuple[int, str]:
        role = name.lower()
        if role == "launcher":
            # It only starts the workers, so it comes after them and worker i has rank i.
            return (0 if launcher_works else 2), role
        return (0 if role in _FIRST else 1), role

    roles: list[Role] = []
    for name in sorted(replicas, key=order):
        role = name.lower()
        one = mapping(replicas[name])
        number = count(what, f"spec.{field}.{name}.replicas", one.get("replicas"))
        launcher = role == "launcher"
        counts = (min(1, number) if launcher else number,)  # a launcher is a Job of one pod
        # The launcher is created through a Job, possibly only once the workers are ready.
        later = launcher and len(replicas) > 1
        first = 0 if launcher else base
        roles.append(Role(role, counts, mapping(one.get("template")), later, first=first))
    policy = mapping(mapping(spec.get("runPolicy")).get("schedulingPolicy"))
    least = policy.get("minAvailable")
    where = "spec.runPolicy.schedulingPolicy.minAvailable"
    return with_least(roles, None if least is None else count(what, where, least))


def of_ray_cluster(workload: Workload) -> Iterator[Role]:
    """Yield the head, then the groups of workers in the order of the list."""
    what, spec = workload.what, workload.spec
    if spec.get("enableInTreeAutoscaling") is True:
        raise GangError(
            f"{what}: spec.enableInTreeAutoscaling: true: Ray changes the number of its pods, so they are no "
            "gang: write false, or remove the gate from its templates"
        )
    yield Role(_HEAD, (1,), mapping(mapping(spec.get("headGroupSpec")).get("template")))
    names = {_HEAD}
    for i, listed in enumerate(some(what, "spec.workerGroupSpecs", spec.get("workerGroupSpecs"))):
        field, group = f"spec.workerGroupSpecs[{i}]", mapping(listed)
        name = text(group.get("groupName"))
        if not name or name in names:
            raise GangError(f"{what}: {field}.groupName: {name!r}: expected a name that is used once")
        names.add(name)
        # The operator keeps the number of replicas within its limits.
        least = count(what, f"{field}.minReplicas", group.get("minReplicas"), 0)
        replicas = max(count(what, f"{field}.replicas", group.get("replicas"), 0), least)
        if isinstance(most := group.get("maxReplicas"), int) and not isinstance(most, bool):
            replicas = min(replicas, max(most, least))
        hosts = max(1, count(what, f"{field}.numOfHosts", group.get("numOfHosts")))
        if group.get("suspend") is True:
            replicas = 0
        # Operators before 1.6, or without RayMultiHostIndexing, do not number the pods.
        yield Role(name, (replicas, hosts), mapping(group.get("template")), seated=False)


def of_volcano_job(workload: Workload) -> list[Role]:
    """Return the tasks in the order of the list.

    Without `minAvailable`, a task needs all its pods, and a job what its tasks need. If a job needs less than
    its tasks together, the tasks' numbers do not count, as in Volcano's `CheckTaskValid`.
    """
    what, roles, least = workload.what, list[Role](), list[int]()
    tasks = [mapping(x) for x in some(what, "spec.tasks", workload.spec.get("tasks"), 1)]
    stages = Stages((text(task.get("name")), mapping(task.get("template"))) for task in tasks)
    for i, task in enumerate(tasks):
        field, name = f"spec.tasks[{i}]", text(task.get("name"))
        if not name or name in stages:
            raise GangError(f"{what}: {field}.name: {name!r}: expected a name that is used once")
        after = mapping(task.get("dependsOn")).get("name")
        later = stages.waits(name, map(text, some(what, f"{field}.dependsOn.name", after)))
        replicas = count(what, f"{field}.replicas", task.get("replicas"), 0)
        roles.append(Role(name, (replicas,), mapping(task.get("template")), later))
        least.append(count(what, f"{field}.minAvailable", task.get("minAvailable"), replicas))
    of_job = count(what, "spec.minAvailable", workload.spec.get("minAvailable"), sum(least))
    if of_job >= sum(least):  # both count, and the earlier tasks are whole
        of_job = max(of_job, sum(role.size for role in roles[:-1]) + least[-1])
    return with_least(roles, of_job) if of_job < sum(role.size for role in roles) else roles


@dataclass(frozen=True, slots=True)
class _ScalingGroup:
    """A scaling group of a PodCliqueSet: its cliques are repeated together."""

    name: str
    cliques: tuple[str, ...]
    least: int  # replicas below this number are in the gang of the set's replica


def of_pod_clique_set(workload: Workload) -> Iterator[Role]:
    """Yield the PodCliques of one gang of a PodCliqueSet. A role has the name of its PodClique.

    Grove schedules as one gang (`PodGang`): all cliques of a replica of the set, with the first
    `minAvailable` replicas of each scaling group. Each further replica of a scaling group is a gang of its
    own. The names are those of Grove's `api/common/namegen.go`.
    """
    what = workload.what
    template = mapping(workload.spec.get("template"))
    listed = some(what, "spec.template.cliques", template.get("cliques"), 1)
    cliques = {text(mapping(x).get("name")): mapping(mapping(x).get("spec")) for x in listed}
    if len(cliques) < len(listed) or "" in cliques:
        raise GangError(f"{what}: spec.template.cliques: expected names that are used once")
    groups = list(_scaling_groups(what, template, cliques))
    parent = f"{workload.name}-"
    index, _, rest = workload.gang.removeprefix(parent).partition("-")
    base = f"{parent}{index}"
    if rest:
        group, number = _scaled(what, rest, groups)
        yield from _replica(what, f"{base}-{group.name}-{group.least + number}", group.cliques, cliques)
        return
    in_groups = {name: group for group in groups for name in group.cliques}
    for name in cliques:
        if name not in in_groups:
            yield from _replica(what, base, (name,), cliques)
        elif name == in_groups[name].cliques[0]:
            for k in range(in_groups[name].least):
                yield from _replica(
                    what, f"{base}-{in_groups[name].name}-{k}", in_groups[name].cliques, cliques
                )


def _scaling_groups(what: str, template: Object, cliques: dict[str, Object]) -> Iterator[_ScalingGroup]:
    field = "spec.template.podCliqueScalingGroups"
    used: set[str] = set()
    for i, listed in enumerate(some(what, field, template.get("podCliqueScalingGroups"))):
        found = mapping(listed)
        names = tuple(map(text, some(what, f"{field}[{i}].cliqueNames", found.get("cliqueNames"), 1)))
        if unknown := [name for name in names if name not in cliques]:
            raise GangError(f"{what}: {field}[{i}].cliqueNames: {unknown[0]!r}: there is no such clique")
        for name in names:
            if name in used:
                raise GangError(
                    f"{what}: {field}[{i}].cliqueNames: {name!r}: expected a clique that no list has yet"
                )
            used.add(name)
        least = count(what, f"{field}[{i}].minAvailable", found.get("minAvailable"))
        if least > MAX_PARTS:
            raise GangError(f"{what}: {field}[{i}].minAvailable: {least}: expected at most {MAX_PARTS}")
        yield _ScalingGroup(text(found.get("name")), names, least)


def _scaled(what: str, rest: str, groups: Sequence[_ScalingGroup]) -> tuple[_ScalingGroup, int]:
    """Return the scaling group of a gang, and the gang's number among those of the group."""
    name, _, number = rest.rpartition("-")
    for group in groups:
        if group.name == name and is_number(number):
            return group, int(number)
    raise GangError(f"{what}: spec.template.podCliqueScalingGroups: none has the PodGang {rest!r}")


def _replica(what: str, owner: str, names: Sequence[str], cliques: dict[str, Object]) -> Iterator[Role]:
    for name in names:
        spec = cliques[name]
        replicas = count(what, f"clique {name}: spec.replicas", spec.get("replicas"), 0)
        own = spec.get("minAvailable")
        least = None if own is None else max(1, count(what, f"clique {name}: spec.minAvailable", own))
        template: Object = {"spec": mapping(spec.get("podSpec"))}
        yield Role(f"{owner}-{name}", (replicas,), template, least=least)
