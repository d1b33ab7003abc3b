"""What one link change costs a collector, by thread, at several sizes. No agents and no network.

    python tests/bench/bench_change.py [--gpus] [AGENTS ...]

One collector in this process holds what the agents of the load test report: four ports for each host, in
rails of InfiniBand and Ethernet on the same cables, and a sweep of each rail. With `--gpus` each host has
four GPUs, in NVLink domains of 16 hosts. Then ports go down, one after the other. Each change is committed as
an agent's is, inferred, published, recorded, saved, and sent to a reader of the whole topology. The figures
are processor time: means, and the median and the least of inference; `gc` is the share of the garbage
collector.
"""

import argparse
import asyncio
import gc
import logging
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome, Sweep
from hyperscout_agent.findings.bulk import compress
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.settings.settings import load_settings
from hyperscout_collector.evidence.committer import FullState, Submission
from hyperscout_collector.evidence.rows import row_of
from hyperscout_collector.evidence.state import AgentRow, Bulk
from hyperscout_formats.facts.wire import infiniband_to_proto, lldp_to_proto
from hyperscout_formats.facts.wire_measured import gpu_to_proto
from hyperscout_sim.fabric.fabric import Cable, SimAdapter, SimFabric
from hyperscout_sim.fabric.nvlink import cluster_uuid, nvl72_tray
from hyperscout_sim.fabric.shapes import cluster
from hyperscout_sim.readings.lldp_frames import heard
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_sim.readings.sysfs import port_facts
from support.bench_rows import row
from support.findings import stamp
from support.waiting import eventually

SIZES = (1000, 4000, 8000)
CHANGES, EVERY_S = 30, 1.0
STRIDE = 37  # changed hosts are far from each other
IN_DOMAIN = 16  # hosts of an NVLink domain
LEAST = 50  # agents
PLACES = {
    "MainThread": "event loop",
    "inference_0": "inference",
    "history-encoder_0": "history",
    "topology-encoder_0": "saving",
    "free-capacity_0": "placer",
    "fan-out_0": "fan-out",
}


class GarbageTime:
    """Processor time of the cyclic garbage collector, in seconds, and the number of full collections."""

    def __init__(self) -> None:
        self.seconds, self.full = 0.0, 0
        self._began_s = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_s = time.thread_time()
        else:
            self.seconds += time.thread_time() - self._began_s
            self.full += info["generation"] == 2


def finding(host: str, probe: str, subject: str, **payload: Any) -> Finding:
    key = FindingKey(node=host, probe=probe, subject=subject)
    return Finding(key=key, observed_at=stamp(time.time_ns()), outcome=Outcome.OUTCOME_DATA, **payload)


class Hosts:
    """What the agents of a fabric report."""

    def __init__(self, fabric: SimFabric) -> None:
        self.fabric = fabric
        self.names = fabric.hosts
        self._adapters = fabric.adapters_of()
        self._switches = {switch.guid: switch for switch in fabric.switches}
        owners = fabric.node_map()
        self._cable_of = {cable.a: cable for cable in fabric.cables if cable.a in owners}

    def ports(self, host: str, down: int = -1) -> list[Finding]:
        """The findings of a host; the port of this rail is down."""
        ports: list[tuple[SimAdapter, Cable | None]] = [
            (adapter, None if rail == down else self._cable_of[adapter.guid])
            for rail, adapter in enumerate(self._adapters[host])
        ]
        found = [
            finding(host, "infiniband", f"{x.device}/1", infiniband=infiniband_to_proto(port_facts(x, cable)))
            for x, cable in ports
        ]
        for port in heard(self._switches, ports):
            found.append(finding(host, "lldp", port.interface, lldp=lldp_to_proto(port)))
            if not port.neighbours:
                found[-1].outcome = Outcome.OUTCOME_NOTHING
        return found

    def gpus(self, number: int) -> list[Finding]:
        """The findings of the GPUs of the host with this number."""
        host = self.names[number]
        tray = nvl72_tray(host, cluster_uuid(f"rack-{number // IN_DOMAIN}"))
        return [finding(host, "nvlink", gpu.pci_address, gpu=gpu_to_proto(gpu)) for gpu in tray]

    def sweeps(self) -> Iterator[tuple[Finding, Bulk]]:
        """One of each rail, each from another host."""
        for rail in range(4):
            host = self.names[rail]
            adapter = self._adapters[host][rail]
            text = compress(sweep_text(self.fabric, adapter.guid))
            sweep = Sweep(
                format="ibnetdiscover",
                device=adapter.device,
                port=1,
                port_guid=adapter.port_guid,
                lease_id=f"lease-{rail}",
                sha256=text.sha256,
                size_bytes=text.size_bytes,
            )
            bulk = Bulk(text.sha256, text.size_bytes, text.compressed)
            yield finding(host, "ibnetdiscover", f"{adapter.device}/1", sweep=sweep), bulk


async def commit(
    collector: Collector, findings: Iterable[Finding], bulks: Iterable[Bulk] = (), full_of: str = ""
) -> "asyncio.Future[Any]":
    now_ns = collector.components.clock_ns()
    rows = [(row_of(f, sent_ns=now_ns, received_ns=now_ns), f.SerializeToString()) for f in findings]
    keys = frozenset(one.key for one, _ in rows)
    full = FullState(AgentRow(full_of, 1, "0.1.0"), keys) if full_of else None
    submission = Submission(rows, bulks=list(bulks), full_state=full, cost_bytes=1000)
    return await collector.components.evidence.committer.submit(submission)


def by_thread() -> Counter[str]:
    """Processor time of each thread of Python since it started, in seconds."""
    found = Counter[str]()
    for thread in threading.enumerate():
        try:
            text = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text()
        except OSError:
            continue  # it has just ended
        found[PLACES.get(thread.name, "other threads")] += int(text.split()[0]) / 1e9
    return found


def lost(collector: Collector) -> int:
    return sum(x.kind == "MissingLink" for x in collector.watchers.current.topology.anomalies)


async def read(collector: Collector) -> None:
    """A reader of the whole topology, whose deltas are encoded."""
    channel = collector.watchers.channel(False)
    async for _ in channel.messages(channel.join()):
        pass


async def filled(collector: Collector, hosts: Hosts, *, gpus: bool) -> None:
    stored = []
    for number, host in enumerate(hosts.names):
        findings = [*hosts.ports(host), *(hosts.gpus(number) if gpus else ())]
        stored.append(await commit(collector, findings, full_of=host))
        if len(stored) % 64 == 0:
            await asyncio.sleep(0)
    await asyncio.gather(*stored)
    for sweep, bulk in hosts.sweeps():
        await (await commit(collector, [sweep], [bulk]))
    count = len(hosts.names)
    await eventually(
        lambda: (
            sum(len(h.nodes) for h in collector.watchers.current.topology.hypernodes if h.tier == 1) == count
        )
    )
    # The first change is not measured: the collector publishes all cables with it.
    await (await commit(collector, hosts.ports(hosts.names[-1], down=0)))
    await eventually(lambda: lost(collector))
    await asyncio.sleep(5)  # what is published is saved


async def measured(agents: int, folder: Path, *, gpus: bool) -> None:
    settings = load_settings(
        flags={
            "listen": "127.0.0.1:0",
            "http_listen": "",
            "rest_listen": "",
            "data_dir": folder / "data",
            "stale_after_s": 86_400.0,  # no agent reports again
        }
    )
    hosts = Hosts(cluster(agents))
    garbage = GarbageTime()
    async with Collector(settings) as collector:
        await filled(collector, hosts, gpus=gpus)
        reader, published = asyncio.create_task(read(collector)), asyncio.Event()
        collector.watchers.published.subscribe(published.set)
        await asyncio.sleep(2)
        inferences, before_s = collector.components.inference.pipeline.inferences, by_thread()
        all_s, began_s, of_changes = time.process_time(), time.monotonic(), list[float]()
        gc.callbacks.append(garbage)
        for change in range(CHANGES):
            known, inferred_s = lost(collector), by_thread()["inference"]
            host = hosts.names[(1 + change) * STRIDE % (agents - 1)]
            await (await commit(collector, hosts.ports(host, down=change % 4)))
            while lost(collector) == known:
                published.clear()
                await published.wait()
            await asyncio.sleep(max(0.0, began_s + (change + 1) * EVERY_S - time.monotonic()))
            of_changes.append((by_thread()["inference"] - inferred_s) * 1e3)
        gc.callbacks.remove(garbage)
        all_s = time.process_time() - all_s
        used = by_thread() - before_s
        inferences = collector.components.inference.pipeline.inferences - inferences
        reader.cancel()
        used["C threads"] = all_s - used.total()
    what = f"{agents} agents{' with GPUs' * gpus}"
    for name, seconds in sorted(used.items(), key=lambda x: -x[1]):
        row(f"{what}, a change: {name}", f"{seconds / CHANGES * 1e3:.1f} ms")
    row(
        f"{what}, a change: inference, median (least)", f"{median(of_changes):.1f} ms ({min(of_changes):.1f})"
    )
    row(f"{what}, a change: gc, of these", f"{garbage.seconds / CHANGES * 1e3:.1f} ms")
    row(f"{what}: full collections, inferences", f"{garbage.full}, {inferences}")
    row(f"{what}, a change: all", f"{all_s / CHANGES * 1e3:.1f} ms")
    row(f"{what}: load average", f"{os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", action="store_true", help="each host has four GPUs")
    parser.add_argument(
        "agents", type=int, nargs="*", default=SIZES, help="sizes; default: 1000 4000 8000; a minute for each"
    )
    args = parser.parse_args()
    if min(args.agents) < LEAST:
        parser.error(f"at least {LEAST} agents: one host sweeps each rail, and others change")
    logging.getLogger().setLevel(logging.ERROR)
    gc.set_threshold(50_000, 20, 20)
    for agents in args.agents:
        print(f"{agents} agents: {CHANGES} changes, one each {EVERY_S:g} s ...", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measured(agents, Path(folder), gpus=args.gpus))


if __name__ == "__main__":
    main()
