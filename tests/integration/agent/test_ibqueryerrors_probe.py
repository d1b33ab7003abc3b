"""What the probe makes of what ibqueryerrors says. The tool here is a shell script."""

import zlib
from pathlib import Path

import pytest
from hyperscout.v1.discovery_pb2 import SweepLease
from hyperscout.v1.finding_pb2 import Outcome, Sweep
from hyperscout_agent.findings.probe import Observation
from hyperscout_agent.probes.ibqueryerrors import IbqueryerrorsProbe

TEXT = """Errors for 0x1000 "MF0;leaf1:MQM8700/U1"
   GUID 0x1000 port 1: [SymbolErrorCounter == 77]

## Summary: 7 nodes checked, 1 bad nodes found
##          28 ports checked, 1 ports have errors beyond threshold
"""
SUBJECT = "mlx5_0/1"


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.triggered = 0
        self.says(TEXT)
        tool = folder / "tool"
        tool.write_text(
            f'#!/bin/sh\ncd {folder}\necho "$@" > args\ncat out\ncat err >&2\nexit $(cat code)\n', "utf-8"
        )
        tool.chmod(0o755)
        self.probe = IbqueryerrorsProbe(command=[str(tool)], trigger=self._trigger, clock=lambda: 0.0)

    def _trigger(self) -> None:
        self.triggered += 1

    def says(self, out: str, err: str = "", code: int = 1) -> None:
        for name, text in (("out", out), ("err", err), ("code", str(code))):
            (self.folder / name).write_text(text, "utf-8")

    def lease(self, lease_id: str = "L1", device: str = "mlx5_0") -> None:
        self.probe.take_lease(SweepLease(lease_id=lease_id, device=device, port=1, interval_s=60.0))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def payload(look: Observation) -> Sweep:
    found = look.samples[SUBJECT].payload
    assert isinstance(found, Sweep)
    return found


async def test_the_tool_s_own_text_under_a_lease(world: World) -> None:
    assert world.probe.interval_s is None
    world.lease()
    assert (world.triggered, world.probe.interval_s) == (1, 300.0), "at its own pace, not the sweep's"
    look = await world.probe.observe()
    assert look.samples[SUBJECT].outcome == Outcome.OUTCOME_DATA
    (bulk,) = look.bulks
    assert zlib.decompress(bulk.compressed).decode() == TEXT
    sweep = payload(look)
    assert (sweep.format, sweep.lease_id, sweep.device, sweep.port) == ("ibqueryerrors", "L1", "mlx5_0", 1)
    assert (sweep.sha256, sweep.partial) == (bulk.sha256, False)
    args = (world.folder / "args").read_text().split()
    assert args[:2] == ["--threshold-file", "/dev/null"], "a site's own thresholds hide what grows"
    assert args[-4:] == ["-C", "mlx5_0", "-P", "1"]
    assert not {"-k", "-K", "--clear-errors", "--clear-counts"} & set(args)


@pytest.mark.parametrize(
    ("out", "err", "code", "outcome", "reason"),
    [
        pytest.param("## Summary: 7 nodes checked\n", "", 0, Outcome.OUTCOME_DATA, "", id="no-errors-at-all"),
        pytest.param(
            TEXT, "ibwarn: bad status 110\n", 1, Outcome.OUTCOME_DATA, "ibwarn: bad status 110", id="partial"
        ),
        pytest.param(
            "",
            "ibwarn: [1] sa_get_handle: No SM/SA found on port (null):0\n",
            0,
            Outcome.OUTCOME_FAILED,
            "no subnet manager",
            id="no-manager",
        ),
        pytest.param(
            "",
            "iberror: failed: Failed to open port; x:1\n",
            255,
            Outcome.OUTCOME_FAILED,
            "exit 255: iberror",
            id="fails",
        ),
        pytest.param(TEXT[:90], "", -9, Outcome.OUTCOME_FAILED, "no summary", id="cut-short"),
    ],
)
async def test_how_it_ends(
    world: World, out: str, err: str, code: int, outcome: Outcome.ValueType, reason: str
) -> None:
    world.says(out, err, code % 256)
    world.lease()
    sample = (await world.probe.observe()).samples[SUBJECT]
    assert sample.outcome == outcome
    assert reason in sample.reason
    assert isinstance(sample.payload, Sweep)
    assert sample.payload.partial == (outcome == Outcome.OUTCOME_DATA and bool(reason))


async def test_a_tool_that_is_not_there() -> None:
    probe = IbqueryerrorsProbe(command=["/nowhere/ibqueryerrors"])
    probe.take_lease(SweepLease(lease_id="L1", device="mlx5_0", port=1))
    sample = (await probe.observe()).samples[SUBJECT]
    assert sample.outcome == Outcome.OUTCOME_FAILED
    assert "infiniband-diags" in sample.reason


async def test_what_is_told_ends_with_the_lease(world: World) -> None:
    world.lease()
    world.lease("L2", "mlx5_1")
    assert sorted((await world.probe.observe()).samples) == ["mlx5_0/1", "mlx5_1/1"]
    world.probe.revoke("L1")
    assert world.triggered == 3
    look = await world.probe.observe()
    assert (sorted(look.samples), look.complete) == (["mlx5_1/1"], True), "the other is taken back"


async def test_a_stream_that_breaks_takes_nothing_back_at_once(world: World) -> None:
    world.lease()
    await world.probe.observe()
    world.probe.drop()
    assert (world.triggered, world.probe.interval_s) == (1, 300.0)
    look = await world.probe.observe()
    assert (dict(look.samples), look.complete) == ({}, True)
    assert world.probe.interval_s is None


async def test_a_flood_is_cut_off(world: World) -> None:
    world.says("x" * 100_000)
    probe = IbqueryerrorsProbe(command=[str(world.folder / "tool")], max_output_bytes=1000)
    probe.take_lease(SweepLease(lease_id="L1", device="mlx5_0", port=1))
    assert "more than 1000 bytes" in (await probe.observe()).samples[SUBJECT].reason
