"""Super pods of Ascend from the tools' texts to HyperNodes: the probe, streams over gRPC, and a collector."""

from collections.abc import Sequence
from pathlib import Path

from hyperscout.v1.finding_pb2 import Gpu as Message
from hyperscout_agent.probes.ascend import AscendProbe
from hyperscout_collector.app.build.collector import Collector
from hyperscout_formats.facts.facts import Gpu
from hyperscout_formats.facts.wire_measured import gpu_from_proto
from hyperscout_topology.topology import HyperNode, Topology
from support.accelerators import HUAWEI, NPU_MAP, super_pod
from support.collectors import collector_settings, eight_hosts, playing
from support.nvml import pci_device
from support.waiting import eventually

FABRIC = eight_hosts()
PODS = dict.fromkeys(FABRIC.hosts[:3], 1) | dict.fromkeys(FABRIC.hosts[4:], 2)
ALONE = FABRIC.hosts[3]


async def npus(folder: Path, host: str, link: str = "UP") -> Sequence[Gpu]:
    """What the probe reports on a host, with tools that print the documented texts."""
    number = FABRIC.hosts.index(host)
    pod = super_pod(PODS.get(host, 0xFFFF_FFFF), number)
    sysfs, tool = folder / f"{host}-sys", folder / f"{host}-tool"
    pci_device(sysfs, sysfs / "devices/pci0000:80/0000:c1:00.0", HUAWEI, "0x120000", 0, "devdrv")
    tool.write_text(
        f"#!/bin/sh\ncase \"$*\" in\n'info -m') printf '%s' '{NPU_MAP}';;\n"
        f"*spod-info*) printf '%s' '{pod}';;\n*-link*) echo 'link status: {link}';;\n"
        "*) echo 'net health status: Success';;\nesac\n"
    )
    tool.chmod(0o755)
    look = await AscendProbe(npu_smi=(str(tool),), hccn_tool=(str(tool),), sysfs=sysfs).observe()
    return [gpu_from_proto(x.payload) for x in look.samples.values() if isinstance(x.payload, Message)]


def domains(topology: Topology) -> dict[frozenset[str], str]:
    return {frozenset(h.nodes): h.source for h in topology.hypernodes if h.tier_name == "ascend"}


def is_degraded(h: HyperNode) -> bool:
    return any((c.type, c.status) == ("Degraded", "True") for c in h.conditions if h.tier == 1)


async def test_super_pods_become_hypernodes_and_resources(tmp_path: Path) -> None:
    slurm = tmp_path / "topology.conf"
    gpus = {host: await npus(tmp_path, host) for host in FABRIC.hosts}
    settings = collector_settings(tmp_path, slurm_tree_file=slurm, single_host_domains="omit")
    async with (
        Collector(settings) as collector,
        playing(collector.address, FABRIC, hosts=FABRIC.hosts, gpus=gpus) as player,
    ):

        def now() -> Topology:
            return collector.watchers.current.topology

        groups = map(frozenset, (FABRIC.hosts[:3], [ALONE], FABRIC.hosts[4:]))
        expected = dict.fromkeys(groups, "ascend")
        await eventually(lambda: domains(now()) == expected, lambda: str(now().hypernodes))
        name = next(h.name for h in now().hypernodes if h.nodes == (ALONE,))
        leaf = next(h.name for h in now().hypernodes if h.tier_name == "leaf" and ALONE in h.nodes)
        line = f"SwitchName={leaf}-hosts Nodes={ALONE}\n"
        await eventually(lambda: slurm.exists() and line in slurm.read_text())
        assert name not in slurm.read_text()
        book, resource = collector.components.publishing.placing.placements, "huawei.com/Ascend910"
        await eventually(lambda: book.capacity.free(resource).sum() == 4 * len(FABRIC.hosts))

        player.set_gpus(FABRIC.hosts[0], await npus(tmp_path, FABRIC.hosts[0], "DOWN"))
        player.observe(FABRIC.hosts[0])
        await eventually(lambda: any(map(is_degraded, now().hypernodes)), lambda: str(now().anomalies))
        assert {x.subject.name for x in now().anomalies if x.kind == "MissingLink"} == {FABRIC.hosts[0]}
