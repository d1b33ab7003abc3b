"""A link that goes down -> the line of a watching `kubectl`, with a real API server and 10,000 kwok nodes.

    python tests/bench/bench_kubectl.py [--nodes 10000]

The load test runs with a collector that publishes HyperNodes, and `kubectl get hypernodes --watch` is its
watcher. etcd, API server, kwok, collector, kubectl and simulated agents share the machine's cores, so the
figures are for all of them together. It takes five minutes, and needs what `make kube-assets` builds.
"""

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hyperscout_cli.demo.demo import beside
from hyperscout_cli.loadtest.child import cpu_s
from hyperscout_cli.loadtest.figures import PERCENTILES, Report, percentile
from hyperscout_cli.loadtest.link_schedule import QUIET_S, Change, host_links
from hyperscout_cli.loadtest.progress import Progress
from hyperscout_cli.loadtest.run import run
from hyperscout_cli.loadtest.settings import LoadTestSettings
from hyperscout_cli.loadtest.watcher import Port, watch
from hyperscout_cli.remote.open_files import raise_open_files
from hyperscout_runtime.credentials import Credentials
from hyperscout_sim.fabric.shapes import cluster
from kube.control_plane import ControlPlane, Options
from support.bench_rows import row
from support.kubernetes import Cluster

NODES = 10_000
PER_MINUTE = 100
CHANGES = int(PER_MINUTE * QUIET_S / 60)  # later changes are also links that return
FABRICS = 2  # on each link
TIMEOUT_S = 900.0
WATCH = ("get", "hypernodes", "--watch", "--no-headers", "-o", "wide")
_HOST = re.compile(r"\bnode-\d+\b")
_DOWN = re.compile(r"(\d+)(?: of \d+)? host links? down")


@dataclass(frozen=True, slots=True)
class Line:
    """Links of a HyperNode that kubectl shows as down: their number, and the hosts of some of them."""

    down: int
    hosts: frozenset[str]


def parsed(line: str) -> Line:
    """Read a line of `WATCH`."""
    found = _DOWN.search(line)
    return Line(int(found[1]) if found else 0, frozenset(_HOST.findall(line)))


class Domains:
    """Which changes the lines of kubectl show. All changes are links that go down, each with Ethernet and
    InfiniBand.

    A line shows how many links of a HyperNode are down, and names three of them at most. So the changes in a
    HyperNode count as shown in the order in which they are made.
    """

    def __init__(self, unit_of: Mapping[str, int], hosts: Sequence[str]) -> None:
        """`unit_of`: host -> its domain. `hosts`: of each link, as an index into `host_links`."""
        self._unit_of = unit_of
        self._hosts = hosts
        self._down: dict[int, int] = {}  # by domain: changes that were shown

    def shown(self, line: Line, pending: Iterable[int]) -> list[Change]:
        """The changes that a line is the first to show. `pending`: links in the order of their changes."""
        units = {self._unit_of[host] for host in line.hosts if host in self._unit_of}
        if len(units) != 1:  # no link is down, or only links above the leaves
            return []
        (unit,) = units
        down = line.down // FABRICS
        more = down - self._down.get(unit, 0)
        self._down[unit] = down
        of_unit = [link for link in pending if self._unit_of[self._hosts[link]] == unit]
        return [Change(link, down=True) for link in of_unit[: max(0, more)]]


class Kubectl:
    """The watching kubectl, as the watcher of a load test. Samples the processor time of the API server."""

    def __init__(self, kube: Cluster, nodes: int) -> None:
        fabric = cluster(nodes)
        hosts = fabric.node_map()
        self._kube = kube
        self._domains = Domains(fabric.truth.domain_of(1), [hosts[cable.a] for cable in host_links(fabric)])
        self._used: list[tuple[float, float]] = []  # time and processor time at each shown change

    @property
    def api_server_load(self) -> float:
        """Processor cores in use by the API server from the first shown change to the last."""
        assert self._used, "kubectl showed no change"
        (began_s, before_s), (ended_s, after_s) = self._used[0], self._used[-1]
        return (after_s - before_s) / (ended_s - began_s)

    async def watch(
        self, target: str, credentials: Credentials, _: Mapping[Port, int], progress: Progress
    ) -> None:
        """Report the changes that kubectl shows. The collector itself tells which nodes are published."""
        async with beside(watch(target, credentials, {}, progress)), self._kube.watching(*WATCH) as lines:
            while line := await lines.readline():
                at_ns = time.monotonic_ns()
                changes = self._domains.shown(parsed(line.decode()), progress.pending)
                progress.published(at_ns, progress.nodes, changes)
                if changes:
                    self._used.append((at_ns / 1e9, cpu_s(self._kube.plane.apiserver.pid)))
        progress.fail("kubectl ended")


def measured(kube: Cluster, folder: Path, settings: LoadTestSettings) -> tuple[Report, float]:
    """The load test, and the processor cores in use by the API server."""
    kube.nodes(cluster(settings.agents).hosts)
    kubectl = Kubectl(kube, settings.agents)
    flags = {"kubernetes": "publish", "kubeconfig": str(kube.kubeconfig)}
    folder.mkdir()
    report = asyncio.run(run(settings, folder, say, flags=flags, watcher=kubectl.watch))
    return report, kubectl.api_server_load


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=NODES, help=f"{CHANGES} or more (default 10000)")
    chosen = parser.parse_args()
    if chosen.nodes < CHANGES:
        parser.error(f"--nodes: at least {CHANGES}, so that no link changes twice")
    raise_open_files()
    settings = LoadTestSettings(
        chosen.nodes, changes=CHANGES, changes_per_minute=PER_MINUTE, timeout_s=TIMEOUT_S, tls=False
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(Path(folder) / "kube", Options(kwok=True)) as plane,
    ):
        report, api_server_load = measured(Cluster(plane), Path(folder) / "load", settings)
    changes = report.changes
    assert changes is not None
    latencies_s = changes.latencies_s
    where = f"{chosen.nodes:,} kwok nodes, {PER_MINUTE} changes a minute: change -> kubectl get -w"
    for share in PERCENTILES:
        value = percentile(latencies_s, share) or 0.0
        row(f"{where}, p{share} of {len(latencies_s)}", f"{value:.2f} s")
    row(f"{where}, not seen", f"{report.unseen} of {changes.made}")
    loads = changes.collector_load or 0.0, api_server_load, changes.agents_load
    row(
        f"{where}, load of the collector, the API server and the agents meanwhile",
        ", ".join(f"{load * 100:.0f} %" for load in loads) + " of a core",
    )


if __name__ == "__main__":
    main()
