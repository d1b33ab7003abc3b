"""An elastic gang on real kubelets: it starts with the pods that fit, grows, and shrinks. No pod moves."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hyperscout_gates.state.gang import MIN_COUNT, SPREAD
from hyperscout_gates.state.gang_plan import SELECTOR, from_object
from support.lab_gang import JOB, LabGang, gated_lab
from support.real import require_real
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.long

require_real("lab", "helm", "lldpd", "ibsim")

Nodes = Mapping[int, str]  # by rank


class Gang(LabGang):
    def running(self) -> Nodes:
        pods = [pod for pod in self.pods() if pod["status"]["phase"] == "Running"]
        rank = "batch.kubernetes.io/job-completion-index"
        return {int(p["metadata"]["annotations"][rank]): p["spec"]["nodeName"] for p in pods}

    def held(self) -> list[str]:
        """Its nodes by rank, as the collector's plan has them."""
        (plan,) = self.story.lab.get("configmaps", "-A", "-l", SELECTOR)["items"]
        return list(from_object(plan).nodes)

    def await_(self, number: int, before: Nodes, what: str) -> Nodes:
        """Until so many pods run and as many nodes are held. The pods that ran before run where they did."""

        def reached() -> tuple[Nodes, list[str]] | None:
            now = self.running()
            held = self.held() if now else []
            return (now, held) if len(now) == len(held) == number else None

        (now, held), _ = self.story.watch.until(lambda _: reached(), what, 3 * TIMEOUT_S)
        assert sorted(now) == list(range(number)), "ranks have no gap"
        assert [now[rank] for rank in sorted(now)] == held
        assert {rank: now[rank] for rank in before if rank < number} == {
            rank: node for rank, node in before.items() if rank < number
        }
        self.story.say(f"{what}: {held}")
        return now


def test_an_elastic_gang_grows_and_shrinks(tmp_path: Path) -> None:
    with gated_lab(tmp_path / "lab") as story:
        gang = Gang(story)

        with story.step("two nodes for four pods: the minimum starts"):
            story.lab.kubectl("cordon", "node2", "node4")
            gang.start(4, "import signal; signal.pause()", {MIN_COUNT: "2", SPREAD: "1:node"}, {})
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
