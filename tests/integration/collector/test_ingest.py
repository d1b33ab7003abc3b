"""DiscoveryService over a real server in this process: the contract, and everything that breaks it."""

import asyncio
import contextlib
import hashlib
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest
from hyperscout.v1.discovery_pb2 import FindingBatch, Hello, StreamFindingsResponse, SweepLease
from hyperscout.v1.discovery_pb2_grpc import add_DiscoveryServiceServicer_to_server
from hyperscout.v1.finding_pb2 import Finding, FindingKey
from hyperscout_collector.evidence.committer import Committer
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.evidence.store import Changes
from hyperscout_collector.ingest import intake
from hyperscout_collector.ingest.bulk import BulkLimits
from hyperscout_collector.ingest.service import DiscoveryService, IngestSettings, server_options
from hyperscout_collector.ingest.streams import AgentStream as LiveStream
from hyperscout_collector.ingest.streams import Streams
from hyperscout_collector.store.errors import StoreFullError
from hyperscout_collector.store.writer import StoreWriter
from hyperscout_formats.text.errors import FormatError
from support.agent_stream import AgentStream
from support.evidence_rows import all_rows
from support.findings import T0, S, adapter, called, failed, gpus, lldp, sweep, switch_port, table
from support.waiting import TIMEOUT_S

HOUR = 3600 * S
TEXT = b"# a sweep\n" * 100
DIGEST = hashlib.sha256(TEXT).digest()
PACKED = zlib.compress(TEXT)


class Store(SqliteStore):
    full = False

    def apply(self, changes: Changes) -> None:
        if self.full:
            raise StoreFullError("no room")
        super().apply(changes)


@dataclass
class Rig:
    """A collector's ingest alone. It is also the lease gate and the listener that the service wants."""

    store: Store
    state: EvidenceState
    streams: Streams
    address: str = ""
    leased: set[str] = field(default_factory=set)
    comings: list[str] = field(default_factory=list)
    now_ns: int = T0
    read: list[bytes] = field(default_factory=list)
    formats: list[str] = field(default_factory=list)
    spoilt: list[str] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def may_sweep(self, node: str) -> bool:
        return node in self.leased

    def refuse_sweep(self, node: str, lease_id: str, port_guid: int | None) -> str | None:
        return None if node in self.leased else f"{node} holds no sweep lease"

    def holds(self, node: str, lease_id: str) -> bool:
        return node in self.leased

    def unreadable(self, node: str, lease_id: str, reason: str) -> None:
        self.spoilt.append(f"{node} {lease_id}: {reason}")

    def connected(self, stream: LiveStream) -> None:
        self.comings.append(f"+{stream.node}")
        self.came.set()

    def disconnected(self, stream: LiveStream) -> None:
        self.comings.append(f"-{stream.node}")
        self.came.set()

    def read_text(self, sha256: bytes, text: bytes, source: str, text_format: str) -> None:
        if text.startswith(b"junk"):
            raise FormatError(source, 3, "no ibnetdiscover text")
        self.read.append(sha256)
        self.formats.append(text_format)

    def stored(self) -> dict[str, bytes]:
        """What is on disk: subject -> encoded finding."""
        return {row.key.subject: row.finding for row in self.store.page("", "", None, 1000)}

    async def until(self, comings: list[str]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while self.comings != comings:
                self.came.clear()
                await self.came.wait()


@asynccontextmanager
async def rig(tmp_path: Path, **settings: Any) -> AsyncIterator[Rig]:
    store = Store(tmp_path / "evidence.db")
    state = EvidenceState()
    found = Rig(store, state, Streams(settings.pop("limit", 100)))
    writer = StoreWriter()
    committer = Committer(
        state,
        store,
        writer,
        on_commit=lambda changes: None,
        clock_ns=lambda: found.now_ns,
        max_waiting_bytes=settings.pop("max_waiting_bytes", 1 << 20),
        space_timeout_s=0.05,
    )
    service = DiscoveryService(
        IngestSettings("test", **settings),
        found.streams,
        state,
        committer,
        gate=found,
        listener=found,
        read_text=found.read_text,
        clock_ns=lambda: found.now_ns,
    )
    server = grpc.aio.server(options=server_options(100))
    add_DiscoveryServiceServicer_to_server(service, server)
    found.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    task = asyncio.create_task(writer.run())
    try:
        yield found
    finally:
        service.close("over")
        await server.stop(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await writer.close()
        store.close()


async def test_what_is_acknowledged_is_on_disk(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "n1") as agent:
        assert (agent.welcome.version, agent.welcome.heartbeat_interval_s) == ("test", 10.0)
        first = lldp("n1", "eth0", T0)
        assert await agent.store(first, adapter("n1"), full=True) == []
        assert r.stored()["eth0"] == first.SerializeToString()
        assert await agent.store(removed=[first.key]) == []
        assert list(r.stored()) == ["mlx5_0/1"]
        assert (r.streams.counters.findings, r.streams.counters.batches, r.comings) == (2, 2, ["+n1"])


async def test_the_full_state_of_a_reconnect_removes_what_it_lacks(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with AgentStream(r.address, "n1") as agent:
            await agent.store(lldp("n1", "eth0"), lldp("n1", "eth1"), full=True)
        async with AgentStream(r.address, "n1") as agent:
            await agent.store(lldp("n1", "eth1"))
            assert sorted(r.stored()) == ["eth0", "eth1"]
            await agent.store(full=True)
            assert sorted(r.stored()) == ["eth1"]


@pytest.mark.parametrize("clock", [0, HOUR, -HOUR])
async def test_duplicates_late_ones_and_wrong_clocks(tmp_path: Path, clock: int) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "n1") as agent:
        sent = T0 + clock
        newest = lldp("n1", "eth0", sent - 5 * S, neighbour="leaf-2")
        await agent.store(lldp("n1", "eth0", sent - 9 * S), newest, sent_ns=sent)
        await agent.store(newest, lldp("n1", "eth0", sent - 8 * S, neighbour="leaf-3"), sent_ns=sent)
        assert r.stored() == {"eth0": newest.SerializeToString()}
        (row,) = all_rows(r.state)
        assert (row.seen_ns, row.offset_ns) == (T0 - 5 * S, clock)
        # The clock of the node is set right: what comes now is newer all the same.
        r.now_ns = T0 + 10 * S
        after = lldp("n1", "eth0", T0 + 10 * S, neighbour="leaf-4")
        await agent.store(after, sent_ns=T0 + 10 * S)
        assert r.stored() == {"eth0": after.SerializeToString()}


async def test_without_a_time_of_sending_a_finding_of_the_future_blocks_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "n1") as agent:
        await agent.store(lldp("n1", "eth0", T0 + HOUR))
        r.now_ns = T0 + S
        after = lldp("n1", "eth0", T0 + S, neighbour="leaf-2")
        await agent.store(after)
        assert r.stored() == {"eth0": after.SerializeToString()}


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (lldp("n2", "eth0"), "not a finding of n1"),
        (Finding(key=FindingKey(node="n1", probe="lldp", subject="eth9")), "outcome"),
        (lldp("n1", ""), "subject"),
        (lldp("n1", "eth0", -(1 << 62)), "observed_at"),
        (sweep("n1", DIGEST), "no sweep lease"),
    ],
)
async def test_a_bad_finding_is_refused_and_the_rest_of_its_batch_is_taken(
    tmp_path: Path, bad: Finding, word: str
) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "n1") as agent:
        (reason,) = await agent.store(bad, lldp("n1", "eth1"))
        assert word in reason
        assert list(r.stored()) == ["eth1"]


@pytest.mark.parametrize(
    ("reporter", "finding", "why"),
    [
        ("n1", switch_port("n1", "swp1"), "wrong_probe"),
        ("n1", called(switch_port("n1", "swp1"), "n1", "lldp"), "wrong_probe"),
        ("n1", called(lldp("n1", "eth0"), "n1", "switch"), "wrong_probe"),
        ("n1", switch_port("switch/n1", "swp1"), "foreign_finding"),
        ("switch/leaf-1", lldp("switch/leaf-1", "swp1"), "wrong_probe"),
        ("switch/leaf-1", called(lldp("x", "swp1"), "switch/leaf-1", "switch"), "wrong_probe"),
        ("switch/leaf-1", called(adapter("x"), "switch/leaf-1", "infiniband"), "wrong_probe"),
        ("switch/leaf-1", failed("switch/leaf-1", "ibnetdiscover", "*"), "wrong_probe"),
        ("switch/leaf-1", switch_port("switch/leaf-2", "swp1"), "foreign_finding"),
        ("switch/leaf-1", lldp("leaf-1", "swp1"), "foreign_finding"),
        ("fabric/crawl", switch_port("fabric/crawl", "swp1"), "wrong_probe"),
    ],
)
async def test_findings_of_another_reporter_or_probe_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reporter: str, finding: Finding, why: str
) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, reporter) as agent:
        (reason,) = await agent.store(finding)
        assert ("the probe `switch`" if why == "wrong_probe" else f"not a finding of {reporter}") in reason
        assert len(await agent.store(finding, finding)) == 2
        assert r.stored() == {}
        assert r.streams.counters.refusals == {why: 3}
        said = [x.getMessage() for x in caplog.records if x.levelname == "WARNING"]
        assert len(said) == 1, "once a stream"
        assert said[0].startswith(f"refused: {reporter} reports {finding.key.probe} ")


@pytest.mark.parametrize(
    ("reporter", "finding", "why"),
    [
        ("n1", table("leaf-1", {}, reporter="n1"), "wrong_probe"),
        ("n1", called(table("leaf-1", {}), "n1", "lldp"), "wrong_probe"),
        ("n1", failed("n1", "snmp", "*"), "wrong_probe"),
        ("n1", called(lldp("n1", "eth0"), "n1", "netq"), "wrong_probe"),
        ("n1", table("leaf-1", {}), "foreign_finding"),
        ("switch/leaf-1", table("leaf-1", {}), "foreign_finding"),
        ("fabric/crawl", lldp("fabric/crawl", "eth0"), "wrong_probe"),
        ("fabric/crawl", called(lldp("x", "eth0"), "fabric/crawl", "snmp"), "wrong_probe"),
        ("fabric/crawl", failed("fabric/crawl", "lldp", "*"), "wrong_probe"),
        ("fabric/crawl", called(table("leaf-1", {}), "fabric/crawl", "ibnetdiscover"), "wrong_probe"),
        ("fabric/crawl", table("leaf-1", {}, reporter="fabric/other"), "foreign_finding"),
    ],
)
async def test_whole_switches_are_reported_by_role_fabric_which_reports_nothing_else(
    tmp_path: Path, reporter: str, finding: Finding, why: str
) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, reporter) as agent:
        (reason,) = await agent.store(finding)
        words = "only an agent of role fabric reports the probes `netq`, `nmx`, `snmp`, `ufm`"
        assert (words if why == "wrong_probe" else f"not a finding of {reporter}") in reason
        assert r.stored() == {}
        assert r.streams.counters.refusals == {why: 1}


async def test_devices_of_the_kubelet_are_reported_by_their_probe_of_the_own_node(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "n1") as agent:
        assert await agent.store(gpus("g0")) == []
        other = called(gpus("g0"), "n1", "nvlink")
        assert "only the probe `pod_resources` reports devices" in (await agent.store(other))[0]
        foreign = called(gpus("g0"), "n2", "pod_resources")
        assert "not a finding of n1" in (await agent.store(foreign))[0]
        assert r.streams.counters.refusals == {"wrong_probe": 1, "foreign_finding": 1}
        assert len(r.stored()) == 1


async def test_what_a_device_reports_no_agent_does(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "n1") as agent:
        found = called(lldp("n1", "p0"), "n1", "device")
        assert "only a device in a node reports the probe `device`" in (await agent.store(found))[0]
        assert (
            "only a device in a node reports the probe `device`"
            in (await agent.store(removed=[found.key]))[0]
        )
        assert r.streams.counters.refusals == {"wrong_probe": 2}


def test_a_text_of_another_format_is_of_another_probe() -> None:
    found = sweep("fabric/crawl", DIGEST)
    found.sweep.format = "ufm"
    assert "belongs to the probe of that name" in intake._why_foreign(found)
    assert intake._why_foreign(called(found, "fabric/crawl", "ufm")) == ""
    assert "role fabric" in intake._why_foreign(called(found, "n1", "ufm"))


async def test_what_an_agent_of_role_fabric_may_report(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "fabric/crawl") as agent:
        leaf, spine = table("leaf-1", {"swp1": "spine-1/swp1"}), table("spine-1", {}, probe="netq")
        assert await agent.store(leaf, spine, failed("fabric/crawl", "snmp", "*"), full=True) == []
        assert r.stored()[leaf.key.subject] == leaf.SerializeToString()
        assert r.streams.counters.refusals == {}
        # Its last table stays when it does not answer any more.
        assert await agent.store(failed("fabric/crawl", "snmp", leaf.key.subject, T0 + S)) == []
        (kept, no_answer) = r.state.rows_of_key(Key("fabric/crawl", "snmp", leaf.key.subject))
        assert (kept.fact is not None, no_answer.reason) == (True, "permission denied")
        two = table("leaf-2", {"swp1": "", "swp2": ""})
        two.switch_table.ports[1].chassis_id = "02:00:00:00:00:ff"
        (reason,) = await agent.store(two)
        assert "expected one chassis id for all ports" in reason
        assert await agent.store(removed=[leaf.key]) == []
        assert r.state.rows_of_key(Key("fabric/crawl", "snmp", leaf.key.subject)) == ()


async def test_what_a_manager_shows_needs_no_lease(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "fabric/crawl") as agent:
        await agent.bulk(DIGEST, PACKED)
        found = called(sweep("n1", DIGEST, lease_id=""), "fabric/crawl", "ufm")
        found.sweep.format = "ufm"
        assert await agent.store(found) == []
        assert (r.read, r.formats, r.spoilt) == ([DIGEST], ["ufm"], [])
        junk = b"junk"
        digest = hashlib.sha256(junk).digest()
        await agent.bulk(digest, zlib.compress(junk))
        found.sweep.sha256 = digest
        found.observed_at.FromNanoseconds(T0 + S)
        (reason,) = await agent.store(found, sent_ns=T0 + S)
        assert "its text: ufm of fabric/crawl" in reason
        assert len(r.spoilt) == 1


async def test_a_name_of_another_is_a_short_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not checked: a finding that is not the sender's own is refused before it is looked at."""
    foreign = called(lldp("n2", "eth0"), "n2\nrefused: n3 " + 100_000 * "x", "lldp")
    async with rig(tmp_path) as r, AgentStream(r.address, "n1") as agent:
        await agent.store(foreign)
        (said,) = [x.getMessage() for x in caplog.records if x.levelname == "WARNING"]
        assert said.startswith("refused: n1 reports lldp eth0 of n2\\nrefused: n3 xxx")
        assert "\n" not in said
        assert len(said) < 300


async def test_what_a_switch_may_report(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "switch/leaf-1") as agent:
        ports = [switch_port("switch/leaf-1", "swp1"), switch_port("switch/leaf-1", "swp2", neighbour="")]
        assert await agent.store(*ports, failed("switch/leaf-1", "switch", "*"), full=True) == []
        assert sorted(r.stored()) == ["*", "swp1", "swp2"]
        assert r.streams.counters.refusals == {}
        assert await agent.store(removed=[ports[0].key]) == []
        assert sorted(r.stored()) == ["*", "swp2"]


async def test_a_sweep_is_stored_with_its_text_and_read_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.leased.add("n1")
        async with AgentStream(r.address, "n1") as agent:
            await agent.bulk(DIGEST, PACKED, piece=7)
            assert await agent.store(sweep("n1", DIGEST)) == []
            assert await agent.store(sweep("n1", DIGEST, T0 + S), sent_ns=T0 + S) == []
        assert zlib.decompress(r.store.bulk(DIGEST) or b"") == TEXT
        assert r.read == [DIGEST]
        async with AgentStream(r.address, "n1") as agent:
            assert list(agent.welcome.bulk_held) == [DIGEST]


async def test_a_text_that_is_missing_is_asked_for_and_nothing_is_acknowledged_before_it_came(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r:
        r.leased.add("n1")
        async with AgentStream(r.address, "n1") as agent:
            await agent.batch(sweep("n1", DIGEST))
            assert (await agent.read()).need_bulk.sha256 == DIGEST
            await agent.batch(lldp("n1", "eth0"))
            await agent.bulk(DIGEST, PACKED)
            assert await agent.acked(2) == []
            assert sorted(r.stored()) == ["eth0", "mlx5_0/1"]


async def test_a_requested_text_is_taken_although_the_lease_has_ended(tmp_path: Path) -> None:
    """The finding was accepted under the lease, so all later ones would wait for its text."""
    async with rig(tmp_path) as r:
        r.leased.add("n1")
        async with AgentStream(r.address, "n1") as agent:
            await agent.batch(sweep("n1", DIGEST))
            assert (await agent.read()).need_bulk.sha256 == DIGEST
            r.leased.clear()
            await agent.bulk(DIGEST, PACKED, piece=7)
            assert await agent.acked(1) == []


async def test_a_text_whose_beginning_came_without_a_lease_is_requested(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "n1") as agent:
        await agent.send(chunk={"sha256": DIGEST, "data": PACKED[:7]})
        assert await agent.store(lldp("n1", "eth0")) == []  # the chunk was handled
        r.leased.add("n1")
        await agent.send(chunk={"sha256": DIGEST, "offset": 7, "data": PACKED[7:], "last": True})
        await agent.batch(sweep("n1", DIGEST))
        assert (await agent.read()).need_bulk.sha256 == DIGEST
        await agent.bulk(DIGEST, PACKED)
        assert await agent.acked(2) == []
        assert r.spoilt == []


def texts_of_a_manager(count: int, size_bytes: int = 20) -> tuple[dict[bytes, bytes], list[Finding]]:
    """Texts that cannot be compressed (digest -> compressed), and a finding for each."""
    random = Random(0)
    plain = [random.randbytes(size_bytes) for _ in range(count)]
    packed = {hashlib.sha256(text).digest(): zlib.compress(text) for text in plain}
    findings = [called(sweep("n1", digest, lease_id=""), "fabric/x", "ufm") for digest in packed]
    for i, finding in enumerate(findings):
        finding.key.subject = f"s{i}"
        finding.sweep.format = "ufm"
    return packed, findings


async def acked_after(agent: AgentStream, sequence: int, texts: dict[bytes, bytes]) -> tuple[int, list[str]]:
    """Answer requests for texts until the ack. Returns their number, and why findings were refused."""
    asked = 0
    async with asyncio.timeout(TIMEOUT_S):
        while (answer := await agent.read()).ack.sequence < sequence:
            if answer.HasField("need_bulk"):
                asked += 1
                await agent.bulk(answer.need_bulk.sha256, texts[answer.need_bulk.sha256])
    return asked, [refusal.reason for refusal in answer.ack.refusals]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("count", [9, 256])
async def test_a_batch_may_name_as_many_texts_as_an_agent_has(
    tmp_path: Path, count: int, before: bool
) -> None:
    """`before`: the agent sends the texts before their findings."""
    texts, findings = texts_of_a_manager(count)
    async with rig(tmp_path) as r, AgentStream(r.address, "fabric/x") as agent:
        for digest, packed in texts.items() if before else ():
            await agent.bulk(digest, packed)
        asked, refused = await acked_after(agent, await agent.batch(*findings), texts)
        assert (asked, refused) == (0 if before else count, [])
        assert sorted(r.stored()) == sorted(x.key.subject for x in findings)


async def test_a_batch_that_names_more_texts_ends_the_stream(tmp_path: Path) -> None:
    _, findings = texts_of_a_manager(257)
    async with rig(tmp_path) as r, AgentStream(r.address, "fabric/x") as agent:
        await agent.batch(*findings)
        code, why = await agent.ended()
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert why == "a batch that names 257 texts; a batch names at most 256"


async def test_texts_of_the_first_batch_stay_and_other_texts_make_space(tmp_path: Path) -> None:
    """Texts that no finding names yet, and a text of the second batch, do not stop the first one."""
    texts, findings = texts_of_a_manager(12, 1000)
    digests = list(texts)
    async with (
        rig(tmp_path, bulk_limits=BulkLimits(compressed=4500)) as r,
        AgentStream(r.address, "fabric/x") as agent,
    ):
        for digest in digests[8:]:
            await agent.bulk(digest, texts[digest])
        for i in (0, 4, 8):
            await agent.batch(*findings[i : i + 4])
        for digest in digests[:3]:
            await agent.bulk(digest, texts[digest])
        for digest in (digests[4], digests[5]):  # space for one of the two
            await agent.bulk(digest, texts[digest])
        asked, refused = await acked_after(agent, 3, texts)
        assert (len(r.stored()), refused) == (12, [])
        assert asked <= 12


async def test_texts_of_one_batch_above_the_limit_are_refused(tmp_path: Path) -> None:
    texts, findings = texts_of_a_manager(6, 1000)
    async with (
        rig(tmp_path, bulk_limits=BulkLimits(compressed=4500)) as r,
        AgentStream(r.address, "fabric/x") as agent,
    ):
        asked, refused = await acked_after(agent, await agent.batch(*findings), texts)
        assert (asked, len(r.stored())) == (6, 4)
        assert refused == ["its text: the texts of its batch have more than 4500 compressed bytes"] * 2


async def test_a_finding_whose_text_never_comes_ends_the_stream(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.leased.add("n1")
        async with AgentStream(r.address, "n1") as agent:
            await agent.batch(sweep("n1", DIGEST))
            await agent.read()
            r.now_ns += 61 * S
            await agent.heartbeat()
            assert (await agent.ended())[0] == grpc.StatusCode.FAILED_PRECONDITION
            assert r.stored() == {}


BOMB = zlib.compress(b"\0" * (4 << 20))


@pytest.mark.parametrize(
    ("digest", "compressed", "word"),
    [
        (DIGEST, zlib.compress(b"another text"), "SHA-256"),
        (DIGEST, b"not compressed at all", "zlib"),
        (DIGEST, PACKED[:-4], "cut off"),
        (DIGEST, PACKED + b"more", "after the end"),
        (DIGEST, b"", "cut off"),
        (hashlib.sha256(b"\0" * (4 << 20)).digest(), BOMB, "bytes of text"),
        (DIGEST, bytes(200_000), "compressed"),
        (
            hashlib.sha256(b"junk").digest(),
            zlib.compress(b"junk"),
            "ibnetdiscover of n1:3: no ibnetdiscover text",
        ),
    ],
)
async def test_a_bad_text_is_refused_and_the_sweep_before_it_stays(
    tmp_path: Path, digest: bytes, compressed: bytes, word: str
) -> None:
    async with rig(tmp_path, bulk_limits=BulkLimits(compressed=100_000, text=1 << 20)) as r:
        r.leased.add("n1")
        good = zlib.compress(b"good")
        async with AgentStream(r.address, "n1") as agent:
            held = hashlib.sha256(b"good").digest()
            await agent.bulk(held, good)
            assert await agent.store(sweep("n1", held)) == []
            await agent.bulk(digest, compressed)
            (reason,) = await agent.store(sweep("n1", digest, T0 + S), lldp("n1", "eth0"), sent_ns=T0 + S)
            assert word in reason
            assert [word in spoilt for spoilt in r.spoilt] == [True]
            assert r.stored()["mlx5_0/1"] == sweep("n1", held).SerializeToString()
            assert "eth0" in r.stored()


async def test_a_piece_out_of_place_spoils_its_text_alone(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.leased.add("n1")
        async with AgentStream(r.address, "n1") as agent:
            await agent.send(chunk={"sha256": DIGEST, "data": b"x"})
            await agent.send(chunk={"sha256": DIGEST, "offset": 6, "data": b"x", "last": True})
            (reason,) = await agent.store(sweep("n1", DIGEST))
            assert "offset" in reason
            await agent.bulk(DIGEST, PACKED)
            assert await agent.store(sweep("n1", DIGEST)) == []


@pytest.mark.parametrize(
    ("first", "word"),
    [
        ({"batch": FindingBatch(sequence=1)}, "expected Hello, received batch"),
        ({"heartbeat": {}}, "expected Hello, received heartbeat"),
        ({}, "expected Hello, received nothing"),
        ({"hello": Hello(node="")}, "node"),
        ({"hello": Hello(node="n" * 300)}, "node"),
        ({"hello": Hello(node="rack/n1")}, "`clusters` has no 'rack'"),
        (
            {"hello": Hello(node="Rack/n1")},
            "'Rack/n1' is not the name of an agent: expected NODE, CLUSTER/NODE",
        ),
        ({"hello": Hello(node="switch/")}, "'switch/' is not the name of an agent"),
        ({"hello": Hello(node="switch/a/b")}, "'switch/a/b' is not the name of an agent"),
        ({"hello": Hello(node="fabric/")}, "'fabric/' is not the name of an agent"),
        ({"hello": Hello(node="fabric/a/b")}, "'fabric/a/b' is not the name of an agent"),
        ({"hello": Hello(node="switch/fabric/a")}, "'switch/fabric/a' is not the name of an agent"),
        ({"hello": Hello(node="n1", probes=["p"] * 100)}, "probes"),
    ],
)
async def test_hello_comes_first_and_is_checked(tmp_path: Path, first: dict[str, Any], word: str) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "n1", hello=False) as agent:
        await agent.send(**first)
        code, details = await agent.ended()
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert word in details
        assert r.comings == []


async def test_a_stream_without_a_hello_is_ended(tmp_path: Path) -> None:
    async with rig(tmp_path, hello_timeout_s=0.05) as r, AgentStream(r.address, "n1", hello=False) as agent:
        assert (await agent.ended())[0] == grpc.StatusCode.DEADLINE_EXCEEDED
        assert r.comings == []


async def test_an_agent_without_a_heartbeat_is_disconnected(tmp_path: Path) -> None:
    async with rig(tmp_path, heartbeat_timeout_s=0.1) as r, AgentStream(r.address, "n1") as agent:
        assert (await agent.ended())[0] == grpc.StatusCode.DEADLINE_EXCEEDED
        assert r.comings == ["+n1", "-n1"]


@pytest.mark.parametrize(
    ("sequences", "word"),
    [([2], "received batch 2, expected batch 1"), ([1, 1], "expected batch 2"), ([1, 3], "batch 3")],
)
async def test_batches_are_counted(tmp_path: Path, sequences: list[int], word: str) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "n1") as agent:
        for sequence in sequences:
            await agent.batch(sequence=sequence)
        code, details = await agent.ended()
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert word in details


async def test_a_second_hello_and_a_second_end_of_the_full_state(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with AgentStream(r.address, "n1") as agent:
            await agent.send(hello=Hello(node="n1"))
            assert (await agent.ended())[0] == grpc.StatusCode.INVALID_ARGUMENT
        async with AgentStream(r.address, "n1") as agent:
            await agent.store(full=True)
            await agent.batch(full=True)
            assert (await agent.ended())[0] == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 2)])
async def test_a_newer_stream_takes_the_place_of_the_older(tmp_path: Path, before: int, after: int) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "n1", instance=before) as old:
        async with AgentStream(r.address, "n1", instance=after) as new:
            code, details = await old.ended()
            assert code == grpc.StatusCode.ABORTED
            assert "replaced it" in details
            assert await new.store(lldp("n1", "eth0")) == []
            assert r.comings == ["+n1", "-n1", "+n1"]
            assert len(r.streams) == 1
        await r.until(["+n1", "-n1", "+n1", "-n1"])


async def test_an_older_process_does_not_take_the_place_of_a_newer(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "n1", instance=2) as new:
        async with AgentStream(r.address, "n1", instance=1, hello=False) as old:
            await old.send(hello=Hello(node="n1", instance=1))
            code, details = await old.ended()
            assert code == grpc.StatusCode.ABORTED
            assert "newer agent of n1" in details
        assert await new.store(lldp("n1", "eth0")) == []


async def test_no_more_agents_than_fit(tmp_path: Path) -> None:
    async with rig(tmp_path, limit=1) as r, AgentStream(r.address, "n1") as one:
        async with AgentStream(r.address, "n2", hello=False) as other:
            assert (await other.ended())[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await one.store(lldp("n1", "eth0")) == []


async def test_a_full_disk_is_said_acknowledges_nothing_and_heals(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with AgentStream(r.address, "n1") as agent:
            await agent.store(lldp("n1", "eth0"))
            r.store.full = True
            await agent.batch(lldp("n1", "eth1"))
            code, details = await agent.ended()
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "no room" in details
        r.store.full = False
        async with AgentStream(r.address, "n1") as agent:
            assert await agent.store(lldp("n1", "eth0"), lldp("n1", "eth1"), full=True) == []
        assert sorted(r.stored()) == ["eth0", "eth1"]


async def test_an_oversize_batch_ends_its_stream_and_no_other(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "n2") as sibling:
        for junk in (1_100_000, 5_000_000):
            async with AgentStream(r.address, "n1") as agent:
                big = lldp("n1", "eth0")
                big.lldp.neighbours[0].system_description = "x" * junk
                await agent.batch(big)
                assert (await agent.ended())[0] in {
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    grpc.StatusCode.INVALID_ARGUMENT,
                }
        assert await sibling.store(lldp("n2", "eth0")) == []
        assert list(r.stored()) == ["eth0"]


async def test_garbage_on_the_stream_ends_it_and_no_other(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "n2") as sibling:
        async with grpc.aio.insecure_channel(
            r.address, options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            raw = channel.stream_stream("/hyperscout.v1.DiscoveryService/StreamFindings")
            for hello in (b"", Hello(node="n1").SerializeToString()):
                call = raw()
                if hello:
                    await call.write(b"\x0a" + bytes([len(hello)]) + hello)
                await call.write(b"\xff\xfe garbage \x00" * 50)
                with contextlib.suppress(grpc.aio.AioRpcError):
                    async with asyncio.timeout(TIMEOUT_S):
                        while await call.read() != grpc.aio.EOF:
                            pass
                assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert await sibling.store(lldp("n2", "eth0")) == []
        async with AgentStream(r.address, "n1") as agent:
            assert await agent.store(lldp("n1", "eth0")) == []


async def test_directives_go_down_and_a_deaf_agent_is_let_go(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, AgentStream(r.address, "n1") as agent:
        stream = r.streams.get("n1")
        assert stream is not None
        lease = StreamFindingsResponse(
            lease=SweepLease(lease_id="l1", device="mlx5_0", port=1, interval_s=60)
        )
        stream.tell(lease)
        assert await agent.read() == lease
        for _ in range(257):
            stream.tell(lease)
        assert (await agent.ended())[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
