"""The nvlink probe through the real nvidia-ml-py, with a stub of NVIDIA's library that plays the GPUs."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_agent.findings.probe import Observation, ProbeError
from hyperscout_agent.probes.nvlink import NvlinkProbe
from hyperscout_formats.facts.facts import Gpu, MigInstance
from hyperscout_formats.facts.wire_measured import gpu_from_proto
from hyperscout_sim.fabric import nvlink
from hyperscout_sim.fabric.nvlink import Gpus
from support.fake_collector import FakeCollector
from support.nvml import VARIABLE, Counters, build, pci_tree, scenario
from support.real import require_real

require_real("gcc")

CLUSTER = nvlink.cluster_uuid("uk-london1-dc01-row01-rack01")
HGX = nvlink.hgx_host("node-0001")
TRAY = nvlink.nvl72_tray("node-0001", CLUSTER)
PCIE = nvlink.pcie_host("node-0001", bridges=True)
LOST = "the GPU is lost: see the kernel's log for an Xid, then reset it or restart the host"


class Host:
    """A host whose GPUs are what was `played` last."""

    def __init__(self, folder: Path, libraries: Path) -> None:
        self.sysfs = folder / "sys"
        self.file = folder / "scenario"
        self._libraries = libraries

    def play(self, gpus: Gpus, *more: str, sysfs: bool = True) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(scenario(gpus, *more))
        new.replace(self.file)  # an agent that reads meanwhile sees no part of it
        if sysfs:
            pci_tree(self.sysfs, gpus)

    def library(self, *defines: str) -> Path:
        return build(self._libraries, *defines)

    def probe(self, *defines: str) -> NvlinkProbe:
        return NvlinkProbe(library=self.library(*defines), sysfs=self.sysfs)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nvml")


@pytest.fixture
def host(tmp_path: Path, libraries: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    made = Host(tmp_path, libraries)
    monkeypatch.setenv(VARIABLE, str(made.file))
    # The binding keeps the library's functions: each test gets one of its own.
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    yield made
    binding = sys.modules.get("pynvml")
    if binding is not None:
        with suppress(binding.NVMLError):  # uninitialized: it was shut down as often as it was opened
            while True:
                binding.nvmlShutdown()


def seen(look: Observation) -> Gpus:
    """The GPUs that were read, as facts."""
    return tuple(
        gpu_from_proto(sample.payload)  # type: ignore[arg-type]
        for _, sample in sorted(look.samples.items())
        if sample.outcome == Outcome.OUTCOME_DATA
    )


def failures(look: Observation) -> dict[str, str]:
    return {at: x.reason for at, x in look.samples.items() if x.outcome == Outcome.OUTCOME_FAILED}


def sick(gpus: Gpus) -> Gpus:
    """Every kind of trouble that a living GPU can tell of."""
    gpus = nvlink.dead_link(gpus, 0, 17)
    gpus = nvlink.erring_link(gpus, 1, 3, replays=5, ber_exponent=-7 if gpus[1].links[3].version >= 5 else 0)
    counts_replays = gpus[1].links[3].version < 5
    links = tuple(
        replace(x, replay_errors=x.replay_errors * counts_replays, recovery_errors=2 * (x.link == 3))
        for x in gpus[1].links
    )
    gpus = (gpus[0], replace(gpus[1], links=links), *gpus[2:])
    gpus = nvlink.wrong_clique(gpus, 2, 7)
    gpus = nvlink.unhealthy(gpus, "degraded bandwidth", "incorrect configuration", which=[2])
    return nvlink.in_progress(gpus, [3])


HOSTS: dict[str, Gpus] = {
    "HGX H100": HGX,
    "HGX H200, sick": sick(nvlink.hgx_host("n", model="NVIDIA H200")),
    "GB200 tray": TRAY,
    "GB300 tray, sick": sick(TRAY),
    "GB200, the fabric failed": nvlink.failed_fabric(TRAY, "Unknown Error"),
    "A100 PCIe": nvlink.pcie_host("n"),
    "A100 PCIe, bridged": PCIE,
    "one GPU that knows of no fabric and no MIG": (
        replace(PCIE[0], fabric=None, mig_mode="", links=(), peers=()),
    ),
}


def dead_links_are_blank(gpus: Gpus) -> Gpus:
    """A link that is down still has its generation; made-up ones are bare."""

    def bare(gpu: Gpu) -> Gpu:
        links = tuple(x if x.active else replace(x, version=0, gbytes_per_s=0.0) for x in gpu.links)
        return replace(gpu, links=links)

    return tuple(map(bare, gpus))


@pytest.mark.parametrize("name", HOSTS)
async def test_what_is_played_is_what_is_seen(host: Host, name: str) -> None:
    host.play(HOSTS[name])
    look = await host.probe().observe()
    assert dead_links_are_blank(seen(look)) == HOSTS[name]
    assert set(look.samples) == {x.pci_address for x in HOSTS[name]}
    assert look.complete


@pytest.mark.parametrize("split_at", [None, 9])
async def test_a_rack_of_18_trays(host: Host, split_at: int | None) -> None:
    rack = nvlink.nvl72_rack("rack01", split_at=split_at)
    probe = host.probe()
    domains = set()
    for gpus in rack.values():
        host.play(gpus)
        look = seen(await probe.observe())
        assert look == gpus
        domains |= {(x.fabric.cluster_uuid, x.fabric.clique_id) for x in look if x.fabric}
        probe._nvml.close()  # the next tray: another host
    cluster = nvlink.cluster_uuid("rack01")
    assert domains == {(cluster, clique) for clique in ([nvlink.CLIQUE] if split_at is None else [1, 2])}


async def test_mig_instances(host: Host) -> None:
    host.play(nvlink.with_mig(HGX, 5, "3g.40gb", "3g.40gb"))
    look = seen(await host.probe().observe())
    assert [x.mig_mode for x in look] == ["disabled"] * 5 + ["enabled"] + ["disabled"] * 2
    assert look[5].mig_instances == tuple(
        MigInstance(f"MIG-{number}-{HGX[5].uuid}", "3g.40gb", number, 0) for number in (1, 2)
    )


async def test_sleeping_links_are_active_and_silenced_ones_are_not(host: Host) -> None:
    host.play(HGX, "0 link 4 2", "0 link 5 3")
    [first, *_] = seen(await host.probe().observe())
    assert [x.link for x in first.links if not x.active] == [5]


# Nothing there, or failed as a whole


async def test_no_driver_is_nothing_without_gpus_and_failed_with_them(host: Host) -> None:
    probe = NvlinkProbe(library=host.sysfs / "libnvidia-ml.so.1", sysfs=host.sysfs)
    look = await probe.observe()
    assert (dict(look.samples), look.complete) == ({}, True)
    assert "pynvml" not in sys.modules  # nor is the binding loaded for nothing
    pci_tree(host.sysfs, HGX[:2], driver="")
    with pytest.raises(ProbeError, match=r"has 2 NVIDIA GPUs, but .*libnvidia-ml.* cannot be loaded"):
        await probe.observe()


async def test_a_driver_that_is_not_loaded(host: Host) -> None:
    host.play((), "- init 9")
    assert (await host.probe().observe()).samples == {}
    pci_tree(host.sysfs, HGX[:1], driver="")
    with pytest.raises(ProbeError, match="has 1 NVIDIA GPUs, but the NVIDIA driver is not loaded"):
        await host.probe().observe()


async def test_a_driver_without_gpus(host: Host) -> None:
    host.play(())
    look = await host.probe().observe()
    assert (dict(look.samples), look.complete) == ({}, True)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (18, "NVML does not start: the driver and its library have different versions"),
        (4, "NVML does not start: Insufficient Permissions"),
        (999, "NVML does not start: Unknown Error"),
        (1234, "NVML does not start: NVML Error with code 1234|A new kind of trouble"),
    ],
)
async def test_a_library_that_does_not_start(host: Host, code: int, reason: str) -> None:
    host.play(HGX, f"- init {code}")
    probe = host.probe()
    with pytest.raises(ProbeError, match=reason):
        await probe.observe()
    host.play(HGX)
    assert seen(await probe.observe()) == HGX  # and well again


# Old drivers


async def test_an_old_driver_says_what_it_can(host: Host) -> None:
    """No fields, no fabric, no MIG, no remote types: a call for each value, and the rest is unknown."""
    host.play(nvlink.dead_link(HGX, 2, 1), "3 replay 4 9")
    look = await host.probe("OLD").observe()

    def old(gpu: Gpu) -> Gpu:
        links = tuple(replace(x, remote_type="", gbytes_per_s=0.0, version=4) for x in gpu.links)
        return replace(gpu, fabric=None, mig_mode="", links=links)

    expected = [old(x) for x in nvlink.dead_link(HGX, 2, 1)]
    errors = tuple(replace(x, replay_errors=9 * (x.link == 4)) for x in expected[3].links)
    expected[3] = replace(expected[3], links=errors)
    assert seen(look) == tuple(expected)
    assert look.complete


@pytest.mark.parametrize("version", [3, 2, 1])
async def test_older_structures_of_fabric_information(host: Host, version: int) -> None:
    host.play(nvlink.unhealthy(TRAY, "route unhealthy"), f"- known_fabric {version}", "* summary 2")
    fabrics = {x.fabric for x in seen(await host.probe().observe())}
    health = ("route unhealthy",) if version > 1 else ()
    assert fabrics == {replace(x.fabric, health=health) for x in TRAY if x.fabric}


async def test_the_summary_of_version_3_counts_where_the_mask_says_nothing(host: Host) -> None:
    host.play(TRAY, "1 summary 3")
    health = [x.fabric.health for x in seen(await host.probe().observe()) if x.fabric]
    assert health == [(), ("limited capacity",), (), ()]


async def test_a_gpu_without_fields_is_asked_link_by_link(host: Host) -> None:
    host.play(HGX, "* fields 0")
    found = seen(await host.probe().observe())
    assert [[x.active for x in gpu.links] for gpu in found] == [[True] * 18] * 8


@pytest.mark.parametrize("lack", ["ANCIENT", "NO_PCI"])
async def test_a_driver_that_lacks_what_is_needed(host: Host, lack: str) -> None:
    host.play(HGX)
    with pytest.raises(ProbeError, match="the driver is too old"):
        await host.probe(lack).observe()


# Single GPUs


async def test_a_lost_gpu_has_failed_and_the_others_are_data(host: Host) -> None:
    host.play(HGX)
    probe = host.probe()
    await probe.observe()
    host.play(HGX, "3 lost 1")
    probe._nvml.close()
    look = await probe.observe()
    assert failures(look) == {HGX[3].pci_address: LOST}
    assert {x.pci_address for x in seen(look)} == {x.pci_address for x in HGX} - {HGX[3].pci_address}
    assert look.complete
    host.play(HGX)
    assert seen(await probe.observe()) == HGX  # it came back


async def test_a_gpu_that_was_lost_before_the_agent_came_is_named_by_the_kernel(host: Host) -> None:
    host.play(HGX, "3 lost 1")
    assert failures(await host.probe().observe()) == {HGX[3].pci_address: LOST}
    host.play(HGX[:3] + HGX[4:])  # NVML was started anew, and leaves it out
    pci_tree(host.sysfs, HGX)
    [(address, reason)] = failures(await host.probe().observe()).items()
    assert address == HGX[3].pci_address
    assert "NVML does not list it" in reason


async def test_a_lost_gpu_of_unknown_address_takes_nothing_away(host: Host) -> None:
    host.play(HGX, "3 lost 1", sysfs=False)
    look = await host.probe().observe()
    assert failures(look) == {"gpu3": LOST}
    assert not look.complete


async def test_the_address_of_a_lost_gpu_is_remembered_as_long_as_it_can_be_its_own(host: Host) -> None:
    host.play(HGX, "3 vanish 60", sysfs=False)  # in the second look
    probe = host.probe()
    assert failures(await probe.observe()) == {}
    look = await probe.observe()
    assert (failures(look), look.complete) == ({HGX[3].pci_address: LOST}, True)
    host.play(HGX, "3 lost 1", sysfs=False)
    assert failures(await probe.observe()) == {HGX[3].pci_address: LOST}
    host.play(HGX[1:], "3 lost 1", sysfs=False)  # one fewer: the third is another one now
    assert failures(await probe.observe()) == {"gpu3": LOST}


async def test_the_driver_goes_in_mid_probe(host: Host) -> None:
    host.play(HGX, "- over 100")
    probe = host.probe()
    for _ in range(2):
        with pytest.raises(ProbeError, match="the driver and its library have different versions"):
            await probe.observe()
    host.play(HGX)
    assert seen(await probe.observe()) == HGX


async def test_a_gpu_that_another_driver_has_is_not_missed(host: Host) -> None:
    host.play(HGX[1:])
    pci_tree(host.sysfs, HGX[:1], driver="nouveau")
    look = await host.probe().observe()
    assert (failures(look), len(look.samples)) == ({}, 7)


@pytest.mark.parametrize("call", [*range(1, 12), 20, 40, 49])
async def test_a_gpu_that_disappears_in_mid_probe(host: Host, call: int) -> None:
    """Wherever it happens: its own address fails, the others are as they were."""
    host.play(HGX, f"6 vanish {call}")
    look = await host.probe().observe()
    others = [x for x in HGX if x.pci_address != HGX[6].pci_address]
    found = {x.pci_address: x for x in seen(look)}
    if HGX[6].pci_address in found:  # it went when only its peers were left to be asked
        assert call > 40
        assert "" in {x.ancestor for x in found.pop(HGX[6].pci_address).peers}
    else:
        assert failures(look) == {HGX[6].pci_address: LOST}
    blank = {"peers": (), "numa_node": None}
    for was in others:
        assert replace(found.pop(was.pci_address), **blank) == replace(was, **blank)  # type: ignore[arg-type]
    assert found == {}


async def test_all_gpus_disappear_in_mid_probe(host: Host) -> None:
    host.play(HGX, "* vanish 8")
    assert set(failures(await host.probe().observe()).values()) == {LOST}


async def test_a_gpu_that_answers_nonsense(host: Host) -> None:
    host.play(HGX, "0 odd 1", "1 state 9", "2 bus somewhere")
    found = failures(await host.probe().observe())
    assert found[HGX[0].pci_address] == "nvmlDeviceGetUUID: the answer is not text"
    assert found[HGX[1].pci_address] == "its fabric is in state 9, which is unknown here"
    assert found[HGX[2].pci_address] == "its PCI address is 'somewhere'"
    assert len(found) == 3


# What it costs


async def test_a_look_asks_for_all_links_of_a_gpu_at_once(host: Host) -> None:
    host.play(HGX)
    probe = host.probe()
    await probe.observe()
    counters = Counters(host.library())
    counters.reset()
    await probe.observe()
    assert counters.field_calls == 2 * 8  # how many links there are; all of their fields
    assert counters.calls < 8 * (18 * 2 + 10) + 60  # remote ends, link by link; the matrix of GPUs


async def test_a_healthy_gpu_is_not_news_however_its_bit_error_rate_wanders(host: Host) -> None:
    looks = []
    probe = host.probe()
    for packed in (15 << 8 | 255, 7 << 8 | 16, 2 << 8 | 19):
        host.play(TRAY, *(f"* ber {link} {packed}" for link in range(18)))
        looks.append((await probe.observe()).samples)
        probe._nvml.close()
    assert looks[0] == looks[1] == looks[2]
    assert {x.ber_exponent for x in gpu_from_proto(looks[0][TRAY[0].pci_address].payload).links} == {-15}  # type: ignore[arg-type]


async def test_at_rest_there_is_no_thread(host: Host) -> None:
    host.play(HGX)
    before = threading.active_count()
    await host.probe().observe()
    for thread in threading.enumerate():
        if thread.name == "nvml":
            thread.join(10)
    assert threading.active_count() == before


async def test_a_library_that_hangs_is_not_asked_by_a_second_thread(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.play(HGX)
    probe = host.probe()
    entered, go_on = threading.Event(), threading.Event()
    read = probe._reader.read

    def hang() -> object:
        entered.set()
        go_on.wait(30)
        return read()

    monkeypatch.setattr(probe._reader, "read", hang)
    look = asyncio.create_task(probe.observe())
    assert await asyncio.to_thread(entered.wait, 30)
    look.cancel()
    await asyncio.gather(look, return_exceptions=True)
    with pytest.raises(ProbeError, match="has not returned"):
        await probe.observe()
    go_on.set()
    monkeypatch.undo()
    for thread in threading.enumerate():
        if thread.name == "nvml":
            await asyncio.to_thread(thread.join, 30)
    assert not probe._reading.locked()


# The whole agent

CODE = (
    "import asyncio, sys; from hyperscout_agent.settings.settings import load_settings;"
    "from hyperscout_agent.main import run; from hyperscout_agent.probes.nvlink import NvlinkProbe;"
    "NvlinkProbe.__init__.__kwdefaults__['interval_s'] = 0.2;"
    "sys.exit(asyncio.run(run(load_settings())))"
)


async def test_findings_arrive_from_a_real_agent(host: Host, tmp_path: Path) -> None:
    host.play(TRAY, "2 lost 1", sysfs=False)
    collector = await FakeCollector().start()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("HYPERSCOUT_AGENT_")
    } | {
        VARIABLE: str(host.file),
        "HYPERSCOUT_AGENT_NODE": "n1",
        "HYPERSCOUT_AGENT_COLLECTORS": collector.target,
        "HYPERSCOUT_AGENT_LLDP__ENABLED": "false",
        "HYPERSCOUT_AGENT_INFINIBAND__ENABLED": "false",
        "HYPERSCOUT_AGENT_METRICS__PORT": "0",
        "HYPERSCOUT_AGENT_NVLINK__LIBRARY": str(host.library()),
    }
    agent = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", CODE], env=environment, cwd=tmp_path, stderr=subprocess.PIPE
    )

    def arrived(check: Callable[[dict[str, Outcome.ValueType]], bool]) -> Callable[[], bool]:
        return lambda: check(
            {subject: x.outcome for (_, probe, subject), x in collector.evidence.items() if probe == "nvlink"}
        )

    data, failed = Outcome.OUTCOME_DATA, Outcome.OUTCOME_FAILED
    addresses = [x.pci_address for x in TRAY]
    try:
        await collector.until(
            arrived(lambda got: got.get("gpu2") == failed and list(got.values()).count(data) == 3)
        )
        assert collector.evidence["n1", "nvlink", "gpu2"].reason.startswith("the GPU is lost")
        assert "nvlink" in collector.hellos[0].probes
        finding = collector.evidence["n1", "nvlink", addresses[0]]
        read = gpu_from_proto(finding.gpu)
        assert (read.uuid, read.fabric, read.links) == (TRAY[0].uuid, TRAY[0].fabric, TRAY[0].links)
        host.play(nvlink.dead_link(TRAY, 1, 7), sysfs=False)  # the lost one is back, a link is dead
        await collector.until(arrived(lambda got: got == dict.fromkeys(addresses, data)))
        await collector.until(
            lambda: sum(x.active for x in collector.evidence["n1", "nvlink", addresses[1]].gpu.links) == 17
        )
        agent.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(agent.wait, 30) == 0
    finally:
        agent.kill()
        agent.communicate()
        await collector.stop()
