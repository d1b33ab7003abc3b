"""What an agent costs the node it runs on: at rest with all probes on, and while it sweeps a large fabric.

The agent runs as it would on a node with eight adapters, with its listener (as root) and a collector that
takes what it sends. Memory is what the kernel counts as resident, of the agent and its children together.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from hyperscout.v1.discovery_pb2 import StreamFindingsResponse, SweepLease
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_agent.lldp.dissection import Dissector
from hyperscout_agent.probes.nvlink import NvlinkProbe
from hyperscout_cli.loadtest.child import cpu_s, rss_mib
from hyperscout_sim.fabric.nvlink import hgx_host
from hyperscout_sim.fabric.shapes import fat_tree
from hyperscout_sim.readings.sweep_text import sweep_text
from support.bench_rows import row
from support.fake_collector import FakeCollector
from support.nvml import VARIABLE, Counters, build, pci_tree, scenario
from support.real import lack_of

REST_S = 30.0
LOOKS = 50
ADAPTERS = 8
CODE = (
    "import asyncio, sys; from hyperscout_agent.settings.settings import load_settings;"
    "from hyperscout_agent.main import run; sys.exit(asyncio.run(run(load_settings())))"
)
FLOOR = "import grpc.aio, google.protobuf.timestamp_pb2, sys; print(flush=True); sys.stdin.read()"
FRAME = bytes.fromhex(
    "0180c200000e02000000000188cc02070402000000000104050573777031060200780a056c656166310000"
)


def family(pid: int) -> list[int]:
    """The process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [pid, *map(int, children)]


def adapters(root: Path) -> None:
    for number in range(ADAPTERS):
        base = {
            "node_guid": f"a088:c203:00aa:{number:04x}",
            "sys_image_guid": f"a088:c203:00aa:{number:04x}",
            "node_desc": f"node mlx5_{number}",
            "board_id": "MT_0000000838",
            "ports/1/state": "4: ACTIVE",
            "ports/1/phys_state": "5: LinkUp",
            "ports/1/rate": "400 Gb/sec (4X NDR)",
            "ports/1/lid": "0x1f",
            "ports/1/sm_lid": "0x1",
            "ports/1/link_layer": "InfiniBand",
            "ports/1/gids/0": f"fe80:0000:0000:0000:a088:c203:00aa:{number:04x}",
            "ports/1/counters/link_downed": "0",
        }
        for path, text in base.items():
            file = root / f"mlx5_{number}" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")


def floor_mib() -> float:
    """Python with gRPC and protobuf, doing nothing."""
    with subprocess.Popen(
        [sys.executable, "-c", FLOOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return rss_mib(process.pid)


async def dissector_mib() -> float:
    dissector = Dissector()
    idle = asyncio.create_task(dissector.end_when_idle())
    await dissector.dissect(FRAME)
    assert dissector.pid is not None
    size = rss_mib(dissector.pid)
    idle.cancel()
    await asyncio.gather(idle, return_exceptions=True)
    return size


async def nvlink(folder: Path) -> None:
    """A look at 8 GPUs with 18 links each, against a stub of NVIDIA's library."""
    if lack := lack_of("gcc"):
        row("nvlink, 8 GPUs x 18 links", f"not measured: {lack}", "-", "-", "20 ms")
        return
    gpus = hgx_host("node")
    library = build(folder)
    os.environ[VARIABLE] = str(folder / "scenario")
    (folder / "scenario").write_text(scenario(gpus))
    pci_tree(folder / "sys", gpus)
    probe, counters = NvlinkProbe(library=library, sysfs=folder / "sys"), Counters(library)
    await probe.observe()
    looks_s, reads_s = [], []
    for _ in range(LOOKS):
        counters.reset()
        started_s = time.perf_counter()
        look = await probe.observe()
        looks_s.append(time.perf_counter() - started_s)
        calls = f"{counters.calls} calls, {counters.field_calls} of them for all fields"
        started_s = time.perf_counter()
        probe._reader.read()
        reads_s.append(time.perf_counter() - started_s)
    if len(look.samples) != len(gpus):
        raise SystemExit(f"{len(look.samples)} GPUs were seen, not {len(gpus)}")
    row("nvlink: NVML of 8 GPUs x 18 links", f"{median(reads_s) * 1e3:.1f} ms", calls, "-", "20 ms")
    row("nvlink: the whole look, with sysfs", f"{median(looks_s) * 1e3:.1f} ms", "-", "-", "-")


async def measure(folder: Path) -> None:
    adapters(folder / "infiniband")
    text = sweep_text(fat_tree(64))
    (folder / "sweep").write_bytes(text)
    tool = folder / "ibnetdiscover"
    tool.write_text(f"#!/bin/sh\nexec cat {folder}/sweep\n")
    tool.chmod(0o755)
    collector = await FakeCollector().start()
    process = subprocess.Popen(
        [sys.executable, "-c", CODE],
        stderr=subprocess.DEVNULL,
        env={
            **os.environ,
            "HYPERSCOUT_AGENT_NODE": "node",
            "HYPERSCOUT_AGENT_COLLECTORS": collector.target,
            "HYPERSCOUT_AGENT_LLDP__SOURCE": "listener",
            "HYPERSCOUT_AGENT_LLDP__SOCKET": str(folder / "lldp.sock"),
            "HYPERSCOUT_AGENT_INFINIBAND__ROOT": str(folder / "infiniband"),
            "HYPERSCOUT_AGENT_IBNETDISCOVER__COMMAND": str(tool),
            "HYPERSCOUT_AGENT_METRICS__PORT": "0",
        },
    )
    try:
        await collector.until(lambda: len(collector.evidence) >= ADAPTERS)
        await asyncio.sleep(5.0)  # the listener starts, the first looks are over
        pids = family(process.pid)
        before_s = sum(map(cpu_s, pids))
        await asyncio.sleep(REST_S)
        used = (sum(map(cpu_s, pids)) - before_s) / REST_S
        memory = sum(map(rss_mib, pids))
        floor = floor_mib()
        peer = f"idle Python with gRPC, {floor:.0f} MiB"
        row(f"agent at rest, processor ({len(pids)} processes)", f"{used:.2%}", "one core", "-", "1 %")
        row("agent at rest, memory", f"{memory:.0f} MiB", peer, f"{memory / floor:.1f} x", "96 MiB")
        extra = await dissector_mib()
        total = memory + extra
        row("while LLDP frames change", f"{total:.0f} MiB", peer, f"{total / floor:.1f} x", "-")
        lease = SweepLease(lease_id="L1", device="mlx5_0", port=1, interval_s=3600)
        await collector.send(StreamFindingsResponse(lease=lease))
        key = ("node", "ibnetdiscover", "mlx5_0/1")
        await collector.until(lambda: key in collector.evidence)
        finding = collector.evidence[key]
        if finding.outcome != Outcome.OUTCOME_DATA or finding.sweep.partial:
            raise SystemExit(f"the sweep went wrong: {finding.reason}")
        peak = rss_mib(process.pid, "VmHWM")
        text_mib = len(text) / 2**20
        size = f"its text, {text_mib:.0f} MiB"
        row(
            "agent's peak in a sweep of 65,536 hosts",
            f"{peak:.0f} MiB",
            size,
            f"{peak / text_mib:.1f} x",
            "-",
        )
        row("that sweep, read and compressed", f"{finding.sweep.duration_s:.2f} s", "-", "-", "-")
        await nvlink(folder)
    finally:
        process.terminate()
        process.wait(20)
        await collector.stop()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder)))


if __name__ == "__main__":
    main()
