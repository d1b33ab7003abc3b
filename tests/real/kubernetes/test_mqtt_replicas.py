"""Two collectors, a real Lease and a real mosquitto: the leader says so there, and no other replica speaks.

What they know comes by MQTT, too: three switches and four DPUs report to whichever of them reads.
"""

import json
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.collector_process import CollectorProcess, collector_process
from support.kubernetes import Cluster
from support.mosquitto import Listener, Mosquitto, listening, mosquitto
from support.mqtt_world import DEVICES, Reader, reports, send
from support.real import require_real
from support.waiting import TIMEOUT_S, eventually

require_real("mosquitto")

SHORT = ("--lease-duration-s", "8")  # longer than a busy machine delays its renewal
QUICK = ("--settle-s", "0.2", "--hold-down-s", "0.05")
RULES = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
]


@asynccontextmanager
async def replica(
    cluster: Cluster, broker: Mosquitto, folder: Path, name: str
) -> AsyncIterator[CollectorProcess]:
    cluster.grant(name, RULES)
    election = ("--leader-election", "--lease-namespace", "default", "--identity", name, "--rest-listen", "")
    known = (*election, "--kubeconfig", str(cluster.kubeconfig_of(name)))
    mqtt = ("--mqtt-broker", f"mqtt://127.0.0.1:{broker.port}", "--mqtt-topic-prefix", "lab")
    devices = [word for device in DEVICES for word in ("--mqtt-devices", device)]
    async with collector_process(folder / name, *known, *SHORT, *QUICK, *mqtt, *devices) as process:
        yield process


def is_whole(tree: Mapping[str, Any]) -> bool:
    """Whether two leaves of two nodes are under one domain, and nothing is degraded."""
    sizes = sorted((tier, len(nodes)) for tier, _, nodes, _ in tree.values())
    degraded = {conditions["Degraded"][0] for _, _, _, conditions in tree.values()}
    return (sizes, degraded) == ([(1, 2), (1, 2), (2, 4)], {"False"})


def leader(listener: Listener) -> tuple[str, str]:
    """State and identity, as they stand."""
    said: dict[str, Any] = json.loads(listener.standing.get("lab/collector", b"{}"))
    return said.get("state", ""), said.get("identity", "")


async def leads(listener: Listener, name: str) -> None:
    await listener.until(lambda: leader(listener) == ("online", name), TIMEOUT_S)


async def follows(standby: CollectorProcess) -> None:
    """It knows what the leader has published, so it can go on from there."""
    await eventually(lambda: b"following the leader" in standby.said)


async def test_the_leader_speaks_and_a_former_leader_does_not(kube: Cluster, tmp_path: Path) -> None:
    schemas = Reader()
    async with mosquitto(tmp_path / "broker") as broker, listening(broker, "lab/#") as other:
        async with replica(kube, broker, tmp_path, "a") as a:
            await other.until(lambda: leader(other) == ("syncing", "a"), TIMEOUT_S)
            async with replica(kube, broker, tmp_path, "b") as b:
                for topic, message in reports(time.time_ns()).items():
                    await send(broker, f"lab/findings/{topic}", message)
                await other.until(lambda: is_whole(schemas.tree(other)), TIMEOUT_S)
                await leads(other, "a")
                await follows(b)
                tree = schemas.tree(other)
                os.kill(a.pid, signal.SIGSTOP)
                await leads(other, "b")
                assert schemas.tree(other) == tree, "what was published is there all the time"
                # It wakes up with its connection still open, finds that it was deposed, and takes its leave.
                os.kill(a.pid, signal.SIGCONT)
                await other.until(lambda: leader(other) == ("offline", "a"), TIMEOUT_S)
                await leads(other, "b")
                await follows(a)
                b.kill()
                await other.until(lambda: leader(other) == ("offline", "b"), TIMEOUT_S)
                await leads(other, "a")
                assert schemas.tree(other) == tree
        said = [x for x in other.heard if not x.topic.startswith(("lab/findings/", "lab/refusals/"))]
        other.heard = said
        schemas.check(other)
