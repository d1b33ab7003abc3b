"""A gang on real kubelets whose leaf is cut: it moves whole, once. What recovers in time moves nothing."""

import time
from pathlib import Path

import pytest
from hyperscout_gates.degradation.hook import HOOK
from hyperscout_gates.state.gang import HIGHEST_TIER, SPREAD
from support.lab_gang import PLAN, LabGang, gated_lab
from support.real import require_real
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.long

require_real("lab", "helm", "lldpd", "ibsim")

WAIT_S = 20

# Runs in a worker: it prints what the checkpoint hook receives.
_WORKER = """
import http.server
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        print(self.path, self.rfile.read(int(self.headers["Content-Length"])).decode(), flush=True)
        self.send_response(204)
        self.end_headers()
http.server.HTTPServer(("", 8080), Hook).serve_forever()
"""


class Gang(LabGang):
    def names(self) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.pods())

    def await_in(self, domain: frozenset[str], what: str) -> None:
        """Until both pods run on different nodes of the domain."""
        give_up_s = time.monotonic() + 3 * TIMEOUT_S
        while True:
            pods = self.pods()
            nodes = {p["spec"].get("nodeName") for p in pods if p["status"]["phase"] == "Running"}
            if len(nodes) == len(pods) == 2 and nodes <= domain:
                self.story.say(f"{what}: {sorted(map(str, nodes))}")
                return
            assert time.monotonic() < give_up_s, f"{what}: {nodes}\n{self.story.watch.picture()}"
            time.sleep(0.5)


def test_a_gang_leaves_a_leaf_that_is_cut_once(tmp_path: Path) -> None:
    settings = ("gates.onDegradation.action=move", f"gates.onDegradation.waitSeconds={WAIT_S}")
    with gated_lab(tmp_path / "lab", *settings) as story:
        gang = Gang(story)
        gang.start(2, _WORKER, {HIGHEST_TIER: "1", SPREAD: "1:node"}, {HOOK: "8080/save"})
        gang.await_in(frozenset(PLAN.names), "the gang runs")
        nodes = {pod["spec"]["nodeName"] for pod in gang.pods()}
        home, other = sorted(PLAN.domains.values(), key=lambda domain: nodes != domain)
        assert nodes == home, "one leaf holds it"
        unit = next(unit for unit, domain in PLAN.domains.items() if domain == home)
        before = gang.names()

        with story.step("a cable that is back in time"):
            node = min(nodes)
            story.pull(f"{node}/rail0", [node], lambda: story.domain_of(node))
            story.plug(f"{node}/rail0")
            time.sleep(WAIT_S + 5)  # a move would be due by now
            assert gang.names() == before

        with story.step(f"the power of leaf-{unit}1"):
            logs = {name: tmp_path / f"{name}.log" for name in before}
            for name, log in logs.items():
                command = [*story.lab.kubectl_command(), "logs", "-f", name]
                story.lab.popen(command, log)
            began_s = time.monotonic()
            story.wires.down_switch(f"leaf-{unit}1")
            gang.await_in(other, "the gang runs elsewhere")
            story.took("from the cut to pods that run elsewhere", time.monotonic() - began_s)
            assert not set(gang.names()) & set(before), "it moved whole"
            for name, log in logs.items():
                assert log.read_text().count("/save {") == 1, f"{name}: {log.read_text()}"
            [moves] = gang.events("Moves")
            story.say(moves)

        with story.step("power again: the gang stays"):
            after = gang.names()
            story.wires.up_switch(f"leaf-{unit}1")
            story.await_well("after the leaf is back")
            assert gang.names() == after
            assert len(gang.events("Moves")) == 1
