"""A collector process with little memory that is attacked: what must hold meanwhile."""

import asyncio
import http.client
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_cli.loadtest.child import rss_mib

from support.collector_process import CollectorProcess, channel_to, collector_process
from support.collectors import QUICK_FLAGS, playing
from support.waiting import TIMEOUT_S, eventually

LIMIT_MIB = 1024
USED_MIB = 700
_PAUSE_S = 0.05


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


class HealthWatch(threading.Thread):
    """Asks for /healthz again and again, in a thread.

    `slowest_s`: the longest time of a request. It depends on the machine, so it is printed and not asserted.
    `failures`: answers with another status than 200, and requests without an answer within `TIMEOUT_S`.
    """

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.slowest_s = 0.0
        self.answers = 0
        self.failures: list[str] = []
        self._address = address
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(_PAUSE_S):
            began = time.monotonic()
            try:
                connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_S)
                connection.request("GET", "/healthz")
                if (status := connection.getresponse().status) != 200:
                    self.failures.append(f"status {status}")
                connection.close()
            except OSError as error:
                self.failures.append(repr(error))
            self.answers += 1
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    def stop(self) -> None:
        self._over.set()
        self.join()


class Siege:
    """The attacked collector: its addresses, its process and its watch."""

    def __init__(self, process: CollectorProcess, http_address: str, rest_address: str) -> None:
        self.process = process
        self.address = process.address
        self.http_address = http_address
        self.rest_address = rest_address
        self.watch = HealthWatch(http_address)

    async def tree(self) -> set[tuple[str, tuple[str, ...]]]:
        async with channel_to(self.address) as channel:
            found = await TopologyServiceStub(channel).GetTopology(
                pb.GetTopologyRequest(omit_links=True), timeout=TIMEOUT_S
            )
        return {(h.name, tuple(h.nodes)) for h in found.topology.hypernodes}


@asynccontextmanager
async def besieged(folder: Path, *flags: str) -> AsyncIterator[Siege]:
    """A collector with `LIMIT_MIB` of memory and eight honest agents, attacked by the block.

    After the block the tree of the honest agents is unchanged, the collector has used less than `USED_MIB`,
    and it has answered each request for /healthz with status 200 within `TIMEOUT_S`.
    """
    http_address, rest_address = free_address(), free_address()
    ports = ("--http-listen", http_address, "--rest-listen", rest_address)
    async with (
        collector_process(folder / "data", *ports, *QUICK_FLAGS, *flags, memory_mib=LIMIT_MIB) as process,
        playing(process.address, refresh_interval_s=1.0) as player,
    ):
        siege = Siege(process, http_address, rest_address)
        await eventually(lambda: player.settled, "the honest agents' evidence is stored")
        tree = await _whole_tree(siege, hosts=8)
        siege.watch.start()
        try:
            yield siege
            await asyncio.sleep(0)
            assert await siege.tree() == tree
            assert all(agent.uplink.stats.connected for agent in player.agents.values())
        finally:
            siege.watch.stop()
        peak = rss_mib(process.pid, "VmHWM")
        watch = siege.watch
        print(f"{peak:.0f} MiB, {watch.answers} requests for /healthz, the slowest {watch.slowest_s:.2f} s")
        assert watch.failures == []
        assert peak < USED_MIB


async def _whole_tree(siege: Siege, hosts: int) -> set[tuple[str, tuple[str, ...]]]:
    async with asyncio.timeout(TIMEOUT_S):
        tree = await siege.tree()
        while len({name for _, names in tree for name in names}) < hosts:
            await asyncio.sleep(_PAUSE_S)
            tree = await siege.tree()
        return tree
