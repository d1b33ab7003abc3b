"""A collector and agents in network namespaces that have nothing to go by but round trips.

Real processes and real UDP with routers in between; no LLDP, no InfiniBand, no GPU. Every ping is answered
over the network, but its round trip is a planted one: one length for each tier. So the published tree is that
of the routers on a machine of any speed, also with two busy loops beside. `make plot-rtt` measures the same
fabric.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.netlab import INTERFACE, Host, Netlab, netlab, three_tiers, two_tiers
from support.real import require_real
from support.waiting import TIMEOUT_S, until_seen

pytestmark = pytest.mark.long

require_real("root", "netns")

PORT = 50051
# Each look starts a process, which is load too.
LOOK_S = 1.0
_AGENT = """\
import sys
from dataclasses import replace

import hyperscout_agent.ping.burst as burst
from hyperscout_agent.probes.latency import LatencyProbe

planted_us = {planted_us}
measured = burst.Burst._sample


def sample(self, sequence, ping):
    found = measured(self, sequence, ping)
    if found is None:
        return None
    residence_ns = 1000
    gap_ns = residence_ns + round(1000 * planted_us[self._plan.peer_address]) + 10 * (sequence % 5)
    return replace(found, gap_ns=gap_ns, residence_ns=residence_ns, at_most_ns=gap_ns, stepped=False)


burst.Burst._sample = sample
LatencyProbe.__init__.__kwdefaults__["interval_s"] = 0.5
from hyperscout_cli.main import main
sys.exit(main(sys.argv[1:]))
"""
_MAIN = "import sys; from hyperscout_cli.main import main; sys.exit(main(sys.argv[1:]))"
# A pair that a busy host did not answer in time is measured again after a second, not after minutes.
_COLLECTOR = (
    "import hyperscout_collector.app.build.inference as build; made = build.PairSettings;"
    "again = {'rest_s': 1.0, 'back_off_s': 1.0, 'node_back_off_s': 1.0, 'disagree_s': 1.0};"
    "build.PairSettings = lambda **named: made(**named | again);" + _MAIN
)
_PROBES_OFF = "\n".join(
    f"{probe}: {{enabled: false}}" for probe in ("lldp", "infiniband", "ibnetdiscover", "nvlink")
)


class Processes:
    """Started in namespaces, ended whatever happened; their logs are shown when a test fails."""

    def __init__(self, lab: Netlab, folder: Path) -> None:
        self._lab, self._folder = lab, folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(
        self, namespace: str, name: str, *arguments: str | Path, code: str = _MAIN
    ) -> subprocess.Popen[bytes]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HYPERSCOUT_")}
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                self._lab.command(namespace, sys.executable, "-c", code, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        self._running.append(process)
        return process

    def burn(self, count: int) -> None:
        """Keep CPUs busy."""
        self._running += [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in self._running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


class Cluster:
    """A collector in the topmost router, an agent in each host."""

    def __init__(self, lab: Netlab, processes: Processes, folder: Path) -> None:
        self.lab, self.processes, self._folder = lab, processes, folder
        self.root = next(router for router in lab.routers if router.parent is None)

    def start(self) -> None:
        self.processes.start(
            self.root.name, "collector", "collector", "--listen", f"[::]:{PORT}", "--insecure",
            "--data-dir", self._folder / "data", "--http-listen", "", "--rest-listen", "",
            "--hold-s", "5", code=_COLLECTOR,
        )  # fmt: skip
        until_seen(lambda: "listens on" in self.processes.log("collector"), "the collector listens")
        for host in self.lab.hosts:
            code = _AGENT.format(planted_us=self._planted_us(host))
            self.processes.start(host.name, host.name, "agent", "--config", self._config(host), code=code)

    def _planted_us(self, host: Host) -> dict[str, float]:
        """Round trips to each address of the other hosts."""
        return {
            address: 10.0 * self.lab.distance(host, peer)
            for peer in self.lab.hosts
            for address in (peer.v4, peer.v6)
            if address and peer is not host
        }

    def _config(self, host: Host) -> Path:
        config = self._folder / f"{host.name}.yaml"
        address = f"{self.root.v4}:{PORT}" if host.v4 else f"[{self.root.v6}]:{PORT}"
        config.write_text(
            f"node: {host.name}\ncollectors: ['{address}']\ninsecure: true\nmetrics: {{port: 0}}\n"
            f"{_PROBES_OFF}\n"
            f"latency: {{interfaces: {INTERFACE}}}\n"
        )
        return config

    def ask(self, *words: str) -> Any:
        """The command line, beside the collector; None while it has no answer."""
        command = self.lab.command(
            self.root.name,
            sys.executable,
            "-c",
            _MAIN,
            *words,
            "-o",
            "json",
            "--collector",
            f"127.0.0.1:{PORT}",
        )
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def truth(self) -> dict[int, set[frozenset[str]]]:
        """What the routers make of them."""
        depth = self.lab.tier(self.lab.hosts[0], self.lab.hosts[-1])
        return {
            tier: {
                frozenset(b.name for b in self.lab.hosts if self.lab.tier(a, b) <= tier)
                for a in self.lab.hosts
            }
            for tier in range(1, depth + 1)
        }


def domains(tree: Any) -> dict[int, set[frozenset[str]]]:
    """Sets of hosts by tier, of a published tree."""
    found: dict[int, set[frozenset[str]]] = defaultdict(set)
    for domain in tree["hypernodes"]:
        found[domain["tier"]].add(frozenset(domain["nodes"]))
    return dict(found)


def await_tree(made: Cluster, truth: dict[int, set[frozenset[str]]]) -> Any:
    """The published tree, once it is the true one."""
    give_up_s = time.monotonic() + TIMEOUT_S
    while not (tree := made.ask("tree")) or domains(tree) != truth:
        if time.monotonic() > give_up_s:
            published = domains(tree) if tree else None
            log = made.processes.log("collector")
            raise AssertionError(f"not the tiers {truth}\npublished: {published}\n{log}")
        time.sleep(LOOK_S)
    return tree


@contextlib.contextmanager
def cluster(declare: Callable[[Netlab], None], folder: Path) -> Iterator[Cluster]:
    with netlab(declare) as lab:
        processes = Processes(lab, folder)
        try:
            made = Cluster(lab, processes, folder)
            made.start()
            yield made
        finally:
            processes.close()


@pytest.mark.parametrize(
    ("declare", "busy_loops"),
    [(two_tiers, 2), (three_tiers, 0), pytest.param(three_tiers, 2, marks=pytest.mark.slow)],
)
def test_tiers_from_latency_alone(declare: Callable[[Netlab], None], busy_loops: int, tmp_path: Path) -> None:
    with cluster(declare, tmp_path) as made:
        made.processes.burn(busy_loops)
        truth = made.truth()
        topology = await_tree(made, truth)
        for domain in topology["hypernodes"]:
            assert domain["source"] == "latency", domain
            assert 0 < domain["confidence"] <= 1
            reasons = {one["reason"] for one in domain["conditions"] if one["status"] != "False"}
            assert "Inferred" in reasons, domain["conditions"]
