"""The probe of a host's own adapters, on a tree of files."""

import shutil
from pathlib import Path

import pytest
from hyperscout.v1.finding_pb2 import InfinibandPort, Outcome
from hyperscout_agent.probes.ibnetdiscover import port_of
from hyperscout_agent.probes.infiniband import InfinibandProbe


def adapter(root: Path, device: str = "mlx5_0", port: int = 1, **files: str) -> None:
    given = {
        "node_guid": "a088:c203:00aa:0001", "sys_image_guid": "a088:c203:00aa:0001",
        "node_desc": "host mlx5_0",
        f"ports/{port}/state": "4: ACTIVE", f"ports/{port}/phys_state": "5: LinkUp",
        f"ports/{port}/rate": "400 Gb/sec (4X NDR)",
        f"ports/{port}/lid": "0x1f", f"ports/{port}/sm_lid": "0x1",
        f"ports/{port}/link_layer": "InfiniBand",
        f"ports/{port}/gids/0": "fe80:0000:0000:0000:a088:c203:00aa:0002",
        **{f"ports/{port}/{name}": text for name, text in files.items()},
    }  # fmt: skip
    for path, text in given.items():
        target = root / device / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n")


async def test_ports_and_their_changes(tmp_path: Path) -> None:
    adapter(tmp_path)
    adapter(tmp_path, "mlx5_1")
    probe = InfinibandProbe(root=tmp_path)
    look = await probe.observe()
    assert sorted(look.samples) == ["mlx5_0/1", "mlx5_1/1"]
    assert look.complete
    payload = look.samples["mlx5_0/1"].payload
    assert isinstance(payload, InfinibandPort)
    assert (payload.state, payload.rate_gbps, payload.lid, payload.sm_lid) == ("ACTIVE", 400.0, 31, 1)
    assert await probe.observe() is look, "at rest nothing is read anew"
    adapter(tmp_path, state="1: DOWN", phys_state="2: Polling")
    changed = (await probe.observe()).samples["mlx5_0/1"].payload
    assert isinstance(changed, InfinibandPort)
    assert (changed.state, changed.physical_state) == ("DOWN", "Polling")
    shutil.rmtree(tmp_path / "mlx5_1")
    assert sorted((await probe.observe()).samples) == ["mlx5_0/1"]


async def test_a_host_without_adapters(tmp_path: Path) -> None:
    look = await InfinibandProbe(root=tmp_path / "nowhere").observe()
    assert (dict(look.samples), look.complete) == ({}, True)


async def test_a_sick_port_is_failed_and_takes_nothing_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    adapter(tmp_path)
    adapter(tmp_path, "mlx5_1", state="\x00garbage")
    look = await InfinibandProbe(root=tmp_path).observe()
    assert look.samples["mlx5_0/1"].outcome == Outcome.OUTCOME_DATA
    assert look.samples["mlx5_1/1"].outcome == Outcome.OUTCOME_FAILED
    assert "mlx5_1" in look.samples["mlx5_1/1"].reason
    assert not look.complete
    assert "mlx5_1" in caplog.text


async def test_the_port_of_a_sweep(tmp_path: Path) -> None:
    adapter(tmp_path)
    port = await port_of(tmp_path, "mlx5_0", 1)
    assert port is not None
    assert port.state == "ACTIVE"
    assert await port_of(tmp_path, "mlx5_0", 2) is None


async def test_counters_once_a_minute_and_when_something_changed(tmp_path: Path) -> None:
    now_s = [1000.0]
    probe = InfinibandProbe(root=tmp_path, clock=lambda: now_s[0])

    async def told() -> int:
        payload = (await probe.observe()).samples["mlx5_0/1"].payload
        assert isinstance(payload, InfinibandPort)
        return payload.counters.rx_errors

    for at_s, errors, state, found in (
        (1000.0, 3, "4: ACTIVE", 3),
        (1059.0, 9, "4: ACTIVE", 3),
        (1060.0, 9, "4: ACTIVE", 9),
        (1061.0, 70, "4: ACTIVE", 9),
        (1062.0, 70, "1: DOWN", 70),
        (1063.0, 80, "1: DOWN", 70),
        (1121.0, 80, "1: DOWN", 70),
        (1122.0, 80, "1: DOWN", 80),
    ):
        now_s[0] = at_s
        adapter(tmp_path, state=state, **{"counters/symbol_error": str(errors)})
        assert await told() == found, at_s
    now_s[0] = 2000.0
    look = await probe.observe()
    assert await probe.observe() is look
    now_s[0] = 3000.0
    assert await probe.observe() is look, "counted the same"


async def test_an_adapter_that_goes_takes_its_counters_along(tmp_path: Path) -> None:
    adapter(tmp_path, **{"counters/symbol_error": "1"})
    adapter(tmp_path, "mlx5_1", **{"counters/symbol_error": "1"})
    probe = InfinibandProbe(root=tmp_path, clock=lambda: 0.0)
    await probe.observe()
    shutil.rmtree(tmp_path / "mlx5_1")
    look = await probe.observe()
    assert (sorted(look.samples), look.complete) == (["mlx5_0/1"], True)


async def test_since_when_a_port_is_active(tmp_path: Path) -> None:
    now = [0.0, 1_000]  # seconds, and ns of the wall clock
    probe = InfinibandProbe(root=tmp_path, clock=lambda: now[0], clock_ns=lambda: int(now[1]))
    for at, state, errors, since_ns in (
        (1, "4: ACTIVE", "0", 1_001),
        (2, "1: DOWN", "0", 0),
        (3, "2: INIT", "0", 0),
        (4, "4: ACTIVE", "0", 1_004),
        (70, "4: ACTIVE", "5", 1_004),
        (71, "garbage", "5", None),
        (72, "4: ACTIVE", "5", 1_004),
    ):
        now[:] = float(at), 1_000 + at
        adapter(tmp_path, state=state, **{"counters/symbol_error": errors})
        payload = (await probe.observe()).samples["mlx5_0/1"].payload
        assert getattr(payload, "active_since_ns", None) == since_ns, at
