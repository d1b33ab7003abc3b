"""A real collector and a real agent with the settings, keys and accounts that an installed chart gives."""

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hyperscout_sim.fabric.shapes import clos2
from hyperscout_sim.readings.snmp import recordings
from kube.processes import free_port
from support.chart import NAMESPACE, RELEASE, install
from support.collector_process import CollectorProcess, collector_process
from support.kubernetes import Cluster
from support.real import require_real
from support.snmp_responder import Table, responding
from support.waiting import TIMEOUT_S, eventually

require_real("kubernetes", "helm")

COLLECTOR, AGENT, FABRIC = f"{RELEASE}-collector", f"{RELEASE}-agent", f"{RELEASE}-fabric"
VALUES = {"crds": {"install": False}, "agent": {"lldp": {"enabled": False}}}


def mounted(kube: Cluster, folder: Path, name: str, file: str, token: str) -> Path:
    """What a pod finds in its volumes, in this folder: the Secret, its token, and its settings, returned."""
    folder.mkdir()
    for key, data in kube.get("secret", f"{RELEASE}-tls", "-n", NAMESPACE)["data"].items():
        (folder / key).write_bytes(base64.b64decode(data))
    (folder / "token").write_text(token)
    text: str = kube.get("configmap", name, "-n", NAMESPACE)["data"][file]
    (folder / "run").mkdir()
    for place in ("/etc/hyperscout/tls", "/var/run/secrets/hyperscout"):
        text = text.replace(place, str(folder))
    text = text.replace("/run/hyperscout", str(folder / "run"))
    (folder / file).write_text(text)
    return folder / file


@asynccontextmanager
async def collector(kube: Cluster, folder: Path, *flags: str, listen: str) -> AsyncIterator[CollectorProcess]:
    """A pod of the Deployment, with its service account."""
    pod = kube.pod_on("gpu-1", COLLECTOR, NAMESPACE, name=folder.name)
    token = kube.token(COLLECTOR, NAMESPACE, audience="hyperscout", pod=pod)
    config = mounted(kube, folder, COLLECTOR, "collector.yaml", token)
    words = ("--config", str(config), "--kubeconfig", str(kube.kubeconfig_of(COLLECTOR, NAMESPACE)))
    async with collector_process(folder / "data", *words, *flags, listen=listen) as process:
        yield process


async def healthz(port: int, page: str = "/healthz") -> bytes:
    """The agent's answer; empty while there is none."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return b""
    writer.write(f"GET {page} HTTP/1.1\r\n\r\n".encode())
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_an_agent_and_a_collector_of_the_chart_find_each_other(kube: Cluster, tmp_path: Path) -> None:
    install(kube, VALUES)
    kube.nodes(["gpu-1"])
    pod = kube.pod_on("gpu-1", AGENT, NAMESPACE)
    token = kube.token(AGENT, NAMESPACE, audience="hyperscout", pod=pod)
    config = mounted(kube, tmp_path / "agent", AGENT, "agent.yaml", token)
    flags = ("--advertise", "127.0.0.1:1")
    async with (
        collector(kube, tmp_path / "collector", *flags, listen="127.0.0.1:0") as process,
        agent(config, process, "--node", "gpu-1") as port,
        asyncio.timeout(TIMEOUT_S),
    ):
        while b"ok, connected" not in await healthz(port):
            await asyncio.sleep(0.05)


@asynccontextmanager
async def agent(config: Path, process: CollectorProcess, *flags: str) -> AsyncIterator[int]:
    """Gives the port of its metrics."""
    port = free_port()
    program = "from hyperscout_cli.main import main; raise SystemExit(main())"
    words = ("--config", str(config), "--collector", process.address, "--metrics-port", str(port))
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, "agent", *words, *flags),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield port
        assert running.returncode is None
    finally:
        running.terminate()
        await running.wait()


async def test_the_pod_that_asks_switches_tells_the_collector(kube: Cluster, tmp_path: Path) -> None:
    """Its account, and the file of a Secret, are all that opens the collector and the switch to it."""
    fabric = clos2(leaves=1, hosts_per_leaf=2, spines=1)
    answers = [Table.of_snmprec(text.decode()) for _, text in recordings(fabric)]
    at = {f"127.0.0.{n}": table for n, table in enumerate(answers, start=11)}
    with responding(at, community="of a Secret") as switches:
        snmp = {
            "access": [
                {
                    "ranges": ["127.0.0.0/24"],
                    "community_file": "/etc/hyperscout/credentials/snmp/community",
                }
            ],
            "seeds": list(at),
            "port": switches.port,
        }
        settings = {"enabled": True, "credentials": {"snmp": "switches"}, "settings": {"snmp": snmp}}
        install(kube, VALUES | {"fabric": settings})
        kube.nodes(["gpu-1"])
        pod = kube.pod_on("gpu-1", FABRIC, NAMESPACE)
        token = kube.token(FABRIC, NAMESPACE, audience="hyperscout", pod=pod)
        config = mounted(kube, tmp_path / "fabric", FABRIC, "fabric.yaml", token)
        (tmp_path / "fabric" / "community").write_text("of a Secret\n")
        text = config.read_text().replace("/etc/hyperscout/credentials/snmp", str(tmp_path / "fabric"))
        config.write_text(text)
        flags = ("--advertise", "127.0.0.1:1")
        async with (
            collector(kube, tmp_path / "collector", *flags, listen="127.0.0.1:0") as process,
            agent(config, process) as port,
        ):
            async with asyncio.timeout(TIMEOUT_S):
                while (said := figures(await healthz(port, "/metrics"))) != TAKEN:
                    await asyncio.sleep(0.05)
        assert said == TAKEN
        assert b"refused" not in process.said


# All switches were asked, and what they said is with the collector, which refused none of it.
TAKEN = {"findings": 2, "findings_dirty": 0, "uplink_connected": 1, "uplink_refusals_total": 0}


def figures(page: bytes) -> dict[str, float]:
    lines = dict(line.rsplit(" ", 1) for line in page.decode().splitlines() if " " in line)
    return {name: float(lines.get(f"hyperscout_agent_{name}", "nan")) for name in TAKEN}


async def test_replicas_of_the_chart_follow_each_other(kube: Cluster, tmp_path: Path) -> None:
    """Over TLS, by an address that is in no certificate, as a pod's is; then the other way round."""
    install(kube, VALUES)
    kube.nodes(["gpu-1"])
    first = collector(kube, tmp_path / "one", "--identity", "one", listen="127.0.0.2:0")
    second = collector(kube, tmp_path / "two", "--identity", "two", listen="127.0.0.3:0")
    third = collector(kube, tmp_path / "three", "--identity", "three", listen="127.0.0.4:0")
    async with first as one:
        await said(one, b"findings of")
        async with second as two:
            await said(two, b"following the leader, 127.0.0.2:")
            assert b"not following" not in two.said
            assert await one.stop() == 0
            await said(two, b"findings of")
            async with third as three:
                await said(three, b"following the leader, 127.0.0.3:")
                assert b"not following" not in three.said


async def said(process: CollectorProcess, words: bytes) -> None:
    try:
        await eventually(lambda: words in process.said)
    except TimeoutError:
        raise AssertionError(f"never said {words!r}: {process.said.decode()}") from None
