"""An elastic gang on real kubelets: it starts with the pods that fit, grows, and shrinks. No pod moves."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hyperscout_gates.state.gang import GATE, MIN_COUNT, SPREAD
from hyperscout_gates.state.gang_plan import SELECTOR, from_object
from lab.plan import make_plan
from lab.story import CHART, NAMESPACE, RELEASE, Story
from support.real import require_real
from support.waiting import TIMEOUT_S
from support.wired_lab import wired_lab

pytestmark = pytest.mark.long

require_real("lab", "helm", "lldpd", "ibsim")

PLAN = make_plan({"a": ("node1", "node2"), "b": ("node3", "node4")}, later={})
JOB = "elastic"
Nodes = Mapping[int, str]  # by rank


def job(image: str, pods: int) -> dict[str, Any]:
    """One pod a node. Two are enough."""
    container = {
        "name": "worker",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", "import signal; signal.pause()"],
        "resources": {"requests": {"cpu": "10m"}},
        "securityContext": {"runAsUser": 65532},
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "schedulingGates": [{"name": GATE}],
        "containers": [container],
    }
    spec = {
        "completions": pods,
        "parallelism": pods,
        "completionMode": "Indexed",
        "template": {"spec": pod},
    }
    metadata = {"name": JOB, "annotations": {MIN_COUNT: "2", SPREAD: "1:node"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


class Gang:
    def __init__(self, story: Story) -> None:
        self._story = story

    def pods(self) -> list[Any]:
        found = self._story.lab.get("pods", "-l", f"batch.kubernetes.io/job-name={JOB}")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def running(self) -> Nodes:
        pods = [pod for pod in self.pods() if pod["status"]["phase"] == "Running"]
        rank = "batch.kubernetes.io/job-completion-index"
        return {int(p["metadata"]["annotations"][rank]): p["spec"]["nodeName"] for p in pods}

    def held(self) -> list[str]:
        """Its nodes by rank, as the collector's plan has them."""
        (plan,) = self._story.lab.get("configmaps", "-A", "-l", SELECTOR)["items"]
        return list(from_object(plan).nodes)

    def await_(self, number: int, before: Nodes, what: str) -> Nodes:
        """Until so many pods run and as many nodes are held. The pods that ran before run where they did."""

        def reached() -> tuple[Nodes, list[str]] | None:
            now = self.running()
            held = self.held() if now else []
            return (now, held) if len(now) == len(held) == number else None

        (now, held), _ = self._story.watch.until(lambda _: reached(), what, 3 * TIMEOUT_S)
        assert sorted(now) == list(range(number)), "ranks have no gap"
        assert [now[rank] for rank in sorted(now)] == held
        assert {rank: now[rank] for rank in before if rank < number} == {
            rank: node for rank, node in before.items() if rank < number
        }
        self._story.say(f"{what}: {held}")
        return now

    def events(self, reason: str) -> list[str]:
        found = self._story.lab.get("events", "--field-selector", f"reason={reason}")["items"]
        return [one["message"] for one in found if one["involvedObject"]["kind"] == "Job"]


def test_an_elastic_gang_grows_and_shrinks(tmp_path: Path) -> None:
    def say(line: str) -> None:
        print(line, flush=True)

    with wired_lab(tmp_path / "lab", PLAN, say) as story:
        story.install()
        story.discovered()
        upgrade = ("upgrade", RELEASE, str(CHART), "-n", NAMESPACE, "--reset-then-reuse-values")
        story.lab.helm(*upgrade, "--set", "gates.mode=on", timeout_s=180)
        story.rolled()
        story.await_reports()
        story.await_well("with gates")
        image = story.pods("agent")[0]["spec"]["containers"][0]["image"]
        gang = Gang(story)

        with story.step("two nodes for four pods: the minimum starts"):
            story.lab.kubectl("cordon", "node2", "node4")
            path = tmp_path / "job.json"
            path.write_text(json.dumps(job(image, 4)))
            story.lab.kubectl("apply", "-f", str(path))
            first = gang.await_(2, {}, "the minimum runs")
            assert set(first.values()) == {"node1", "node3"}
            uids = {pod["metadata"]["uid"] for pod in gang.pods() if pod["status"]["phase"] == "Running"}

        with story.step("a third node: it grows"):
            story.lab.kubectl("uncordon", "node2")
            began_s = time.monotonic()
            third = gang.await_(3, first, "three run")
            story.took("from a free node to a pod that runs there", time.monotonic() - began_s)
            assert third[2] == "node2"

        with story.step("a fourth node: it is complete"):
            story.lab.kubectl("uncordon", "node4")
            full = gang.await_(4, third, "all run")
            assert full[3] == "node4"

        with story.step("the Job is scaled down: the node of the last rank is released"):
            scale = {"spec": {"completions": 3, "parallelism": 3}}
            story.lab.kubectl("patch", "job", JOB, "--type=merge", "-p", json.dumps(scale))
            gang.await_(3, full, "three hold nodes")

        with story.step("scaled up again: it grows onto the node that is free"):
            scale = {"spec": {"completions": 4, "parallelism": 4}}
            story.lab.kubectl("patch", "job", JOB, "--type=merge", "-p", json.dumps(scale))
            gang.await_(4, full, "all run again")
            assert uids <= {pod["metadata"]["uid"] for pod in gang.pods()}, "the first pods run on"
            for message in gang.events("Resized"):
                story.say(message)
