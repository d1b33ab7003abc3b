"""`hyperscout measure`, against a real gRPC server in this process."""

import json
import time
from collections.abc import Iterator

import pytest
from hyperscout.v1 import measurement_pb2 as pb
from hyperscout_cli.show.measure import report
from hyperscout_topology.proto import timestamp
from support.command_line import CommandLine
from support.measurement_service import FakeMeasurementService, serving_measurement

MINUTE_NS = 60_000_000_000


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, run: CommandLine) -> Iterator[FakeMeasurementService]:
    with serving_measurement(FakeMeasurementService()) as fake:
        monkeypatch.setenv("HYPERSCOUT_COLLECTOR", fake.address)
        yield fake


def learning() -> pb.GetMeasuringResponse:
    return pb.GetMeasuringResponse(
        state="learning",
        since=timestamp(time.time_ns() - 2 * MINUTE_NS),
        agents=12,
        probes=1234,
        probes_per_s=98.76,
        max_probes_per_s=100,
        pairs=60,
        in_flight=5,
    )


def test_status_says_how_it_goes(run: CommandLine, service: FakeMeasurementService) -> None:
    service.measuring = learning()
    ran = run("measure", "status")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "State:      learning, for 2m",
        "Agents:     12 can take part",
        "Probes:     1234, 98.8/s of at most 100/s",
        "In flight:  5",
        "Pairs:      60 confirmed by both ends",
        "Failed:     0",
    ]


def test_status_says_which_caller_paused_it_and_what_was_dropped() -> None:
    current = pb.GetMeasuringResponse(state="paused", reason="by admin ann: \x1b[2J", disagreeing=1)
    text = "".join(report(current, 0))
    assert "State:      paused\nReason:     by admin ann: \\x1b[2J\n" in text
    assert "Dropped:    1 pair: both ends disagree\n" in text


def test_status_as_json_has_every_field(run: CommandLine, service: FakeMeasurementService) -> None:
    service.measuring = learning()
    found = json.loads(run("measure", "status", "-o", "json").out)
    assert found["state"] == "learning"
    assert (found["probes"], found["failed"], found["inFlight"]) == (1234, 0, 5)


def test_pause_and_resume(run: CommandLine, service: FakeMeasurementService) -> None:
    assert run("measure", "pause", "--reason", "row 7").out == "measuring is paused\n"
    assert run("measure", "resume").out == "measuring is resumed\n"
    assert [(x.paused, x.reason) for x in service.asked] == [(True, "row 7"), (False, "")]


def test_a_refusal_exits_1_with_the_collector_s_words(
    run: CommandLine, service: FakeMeasurementService
) -> None:
    service.refusal = "measuring is off: set `measure: true`"
    ran = run("measure", "resume")
    assert (ran.code, ran.out, ran.err) == (1, "", "error: measuring is off: set `measure: true`\n")


@pytest.mark.parametrize(
    "arguments",
    [["measure"], ["measure", "nonesuch"], ["measure", "pause", "now"], ["measure", "status", "-o", "x"]],
)
def test_wrong_usage_exits_2(run: CommandLine, arguments: list[str]) -> None:
    assert run(*arguments).code == 2


@pytest.mark.parametrize("name", ["status", "pause", "resume"])
def test_each_has_help_with_examples(run: CommandLine, name: str) -> None:
    ran = run("measure", name, "--help")
    assert ran.code == 0
    assert "Examples:" in ran.out
