"""`hyperscout demo`: a collector, a simulated cluster that streams to it, and faults that it detects."""

import asyncio
import contextlib
import logging
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import click
import grpc.aio
from hyperscout.v1 import topology_pb2, topology_pb2_grpc
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import cluster

from hyperscout_cli.demo.demo_collector import DemoError, running_collector
from hyperscout_cli.demo.demo_kubernetes import demo_cluster
from hyperscout_cli.demo.demo_past import looked_back
from hyperscout_cli.demo.demo_story import STEP_TIMEOUT_S, Seen, View, Witness, run_story
from hyperscout_cli.remote.open_files import check_open_files, raise_open_files
from hyperscout_cli.shared.command import Command, WholeNumber
from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.options import COLLECTOR_VARIABLE
from hyperscout_cli.shared.output import emit
from hyperscout_cli.shared.tables import Row, Table, lines

INTERRUPTED = 130
_PER_NODE_S = 0.05  # more time for each step
_PROGRESS_S = 5.0
# Short times, so that the demo ends within seconds.
SETTINGS = {
    "http-listen": "",
    "rest-listen": "127.0.0.1:0",
    "settle-s": "1",
    "hold-down-s": "0.3",
    "restart-grace-s": "0",
    "log-level": "info",
}


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  hyperscout demo
  hyperscout demo --stay                keeps running afterwards
  hyperscout demo --nodes 2000 --stay   shows a larger cluster on the map
  hyperscout demo --kubeconfig FILE     publishes to a cluster without nodes""",
)
@click.option(
    "--nodes", type=WholeNumber(8, 100_000), default=64, show_default=True, help="Number of simulated nodes."
)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Also publish HyperNodes to this cluster, which must have no nodes: the demo creates them.",
)
@click.option(
    "--stay",
    is_flag=True,
    envvar="DEMO_STAY",
    help="Keep the collector and the agents running after the story, until Ctrl-C.",
)
def demo(*, nodes: int, kubeconfig: Path | None, stay: bool) -> int:
    """Run hyperscout on a simulated cluster with 4 rails and at least 2 pods. 64 nodes take ten seconds.

    Starts a collector on a free loopback port and the agents of all nodes, which stream over gRPC.
    Then it cuts a cable and removes a switch, and shows how the conditions change and recover.
    """
    # A missing package of the collector ends the demo here, with the name of the extra.
    import hyperscout_collector.app.replica.process  # noqa: F401

    check_open_files(nodes, raise_open_files(), process="the collector", flag="--nodes")
    # Agents log warnings when a lease moves during a sweep, which is expected here.
    logging.basicConfig(level=logging.ERROR)
    try:
        return asyncio.run(_demo(nodes, stay, kubeconfig))
    except DemoError as error:
        raise CliError(f"the demo failed (a busy machine can be the cause: try again): {error}") from error
    except asyncio.CancelledError:
        return INTERRUPTED


async def _demo(nodes: int, stay: bool, kubeconfig: Path | None) -> int:
    begun = time.monotonic()

    def say(text: str) -> None:
        first, *rest = text.splitlines()
        emit([f"[{time.monotonic() - begun:5.1f} s] {first}\n", *(f"          {line}\n" for line in rest)])

    stopped = asyncio.Event()
    story = asyncio.current_task()
    assert story is not None  # noqa: S101 (this coroutine runs in a task)
    ended = False

    def stop() -> None:
        if ended:
            stopped.set()
        else:
            story.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    fabric = demo_fabric(nodes)
    plural = f"{len(fabric.switches)} switches, {len(fabric.cables)} cables"
    say(f"simulating {len(fabric.hosts)} nodes with 4 rails in {len(fabric.truth.tiers[1])} pods: {plural}")
    settings = dict(SETTINGS)
    witness: Witness | None = None
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hyperscout-demo-"))
        if kubeconfig is not None:
            settings |= {"kubernetes": "publish", "kubeconfig": str(kubeconfig)}
            witness = cluster = await stack.enter_async_context(demo_cluster(kubeconfig, fabric.hosts))
            say(f"made {len(fabric.hosts)} nodes in the cluster of {kubeconfig}")
            await stack.enter_async_context(cluster.watching())
        say("starting a collector ...")
        async with running_collector(Path(folder), settings) as collector:
            say(
                f"collector listens on {collector.address} (process {collector.pid}); starting the agents ..."
            )
            say(where_the_map_is(collector.map, stay=stay))
            player = Player(fabric, [collector.address])
            view = View(time.monotonic, time.time_ns)
            async with beside(watch(collector.address, view)), beside(_play(player, view)):
                begun_s = time.time()
                timeout_s = STEP_TIMEOUT_S + _PER_NODE_S * nodes
                async with beside(_tell(player, nodes, say)):
                    seen = await run_story(fabric, player, view, say, timeout_s, witness)
                say(f"all as expected, in {time.monotonic() - begun:.1f} s:\n" + "".join(summary(seen)))
                found_s = begun_s + seen[0].after_s
                say(f"the history tells it again:\n{await looked_back(collector.address, found_s)}")
                ended = True
                if stay:
                    say(how_to_look(collector.address, collector.map, kubeconfig, fabric.hosts))
                    await stopped.wait()
    return 0


def demo_fabric(nodes: int) -> SimFabric:
    """Two pods or more of units of at most 16 nodes, from 1,700 nodes on of up to 50."""
    return cluster(nodes, hosts_per_unit=max(min(nodes // 4, 16), min(nodes // 100, 50)), pods=2)


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine in the background, and cancel it at the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _play(player: Player, view: View) -> None:
    try:
        await player.run()
    except Exception as error:
        await view.fail(DemoError(f"the simulated agents ended: {error!r}"))
        raise


async def _tell(player: Player, nodes: int, say: Callable[[str], None]) -> None:
    """Say how many agents are connected while they start."""
    while player.streaming < nodes:
        await asyncio.sleep(_PROGRESS_S)
        say(f"{player.streaming} of {nodes} agents are connected")


async def watch(address: str, view: View) -> None:
    async with grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        service = topology_pb2_grpc.TopologyServiceStub(channel)
        try:
            async for event in service.WatchTopology(topology_pb2.WatchTopologyRequest(omit_links=True)):
                await view.feed(event)
            reason = "it closed the stream"
        except grpc.aio.AioRpcError as error:
            reason = error.details() or str(error.code())
    await view.fail(DemoError(f"the collector is gone: {reason}"))


def summary(seen: list[Seen]) -> Iterator[str]:
    """A table of steps, observations and durations."""
    rows = tuple(Row(x.what, (x.what, x.saw, f"{x.after_s:.2f} s")) for x in seen)
    return lines(Table("step", ("DONE", "SEEN", "AFTER"), (), rows))


def where_the_map_is(address: str, *, stay: bool) -> str:
    """A line about the map; `address` is where the collector serves it."""
    from hyperscout_collector.serve.rest.static import FOLDER

    if not (FOLDER / "index.html").is_file():
        return "the map is not built: run `make map` (needs npm); after `pip install .` install again"
    return f"open the map in a browser: {address}" + (
        "" if stay else "  (--stay keeps it up after the story)"
    )


def how_to_look(address: str, map_address: str, kubeconfig: Path | None, hosts: Sequence[str]) -> str:
    """Commands for another terminal."""
    return (
        "it stays up until Ctrl-C; look at it from another terminal:\n"
        f"export {COLLECTOR_VARIABLE}={address}\n"
        "hyperscout get hypernodes\n"
        "hyperscout tree\n"
        f"hyperscout explain {hosts[0]} {hosts[-1]}\n"
        "hyperscout watch\n"
        f"curl {map_address}v1/hypernodes\n"
    ) + (f"kubectl --kubeconfig {kubeconfig} get hypernodes -w\n" if kubeconfig else "")
