"""A change of the leader: how soon all agents report to the next one, with a real API server.

Two collectors with leader election, and agents that are played through the real uplink. A change is complete
when the other replica holds the Lease, and has acknowledged the full state of every agent.
"""

import asyncio
import contextlib
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from hyperscout_sim.fabric.shapes import clos2
from kube.control_plane import ControlPlane
from kube.processes import free_port
from support.bench_rows import row
from support.collector_process import CollectorProcess, collector_process
from support.collectors import playing
from support.kubernetes import Cluster

CLEAN, KILLED = 20, 5
TIMEOUT_S = 120.0
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/hyperscout-collector"


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not happened():
            await asyncio.sleep(0.01)


class Pair:
    """Two replicas at fixed addresses. `names`: the one that leads, then the standby."""

    def __init__(self, kube: Cluster, folder: Path, stack: contextlib.AsyncExitStack) -> None:
        self.names = ("a", "b")
        self._kube, self._folder, self._stack = kube, folder, stack
        self._ports = {name: (free_port(), free_port()) for name in self.names}
        self._running: dict[str, CollectorProcess] = {}

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port, _ in self._ports.values()]

    async def start(self, name: str) -> None:
        port, page = self._ports[name]
        flags = ("--kubernetes", "publish", "--kubeconfig", str(self._kube.kubeconfig))
        flags = (*flags, "--leader-election", "--lease-namespace", "default", "--identity", name)
        flags = (*flags, "--http-listen", f"127.0.0.1:{page}")
        process = collector_process(self._folder / name, *flags, listen=f"127.0.0.1:{port}")
        self._running[name] = await self._stack.enter_async_context(process)
        await asyncio.to_thread(self._ready, f"http://127.0.0.1:{page}/readyz")

    def holder(self) -> str:
        spec = self._kube.api.ask("GET", LEASE)["spec"]
        return str(spec["holderIdentity"]).partition("_")[0]

    async def change(self, is_settled: Callable[[], bool], *, clean: bool) -> float:
        """End the leader, and start it again as a standby. Returns the seconds until all agents are back."""
        old, new = self.names
        began_s = time.monotonic()
        if clean:
            stopping = asyncio.create_task(self._running[old].stop())
        else:
            self._running[old].kill()
            stopping = asyncio.create_task(self._running[old].ended())
        while await asyncio.to_thread(self.holder) != new:
            await asyncio.sleep(0.01)
        await until(is_settled)
        took_s = time.monotonic() - began_s
        await stopping
        self.names = (new, old)
        await self.start(old)
        return took_s

    @staticmethod
    def _ready(url: str) -> None:
        until_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until_s:
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
                return
            time.sleep(0.05)
        raise TimeoutError(f"{url} is not ready")


async def measure(kube: Cluster, folder: Path) -> None:
    fabric = clos2(4, 8, 2)
    await asyncio.to_thread(kube.nodes, fabric.hosts)
    async with contextlib.AsyncExitStack() as stack:
        pair = Pair(kube, folder, stack)
        await pair.start("a")
        while await asyncio.to_thread(pair.holder) != "a":
            await asyncio.sleep(0.1)
        await pair.start("b")
        player = await stack.enter_async_context(playing(pair.addresses, fabric))

        def is_settled() -> bool:
            return player.settled and len(player.agents) == len(fabric.hosts)

        await until(is_settled)
        for clean, times, budget_s in ((True, CLEAN, 3.0), (False, KILLED, 10.0)):
            took_s = [await pair.change(is_settled, clean=clean) for _ in range(times)]
            what = "a clean change of the leader" if clean else "kill -9 of the leader"
            within = sum(x <= budget_s for x in took_s)
            row(
                f"{what}, {len(fabric.hosts)} agents back: slowest of {times}",
                f"{max(took_s):.1f} s",
                f"{sorted(took_s)[times // 2]:.1f} s median, {within} of {times} in time",
                "",
                f"{budget_s:g} s",
            )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder) / "kube") as plane:
        asyncio.run(measure(Cluster(plane), Path(folder)))


if __name__ == "__main__":
    main()
