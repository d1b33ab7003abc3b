"""`hyperscout measure nccl`: words in, a table out, and an exit code that says whose turn it is."""

import json
from collections.abc import Iterator

import click
import pytest
from hyperscout.v1.finding_pb2 import NcclResult, NcclRun
from hyperscout_cli.show.measure_nccl import progress, size_bytes, size_text
from support.command_line import CommandLine
from support.measurement_service import FakeMeasurementService, serving_measurement

RUN = NcclRun(
    peer="b",
    method="libnccl",
    nccl_version="2.29.3",
    ranks=2,
    duration_s=3.14,
    results=[
        NcclResult(
            operation="all_reduce",
            size_bytes=8,
            time_us=11.26,
            algorithm_gbytes_per_s=0.00071,
            bus_gbytes_per_s=0.00071,
        ),
        NcclResult(
            operation="sendrecv",
            size_bytes=1 << 30,
            time_us=22000,
            algorithm_gbytes_per_s=48.8,
            bus_gbytes_per_s=48.8,
        ),
    ],
)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, run: CommandLine) -> Iterator[FakeMeasurementService]:
    with serving_measurement(FakeMeasurementService(run=RUN)) as fake:
        monkeypatch.setenv("HYPERSCOUT_COLLECTOR", fake.address)
        yield fake


def test_a_run_between_two(run: CommandLine, service: FakeMeasurementService) -> None:
    ran = run("measure", "nccl", "a", "b", "--size", "8", "--size", "1G", "--limit", "60s")
    assert (ran.code, ran.err) == (0, "NCCL between a and b: 60 s at most\n")
    assert ran.out.splitlines() == [
        "libnccl, NCCL 2.29.3, 2 ranks between a and b, 3.1 s",
        "",
        "OPERATION    SIZE    TIME         DATA           BUS",
        "all_reduce   8 B     11.3 us      0.00071 GB/s   0.00071 GB/s",
        "sendrecv     1 GiB   22000.0 us   48.8 GB/s      48.8 GB/s",
    ]
    (asked,) = service.asked
    assert (list(asked.nodes), list(asked.sizes_bytes), asked.timeout_s) == (["a", "b"], [8, 1 << 30], 60.0)


def test_a_run_within_one_as_json(run: CommandLine, service: FakeMeasurementService) -> None:
    ran = run("measure", "nccl", "a", "-o", "json")
    found = json.loads(ran.out)
    assert (found["method"], found["results"][1]["sizeBytes"]) == ("libnccl", 1 << 30)
    assert "within a" in ran.err
    assert list(service.asked[0].sizes_bytes) == []  # the server's choice


def test_what_may_not_run_now_exits_3(run: CommandLine, service: FakeMeasurementService) -> None:
    service.refusal = "b: neither cordoned nor reserved"
    ran = run("measure", "nccl", "a", "b")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.splitlines()[-1] == "b: neither cordoned nor reserved"


def test_no_collector_exits_1(run: CommandLine) -> None:
    ran = run("measure", "nccl", "a", "b", "--collector", "127.0.0.1:1")
    assert ran.code == 1
    assert "cannot reach the collector" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a", "a"],
        ["a", "b", "c"],
        ["a", "--size", "7"],
        ["a", "--size", "2"],
        ["a", "--size", "17G"],
        ["a", "--size", "1T"],
        ["a", "--size", "-8"],
        ["a", *["--size", "8"] * 33],
        ["a", "--limit", "0"],
        ["a", "-o", "dot"],
    ],
)
def test_wrong_usage_exits_2(run: CommandLine, service: FakeMeasurementService, arguments: list[str]) -> None:
    assert run("measure", "nccl", *arguments).code == 2
    assert service.asked == []


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8", 8),
        ("1024", 1024),
        ("1K", 1024),
        ("1k", 1024),
        ("64M", 64 << 20),
        ("64MiB", 64 << 20),
        ("64MB", 64 << 20),
        ("16G", 16 << 30),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert size_bytes(text) == size


def test_sizes_as_text() -> None:
    assert [size_text(x) for x in (8, 1024, 1028, 3 << 20, 1 << 30)] == [
        "8 B",
        "1 KiB",
        "1028 B",
        "3 MiB",
        "1 GiB",
    ]
    with pytest.raises(click.BadParameter):
        size_bytes("")


def test_progress_on_a_terminal_is_wiped_in_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with progress("NCCL \x1b[2J"):
        pass
    assert capsys.readouterr().err == "NCCL \\x1b[2J\r\033[K"
