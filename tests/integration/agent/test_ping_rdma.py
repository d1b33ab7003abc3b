"""perftest's programs, played by scripts that print the genuine format; and the genuine ones' options."""

import asyncio
import itertools
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hyperscout_agent.ping.bucket import Bucket
from hyperscout_agent.ping.rdma import RdmaOutcome, RdmaPings, RdmaPlan
from support.real import require_real, tool
from support.waiting import TIMEOUT_S

# Client and server as perftest: the side that gets an address connects, the other waits.
_PLAY = """#!/usr/bin/env python3
import socket, sys, time
argv = sys.argv[1:]
port = int(argv[argv.index("-p") + 1])
with open({log!r}, "a") as log:
    log.write({name!r} + " " + " ".join(argv) + "\\n")
if argv[-2] == "-p":
    with socket.create_server(("127.0.0.1", port)) as server:
        server.settimeout(240)
        server.accept()[0].close()
    sys.exit(0)
try:
    socket.create_connection(("127.0.0.1", port), 60).close()
except OSError:
    print("Couldn't connect to 127.0.0.1:" + str(port), file=sys.stderr)
    sys.exit(1)
print({text!r})
"""
LATENCY = """
 #bytes #iterations t_min[usec]  t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 2       200          1.50           3.42         1.60           1.65          0.10"""
BANDWIDTH = """ #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1000             392.10             389.95             0.743771"""


def play(folder: Path, name: str, text: str) -> str:
    script = folder / name
    script.write_text(_PLAY.format(log=str(folder / "log"), name=name, text=text))
    script.chmod(0o755)
    return str(script)


def pings(
    latency: str,
    bandwidth: str | None,
    *,
    kbps: float = 1000,
    timeout_s: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
) -> RdmaPings:
    return RdmaPings(
        ib_send_lat=[latency],
        ib_send_bw=[bandwidth] if bandwidth else [],
        bucket=Bucket(kbps, time.monotonic),
        timeout_s=timeout_s,
        clock=clock,
        sleep=lambda _: asyncio.sleep(0.02),
    )


def plan(*, first: bool, task: int = 3) -> RdmaPlan:
    return RdmaPlan(task, first, "mlx5_1/2", "127.0.0.1")


async def test_each_end_is_client_once(tmp_path: Path) -> None:
    latency, bandwidth = play(tmp_path, "lat", LATENCY), play(tmp_path, "bw", BANDWIDTH)
    ends = [pings(latency, bandwidth), pings(latency, bandwidth)]
    found = await asyncio.gather(
        *(end.measure(plan(first=first)) for end, first in zip(ends, (True, False), strict=True))
    )
    for outcome in found:
        assert outcome.bandwidth_gbps == 389.95
        summary = outcome.summary
        assert (summary.failure, summary.sent, summary.received) == ("", 200, 200)
        assert (summary.min_us, summary.median_us) == (3.0, 3.2), "there and back"
        assert summary.jitter_us == pytest.approx(2 * 0.1 * 0.6745)
    lines = set((tmp_path / "log").read_text().splitlines())
    common = "-d mlx5_1 -i 2 -s"
    assert {line for line in lines if line.startswith("lat")} == {
        f"lat {common} 2 -n 200 -F -p 20012",
        f"lat {common} 2 -n 200 -F -p 20012 127.0.0.1",
        f"lat {common} 2 -n 200 -F -p 20013",
        f"lat {common} 2 -n 200 -F -p 20013 127.0.0.1",
    }
    assert f"bw {common} 65536 -n 1000 -F --report_gbits -p 20015 127.0.0.1" in lines


async def test_bandwidth_waits_until_the_last_one_is_paid(tmp_path: Path) -> None:
    latency, bandwidth = play(tmp_path, "lat", LATENCY), play(tmp_path, "bw", BANDWIDTH)
    ends = [pings(latency, bandwidth), pings(latency, bandwidth)]
    gbps = []
    for task in (1, 2):
        found = await asyncio.gather(
            ends[0].measure(plan(first=True, task=task)), ends[1].measure(plan(first=False, task=task))
        )
        gbps.append([one.bandwidth_gbps for one in found])
        assert not any(one.summary.failure for one in found)
    assert gbps == [[389.95, 389.95], [0.0, 0.0]]


def hours() -> Callable[[], float]:
    """A clock that is an hour ahead at each look: a client that fails is not started again."""
    return itertools.count(0.0, 3600.0).__next__


async def alone(text: str, folder: Path, timeout_s: float) -> RdmaOutcome:
    script = folder / "tool"
    script.write_text(text)
    script.chmod(0o755)
    return await pings(str(script), None, timeout_s=timeout_s, clock=hours()).measure(plan(first=True))


@pytest.mark.parametrize(
    ("text", "timeout_s", "failure"),
    [
        (
            "#!/bin/sh\necho ' Unable to find the Infiniband/RoCE device' >&2; exit 1\n",
            60.0,
            "exit 1: Unable to find the",
        ),
        ("#!/bin/sh\nexec sleep 600\n", 0.5, "still running after 0.5 s"),
        ("#!/bin/sh\necho junk\n", 60.0, "no table of results in the output"),
        ("#!/bin/sh\nyes\n", 60.0, "bytes of output"),
    ],
)
async def test_tools_in_trouble(tmp_path: Path, text: str, timeout_s: float, failure: str) -> None:
    found = await alone(text, tmp_path, timeout_s)
    assert failure in found.summary.failure
    assert (found.summary.min_us, found.bandwidth_gbps) == (0.0, 0.0)


async def test_no_such_tool() -> None:
    found = await pings("/no/such/tool", None).measure(plan(first=True))
    assert "install it" in found.summary.failure


async def test_both_turns_are_paid_for_before_they_begin(tmp_path: Path) -> None:
    now_s = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        await asyncio.sleep(0)

    bucket = Bucket(50, lambda: now_s)
    assert bucket.take(bucket.most_bytes), "another burst was first: it waits, and does not fail"
    latency = play(tmp_path, "lat", LATENCY)
    ends = [
        RdmaPings(ib_send_lat=[latency], ib_send_bw=[], bucket=one, sleep=sleep)
        for one in (bucket, Bucket(10_000, lambda: now_s))
    ]
    found = await asyncio.gather(*(end.measure(plan(first=i == 0)) for i, end in enumerate(ends)))
    assert [one.summary.failure for one in found] == ["", ""]
    sent = 2 * 200 * 128  # an end sends 200 as the client, and 200 as the server
    assert ends[1]._bucket.sent_bytes == sent
    assert bucket.sent_bytes - bucket.most_bytes == sent
    assert now_s >= (bucket.sent_bytes * 8 - 50_000) / 50_000, "not faster than the limit"


@pytest.mark.parametrize(("program", "options"), [("ib_send_lat", "dipsnF"), ("ib_send_bw", "dipsnF")])
def test_the_genuine_ones_know_our_options(program: str, options: str) -> None:
    require_real("perftest")
    done = subprocess.run([str(tool(program)), "--help"], capture_output=True, timeout=TIMEOUT_S, check=False)
    told = done.stdout.decode()
    for option in options:
        assert f"\n  -{option}, " in told
    if program == "ib_send_bw":
        assert "--report_gbits" in told


async def test_the_genuine_one_without_a_device() -> None:
    require_real("perftest", "no-rdma-device")
    found = await pings(str(tool("ib_send_lat")), None, clock=hours()).measure(plan(first=True))
    assert "exit 1" in found.summary.failure
    assert "device" in found.summary.failure.lower()
    assert found.summary.min_us == 0.0
