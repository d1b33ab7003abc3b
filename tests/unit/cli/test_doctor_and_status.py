"""`doctor NODE` and `status` agree: what one calls wrong, the other names."""

from dataclasses import replace
from itertools import product

import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_cli.manage.doctor import sentences
from hyperscout_cli.manage.doctor_node import NodeSeen, judge
from hyperscout_cli.show.status import report
from hyperscout_topology.problems import agent_notes, problems_of
from hyperscout_topology.topology import Topology
from support.doctor import NODE, NOW_NS, agent, stored
from support.topologies import healthy_leaves, two_leaves

WELL = replace(healthy_leaves(), nodes_without_evidence=())
ELSEWHERE = replace(
    WELL,
    hypernodes=tuple(replace(h, nodes=tuple(n for n in h.nodes if n != NODE)) for h in WELL.hypernodes),
)
TOPOLOGIES = {
    "well": WELL,
    "degraded": replace(
        WELL,
        hypernodes=tuple(
            replace(h, conditions=two_leaves().hypernodes[1].conditions) for h in WELL.hypernodes
        ),
    ),
    "lost": replace(WELL, nodes_without_evidence=(NODE,)),
    "elsewhere": ELSEWHERE,
    "empty": Topology(1),
}
FINDINGS = {
    "data": (stored("lldp", "eth0"),),
    "none": (),
    "failed": (stored("lldp", "eth0", "failed", "no driver"),),
    "one failed": (stored("lldp", "eth0"), stored("nvlink", "0", "failed", "no driver")),
    "stale": (stored("lldp", "eth0", stale=True),),
}
AWAY = f"1 agent not connected: {NODE}"
OF_CLOCK = {900.0: [f"1 agent with a wrong clock: {NODE}"]}
OF_FINDINGS = {
    "data": [],
    "none": [f"1 agent without findings: {NODE}"],
    "failed": [f"1 agent with failed findings: {NODE}"],
    "one failed": [f"1 agent with failed findings: {NODE}"],
    "stale": [],
}
OF_TREE = {
    "well": [],
    "degraded": ["leaf-a: Degraded"],
    "lost": [f"1 node without evidence: {NODE}"],
    "elsewhere": [],
    "empty": ["no HyperNodes yet"],
}
PROBLEMS = ((), ("the disk is full",))
CASES = [*product(TOPOLOGIES, FINDINGS, (True, False), (0.0, 900.0), PROBLEMS)]


@pytest.mark.parametrize(("tree", "found", "connected", "clock_s", "problems"), CASES)
def test_doctor_and_status_do_not_contradict_each_other(
    tree: str, found: str, connected: bool, clock_s: float, problems: tuple[str, ...]
) -> None:
    findings, topology = FINDINGS[found], TOPOLOGIES[tree]
    failed = sum(x.finding.outcome == stored("x", "x", "failed").finding.outcome for x in findings)
    one = agent(connected=connected, findings=len(findings), failed_findings=failed, clock_offset_s=clock_s)
    current = pb.GetStatusResponse(
        version="1",
        agents=[one],
        problems=problems,
        findings=len(findings),
        stale_findings=sum(x.stale for x in findings),
    )
    wrong, notes = problems_of(current, topology), agent_notes(current, topology)
    said = "".join(report(current, wrong, notes, NOW_NS))
    checks = judge(NodeSeen(NODE, current, topology, findings), NOW_NS)
    advice = sentences(NODE, checks)
    bad = [check for check in checks if check.verdict == "failed"]
    expected = [
        *([AWAY] if not connected else [*OF_CLOCK.get(clock_s, ()), *OF_FINDINGS[found]]),
        *OF_TREE[tree],
        *([f"1 agent in no HyperNode: {NODE}"] if connected and tree in {"elsewhere", "empty"} else []),
        *(["1 of 1 finding stale"] if found == "stale" else []),
    ]
    assert [line for line in expected if line not in said] == [], (said, advice)
    assert expected or not bad, (said, advice)
    assert not (expected or problems) or "Nothing is wrong.\n" not in said, (said, advice)
    if any(NODE in line or line.startswith("leaf-a") for line in (*wrong, *notes)):
        assert f"All checks of {NODE} passed." not in advice, (said, advice)
    for problem in problems:
        assert problem in said
        assert any(problem in sentence for sentence in advice)
    if tree == "degraded" and connected:
        (line,) = (line for line in wrong if line.startswith("leaf-a: Degraded"))
        assert any(line in sentence for sentence in advice)


@pytest.mark.parametrize(
    ("generation", "published_s", "said"),
    [
        (0, 0, "0, published never"),
        (7, 0, "7, published before the start of the collector"),
        (7, NOW_NS // 10**9 - 5, "7, published 5s ago"),
    ],
)
def test_when_the_generation_was_published(generation: int, published_s: int, said: str) -> None:
    current = pb.GetStatusResponse(generation=generation)
    if published_s:
        current.published_at.FromSeconds(published_s)
    assert f"Generation: {said}\n" in " ".join("".join(report(current, (), (), NOW_NS)).split(" ")).replace(
        "  ", " "
    )
