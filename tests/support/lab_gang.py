"""A Job behind the gates, on the kubelets of a lab with two leaves of two nodes."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hyperscout_gates.state.gang import GATE
from lab.plan import make_plan
from lab.story import Story

from support.wired_lab import wired_lab

PLAN = make_plan({"a": ("node1", "node2"), "b": ("node3", "node4")}, later={})
JOB = "train"


@contextmanager
def gated_lab(folder: Path, *settings: str) -> Iterator[Story]:
    """`settings`: values of the chart."""
    with wired_lab(folder, PLAN) as story:
        story.install()
        story.discovered()
        story.change("gates.mode=on", *settings)
        story.await_reports()
        story.await_well("with gates")
        yield story


class LabGang:
    """The pods and events of the Job, which `start` makes."""

    def __init__(self, story: Story) -> None:
        self.story = story

    def start(self, pods: int, code: str, job: Mapping[str, str], pod: Mapping[str, str]) -> None:
        """`code`: Python that each pod runs. `job`, `pod`: annotations."""
        container = {
            "name": "worker",
            "image": self.story.pods("agent")[0]["spec"]["containers"][0]["image"],
            "imagePullPolicy": "Never",
            "command": ["python3", "-c", code],
            "resources": {"requests": {"cpu": "10m"}},
            "securityContext": {"runAsUser": 65532},
        }
        template = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "schedulingGates": [{"name": GATE}],
            "containers": [container],
        }
        spec = {
            "completions": pods,
            "parallelism": pods,
            "completionMode": "Indexed",
            "backoffLimit": 100,
            "template": {"metadata": {"annotations": pod}, "spec": template},
        }
        metadata = {"name": JOB, "annotations": job}
        path = self.story.lab.folder / "job.json"
        path.write_text(
            json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
        )
        self.story.lab.kubectl("apply", "-f", str(path))

    def pods(self) -> list[Any]:
        found = self.story.lab.get("pods", "-l", f"batch.kubernetes.io/job-name={JOB}")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def events(self, reason: str) -> list[str]:
        found = self.story.lab.get("events", "--field-selector", f"reason={reason}")["items"]
        return [one["message"] for one in found if one["involvedObject"]["kind"] == "Job"]
