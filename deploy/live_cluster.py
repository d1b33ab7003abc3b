"""Runs the cluster that the pages' live commands query: a collector and simulated agents, on loopback.

    deploy/live_cluster.py ethernet|infiniband|kubernetes FOLDER

Two units of four nodes with two rails, and two GPUs in each node. One cable of a node is cut. With Ethernet,
the agents report LLDP neighbours, and one more agent reads the switches. With InfiniBand, the agents report
their ports and sweep. With Kubernetes, the cables are Ethernet, and the collector also publishes to the API
server that KUBECONFIG names, which must have no nodes. The collector has its files in FOLDER. When it has
published the tree and then the cut, and nothing changes any more, the script prints the variables for the
commands of the pages as a JSON object. It runs until its standard input ends.
"""

import argparse
import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from hyperscout_cli.demo.demo import SETTINGS, beside, watch
from hyperscout_cli.demo.demo_collector import DemoError, running_collector
from hyperscout_cli.demo.demo_kubernetes import demo_cluster
from hyperscout_cli.demo.demo_story import View, by_tier, condition
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.nvlink import hgx_host
from hyperscout_sim.fabric.shapes import rail_optimised
from hyperscout_topology.topology import Topology


class Kind(NamedTuple):
    """The agent that reads switches ("" = none), and the probes that see a cut cable."""

    crawl: str
    sources: frozenset[str]


KINDS = {
    "ethernet": Kind("switches", frozenset(["lldp", "snmp"])),
    "infiniband": Kind("", frozenset(["ibnetdiscover"])),
}
KINDS["kubernetes"] = KINDS["ethernet"]
FABRIC = rail_optimised(2, 4, 2, 1)
HOST = "node-0003"
CUT = next(cable for cable in FABRIC.cables if FABRIC.node_map().get(cable.a) == HOST)
# What the collector writes to the API server besides HyperNodes, and how `kubectl wait` waits for it.
_WRITES = {"node-labels": "on", "taints": "on", "taint-after-s": "0"}
_WRITTEN = (
    ("hypernodes", "--all", "--for=condition=Ready"),
    ("nodes", "--all", r"--for=jsonpath={.metadata.labels.hyperscout\.io/pod}"),
    (f"node/{HOST}", "--for=jsonpath={.spec.taints[0].key}=hyperscout.io/degraded"),
)
_START_S = 240.0
_STEP_S = 100.0  # more than the interval of sweeps
_QUIET_S = 1.5
_POLL_S = 0.1


def is_whole(topology: Topology) -> bool:
    """Whether the tree is that of the cables, and nothing is wrong."""
    return by_tier(topology) == [set(tier) for tier in FABRIC.truth.tiers] and not topology.anomalies


def shows_the_cut(topology: Topology, sources: frozenset[str]) -> bool:
    """Whether a domain lacks a cable, and all sources say so."""
    degraded = any(condition(hypernode, "Degraded")[0] == "True" for hypernode in topology.hypernodes)
    return degraded and any(sources == frozenset(x.sources) for x in topology.anomalies)


async def run(kind: Kind, folder: Path, kubeconfig: Path | None) -> None:
    """Run until standard input ends. Raises DemoError, or TimeoutError after `_START_S`.

    `kubeconfig`: of the API server to which the collector also publishes.
    """
    async with AsyncExitStack() as stack:
        start = await stack.enter_async_context(asyncio.timeout(_START_S))
        settings = dict(SETTINGS)
        if kubeconfig is not None:
            settings |= {"kubernetes": "publish", "kubeconfig": str(kubeconfig)} | _WRITES
            await stack.enter_async_context(demo_cluster(kubeconfig, FABRIC.hosts))
        collector = await stack.enter_async_context(running_collector(folder, settings))
        gpus = {host: hgx_host(host, gpus=2) for host in FABRIC.hosts}
        player = Player(FABRIC, [collector.address], gpus=gpus, crawl=kind.crawl)
        view = View(time.monotonic, time.time_ns)
        async with beside(watch(collector.address, view)), _playing(player, view, kind):
            await view.until("the tree as it is cabled", is_whole, _STEP_S)
            await _at_rest(player, view, _QUIET_S)
            player.cut(CUT)
            await view.until("the cut cable", lambda t: shows_the_cut(t, kind.sources), _STEP_S)
            await _at_rest(player, view, _QUIET_S)
            if kubeconfig is not None:
                await _written(view.topology)
            start.reschedule(None)
            variables = {"HYPERSCOUT_COLLECTOR": collector.address, "url": collector.map.rstrip("/")}
            if kubeconfig is not None:
                variables["KUBECONFIG"] = str(kubeconfig)
            print(json.dumps(variables), flush=True)
            ended = asyncio.Event()
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
            await ended.wait()


async def _written(topology: Topology) -> None:
    """Wait until the API server has what the collector writes to it. Raises DemoError."""
    degraded = [h.name for h in topology.hypernodes if condition(h, "Degraded")[0] == "True"]
    for words in (*_WRITTEN, ("hypernodes", *degraded, "--for=condition=Degraded")):
        command = ("kubectl", "wait", f"--timeout={_STEP_S:g}s", *words)
        process = await asyncio.create_subprocess_exec(*command, stdout=sys.stderr)
        if await process.wait():
            raise DemoError(f"{' '.join(command)} failed")


@asynccontextmanager
async def _playing(player: Player, view: View, kind: Kind) -> AsyncIterator[None]:
    """Run the agents. They start in turn, so that the collector leases most sweeps to the same ones."""
    try:
        for host in FABRIC.hosts:
            player.revive(host)
            await _at_rest(player, view, 0)
        if kind.crawl:
            player.revive_crawl()
        yield
    finally:
        if player.crawl is not None:
            await player.kill_crawl()
        for host in list(player.agents):
            await player.kill(host)


async def _at_rest(player: Player, view: View, quiet_s: float) -> None:
    """Wait until all is reported, and the topology does not change for some time."""
    seen, since_s = view.topology, view.clock()
    while not player.settled or view.clock() < since_s + quiet_s:
        await asyncio.sleep(_POLL_S)
        if view.topology is not seen or not player.settled:
            seen, since_s = view.topology, view.clock()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)  # agents warn when a lease moves during a sweep, as in the demo
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    try:
        kubeconfig = Path(os.environ["KUBECONFIG"]) if arguments.kind == "kubernetes" else None
        asyncio.run(run(KINDS[arguments.kind], arguments.folder, kubeconfig))
    except (DemoError, TimeoutError) as error:
        why = str(error) or f"it did not come to rest within {_START_S:g} s"
        sys.exit(f"the simulated cluster failed (a busy machine can be the cause: try again): {why}")
