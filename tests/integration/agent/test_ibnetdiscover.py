"""The sweep probe with the real tool on a simulated fabric: whole, partial, failed, only under a lease."""

import asyncio
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hyperscout.v1.discovery_pb2 import SweepLease
from hyperscout.v1.finding_pb2 import Finding, Outcome
from hyperscout_agent.findings.probe import Observation
from hyperscout_agent.probes.ibnetdiscover import IbnetdiscoverProbe
from hyperscout_formats.infiniband.ibnetdiscover_text import TextSummary, summary
from support.ibsim import DEVICE, Ibsim, running_ibsim
from support.real import require_real, tool
from support.waiting import TIMEOUT_S

require_real("ibsim", "ibnetdiscover")

SUBJECT = f"{DEVICE}/1"
WHOLE = (3, 4, 12)  # switches, adapters, port records


async def unknown_port(_device: str, _port: int) -> None:
    return None


@pytest.fixture
def ibsim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ibsim]:
    monkeypatch.chdir(tmp_path)
    with running_ibsim(tmp_path) as running:
        for name, value in running.env("H0001").items():
            monkeypatch.setenv(name, value)
        yield running


def leased_probe(device: str = DEVICE, **options: float) -> IbnetdiscoverProbe:
    command = [str(tool("ibsim-run")), str(tool("ibnetdiscover"))]
    probe = IbnetdiscoverProbe(command=command, port_of=unknown_port, **options)  # type: ignore[arg-type]
    probe.take_lease(SweepLease(lease_id="L1", device=device, port=1, interval_s=60.0))
    return probe


def seen(observation: Observation) -> tuple[Finding, TextSummary]:
    sample = observation.samples[SUBJECT]
    assert sample.outcome == Outcome.OUTCOME_DATA, sample.reason
    (bulk,) = observation.bulks
    text = zlib.decompress(bulk.compressed)
    finding = Finding(sweep=sample.payload, outcome=sample.outcome, reason=sample.reason)  # type: ignore[arg-type]
    assert (finding.sweep.sha256, finding.sweep.size_bytes) == (bulk.sha256, len(text))
    return finding, summary(text)


def numbers(text: TextSummary) -> tuple[int, int, int]:
    return text.switches, text.adapters, text.records


async def test_a_whole_sweep_is_the_tools_own_text(ibsim: Ibsim) -> None:
    probe = leased_probe()
    first = await probe.observe()
    finding, text = seen(first)
    assert numbers(text) == WHOLE
    sweep = finding.sweep
    assert (sweep.partial, sweep.lease_id, sweep.device, sweep.port) == (False, "L1", DEVICE, 1)
    assert sweep.port_guid == 0x111
    mine = zlib.decompress(first.bulks[0].compressed).splitlines()
    assert [line for line in mine if not line.startswith(b"#")] == [
        line for line in ibsim.sweep("H0001").splitlines() if not line.startswith(b"#")
    ]
    again = await probe.observe()
    assert again.bulks[0].sha256 == first.bulks[0].sha256, "an unchanged fabric keeps its digest"


async def test_a_mute_node_makes_it_partial(ibsim: Ibsim) -> None:
    probe = leased_probe()
    seen(await probe.observe())
    ibsim.error("H0004", 1, 100)
    finding, _ = seen(await probe.observe())
    assert finding.sweep.partial
    assert "bad status 110" in finding.sweep.partial_reason
    ibsim.error("H0004", 1, 0)
    finding, text = seen(await probe.observe())
    assert (finding.sweep.partial, numbers(text)) == (False, WHOLE)


async def test_the_own_port_down_makes_it_partial(ibsim: Ibsim) -> None:
    probe = leased_probe()
    ibsim.unlink("H0001", 1)
    finding, text = seen(await probe.observe())
    assert numbers(text) == (0, 1, 0)
    assert finding.sweep.partial
    assert "only its own adapter" in finding.sweep.partial_reason
    ibsim.relink("H0001", 1)
    finding, text = seen(await probe.observe())
    assert (finding.sweep.partial, numbers(text)) == (False, WHOLE)


@pytest.mark.parametrize(
    ("device", "port", "numbers_left"),
    [
        pytest.param("H0004", 1, (3, 3, 10), id="a host's cable"),
        pytest.param("spine1", None, (1, 2, 4), id="a switch, which splits the fabric"),
        pytest.param("leaf2", None, (2, 2, 6), id="a leaf with its hosts"),
    ],
)
async def test_what_was_really_pulled_is_a_smaller_fabric(
    ibsim: Ibsim, device: str, port: int | None, numbers_left: tuple[int, int, int]
) -> None:
    probe = leased_probe()
    seen(await probe.observe())
    ibsim.unlink(device, port)
    finding, text = seen(await probe.observe())
    assert (finding.sweep.partial, finding.sweep.partial_reason) == (False, "")
    assert numbers(text) == numbers_left


async def test_no_such_device_has_failed(ibsim: Ibsim) -> None:
    observation = await leased_probe("mlx5_7").observe()
    sample = observation.samples["mlx5_7/1"]
    assert sample.outcome == Outcome.OUTCOME_FAILED
    assert "exit 255" in sample.reason
    assert "mlx5_7" in sample.reason


async def test_a_fabric_that_is_gone_times_out_and_leaves_no_process(ibsim: Ibsim) -> None:
    ibsim.process.kill()
    ibsim.process.wait(5)
    before = children()
    observation = await leased_probe(timeout_s=0.5).observe()
    sample = observation.samples[SUBJECT]
    assert sample.outcome == Outcome.OUTCOME_FAILED
    assert "still running after 0.5 s" in sample.reason
    assert children() == before


async def test_a_revoked_lease_ends_the_sweep_that_runs(ibsim: Ibsim) -> None:
    ibsim.process.kill()  # so that the tool hangs
    ibsim.process.wait(5)
    before = children()
    probe = leased_probe()
    look = asyncio.create_task(probe.observe())
    async with asyncio.timeout(TIMEOUT_S):
        while children() == before and not look.done():
            await asyncio.sleep(0.01)
        probe.revoke("L1")
        observation = await look
    assert (dict(observation.samples), observation.complete, probe.interval_s) == ({}, False, None)
    assert children() == before


def children() -> set[str]:
    """Process ids of our own children."""
    mine = str(os.getpid())
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[1] == mine and fields[0] != "Z":
            found.add(stat.parent.name)
    return found
