"""The probe of AMD GPUs, on a tree of files."""

from pathlib import Path

from hyperscout.v1.finding_pb2 import Gpu, Outcome
from hyperscout_agent.probes.xgmi import XgmiProbe
from support.accelerators import HIVE, address, amd_host, kfd_tree


def gpu_of(look: object) -> Gpu:
    assert isinstance(look, Gpu)
    return look


async def test_a_host_without_amd_gpus_is_silent(tmp_path: Path) -> None:
    look = await XgmiProbe(sysfs=tmp_path).observe()
    assert (dict(look.samples), look.complete, look.trouble) == ({}, True, "")
    amd_host(tmp_path, {path: text for path, text in kfd_tree().items() if path[0] in "01"})
    assert not (await XgmiProbe(sysfs=tmp_path).observe()).samples, "processors alone"


async def test_gpus_with_their_places(tmp_path: Path) -> None:
    amd_host(tmp_path, kfd_tree())
    look = await XgmiProbe(sysfs=tmp_path).observe()
    assert sorted(look.samples) == sorted(address(n) for n in range(8))
    assert look.complete
    one = gpu_of(look.samples[address(5)].payload)
    assert (one.kind, one.numa_node, len(one.links), one.fabric.domain) == ("xgmi", 1, 7, f"{HIVE:x}")


async def test_a_gpu_that_the_container_may_not_use_is_failed(tmp_path: Path) -> None:
    """The kernel refuses the files of its node; the others stay, and none is withdrawn."""
    tree = {path: text for path, text in kfd_tree().items() if not path.startswith("3/")}
    amd_host(tmp_path, tree)
    (tmp_path / "class/kfd/kfd/topology/nodes/3").mkdir()
    look = await XgmiProbe(sysfs=tmp_path).observe()
    assert not look.complete
    (bad,) = (x for x in look.samples.values() if x.outcome == Outcome.OUTCOME_FAILED)
    assert "node 3: its gpu_id and properties cannot be read" in bad.reason
    assert "xgmi.enabled: false" in bad.reason
    assert len(look.samples) == 8


async def test_a_link_that_cannot_be_read_is_not_down(tmp_path: Path) -> None:
    tree = {path: text for path, text in kfd_tree().items() if path != "3/io_links/1/properties"}
    amd_host(tmp_path, tree)
    (tmp_path / "class/kfd/kfd/topology/nodes/3/io_links/1/properties").mkdir(parents=True)
    look = await XgmiProbe(sysfs=tmp_path).observe()
    assert not look.complete
    (bad,) = (x for x in look.samples.values() if x.outcome == Outcome.OUTCOME_FAILED)
    assert "node 3: its io_links/1/properties cannot be read" in bad.reason
    assert address(1) not in look.samples


async def test_errors_are_shown_for_an_hour(tmp_path: Path) -> None:
    """The kernel clears the file when it is read, so the probe remembers."""
    now_s = [100.0]
    probe = XgmiProbe(sysfs=tmp_path, timer=lambda: now_s[0])

    async def told() -> list[str]:
        return list(gpu_of((await probe.observe()).samples[address(1)].payload).fabric.health)

    amd_host(tmp_path, kfd_tree(), errors=["0\n", "1\n"])
    assert await told() == ["xgmi_error counted an error in the last hour"]
    assert list(gpu_of((await probe.observe()).samples[address(0)].payload).fabric.health) == []
    amd_host(tmp_path, {}, errors=["0\n", "0\n"])
    now_s[0] += 3599
    assert await told() == ["xgmi_error counted an error in the last hour"]
    now_s[0] += 2
    assert await told() == []
    amd_host(tmp_path, {}, errors=["0\n", "2\n"])
    assert await told() == [], "it is read every five minutes"
    now_s[0] += 300
    assert await told() == ["xgmi_error counted several errors in the last hour"]


async def test_errors_are_not_read_when_another_program_does(tmp_path: Path) -> None:
    amd_host(tmp_path, kfd_tree(), errors=["2\n"])
    look = await XgmiProbe(sysfs=tmp_path, read_errors=False).observe()
    assert list(gpu_of(look.samples[address(0)].payload).fabric.health) == []
