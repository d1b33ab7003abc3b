"""A collector and agents in network namespaces that have nothing to go by but round trips.

Real processes, real UDP with kernel time stamps, routers in between; no LLDP, no InfiniBand, no GPU. The
published tree is that of the routers, also with two busy loops beside. The agents measure again and again.
The inference is wrong only when the measured round trips show the tiers and the published tree does not.
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
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.netlab import INTERFACE, Host, Netlab, netlab, three_tiers, two_tiers
from support.real import require_real

pytestmark = pytest.mark.long

require_real("root", "netns")

PORT = 50051
START_S = 90.0
# The round trips show the tiers for so long, and the published tree is another one: the inference is wrong.
INFER_S = 120.0
# The round trips do not show the tiers for so long: the machine is too noisy to measure.
MEASURE_S = 1200.0
# Each look starts two processes, which are load too.
LOOK_S = 3.0
_MAIN = (
    "import sys; from hyperscout_agent.probes.latency import LatencyProbe;"
    "LatencyProbe.__init__.__kwdefaults__['interval_s'] = 0.5;"
    "from hyperscout_cli.main import main; sys.exit(main(sys.argv[1:]))"
)
# A noisy burst is measured again after seconds, not after minutes.
_COLLECTOR = (
    "import hyperscout_collector.app.build.inference as build; made = build.PairSettings;"
    "build.PairSettings = lambda **named: made(**named | {'reverify_s': 5.0, 'rest_s': 5.0});" + _MAIN
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
        await_it(lambda: "listens on" in self.processes.log("collector"), "the collector listens", START_S)
        for host in self.lab.hosts:
            self.processes.start(host.name, host.name, "agent", "--config", self._config(host))

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
        done = subprocess.run(command, capture_output=True, timeout=START_S, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def measured(self) -> dict[int, list[float]]:
        """The newest round trips in microseconds, ascending, by true tier; 0 = not measured."""
        hosts = {host.name: host for host in self.lab.hosts}
        found: dict[int, list[float]] = defaultdict(list)
        for one in self.ask("get", "findings") or []:
            finding = one["finding"]
            for result in finding.get("latency", {}).get("results", []):
                tier = self.lab.tier(hosts[finding["key"]["node"]], hosts[result["peer"]])
                found[tier].append(round(result.get("minUs", 0.0), 1))
        return {tier: sorted(values) for tier, values in sorted(found.items())}

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


def are_apart(measured: dict[int, list[float]], tiers: int) -> bool:
    """Every pair was measured, and each tier varies less than twofold and is below half of the next tier."""
    by_tier = [measured.get(tier, [0.0]) for tier in range(1, tiers + 1)]
    steady = all(0 < tier[-1] < 2 * tier[0] for tier in by_tier)
    return steady and all(low[-1] < 0.5 * high[0] for low, high in pairwise(by_tier))


def await_tree(made: Cluster, truth: dict[int, set[frozenset[str]]]) -> Any:
    """The published tree, once it is the true one."""
    give_up_s = time.monotonic() + MEASURE_S
    apart_since_s: float | None = None
    while True:
        tree = made.ask("tree")
        if tree and domains(tree) == truth:
            return tree
        measured, now_s = made.measured(), time.monotonic()
        apart_since_s = (apart_since_s or now_s) if are_apart(measured, len(truth)) else None
        shown = f"published: {domains(tree) if tree else None}\nmeasured: {measured}\n"
        if apart_since_s and now_s > apart_since_s + INFER_S:
            raise AssertionError(f"not the tiers {truth}\n{shown}{made.processes.log('collector')}")
        if now_s > give_up_s:
            raise AssertionError(f"this machine is too noisy to measure {truth}\n{shown}")
        time.sleep(LOOK_S)


def await_it(happened: Callable[[], bool], what: str, timeout_s: float) -> None:
    give_up_s = time.monotonic() + timeout_s
    while not happened():
        if time.monotonic() > give_up_s:
            raise AssertionError(f"not in {timeout_s:g} s: {what}")
        time.sleep(0.5)


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
        began_s = time.monotonic()
        topology = await_tree(made, truth)
        print(f"{declare.__name__}: {time.monotonic() - began_s:.0f} s")
        for domain in topology["hypernodes"]:
            assert domain["source"] == "latency", domain
            assert 0 < domain["confidence"] <= 1
            reasons = {one["reason"] for one in domain["conditions"] if one["status"] != "False"}
            assert "Inferred" in reasons, domain["conditions"]
