"""What a gang's workload says is remembered for a moment, but never that it still goes on."""

from typing import Any, cast

from hyperscout_gates.control.owners import Owners
from hyperscout_gates.control.pods import keep
from hyperscout_kubernetes.client import Kube
from support.workloads import job, job_pods


class Server:
    """Answers with what is there now, and counts."""

    def __init__(self, found: Any) -> None:
        self.found = found
        self.asked = 0

    async def get(self, path: str) -> Any:
        self.asked += 1
        return self.found


class Tiers:
    top = 2

    def tier(self, text: str) -> int:
        return int(text)


async def test_that_a_job_has_ended_is_seen_at_once() -> None:
    running = job("train", 2)
    server = Server(running)
    owners = Owners(cast("Kube", server), Tiers, lambda: 0.0)
    gated = [keep(pod) for pod in job_pods("train", 2)]
    assert (await owners.read(gated, "")).gang is not None
    assert (await owners.read(gated, "")).gang is not None
    assert server.asked == 1  # remembered
    opened = [pod | {"gate": pod["gate"] | {"gated": False}} for pod in gated]
    assert not (await owners.read(opened, "")).over
    server.found = running | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    assert (await owners.read(opened, "")).over
