"""`hyperscout doctor NODE`: what the collector's answers come to."""

import json
import socket
from dataclasses import replace

import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_agent.doctor.facts import Check
from hyperscout_agent.lldp.neighbours import NOTHING_HEARD
from hyperscout_agent.settings.settings import AgentSettings
from hyperscout_cli.manage.doctor_node import NodeSeen, judge
from hyperscout_topology.topology import Topology
from support.command_line import CommandLine
from support.doctor import NODE, NOW_NS, S, agent, stored
from support.findings import stamp
from support.topologies import two_leaves


def judged(
    *findings: pb.StoredFinding,
    node: str = NODE,
    agents: tuple[pb.AgentStatus, ...] = (agent(),),
    topology: Topology | None = None,
    **status: object,
) -> dict[str, Check]:
    given = pb.GetStatusResponse(version="1", agents=agents, **status)  # type: ignore[arg-type]
    found = two_leaves() if topology is None else topology
    return {check.name: check for check in judge(NodeSeen(node, given, found, findings), NOW_NS)}


LONELY = Topology(3, nodes_without_evidence=("gpu-9",))
# Of a fabric whose list of nodes lacks one: infer() keeps its adapters, and names it nowhere else.
UNLISTED = replace(
    two_leaves(),
    hypernodes=tuple(
        replace(h, nodes=tuple(n for n in h.nodes if n != NODE)) for h in two_leaves().hypernodes
    ),
)
HELD = pb.HeldGeneration(generation=4, reason="would remove half of the nodes")


def test_a_well_node_has_nothing_wrong() -> None:
    found = judged(stored("lldp", "eth0"), stored("infiniband", "mlx5_0/1"), stored("nvlink", "0"))
    assert {check.verdict for check in found.values()} == {"ok"}, found
    assert "silent probes" not in found


@pytest.mark.parametrize(
    ("found", "check", "verdict", "words"),
    [
        pytest.param(
            judged(agents=()), "agent", "warning", "known from other sources", id="no agent, cables"
        ),
        pytest.param(
            judged(node="gpu-9", topology=LONELY, agents=()),
            "agent",
            "failed",
            "no source has reported",
            id="expected",
        ),
        pytest.param(
            judged(node="gpu-9", agents=(agent("gpu-9.dc1.example"),)),
            "agent",
            "failed",
            "similar names of agents: gpu-9.dc1.example",
            id="a name with a domain",
        ),
        pytest.param(
            judged(node="node-0004", agents=(agent("node-0003"), agent("east/node-0004"))),
            "agent",
            "failed",
            "similar names of agents: east/node-0004, node-0003",
            id="a name in another cluster",
        ),
        pytest.param(
            judged(node="gpu-12", agents=(agent("gpu-13"), agent("login-1"), agent("cpu-99"))),
            "agent",
            "failed",
            "similar names of agents: gpu-13",
            id="only what is close",
        ),
        pytest.param(
            judged(stored("lldp", "eth0"), topology=UNLISTED),
            "hierarchy",
            "failed",
            "sources report it, but it is not among the expected nodes",
            id="an agent that is not expected",
        ),
        pytest.param(
            judged(topology=UNLISTED, agents=()),
            "agent",
            "failed",
            "is reported, but is not among the expected nodes",
            id="cables that are not expected",
        ),
        pytest.param(
            judged(node="storage-1", agents=()),
            "agent",
            "failed",
            "is reported, but is not among the expected nodes",
            id="not of the compute fabric",
        ),
        pytest.param(judged(node="zz", agents=()), "agent", "failed", "not expected", id="unknown"),
        pytest.param(judged(node="zz", agents=()), "hierarchy", "failed", "no HyperNode", id="nowhere"),
        pytest.param(
            judged(agents=(agent(connected=False, last_heard=stamp(NOW_NS - 720 * S)),)),
            "connected",
            "failed",
            "last heard 12m ago",
            id="gone",
        ),
        pytest.param(
            judged(agents=(agent(clock_offset_s=-90.0),)), "clock", "warning", "90.0 s behind", id="clock"
        ),
        pytest.param(
            judged(agents=(agent(clock_offset_s=900.0),)), "clock", "failed", "900.0 s ahead", id="far"
        ),
        pytest.param(judged(agents=(agent(version="0"),)), "version", "warning", "agent 0", id="version"),
        pytest.param(judged(), "findings", "failed", "reported no finding", id="no findings"),
        pytest.param(
            judged(stored("lldp", "eth0")), "silent probes", "skipped", "infiniband, nvlink", id="silent"
        ),
        pytest.param(
            judged(stored("lldp", "eth0", "nothing", NOTHING_HEARD)),
            "probe lldp",
            "warning",
            "disable-fw-lldp",
            id="nothing heard",
        ),
        pytest.param(
            judged(stored("nvlink", "*", "failed", "8 NVIDIA GPUs are here, but no driver")),
            "probe nvlink",
            "failed",
            "no driver",
            id="failed",
        ),
        pytest.param(
            judged(stored("lldp", "eth0", at_ns=NOW_NS - S), stored("lldp", "eth0", "failed", "gone")),
            "probe lldp",
            "failed",
            "1 failed: eth0: gone",
            id="failed after data",
        ),
        pytest.param(
            judged(stored("lldp", "a", stale=True), stored("lldp", "b")),
            "fresh",
            "warning",
            "1 of 2",
            id="stale",
        ),
        pytest.param(
            judged(stored("lldp", "a", stale=True)), "fresh", "failed", "1 finding, all stale", id="all stale"
        ),
        pytest.param(
            judged(stored("lldp", "a"), topology=LONELY, held=HELD),
            "hierarchy",
            "failed",
            "4 is held",
            id="held",
        ),
        pytest.param(
            judged(problems=["disk full"]), "collector", "warning", "disk full", id="its own trouble"
        ),
    ],
)
def test_node(found: dict[str, Check], check: str, verdict: str, words: str) -> None:
    assert (found[check].verdict, words in found[check].why) == (verdict, True), found[check]


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor", "--collector", "c:1"),
        ("doctor", "n1", "--config", "agent.yaml"),
        ("doctor", "n[1-2]"),
        ("doctor", "n[1"),
    ],
)
def test_what_cannot_be_meant_is_said(run: CommandLine, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).code == 2


def test_settings_that_no_agent_starts_with_are_the_answer(run: CommandLine, tmp_path: object) -> None:
    ran = run("doctor", "--config", f"{tmp_path}/agent.yaml")
    assert ran.code == 3
    assert "No such file or directory" in ran.out


@pytest.mark.parametrize(
    ("environment", "collectors", "source"),
    [
        ({}, ("127.0.0.1:50051",), ""),
        ({"HYPERSCOUT_COLLECTOR": "127.0.0.1:7"}, ("127.0.0.1:7",), "; collectors of HYPERSCOUT_COLLECTOR"),
        ({"HYPERSCOUT_COLLECTOR": "[::1]:7", "HYPERSCOUT_AGENT_COLLECTORS": "[::1]:8"}, ("[::1]:8",), ""),
    ],
)
def test_this_machine_is_named_and_the_usual_variable_is_read(
    run: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    collectors: tuple[str, ...],
    source: str,
) -> None:
    asked: list[tuple[str, ...]] = []

    async def look(settings: AgentSettings) -> list[Check]:
        asked.append(settings.collectors)
        return []

    monkeypatch.setattr("hyperscout_cli.manage.doctor._look", look)
    monkeypatch.setattr("hyperscout_cli.manage.doctor.CONFIGS", ())
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    checks = {x["check"]: x["why"] for x in json.loads(run("doctor", "-o", "json").out)["checks"]}
    assert asked == [collectors]
    assert checks["machine"].startswith(f"this machine, {socket.gethostname()}, as ")
    assert checks["settings"].endswith(f"no settings file was given or found{source}")
