"""A collector with real certificates on loopback: which callers it admits where, and the text of refusals."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, cast
from unittest import mock

import pytest
from hyperscout.v1.discovery_pb2 import Hello
from hyperscout_agent.findings.store import FindingStore
from hyperscout_agent.uplink.uplink import Uplink
from hyperscout_collector.app.build import servers
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.replica.standby import Standby
from hyperscout_collector.app.settings.settings import load_settings
from hyperscout_collector.identity.callers import NODE_NAME, spread_s
from hyperscout_collector.ingest.service import IngestSettings
from hyperscout_kubernetes.client import Kube
from hyperscout_kubernetes.errors import UnreachableError
from hyperscout_runtime.clock import Clock
from hyperscout_runtime.credentials import Credentials
from hyperscout_runtime.errors import StartError
from support.agent_stream import AgentStream
from support.callers import OPTIONS, Code, asked, said
from support.collectors import tls_settings
from support.findings import lldp, switch_port, table
from support.identities import FakeReviews, Family, jwt, show
from support.rest_collector import status_of
from support.waiting import TIMEOUT_S, eventually


@pytest.fixture
def reviews() -> FakeReviews:
    return FakeReviews()


@asynccontextmanager
async def collector(
    folder: Path, family: Family, reviews: FakeReviews | None = None, **more: Any
) -> AsyncIterator[Collector]:
    """With both ports; callers at the first are asked for tokens where an API server can review them."""
    now = more.pop("now", None)
    clocks: dict[str, Any] = {}
    if now is not None:
        clock = Clock(lambda: int(now[0] * 1e9), lambda: int(now[0] * 1e9))
        clocks = {"clock": clock, "timer": lambda: now[0]}
    settings = tls_settings(folder, family, reviews, **more)
    frequent = partial(IngestSettings, heartbeat_interval_s=0.05)
    with mock.patch.object(servers, "IngestSettings", frequent):
        async with Collector(settings, kube=cast(Kube, reviews), **clocks) as running:
            yield running


# --- certificates


async def test_a_certificate_reports_for_its_own_node(tmp_path: Path, family: Family) -> None:
    async with collector(tmp_path, family) as running:
        address = running.mtls_address
        async with AgentStream(address, "n1", credentials=family.channel("node/n1")) as agent:
            assert await agent.store(lldp("n1", "eth0")) == []
            (refusal,) = await agent.store(lldp("n2", "eth0"))
            assert "not a finding of n1" in refusal
        code, words = await said(address, family.channel("node/n1"), "n2")
        assert code == Code.PERMISSION_DENIED
        assert "node 'n1'" in words
        assert "node 'n2'" in words
        assert [key.node for key in running.evidence_of(["n1", "n2"])] == ["n1"]


async def test_a_switch_is_no_node_and_a_node_is_no_switch(
    tmp_path: Path, family: Family, caplog: pytest.LogCaptureFixture
) -> None:
    async with collector(tmp_path, family) as running:
        address = running.mtls_address
        credentials = family.channel("switch/leaf-1")
        async with AgentStream(address, "switch/leaf-1", credentials=credentials) as agent:
            # What was seen long ago is forgotten soon.
            assert await agent.store(switch_port("switch/leaf-1", "swp1", time.time_ns())) == []
            assert len(await agent.store(lldp("switch/leaf-1", "swp1"), switch_port("leaf-1", "swp1"))) == 2
        for identity, name in (
            ("node/leaf-1", "switch/leaf-1"),
            ("switch/leaf-1", "leaf-1"),
            ("switch/leaf-1", "switch/leaf-2"),
        ):
            code, _ = await said(address, family.channel(identity), name)
            assert code == Code.PERMISSION_DENIED, (identity, name)
        assert (await said(address, family.channel("reader/x"), "x"))[0] == Code.PERMISSION_DENIED
        assert [key.node for key in running.evidence_of(["leaf-1", "switch/leaf-1"])] == ["switch/leaf-1"]
        text = running.metrics.text().decode()
        refused = dict(re.findall(r'collector_refused_total{reason="(\w+)"} (\d+)', text))
        assert refused == {
            "unknown_caller": "0",
            "may_not_report": "1",
            "another_name": "3",
            "foreign_finding": "1",
            "wrong_probe": "1",
        }
        assert "hyperscout_collector_nodes 0\n" in text
        assert "hyperscout_collector_switches 1\n" in text
        logged = [x.getMessage() for x in caplog.records if "calls itself 'switch/leaf-1'" in x.getMessage()]
        assert len(logged) == 1
        assert "127.0.0.1" in logged[0]
        assert "credentials of node 'leaf-1'" in logged[0]


async def test_a_crawler_is_no_node_and_no_switch(tmp_path: Path, family: Family) -> None:
    async with collector(tmp_path, family) as running:
        address = running.mtls_address
        now_ns = time.time_ns()
        async with AgentStream(address, "n1", credentials=family.channel("node/n1")) as node:
            heard = lldp("n1", "eth0", now_ns)
            heard.lldp.neighbours[0].management_addresses[:] = ["10.0.0.9"]
            assert await node.store(heard) == []
            refused = table("leaf-1", {}, now_ns, reporter="n1")
            assert "role fabric reports" in (await node.store(refused))[0]
        channel = family.channel("fabric/crawl")
        async with AgentStream(address, "fabric/crawl", credentials=channel) as agent:
            assert list((await agent.read()).seeds.addresses) == ["10.0.0.9"]
            assert await agent.store(table("leaf-1", {"swp1": "spine-1/swp1"}, now_ns)) == []
            while not (told := await agent.read()).HasField("seeds"):
                pass
            assert len(told.seeds.addresses) == 2, "and where it says that the spine can be asked"
        for identity, name in (
            ("node/crawl", "fabric/crawl"),
            ("switch/crawl", "fabric/crawl"),
            ("fabric/crawl", "crawl"),
            ("fabric/crawl", "switch/crawl"),
            ("fabric/crawl", "fabric/crawl2"),
        ):
            code, _ = await said(address, family.channel(identity), name)
            assert code == Code.PERMISSION_DENIED, (identity, name)
        text = running.metrics.text().decode()
        assert "hyperscout_collector_nodes 1\n" in text
        assert "hyperscout_collector_switches 0\n" in text


@pytest.mark.parametrize(
    ("identity", "report", "status", "approve"),
    [
        ("node/n1", Code.OK, Code.PERMISSION_DENIED, Code.PERMISSION_DENIED),
        ("reader/grafana", Code.PERMISSION_DENIED, Code.OK, Code.PERMISSION_DENIED),
        # There is no generation 99 to approve: only a caller that may approve comes that far.
        ("admin/ann", Code.PERMISSION_DENIED, Code.OK, Code.FAILED_PRECONDITION),
        ("switch/leaf-1", Code.PERMISSION_DENIED, Code.PERMISSION_DENIED, Code.PERMISSION_DENIED),
        ("fabric/crawl", Code.PERMISSION_DENIED, Code.PERMISSION_DENIED, Code.PERMISSION_DENIED),
        ("operator/ann", Code.UNAUTHENTICATED, Code.UNAUTHENTICATED, Code.UNAUTHENTICATED),
        ("node/", Code.UNAUTHENTICATED, Code.UNAUTHENTICATED, Code.UNAUTHENTICATED),
    ],
)
async def test_what_each_certificate_may(
    tmp_path: Path, family: Family, identity: str, report: Code, status: Code, approve: Code
) -> None:
    credentials = family.channel(identity)
    async with collector(tmp_path, family, reflection=True) as running:
        address = running.mtls_address
        if report == Code.OK:
            async with AgentStream(address, "n1", credentials=credentials):
                pass
        else:
            own_name = identity.partition("/")[2] or "n1"  # nor for a node that is called like its holder
            assert (await said(address, credentials, own_name))[0] == report
        assert (await asked(address, credentials))[0] == status
        assert (await asked(address, credentials, "watch"))[0] == status
        assert (await asked(address, credentials, "reflection"))[0] == status
        assert (await asked(address, credentials, "approve"))[0] == approve
        assert (await asked(address, credentials, "health"))[0] == Code.OK


async def test_a_caller_without_a_valid_certificate_gets_no_connection(
    tmp_path: Path, family: Family, strangers: Family
) -> None:
    foreign = strangers.client("admin/ann")
    impostor = Credentials(ca=family.ca, cert=foreign.cert, key=foreign.key).for_channel()
    async with collector(tmp_path, family) as running:
        address = running.mtls_address
        for credentials in (impostor, family.channel("admin/ann", days="-1"), family.channel(), None):
            for ask in ("status", "health"):
                assert (await asked(address, credentials, ask))[0] == Code.UNAVAILABLE
        code, words = await asked(address, strangers.channel("admin/ann"))
        assert code == Code.UNAVAILABLE
        assert "CERTIFICATE_VERIFY_FAILED" in words, "nor does it believe in a collector of others"
        assert (await asked(address, family.channel("admin/ann")))[0] == Code.OK


async def test_a_certificate_is_worth_nothing_where_none_is_asked_for(
    tmp_path: Path, family: Family, reviews: FakeReviews
) -> None:
    async with collector(tmp_path, family, reviews) as running:
        code, _ = await asked(running.address, family.channel("admin/ann"))
        assert code == Code.UNAUTHENTICATED


# --- tokens


async def test_a_token_reports_for_the_node_that_it_is_bound_to(
    tmp_path: Path, family: Family, reviews: FakeReviews, caplog: pytest.LogCaptureFixture
) -> None:
    token = reviews.agent("n1", exp=time.time() + 600)
    tls = family.channel()
    async with collector(tmp_path, family, reviews) as running:
        async with AgentStream(running.address, "n1", credentials=tls, metadata=show(token)) as agent:
            assert await agent.store(lldp("n1", "eth0")) == []
        for metadata, node, expected, words in (
            (show(token), "n2", Code.PERMISSION_DENIED, "node 'n1', and Hello names node 'n2'"),
            (show(reviews.user("ann")), "n1", Code.PERMISSION_DENIED, "ann may not report findings"),
            (show(reviews.user("system:serviceaccount:x:agent")), "n1", Code.PERMISSION_DENIED, "x:agent"),
            (show(jwt(aud=["api"])), "n1", Code.UNAUTHENTICATED, "for the audience 'api', not 'hyperscout'"),
            (show("junk"), "n1", Code.UNAUTHENTICATED, "does not know this token"),
            ((), "n1", Code.UNAUTHENTICATED, "no credentials"),
            ((("authorization", "Basic eDp5"),), "n1", Code.UNAUTHENTICATED, "Bearer TOKEN"),
        ):
            code, details = await said(running.address, tls, node, metadata=metadata)
            assert (code, words in details) == (expected, True), details
        # The port for certificates takes no tokens in their place.
        code, _ = await said(running.mtls_address, tls, "n1", metadata=show(token))
        assert code == Code.UNAVAILABLE
    assert token not in caplog.text


async def test_readers_and_approvers(tmp_path: Path, family: Family, reviews: FakeReviews) -> None:
    reader, admin, stranger = (reviews.user(name) for name in ("reader", "admin", "stranger"))
    agent = reviews.agent("n1")
    reviews.rights |= {("reader", "get"), ("admin", "get"), ("admin", "update")}
    denied, approved = Code.PERMISSION_DENIED, Code.FAILED_PRECONDITION
    async with collector(tmp_path, family, reviews, reflection=True) as running:
        for token, status, approve in (
            (reader, Code.OK, denied),
            (admin, Code.OK, approved),
            (stranger, denied, denied),
            (agent, denied, denied),
            ("junk", Code.UNAUTHENTICATED, Code.UNAUTHENTICATED),
            ("", Code.UNAUTHENTICATED, Code.UNAUTHENTICATED),
        ):
            for ask, expected in (
                ("status", status),
                ("watch", status),
                ("reflection", status),
                ("approve", approve),
                ("health", Code.OK),
            ):
                code, words = await asked(running.address, family.channel(), ask, token)
                assert code == expected, (ask, words)


async def test_plaintext_gets_nowhere(tmp_path: Path, family: Family, reviews: FakeReviews) -> None:
    token = reviews.agent("n1")
    async with collector(tmp_path, family, reviews) as running:
        for address in (running.address, running.mtls_address):
            assert (await asked(address, None, "health"))[0] == Code.UNAVAILABLE
            assert (await said(address, None, "n1", metadata=show(token)))[0] == Code.UNAVAILABLE
        assert reviews.asked == []


async def test_while_the_api_server_is_away_no_new_caller_gets_in_and_agents_stay(
    tmp_path: Path, family: Family, reviews: FakeReviews
) -> None:
    now = [time.time()]
    quiet = next(f"n{i}" for i in range(1000) if spread_s(f"n{i}") == 0)
    token, reader = reviews.agent(quiet, exp=now[0] + 600), reviews.user("reader")
    reviews.rights.add(("reader", "get"))
    tls = family.channel()
    async with (
        collector(tmp_path, family, reviews, now=now, stale_after_s=1e6) as running,
        AgentStream(running.address, quiet, credentials=tls, metadata=show(token)) as agent,
    ):
        reviews.trouble = UnreachableError("no route")
        now[0] += 601
        assert await agent.store(lldp(quiet, "eth0")) == []  # its token is over, and the stream goes on
        code, words = await said(running.address, tls, "n1", metadata=show(reviews.agent("n1")))
        assert (code, "cannot check credentials" in words) == (Code.UNAVAILABLE, True)
        assert (await asked(running.address, tls, "status", reader))[0] == Code.UNAVAILABLE
        assert [p for p in status_of(running).problems if "check credentials" in p] != []
        reviews.trouble = None
        assert (await asked(running.address, tls, "status", reader))[0] == Code.OK
        assert [p for p in status_of(running).problems if "check credentials" in p] == []
        del reviews.users[token]
        now[0] += 31
        await agent.heartbeat()
        code, words = await agent.ended()
        assert code == Code.UNAVAILABLE
        assert words == f"the token of node {quiet} has expired: present a new one"


async def test_a_certificate_that_ends_ends_the_stream(tmp_path: Path, family: Family) -> None:
    now = [time.time()]
    async with (
        collector(tmp_path, family, now=now) as running,
        AgentStream(running.mtls_address, "n1", credentials=family.channel("node/n1")) as agent,
    ):
        assert await agent.store(lldp("n1", "eth0")) == []
        now[0] += 4 * 86_400
        await agent.heartbeat()
        code, words = await agent.ended()
        assert (code, "certificate of node n1 has expired" in words) == (Code.UNAVAILABLE, True)


# --- what is renewed


class Renewed:
    """An agent's uplink in this process, with files that a test exchanges under it."""

    def __init__(self, address: str, credentials: Credentials) -> None:
        self.store = FindingStore("n1")
        self.store.put(lldp("n1", "eth0"))
        self.uplink = Uplink(
            [address],
            self.store,
            Hello(version="test", probes=["lldp"], instance=1),
            rng=Random(1),
            sleep=lambda delay_s: asyncio.sleep(min(delay_s, 0.05)),
            channel=lambda target, options: credentials.connect(target, (*options, *OPTIONS)),
            metadata=credentials.metadata,
        )

    async def __aenter__(self) -> "Renewed":
        self._task = asyncio.create_task(self.uplink.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def until(self, happened: Callable[[], Any]) -> None:
        await eventually(happened)


async def test_a_token_of_its_account_reports_of_switches(
    tmp_path: Path, family: Family, reviews: FakeReviews
) -> None:
    """Under the account's name, whatever node its pod is on; a node's token does not open that name."""
    crawl = "system:serviceaccount:hyperscout:crawl"
    token = reviews.user(crawl, extra={NODE_NAME: ["n1"]}, exp=time.time() + 600)
    tls = family.channel()
    async with collector(tmp_path, family, reviews, fabric_service_account="hyperscout:crawl") as running:
        shown = {"credentials": tls, "metadata": show(token)}
        async with AgentStream(running.address, "fabric/crawl", **shown) as agent:
            assert await agent.store(table("leaf-1", {"swp1": ""}, time.time_ns())) == []
        for other, node in (
            (token, "n1"),
            (token, "crawl"),
            (token, "fabric/other"),
            (token, "switch/crawl"),
            (reviews.agent("crawl"), "fabric/crawl"),
            (reviews.user("system:serviceaccount:other:crawl"), "fabric/crawl"),
        ):
            code, _ = await said(running.address, tls, node, metadata=show(other))
            assert code == Code.PERMISSION_DENIED, node


async def test_a_token_that_is_renewed_is_shown_without_a_restart(
    tmp_path: Path, family: Family, reviews: FakeReviews, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    async with (
        collector(tmp_path, family, reviews) as running,
        Renewed(running.address, family.client(token_file=file)) as agent,
    ):
        await agent.until(lambda: agent.uplink.stats.failures >= 1)
        assert f"its credentials are not usable: {file}: No such file" in caplog.text
        file.write_text("stale\n")
        await agent.until(lambda: "UNAUTHENTICATED" in caplog.text)
        file.write_text(reviews.agent("n1") + "\n")
        await agent.until(lambda: agent.uplink.stats.connected and not agent.store.dirty)
        assert len(running.evidence_of(["n1"])) == 1


async def test_a_certificate_that_is_renewed_is_shown_without_a_restart(
    tmp_path: Path, family: Family
) -> None:
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def put(identity: str, days: str = "3") -> None:
        pair = family.pair(f"URI:hyperscout://{identity}", days)
        cert.write_bytes(pair.cert.read_bytes())
        key.write_bytes(pair.key.read_bytes())

    put("node/n1", days="-1")
    async with (
        collector(tmp_path, family) as running,
        Renewed(running.mtls_address, Credentials(ca=family.ca, cert=cert, key=key)) as agent,
    ):
        await agent.until(lambda: agent.uplink.stats.failures >= 2)
        assert not agent.uplink.stats.sessions
        put("node/n1")
        await agent.until(lambda: agent.uplink.stats.connected)


async def test_the_collector_s_certificate_is_renewed_without_a_restart(
    tmp_path: Path, family: Family, strangers: Family, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key, ca = tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "ca.crt"
    for file, source in ((cert, family.server.cert), (key, family.server.key), (ca, family.ca)):
        file.write_bytes(source.read_bytes())
    theirs = strangers.channel("admin/ann")

    async def becomes(expected: Code) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while (await asked(running.mtls_address, theirs))[0] != expected:
                await asyncio.sleep(0.1)

    async with collector(tmp_path, family, tls_cert=cert, tls_key=key, tls_client_ca=ca) as running:
        assert (await asked(running.mtls_address, family.channel("admin/ann")))[0] == Code.OK
        # Half of a new pair: the old one stays.
        cert.write_bytes(strangers.server.cert.read_bytes())
        async with asyncio.timeout(TIMEOUT_S):
            while "the current certificates stay in use" not in caplog.text:
                assert (await asked(running.mtls_address, family.channel("admin/ann")))[0] == Code.OK
                await asyncio.sleep(0.1)
        key.write_bytes(strangers.server.key.read_bytes())
        ca.write_bytes(strangers.ca.read_bytes())
        await becomes(Code.OK)
        assert (await asked(running.mtls_address, family.channel("admin/ann")))[0] == Code.UNAVAILABLE
        assert (await asked(running.address, strangers.channel(), "health"))[0] == Code.OK


# --- several replicas


async def test_a_standby_sends_callers_to_the_port_for_what_they_show(tmp_path: Path, family: Family) -> None:
    settings = load_settings(
        flags={
            "listen": "127.0.0.1:0",
            "mtls_listen": "127.0.0.1:0",
            "http_listen": "",
            "rest_listen": "",
            "data_dir": tmp_path,
            "tls_cert": family.server.cert,
            "tls_key": family.server.key,
            "tls_client_ca": family.ca,
        }
    )
    async with Standby(settings, lambda: "10.0.0.2:50051") as standby:
        port = standby.mtls_address.rpartition(":")[2]
        for address, identity, leader in (
            (standby.address, "", "10.0.0.2:50051"),
            (standby.mtls_address, "node/n1", f"10.0.0.2:{port}"),
        ):
            answer = Code.UNAVAILABLE, f"standby; the leader is {leader}"
            assert await said(address, family.channel(identity), "n1") == answer
            assert await asked(address, family.channel(identity)) == answer


# --- starting


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"tls_cert": "nowhere.crt"}, "nowhere.crt: No such file"),
        ({"tls_key": "OTHER"}, "are not a certificate and its private key"),
        ({"tls_client_ca": "EMPTY"}, "empty: found 0 bytes, expected a PEM file of 1 to 1048576 bytes"),
        ({"tls_client_ca": "KEY"}, "expected certificates in PEM"),
    ],
)
async def test_what_cannot_be_used_is_said_at_the_start(
    tmp_path: Path, family: Family, more: dict[str, Any], words: str
) -> None:
    (tmp_path / "empty").touch()
    files = {"OTHER": family.client("node/n1").key, "EMPTY": tmp_path / "empty", "KEY": family.server.key}
    more = {name: files.get(value, tmp_path / value) for name, value in more.items()}
    with pytest.raises(StartError, match=words):
        async with collector(tmp_path, family, **more):
            pass


async def test_only_certificates(tmp_path: Path, family: Family) -> None:
    async with collector(tmp_path, family, listen="") as running:
        assert running.address == ""
        assert (await asked(running.mtls_address, family.channel("reader/r")))[0] == Code.OK
