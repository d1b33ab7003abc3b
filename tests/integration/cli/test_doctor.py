"""`hyperscout doctor NODE`: what the collector's answers come to."""

import json
import time

import pytest
import yaml
from hyperscout.v1 import topology_pb2 as pb
from support.command_line import CommandLine
from support.doctor import NODE, agent, stored
from support.findings import stamp
from support.topology_service import FakeTopologyService


@pytest.fixture
def sick(service: FakeTopologyService) -> FakeTopologyService:
    service.status = pb.GetStatusResponse(
        version="1", agents=[agent(last_heard=stamp(time.time_ns()))], generation=3
    )
    service.findings = [stored("lldp", "eth0"), stored("nvlink", "*", "failed", "no driver\x1b[31m")]
    return service


def test_the_table_ends_in_sentences(run: CommandLine, sick: FakeTopologyService) -> None:
    ran = run("doctor", NODE)
    assert ran.code == 3
    assert ran.out.splitlines()[0].split() == ["CHECK", "RESULT", "WHY"]
    assert ran.out.splitlines()[-1] == r"Wrong: probe nvlink: 1 failed: *: no driver\x1b[31m."


def test_it_is_data_too(run: CommandLine, sick: FakeTopologyService) -> None:
    ran = run("doctor", NODE, "-o", "json")
    found = json.loads(ran.out)
    assert (ran.code, found["node"], found["ok"]) == (3, NODE, False)
    assert {"check": "version", "result": "ok", "why": "1", "todo": ""} in found["checks"]
    assert yaml.safe_load(run("doctor", NODE, "-o", "yaml").out) == found


def test_a_well_node_exits_0(run: CommandLine, sick: FakeTopologyService) -> None:
    sick.findings = [stored("lldp", "eth0")]
    ran = run("doctor", NODE)
    assert (ran.code, ran.out.splitlines()[-1]) == (0, f"All checks of {NODE} passed.")


def test_a_collector_that_is_away_is_an_answer(run: CommandLine) -> None:
    ran = run("doctor", NODE, "--collector", "127.0.0.1:1")
    assert ran.code == 3
    assert "cannot reach the collector at 127.0.0.1:1" in ran.out
