"""What a scrape of a collector costs: time until the last byte is here, and bytes, at 1,000 and 5,000 nodes.

The collector is a process of its own with simulated agents on the real uplink. Most of a page is made once a
generation: the first scrape after one is measured apart. Clusters whose every host is an NVLink domain of its
own have the most HyperNodes for their nodes; their part of the page is measured on a picture that is made up.
"""

import asyncio
import sys
import tempfile
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from hyperscout_collector.app.metrics.topology import CONDITIONS, TopologyMetrics
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.shapes import rail_optimised
from hyperscout_topology.topology import Condition, HyperNode, Topology
from kube.processes import free_port
from support.bench_rows import row
from support.collector_process import collector_process

NODES = (1000, 5000)
SCRAPES = 50
TIMEOUT_S = 300.0
BUDGETS = {1000: "50 ms, 1 MiB"}


def scrape(url: str) -> tuple[float, bytes]:
    began = time.perf_counter()
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as page:
        text = page.read()
    return time.perf_counter() - began, text


async def whole_pages(folder: Path, nodes: int) -> None:
    url = f"127.0.0.1:{free_port()}"
    async with collector_process(folder, "--http-listen", url) as collector:
        fabric = rail_optimised(10, 50, 4, 2, pods=nodes // 500)
        assert len(fabric.hosts) == nodes
        player = Player(fabric, [collector.address], connections=16, refresh_interval_s=3600)
        task = asyncio.create_task(player.run())
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while f'hyperscout_node_info{{node="{fabric.hosts[-1]}"'.encode() not in scrape_of(url):
                    await asyncio.sleep(1)
            took = [(await asyncio.to_thread(scrape, f"http://{url}/metrics")) for _ in range(SCRAPES)]
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    times = sorted(seconds for seconds, _ in took)
    row(
        f"scrape of a collector with {nodes} nodes: median, and bytes",
        f"{median(times) * 1e3:.1f} ms, {len(took[-1][1]) / 2**20:.2f} MiB",
        budget=BUDGETS.get(nodes, ""),
    )
    row(f"the slowest of {SCRAPES} with {nodes} nodes", f"{times[-1] * 1e3:.1f} ms")


def scrape_of(url: str) -> bytes:
    return scrape(f"http://{url}/metrics")[1]


def hgx(nodes: int) -> Topology:
    """Four tiers: every host an NVLink domain of its own, racks of 32, pods of 256, one core."""
    hosts = [f"gpu-node-{i:05}" for i in range(nodes)]
    conditions = tuple(Condition(kind, "False", "AsExpected", "") for kind in CONDITIONS)
    found = []
    for tier, size in enumerate((1, 32, 256, nodes), start=1):
        for first in range(0, nodes, size):
            members = tuple(hosts[first : first + size])
            found.append(
                HyperNode(
                    f"domain-of-a-usual-length-{tier}-{first:05}",
                    *(tier, f"tier{tier}", "the-one-above-00000", (), members, (), conditions),
                )
            )
    return Topology(1, tuple(found))


def most_hypernodes(nodes: int) -> None:
    topology, metrics = hgx(nodes), TopologyMetrics()
    times = []
    for generation in range(10):
        fresh = replace(topology, generation=generation)
        began = time.perf_counter()
        text = metrics.text(fresh)
        times.append(time.perf_counter() - began)
    row(
        f"what is published of {nodes} nodes that are each a domain of their own, made once a generation",
        f"{median(times) * 1e3:.1f} ms, {len(text) / 2**20:.2f} MiB",
        budget=BUDGETS.get(nodes, ""),
    )


def main() -> None:
    for nodes in NODES:
        most_hypernodes(nodes)
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(whole_pages(Path(folder), nodes))


if __name__ == "__main__":
    main()
