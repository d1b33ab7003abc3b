"""What a gang's workload says is remembered for a moment, but never that it still goes on."""

from typing import Any, cast

import pytest
from hyperscout_gates.control.owners import Owners
from hyperscout_gates.control.pods import keep
from hyperscout_kubernetes.client import Kube
from hyperscout_kubernetes.errors import NotFoundError
from hyperscout_placer.cluster.forest import Forest
from support.operator_workloads import grouped_pods, pod_group, volcano_job, volcano_pods, volcano_task
from support.topologies import leaves
from support.workloads import job, job_pods


class Server:
    """Answers with what is there now, and counts."""

    def __init__(self, found: Any) -> None:
        self.found = found
        self.asked = 0

    async def get(self, path: str) -> Any:
        self.asked += 1
        return self.found


def forest() -> Forest:
    return Forest.of(leaves(("n1",)))


async def test_that_a_job_has_ended_is_seen_at_once() -> None:
    running = job("train", 2)
    server = Server(running)
    owners = Owners(cast("Kube", server), forest, lambda: 0.0)
    gated = [keep(pod) for pod in job_pods("train", 2)]
    assert (await owners.read(gated, "")).gang is not None
    assert (await owners.read(gated, "")).gang is not None
    assert server.asked == 1  # remembered
    opened = [pod | {"gate": pod["gate"] | {"gated": False}} for pod in gated]
    assert not (await owners.read(opened, "")).over
    server.found = running | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    assert (await owners.read(opened, "")).over


async def test_that_a_job_was_scaled_is_seen_at_once() -> None:
    server = Server(job("train", 2))
    owners = Owners(cast("Kube", server), forest, lambda: 0.0)
    two = [keep(pod) for pod in job_pods("train", 2)]
    assert (await owners.read(two, "")).gang is not None
    server.found = job("train", 3)
    opened = [pod | {"gate": pod["gate"] | {"gated": False}} for pod in two]
    found = await owners.read([*opened, *(keep(pod) for pod in [*job_pods("train", 3)][2:])], "")
    assert found.gang is not None
    assert len(found.gang.ranks) == 3


class Versions(Server):
    """Has one API version, in which an object is there or not."""

    def __init__(self, version: str, found: Any) -> None:
        super().__init__(found)
        self._version = version

    async def get(self, path: str) -> Any:
        if self.found is None or f"/{self._version}/" not in path:
            raise NotFoundError(f"{path}: not found")
        return await super().get(path)


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha2"])
async def test_a_pod_group_is_read_in_the_version_that_the_server_has(version: str) -> None:
    owners = Owners(cast("Kube", Versions(version, pod_group("g", 2))), forest, lambda: 0.0)
    found = await owners.read([keep(pod) for pod in grouped_pods("g", "a", "b")], "")
    assert found.gang is not None
    assert found.gang.ready == 2


async def test_pods_may_be_there_before_their_pod_group() -> None:
    owners = Owners(cast("Kube", Versions("v1alpha2", None)), forest, lambda: 0.0)
    pods = [keep(pod) for pod in grouped_pods("g", "a")]
    found = await owners.read(pods, "")
    assert (found.over, found.problem) == (False, "PodGroup ml/g: it is not there yet: create it")
    opened = [pod | {"gate": pod["gate"] | {"gated": False}} for pod in pods]
    assert (await owners.read(opened, "")).over


@pytest.mark.parametrize(
    ("phase", "over"),
    [("Running", False), ("Restarting", False), ("Completed", True), ("Failed", True), ("Aborted", True)],
)
async def test_the_phase_of_a_volcano_job_says_whether_it_has_ended(phase: str, over: bool) -> None:
    found = volcano_job("v", volcano_task("a", 1)) | {"status": {"state": {"phase": phase}}}
    owners = Owners(cast("Kube", Server(found)), forest, lambda: 0.0)
    assert (await owners.read([keep(pod) for pod in volcano_pods("v", "a", 1)], "")).over == over


@pytest.mark.parametrize("junk", [None, 1, "x", [], ["x"], [["x"]], {}, {"x": ["x"]}, True])
@pytest.mark.parametrize(
    "field",
    ["status", "status.state", "status.state.phase", "status.conditions", "spec", "spec.suspend", "metadata"],
)
async def test_junk_in_a_workload_is_a_problem_at_most(field: str, junk: Any) -> None:
    *parents, last = field.split(".")
    found: Any = volcano_job("v", volcano_task("a", 1)) | {"status": {"state": {}}}
    at = found
    for name in parents:
        at = at[name]
    at[last] = junk
    owners = Owners(cast("Kube", Server(found)), forest, lambda: 0.0)
    read = await owners.read([keep(pod) for pod in volcano_pods("v", "a", 1)], "")
    assert read.over == (field == "spec.suspend" and junk is True)
    assert bool(read.problem) == (field == "spec")


async def test_junk_among_conditions_is_ignored() -> None:
    conditions = [None, "x", {"type": ["x"]}, {"type": "Complete", "status": "True"}]
    found = job("train", 1) | {"status": {"conditions": conditions}}
    owners = Owners(cast("Kube", Server(found)), forest, lambda: 0.0)
    assert (await owners.read([keep(pod) for pod in job_pods("train", 1)], "")).over
