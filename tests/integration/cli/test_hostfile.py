"""`hostfile` against a real gRPC server in this process."""

import json
from collections.abc import Iterator

import pytest
from hyperscout_cli.place.hostfile import Host, lines
from support.command_line import CommandLine
from support.placement_service import FakePlacementService, placed, serving_placements
from support.topologies import two_leaves
from support.topology_service import FakeTopologyService


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, run: CommandLine) -> Iterator[FakePlacementService]:
    with serving_placements(FakePlacementService(), FakeTopologyService(topology=two_leaves())) as fake:
        monkeypatch.setenv("HYPERSCOUT_COLLECTOR", fake.address)
        fake.held["train-7"] = placed("train-7", "n02", "n02", "n01")
        fake.held["ml/Job/t"] = placed("ml/Job/t", "n03", "n04", "n03")
        yield fake


def test_a_gang_of_the_api_and_one_of_gates(run: CommandLine, service: FakePlacementService) -> None:
    assert run("hostfile", "train-7").out == "n02 slots=2\nn01 slots=1\n"
    assert run("hostfile", "train-7", "--slots", 4, "-o", "mpich").out == "n02:8\nn01:4\n"
    ran = run("hostfile", "ml/Job/t")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: ml/Job/t: n03 has ranks 0 and 2 but not those between, and Open MPI")
    assert run("hostfile", "ml/Job/t", "-o", "plain").out == "n03\nn04\nn03\n"


def test_the_hosts_as_an_object(run: CommandLine, service: FakePlacementService) -> None:
    ran = run("hostfile", "train-7", "-o", "json", "--slots", 2)
    assert json.loads(ran.out) == {
        "gang": "train-7",
        "hosts": [
            {"host": "n02", "slots": 4, "ranks": [0, 1]},
            {"host": "n01", "slots": 2, "ranks": [2]},
        ],
    }


def test_a_line_for_each_slot_is_written_in_pieces() -> None:
    pieces = list(lines("g", [Host("n1", (0, 1, 2)), Host("n2", (3,))], 2, "plain"))
    assert pieces == ["n1\nn1\n"] * 3 + ["n2\nn2\n"]


def test_an_error_says_what_to_write(run: CommandLine, service: FakePlacementService) -> None:
    ran = run("hostfile", "train-8")
    assert (ran.code, ran.out) == (1, "")
    assert "named 'train-8' (similar: train-7): expected the name of a gang that holds nodes" in ran.err
    assert "`hyperscout placements list` lists all" in ran.err
    ran = run("hostfile")
    assert ran.code == 2
    assert "Missing argument 'GANG': for example `hyperscout hostfile train-7" in ran.err
    ran = run("hostfile", "train-7", "--slots", 0)
    assert (ran.code, ran.out) == (2, "")
    assert "expected a whole number from 1 to 1024" in ran.err
    for one in service.held["ml/Job/t"].assignments:
        one.role = "b+1"
    ran = run("hostfile", "ml/Job/t", "--role", "b")
    assert (ran.code, ran.out) == (1, "")
    assert "no rank has the role 'b': write one of b+1 (a role like a+3 is several roles" in ran.err
    service.held["empty"] = placed("empty")
    ran = run("hostfile", "empty")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: empty: it has no ranks: ")
    for name in ("-x", ".", ".."):
        service.held["odd"] = placed("odd", name)
        ran = run("hostfile", "odd")
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith(f"error: odd: node {name!r}: a hostfile takes only letters")
    assert "write one of worker" in run("hostfile", "train-7", "--role", "launcher").err
