"""The doctor on real parts: lldpd that is there or not, a missing right, and each step to a collector."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from hyperscout.v1.discovery_pb2 import StreamFindingsResponse, Welcome
from hyperscout.v1.discovery_pb2_grpc import DiscoveryServiceServicer, add_DiscoveryServiceServicer_to_server
from hyperscout_agent.doctor.facts import CollectorSeen
from hyperscout_agent.doctor.reach import ask_collectors, read_token
from hyperscout_agent.main import Agent
from hyperscout_agent.settings.settings import AgentSettings, load_settings
from hyperscout_collector.app.build.collector import Collector
from hyperscout_kubernetes.client import Kube
from hyperscout_runtime.clock import Clock
from support.collectors import tls_settings
from support.identities import FakeReviews, Family, jwt
from support.lldpd import lldp_lab, run
from support.real import require_real, tool
from support.rest_collector import status_of
from support.waiting import TIMEOUT_S, eventually

NOW_S = 1_790_000_000.0
_MAIN = "import sys; from hyperscout_cli.main import main; sys.exit(main(sys.argv[1:]))"


@asynccontextmanager
async def collector(
    folder: Path, family: Family, reviews: FakeReviews | None = None, **more: Any
) -> AsyncIterator[Collector]:
    """One whose clock stands at NOW_S."""
    settings = tls_settings(folder, family, reviews, **more)
    clock = Clock(lambda: int(NOW_S * 1e9), lambda: int(NOW_S * 1e9))
    async with Collector(settings, kube=cast(Kube, reviews), clock=clock, timer=lambda: NOW_S) as running:
        yield running


def agent(*collectors: str, **more: Any) -> AgentSettings:
    return load_settings(None, {"node": "n1", "collectors": collectors, **more})


async def asked(settings: AgentSettings, *, wall_s: float = NOW_S) -> CollectorSeen:
    (found,) = await ask_collectors(settings, wall_ns=lambda: int(wall_s * 1e9))
    return found


# --- the way to a collector


async def test_each_step_to_a_collector_is_named(tmp_path: Path, family: Family) -> None:
    strangers = Family(tmp_path)
    async with collector(tmp_path, family) as running:
        mtls, n1 = running.mtls_address, family.client("node/n1")
        keys = {"tls_ca": family.ca, "tls_cert": n1.cert, "tls_key": n1.key}
        met = await asked(agent(mtls, **keys))
        assert (met.stage, met.code, met.clock_offset_s) == ("greeted", "", 0.0)
        assert met.certificate_until_s is not None
        for settings, stage, words in (
            (agent(mtls, **keys | {"node": "n2"}), "identity", "node 'n1'"),
            (agent(mtls, **keys | {"tls_ca": strangers.ca}), "tls", "not trusted"),
            (agent(mtls, **keys | {"tls_server_name": "else.where"}), "tls", "else.where"),
            (agent(mtls, **keys | {"tls_ca": tmp_path / "none.pem"}), "settings", "none.pem"),
            (agent(mtls, tls_ca=family.ca), "identity", ""),
            (agent(mtls), "identity", ""),
            (agent("127.0.0.1:1", **keys), "connect", "refused"),
            (agent("no.such.host.invalid:1", **keys), "name", ""),
        ):
            found = await asked(settings)
            assert (found.stage, words in found.detail) == (stage, True), found
        assert [agent.node for agent in status_of(running).agents] == [], "no caller was taken for an agent"


class _Flaky(DiscoveryServiceServicer):
    """Ends some calls as gRPC reports a call that ends during a write; then welcomes the caller."""

    def __init__(self, failures: int) -> None:
        self.calls, self._failures = 0, failures

    async def StreamFindings(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802 - gRPC's name
        self.calls += 1
        if self.calls <= self._failures:
            await context.abort(grpc.StatusCode.INTERNAL, "Internal error from Core")
        yield StreamFindingsResponse(welcome=Welcome(version="1"))
        async for _ in request_iterator:  # a stream that ended here could end during the caller's write too
            pass


@pytest.mark.parametrize(("failures", "stage", "calls"), [(2, "greeted", 3), (9, "identity", 3)])
async def test_a_call_that_ended_during_a_write_is_tried_again(failures: int, stage: str, calls: int) -> None:
    servicer = _Flaky(failures)
    server = grpc.aio.server()
    add_DiscoveryServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        found = await asked(agent(f"127.0.0.1:{port}", insecure=True))
    finally:
        await server.stop(None)
    assert (found.stage, servicer.calls) == (stage, calls)


async def test_a_wrong_clock_is_seen_although_the_collector_refuses_the_agent(
    tmp_path: Path, family: Family
) -> None:
    async with collector(tmp_path, family, FakeReviews()) as running:
        found = await asked(agent(running.address, tls_ca=family.ca), wall_s=NOW_S + 3600)
    assert (found.stage, found.code) == ("identity", "UNAUTHENTICATED")
    assert found.clock_offset_s == pytest.approx(3600, abs=1)


async def test_an_expired_token_is_named_by_both_ends(tmp_path: Path, family: Family) -> None:
    reviews = FakeReviews()
    token = tmp_path / "token"
    async with collector(tmp_path, family, reviews) as running:
        settings = agent(running.address, tls_ca=family.ca, token_file=token)
        token.write_text(reviews.agent("n1", exp=NOW_S + 600))
        assert (await asked(settings)).stage == "greeted"
        token.write_text(jwt(aud=[reviews.audience], exp=NOW_S - 60))  # not accepted any more
        found = await asked(settings)
        assert (found.stage, found.code) == ("identity", "UNAUTHENTICATED")
        seen = read_token(token)
        assert seen is not None
        assert seen.expires_s == NOW_S - 60


async def test_the_agents_own_stream_goes_on(tmp_path: Path, family: Family) -> None:
    """And the doctor is told that it is there, with the same credentials."""
    async with collector(tmp_path, family) as running:
        n1 = family.client("node/n1")
        settings = agent(
            running.mtls_address,
            tls_ca=family.ca,
            tls_cert=n1.cert,
            tls_key=n1.key,
            metrics={"port": 0},
            lldp={"enabled": False},
            latency={"enabled": False},
        )
        ours = Agent(settings, Random(0))
        stop = asyncio.Event()
        task = asyncio.create_task(ours.run(stop))
        await eventually(lambda: ours.uplink.stats.connected)
        found = await asked(settings)
        assert (found.stage, found.code) == ("greeted", "ABORTED")
        assert ours.uplink.stats.connected
        assert (ours.uplink.stats.sessions, ours.uplink.stats.failures) == (1, 0)
        stop.set()
        await task


# --- the host, as the command sees it


def doctor(namespace: str, config: Path, *wrapper: str) -> dict[str, dict[str, str]]:
    """`hyperscout doctor -o json` in a network namespace: checks by name."""
    return _checks([*_command(namespace, *wrapper), "doctor", "--config", str(config), "-o", "json"])


def _command(namespace: str, *wrapper: str) -> list[str]:
    """`hyperscout` in a network namespace, without its arguments."""
    return [str(tool("ip")), "netns", "exec", namespace, *wrapper, sys.executable, "-c", _MAIN]


@contextmanager
def running(argv: Sequence[str]) -> Iterator[None]:
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def _checks(argv: Sequence[str]) -> dict[str, dict[str, str]]:
    done = subprocess.run(argv, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 3, (done.stdout.decode(), done.stderr.decode())
    return {check["check"]: check for check in json.loads(done.stdout)["checks"]}


def test_lldpd_and_rights_on_a_host(tmp_path: Path) -> None:
    require_real("netns")
    require_real("lldpd")
    config = tmp_path / "agent.yaml"

    def configure(lldp: dict[str, Any]) -> None:
        given = {"node": "n1", "collectors": ["127.0.0.1:1"], "metrics": {"port": 1}}
        config.write_text(json.dumps(given | {"lldp": {"ports": "nic.*"} | lldp}))

    with lldp_lab() as lab:
        lab.cable(("n1", "nic0"), ("leaf", "swp1"))
        here = lab.namespace("n1")
        configure({"source": "listener"})
        found = doctor(here, config)
        assert found["lldp source"]["result"] == "ok"
        assert "carrier: nic0 of 1" in found["devices"]["why"]
        assert found["agent"]["result"] == found["collector 127.0.0.1:1"]["result"] == "failed"

        less = doctor(here, config, str(tool("setpriv")), "--bounding-set", "-net_raw")
        assert less["lldp source"]["result"] == "failed"
        assert "CAP_NET_RAW" in less["lldp source"]["why"]

        daemon = lab.lldpd("n1", ["nic0"])
        configure({"source": "lldpctl", "lldpctl_command": daemon.ctl()})
        assert doctor(here, config)["lldp source"]["result"] == "ok"
        daemon.stop()
        gone = doctor(here, config)["lldp source"]
        assert (gone["result"], "does not answer" in gone["why"]) == ("failed", True), gone

        run(str(tool("ip")), "-n", lab.namespace("leaf"), "link", "set", "swp1", "down")
        assert "no port has a link" in doctor(here, config)["devices"]["why"]


def test_a_listener_beside_an_agent_without_rights(tmp_path: Path) -> None:
    """As in the chart's pod: the agent has no right to listen, and the listener is another process."""
    require_real("netns")
    config, socket = tmp_path / "agent.yaml", tmp_path / "lldp.sock"
    lldp = {"source": "listener", "spawn_listener": False, "socket": str(socket), "ports": "none.*"}
    given = {"node": "n1", "collectors": ["127.0.0.1:1"], "metrics": {"port": 1}, "lldp": lldp}
    config.write_text(json.dumps(given))
    less = (str(tool("setpriv")), "--bounding-set", "-net_raw")
    deadline_s = time.monotonic() + TIMEOUT_S

    def seen_until(verdict: str) -> dict[str, str]:
        while (found := doctor(here, config, *less)["lldp source"])["result"] != verdict:
            assert time.monotonic() < deadline_s, found
        return found

    with lldp_lab() as lab:
        here = lab.namespace("n1")
        with running([*_command(here, *less), "agent", "--config", str(config)]):
            assert f"no LLDP listener is connected to {socket}" in seen_until("failed")["why"]
            with running([*_command(here), "agent", "lldp-listener", "--socket", str(socket)]):
                assert seen_until("ok")["why"] == f"an LLDP listener is connected to {socket}"
            assert "no LLDP listener" in seen_until("failed")["why"]
