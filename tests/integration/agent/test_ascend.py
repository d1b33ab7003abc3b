"""The probe of Ascend NPUs, with programs that print the documented texts."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hyperscout.v1.finding_pb2 import Gpu, Outcome
from hyperscout_agent.findings.probe import ProbeError
from hyperscout_agent.probes.ascend import AscendProbe
from support.accelerators import HUAWEI, NO_SUPER_POD, NPU_MAP, OLD_NPU_MAP, super_pod
from support.nvml import pci_device

UP, DOWN = "link status: UP\n", "link status: DOWN\n"
WELL, FAULT = "net health status: Success\n", "net health status: Fault\n"


class Host:
    """A host with NPUs on its bus. `say` chooses what a command prints, and how it exits."""

    def __init__(self, folder: Path) -> None:
        self.sysfs, self._folder = folder / "sys", folder
        pci_device(self.sysfs, self.sysfs / "devices/pci0000:80/0000:c1:00.0", HUAWEI, "0x120000", 0, "dev")
        self.said: dict[str, tuple[str, int]] = {"info -m": (NPU_MAP, 0)}

    def say(self, command: str, text: str, status: int = 0) -> None:
        self.said[command] = (text, status)

    def probe(self) -> AscendProbe:
        tools = {}
        for name in ("npu-smi", "hccn_tool"):
            tool = self._folder / name
            cases = "".join(
                f"'{command}') printf '%s' '{text}'; exit {status};;\n"
                for command, (text, status) in self.said.items()
            )
            tool.write_text(
                f'#!/bin/sh\ncase "$*" in\n{cases}*) echo "no such command: $*" >&2; exit 1;;\nesac\n'
            )
            tool.chmod(0o755)
            tools[name] = (str(tool),)
        return AscendProbe(npu_smi=tools["npu-smi"], hccn_tool=tools["hccn_tool"], sysfs=self.sysfs)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = Host(tmp_path)
    for npu, chip, device in ((0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 3)):
        host.say(f"info -t spod-info -i {npu} -c {chip}", super_pod(3, 4, device))
        host.say(f"-i {device} -link -g", UP)
        host.say(f"-i {device} -net_health -g", WELL)
    return host


async def told(host: Host) -> Mapping[str, Gpu]:
    look = await host.probe().observe()
    assert (look.complete, look.trouble) == (True, "")
    return {subject: x.payload for subject, x in look.samples.items() if isinstance(x.payload, Gpu)}


async def test_the_chips_of_a_super_pod(host: Host) -> None:
    found = await told(host)
    assert sorted(found) == ["npu0/0", "npu0/1", "npu1/0", "npu1/1"]
    one = found["npu1/1"]
    assert (one.kind, one.model, one.pci_address) == ("ascend", "Ascend910", "npu1/1")
    assert (one.fabric.domain, one.fabric.server_index, list(one.fabric.health)) == ("3", 4, [])
    assert [(x.link, x.active) for x in one.links] == [(0, True)]


async def test_ports_that_are_down_or_reach_nothing(host: Host) -> None:
    host.say("-i 0 -link -g", DOWN)
    host.say("-i 2 -net_health -g", FAULT)
    found = await told(host)
    assert [x.active for x in found["npu0/0"].links] == [False]
    assert list(found["npu0/0"].fabric.health) == []
    assert list(found["npu1/0"].fabric.health) == ["network health is Fault"]


async def test_chips_without_super_pods_are_still_devices(host: Host) -> None:
    for npu, chip in ((0, 0), (0, 1), (1, 0), (1, 1)):
        host.say(f"info -t spod-info -i {npu} -c {chip}", NO_SUPER_POD, 255)
    found = await told(host)
    assert len(found) == 4
    assert not any(x.HasField("fabric") for x in found.values())


async def test_a_chip_that_cannot_be_read_hides_no_other(host: Host) -> None:
    host.say("info -t spod-info -i 0 -c 1", "Failed to get the device.\n", 3)
    look = await host.probe().observe()
    assert look.samples["npu0/1"].outcome == Outcome.OUTCOME_FAILED
    assert sum(x.outcome == Outcome.OUTCOME_DATA for x in look.samples.values()) == 3


async def test_without_hccn_tool_the_super_pods_are_known(host: Host, tmp_path: Path) -> None:
    host.probe()
    probe = AscendProbe(
        npu_smi=(str(tmp_path / "npu-smi"),), hccn_tool=(str(tmp_path / "none"),), sysfs=host.sysfs
    )
    look = await probe.observe()
    assert {x.outcome for x in look.samples.values()} == {Outcome.OUTCOME_DATA}
    assert all("network port is unknown" in x.reason for x in look.samples.values())
    assert "network port is unknown" in look.trouble, "`hyperscout-agent doctor` shows it"


async def test_other_families_are_not_reported(host: Host) -> None:
    host.say("info -m", OLD_NPU_MAP)
    assert not (await host.probe().observe()).samples


async def test_names_of_chips_may_have_a_space(host: Host) -> None:
    host.say("info -m", NPU_MAP.replace("Ascend910", "Ascend 910B3"))
    assert {gpu.model for gpu in (await told(host)).values()} == {"Ascend 910B3"}


async def test_npus_without_their_driver_are_a_failure(host: Host) -> None:
    host.say("info -m", "dcmi module initialize failed. ret is -8005\n", 255)
    with pytest.raises(
        ProbeError, match=r"1 Ascend NPU, but .*dcmi module initialize failed.*ascend.npu_smi"
    ):
        await host.probe().observe()


async def test_a_host_without_npus_runs_nothing(tmp_path: Path) -> None:
    look = await AscendProbe(
        npu_smi=("/nowhere/npu-smi",), hccn_tool=("/nowhere/x",), sysfs=tmp_path
    ).observe()
    assert (dict(look.samples), look.complete) == ({}, True)
