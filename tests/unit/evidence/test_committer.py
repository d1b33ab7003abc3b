"""What is acknowledged is written; what is written is what is seen; what waits is bounded."""

import asyncio
import hashlib
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome, PortCounters, SwitchPort
from hyperscout_collector.evidence.committer import Committer, FullState, OverloadedError, Submission
from hyperscout_collector.evidence.kept import MAX_KEPT
from hyperscout_collector.evidence.limits import Limits, decoded_bytes
from hyperscout_collector.evidence.rows import Key, Row, row_of
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.evidence.state import AgentRow, Bulk, EvidenceState, KeyChange
from hyperscout_collector.evidence.store import Changes
from hyperscout_collector.store.errors import StoreFullError
from hyperscout_collector.store.writer import StoreWriter
from hyperscout_formats.facts.facts import NcclResult, NcclRun
from hyperscout_formats.facts.wire import switch_port_from_proto, switch_table_from_proto
from hyperscout_formats.facts.wire_measured import gpu_to_proto, nccl_to_proto
from hyperscout_formats.text.reporters import DEVICE_PROBE
from hyperscout_sim.fabric.nvlink import hgx_host
from support.evidence_rows import all_rows
from support.findings import T0, S, adapter, called, failed, lldp, sweep, switch_port, table
from support.waiting import until

OLD, NEW = AgentRow("n1", 1, "0.1"), AgentRow("n1", 2, "0.1")


class Gate(SqliteStore):
    """The real store, with a disk that can be full and a writer that can be held."""

    full = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.go = threading.Event()
        self.go.set()

    def apply(self, changes: Changes) -> None:
        assert self.go.wait(10)
        if self.full:
            raise StoreFullError("no room")
        super().apply(changes)


@dataclass
class Rig:
    store: Gate
    state: EvidenceState
    committer: Committer
    clock_ns: list[int]
    changes: list[KeyChange] = field(default_factory=list)

    async def send(
        self, findings: Iterable[Finding] = (), *, full: AgentRow | None = None, **more: object
    ) -> list[str]:
        """One batch; returns what was refused."""
        done = await self.submit(findings, full=full, **more)
        return [refused.reason for refused in await done]

    async def submit(
        self, findings: Iterable[Finding] = (), *, full: AgentRow | None = None, **more: object
    ) -> "asyncio.Future[list[object]]":
        now = self.clock_ns[0]
        rows = [(_row(f, now), f.SerializeToString()) for f in findings]
        end = FullState(full, frozenset(row.key for row, _ in rows)) if full else None
        return await self.committer.submit(Submission(rows, full_state=end, **more))  # type: ignore[arg-type,return-value]

    def subjects(self, node: str = "n1") -> list[str]:
        assert sorted(row.key for row in self.store.load().rows) == sorted(
            row.key for row in all_rows(self.state)
        )
        return sorted({key.subject for key in self.state.keys_of(node)})


def _row(finding: Finding, now: int) -> Row:
    return row_of(finding, sent_ns=now, received_ns=now, memory_bytes=decoded_bytes(finding))


@asynccontextmanager
async def rig(tmp_path: Path, limits: Limits | None = None, **options: object) -> AsyncIterator[Rig]:
    store = Gate(tmp_path / "evidence.db")
    loaded = store.load()
    state = EvidenceState(limits)
    state.load(loaded.rows, loaded.agents, loaded.text_bytes)
    clock_ns = [T0]
    found = Rig(store, state, None, clock_ns)  # type: ignore[arg-type]
    writer = StoreWriter()
    found.committer = Committer(
        state,
        store,
        writer,
        on_commit=found.changes.extend,
        clock_ns=lambda: clock_ns[0],
        **{"full_state_wait_s": 0.0, **options},  # type: ignore[arg-type]
    )
    task = asyncio.create_task(writer.run())
    try:
        yield found
    finally:
        store.go.set()
        await writer.flush()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await writer.close()
        store.close()


async def test_duplicates_and_late_ones_change_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.clock_ns[0] = T0 + 10 * S
        newest = lldp("n1", "eth0", T0 + 5 * S, neighbour="leaf-2")
        await r.send([lldp("n1", "eth0", T0), newest])
        r.changes.clear()
        assert await r.send([newest, lldp("n1", "eth0", T0 + S)]) == []
        assert r.changes == []
        (stored,) = r.store.page("", "", None, 10)
        assert Finding.FromString(stored.finding) == newest


async def test_news_is_told_from_a_mere_refresh(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        for clock, finding in enumerate(
            [lldp("n1", "eth0", T0), lldp("n1", "eth0", T0 + S), lldp("n1", "eth0", T0 + 2 * S, flaps=1)]
        ):
            r.clock_ns[0] = T0 + clock * S
            await r.send([finding])
        assert [change.news for change in r.changes] == [True, False, True]


@pytest.mark.parametrize(
    ("change", "news"),
    [
        (lambda port: port.counters.MergeFrom(PortCounters(rx_errors=7, tx_dropped=2)), False),
        (lambda port: setattr(port, "carrier_changes", 3), True),
        (lambda port: port.ClearField("neighbours"), True),
    ],
)
async def test_counters_of_a_switch_s_port_are_no_news(
    tmp_path: Path, change: Callable[[SwitchPort], object], news: bool
) -> None:
    async with rig(tmp_path) as r:
        await r.send([switch_port("switch/leaf-1", "swp1", T0)])
        later = switch_port("switch/leaf-1", "swp1", T0 + S)
        change(later.switch_port)
        r.clock_ns[0] = T0 + S
        await r.send([later])
        assert [change.news for change in r.changes] == [True, news]
        (stored,) = r.store.load().rows
        assert stored.fact == switch_port_from_proto(later.switch_port)


@pytest.mark.parametrize(
    ("change", "news"),
    [
        (lambda ports: ports[1].counters.MergeFrom(PortCounters(rx_errors=7, tx_dropped=2)), False),
        (lambda ports: setattr(ports[1], "carrier", False), True),
        (lambda ports: ports[0].ClearField("neighbours"), True),
        (lambda ports: ports.pop(), True),
    ],
)
async def test_counters_of_a_whole_switch_are_no_news(
    tmp_path: Path, change: Callable[[Any], object], news: bool
) -> None:
    cables = {"swp1": "spine-1/swp1", "swp2": "spine-2/swp1"}
    async with rig(tmp_path) as r:
        await r.send([table("leaf-1", cables, T0)])
        later = table("leaf-1", cables, T0 + S)
        change(later.switch_table.ports)
        r.clock_ns[0] = T0 + S
        await r.send([later])
        assert [change.news for change in r.changes] == [True, news]
        (stored,) = r.store.load().rows
        assert stored.fact == switch_table_from_proto(later.switch_table)


@pytest.mark.parametrize("finding", [lldp("n1", "eth0"), adapter("n1")])
async def test_counters_of_a_node_s_port_are_no_news(tmp_path: Path, finding: Finding) -> None:
    async with rig(tmp_path) as r:
        await r.send([finding])
        later = Finding()
        later.CopyFrom(finding)
        port: Any = getattr(later, str(later.WhichOneof("payload")))
        port.counters.rx_errors = 7
        later.observed_at.FromNanoseconds(T0 + S)
        r.clock_ns[0] = T0 + S
        await r.send([later])
        assert [change.news for change in r.changes] == [True, False]


@pytest.mark.parametrize(
    ("change", "news"),
    [
        ({"replay_errors": 7}, False),
        ({"crc_errors": 1, "recovery_errors": 2, "ber_exponent": -7}, False),
        ({"active": False}, True),
    ],
)
async def test_counters_of_nvlink_are_no_news(tmp_path: Path, change: dict[str, Any], news: bool) -> None:
    gpu = hgx_host("n1")[0]
    later = replace(gpu, links=(replace(gpu.links[0], **change), *gpu.links[1:]))
    async with rig(tmp_path) as r:
        for clock, one in enumerate((gpu, later)):
            r.clock_ns[0] = T0 + clock * S
            finding = Finding(key=FindingKey(node="n1", probe="nvlink", subject=gpu.pci_address))
            finding.outcome = Outcome.OUTCOME_DATA
            finding.observed_at.FromNanoseconds(T0 + clock * S)
            finding.gpu.CopyFrom(gpu_to_proto(one))
            await r.send([finding])
        assert [change.news for change in r.changes] == [True, news]


async def test_a_restart_sees_what_was_acknowledged(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.send([lldp("n1", "eth0"), adapter("n1")], full=OLD)
        before = sorted(all_rows(r.state), key=lambda row: row.key)
    async with rig(tmp_path) as r:
        assert sorted(all_rows(r.state), key=lambda row: row.key) == before
        assert r.state.agents == {"n1": OLD}
        assert r.state.outcomes() == {("lldp", "data"): 1, ("infiniband", "data"): 1}


async def test_a_full_state_of_the_same_process_removes_what_it_lacks(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.send([lldp("n1", "eth0"), lldp("n1", "eth1")], full=OLD)
        await r.send([lldp("n2", "eth0")])
        await r.send([lldp("n1", "eth1")], full=OLD)
        assert (r.subjects("n1"), r.subjects("n2")) == (["eth1"], ["eth0"])


async def test_what_a_device_in_the_node_reports_is_not_the_agent_s_to_forget(tmp_path: Path) -> None:
    async with rig(tmp_path, grace_s=1) as r:
        await r.send([called(lldp("n1", "p0"), "n1", DEVICE_PROBE), lldp("n1", "eth1")], full=OLD)
        await r.send([lldp("n1", "eth0")], full=OLD)
        assert r.subjects() == ["eth0", "p0"]
        await r.send([lldp("n1", "eth2")], full=NEW)
        r.clock_ns[0] += 2 * S
        assert [key.subject for key in r.committer.due(r.clock_ns[0], lambda node: True)] == ["eth0"]


async def test_a_process_that_has_just_started_gets_time_to_look(tmp_path: Path) -> None:
    async with rig(tmp_path, grace_s=100) as r:
        await r.send([lldp("n1", "eth0"), lldp("n1", "eth1"), lldp("n1", "eth2")], full=OLD)
        await r.send([], full=NEW)
        assert r.subjects() == ["eth0", "eth1", "eth2"]
        await r.send([lldp("n1", "eth0")])  # the same sight as before the restart
        await r.send([lldp("n1", "eth0")], full=NEW)  # the stream broke and came back
        assert r.committer.due(T0 + 99 * S, lambda node: True) == []
        gone = r.committer.due(T0 + 100 * S, lambda node: True)
        assert gone == [Key("n1", "lldp", "eth1"), Key("n1", "lldp", "eth2")]
        await r.send(forgotten={key: r.state.rows_of_key(key) for key in gone})
        assert r.subjects() == ["eth0"]


async def test_a_crawl_that_has_just_started_gets_an_hour(tmp_path: Path) -> None:
    """The last look at a switch that is dead meanwhile stands for so long, too."""
    async with rig(tmp_path) as r:
        leaf, spine = table("leaf-1", {"swp1": ""}), table("spine-1", {"swp1": ""})
        await r.send([leaf, spine], full=AgentRow("fabric/crawl", 1, "v"))
        r.clock_ns[0] = T0 + 60 * S
        await r.send([], full=AgentRow("fabric/crawl", 2, "v"))
        r.clock_ns[0] += 3599 * S
        assert r.committer.due(r.clock_ns[0], lambda node: True) == []
        await r.send([table("leaf-1", {"swp1": ""}, r.clock_ns[0])])
        r.clock_ns[0] += S
        gone = r.committer.due(r.clock_ns[0], lambda node: True)
        assert gone == [Key("fabric/crawl", "snmp", spine.key.subject)]


async def test_an_agent_that_is_gone_again_has_no_say_in_what_it_lacked(tmp_path: Path) -> None:
    async with rig(tmp_path, grace_s=100) as r:
        await r.send([lldp("n1", "eth0")], full=OLD)
        await r.send([], full=NEW)
        assert r.committer.due(T0 + 200 * S, lambda node: False) == []
        assert r.subjects() == ["eth0"]


def nccl(peer: str, at_ns: int = T0) -> Finding:
    """What the probe `nccl` of n1 reports of a run with a peer."""
    found = called(failed("n1", "nccl", peer, at_ns), "n1", "nccl")
    found.outcome, found.reason = Outcome.OUTCOME_DATA, ""
    results = (NcclResult("all_reduce", 8, 10.0, 0.1, 0.1),)
    found.nccl.CopyFrom(nccl_to_proto(NcclRun(peer, "libnccl", at_ns, "2.29.3", 2, results, 1.0)))
    return found


async def test_what_was_measured_on_request_outlives_the_agent(tmp_path: Path) -> None:
    async with rig(tmp_path, grace_s=100) as r:
        await r.send([nccl("n2"), failed("n1", "nccl", "n3"), lldp("n1", "eth0")], full=OLD)
        await r.send([failed("n1", "nccl", "n2", T0 + S)], full=OLD)
        await r.send([], full=OLD)
        assert r.subjects() == ["n2"]
        await r.send([], full=NEW)
        assert r.committer.due(T0 + 200 * S, lambda node: True) == []
        await r.send(forgotten={Key("n1", "nccl", "n2"): r.state.rows_of_key(Key("n1", "nccl", "n2"))})
        assert r.subjects() == []


async def test_only_the_newest_measurements_are_kept(tmp_path: Path) -> None:
    """Also across restarts, and when the older ones arrive last."""
    runs = [nccl(f"n{i:03}", T0 - i * S) for i in range(MAX_KEPT + 5)]
    newest = [run.key.subject for run in runs[:MAX_KEPT]]
    async with rig(tmp_path) as r:
        assert await r.send(runs) == []
        assert r.subjects() == newest
    async with rig(tmp_path) as r:
        assert await r.send([lldp("n1", "eth0"), *runs]) == []
        assert r.subjects() == ["eth0", *newest]
        r.clock_ns[0] += S
        assert await r.send([nccl("node", T0 + S)]) == []
        assert r.subjects() == ["eth0", *newest[:-1], "node"]


@pytest.mark.parametrize("limits", [Limits(findings_per_node=4), Limits(bytes_per_node=8000)])
async def test_kept_measurements_make_space_for_the_findings_of_a_new_agent(
    tmp_path: Path, limits: Limits
) -> None:
    async with rig(tmp_path, limits, grace_s=100) as r:
        left = [nccl(f"old-{i}", T0 - i) for i in range(4)]
        await r.send(left, full=OLD)
        own = [adapter("n1"), lldp("n1", "eth0"), lldp("n1", "eth1")]
        assert await r.send(own, full=NEW) == []
        assert r.subjects() == ["eth0", "eth1", "mlx5_0/1", "old-0"]
        assert r.committer.problems == []


@pytest.mark.parametrize(
    ("limits", "stored"), [(Limits(findings_of_devices=50), 50), (Limits(bytes_per_node=16_000), 2)]
)
async def test_findings_of_devices_leave_space_for_those_of_the_agent(
    tmp_path: Path, limits: Limits, stored: int
) -> None:
    async with rig(tmp_path, limits) as r:
        run, ports = nccl("n2"), [lldp("n1", f"p{i}") for i in range(stored + 5)]
        await r.send([run], full=OLD)
        refused = await r.send([called(port, "n1", DEVICE_PROBE) for port in ports])
        assert len(refused) == len(ports) - stored
        assert all("of devices" in why for why in refused)
        assert len(r.subjects()) == 1 + stored
        assert await r.send([called(ports[0], "n1", DEVICE_PROBE)]) == [], "a stored one can change"
        r.store.go.clear()
        r.clock_ns[0] += S
        await r.submit([lldp("n1", "eth9")])  # the next three are one transaction
        await r.submit([called(lldp("n1", "p0", T0 + S), "n1", DEVICE_PROBE)])
        await r.submit(removed=[Key("n1", DEVICE_PROBE, "p0")])
        new = await r.submit([called(ports[-1], "n1", DEVICE_PROBE)])
        r.store.go.set()
        assert await new == [], "another one has gone"
        assert await r.send([lldp("n1", f"eth{i}") for i in range(5)], full=NEW) == []
        assert {"n2", "eth0", "eth4"} <= set(r.subjects())


async def test_a_measurement_without_a_result_ends_with_its_agent(tmp_path: Path) -> None:
    async with rig(tmp_path, grace_s=100) as r:
        await r.send([failed("n1", "nccl", "n2")], full=OLD)
        await r.send([], full=NEW)
        gone = r.committer.due(T0 + 100 * S, lambda node: True)
        assert gone == [Key("n1", "nccl", "n2")]


async def test_a_refusal_because_of_a_limit_is_a_problem_for_ten_minutes(tmp_path: Path) -> None:
    async with rig(tmp_path, Limits(findings_per_node=1)) as r:
        for node in ("n1", "n2"):
            await r.send([lldp(node, "eth0"), lldp(node, "eth1")])
        why = "n2 has 1 findings; the collector stores at most 1"
        end = f"{why}; `hyperscout get findings n2` lists what is stored"
        assert r.committer.problems == [f"findings of n2 are refused (and of 1 more reporter): {end}"]
        r.clock_ns[0] += 599 * S
        await r.send([lldp("n2", "eth2")])
        r.clock_ns[0] += S
        assert r.committer.problems == [f"findings of n2 are refused: {end}"]
        r.clock_ns[0] += 599 * S
        assert r.committer.problems == []


async def test_a_sweep_outlives_the_agent_that_made_it(tmp_path: Path) -> None:
    text = b"# sweep"
    bulk = Bulk(hashlib.sha256(text).digest(), len(text), zlib.compress(text))
    async with rig(tmp_path) as r:
        await r.send([sweep("n1", bulk.sha256)], full=OLD, bulks=[bulk])
        await r.send([], full=OLD)
        await r.send(removed=[Key("n1", "ibnetdiscover", "mlx5_0/1")])
        assert r.subjects() == ["mlx5_0/1"]
        await r.send(forgotten={key: r.state.rows_of_key(key) for key in r.state.keys_of("n1")})
        assert r.subjects() == []
        assert r.store.bulk(bulk.sha256) is None
        assert not r.state.holds_bulk(bulk.sha256)
        refused = await (await r.submit([sweep("n1", bulk.sha256)]))
        assert [one.dropped for one in refused] == [True]  # type: ignore[attr-defined]


async def test_what_a_manager_showed_goes_with_the_agent_that_asked_it(tmp_path: Path) -> None:
    """Nothing would ever take its place, where that manager is not asked any more."""
    async with rig(tmp_path) as r:
        shown = sweep("fabric/a", hashlib.sha256(b"x").digest(), lease_id="")
        shown.key.probe = shown.sweep.format = "ufm"
        bulk = Bulk(hashlib.sha256(b"x").digest(), 1, zlib.compress(b"x"))
        assert await r.send([shown], bulks=[bulk]) == []
        assert r.subjects("fabric/a") == [shown.key.subject]
        await r.send(removed=[Key("fabric/a", "ufm", shown.key.subject)])
        assert r.subjects("fabric/a") == []


@pytest.mark.parametrize(("since", "kept"), [("sweep", True), ("failure", False), ("nothing", False)])
async def test_what_came_since_it_was_decided_is_not_forgotten(
    tmp_path: Path, since: str, kept: bool
) -> None:
    """A superseded sweep is forgotten a moment later; its agent may have swept again meanwhile."""
    texts = [b"# sweep", b"# another"]
    bulks = [Bulk(hashlib.sha256(text).digest(), len(text), zlib.compress(text)) for text in texts]
    async with rig(tmp_path) as r:
        await r.send([sweep("n1", bulks[0].sha256)], bulks=bulks[:1])
        decided = {key: r.state.rows_of_key(key) for key in r.state.keys_of("n1")}
        if since == "sweep":
            await r.send([sweep("n1", bulks[1].sha256, T0 + S)], bulks=bulks[1:])
        elif since == "failure":
            await r.send([failed("n1", "ibnetdiscover", "mlx5_0/1", T0 + S)])
        await r.send(forgotten=decided)
        assert r.subjects() == (["mlx5_0/1"] if kept else [])


async def test_an_agent_goes_with_its_last_evidence(tmp_path: Path) -> None:
    left, stays = AgentRow("n1", 7, "0.1"), AgentRow("n2", 8, "0.1")
    async with rig(tmp_path) as r:
        await r.send([lldp("n1", "eth0", T0)], full=left)
        await r.send([lldp("n2", "eth0", T0)], full=stays)
        await r.send(forgotten_agents=[left, stays])
        assert r.state.agents == {"n1": left, "n2": stays}, "there is evidence of both"
        key = Key("n1", "lldp", "eth0")
        await r.send(forgotten={key: r.state.rows_of_key(key)})
        assert r.state.agents_without_evidence() == [left]
        await r.send(forgotten_agents=[left])
        assert r.state.agents == {"n2": stays}
        assert r.store.load().agents == [stays]


async def test_an_agent_that_came_back_since_it_was_decided_stays(tmp_path: Path) -> None:
    """Each came back in the same transaction: as another process, or with evidence."""
    other, again = AgentRow("n1", 7, "0.1"), AgentRow("n2", 8, "0.1")
    async with rig(tmp_path) as r:
        await r.send(full=other)
        await r.send(full=again)
        r.store.go.clear()
        first = await r.submit([lldp("n3", "eth0", T0)])  # the disk is busy: what follows gathers
        others = [
            await r.submit(full=replace(other, instance=9)),
            await r.submit([lldp("n2", "eth0", T0)], full=again),
            await r.submit(forgotten_agents=[other, again]),
        ]
        r.store.go.set()
        await asyncio.gather(first, *others)
        assert r.state.agents == {"n1": replace(other, instance=9), "n2": again}
        assert r.store.load().agents == list(r.state.agents.values())


async def test_agents_that_could_not_be_removed_are_still_there(tmp_path: Path) -> None:
    left = AgentRow("n1", 7, "0.1")
    async with rig(tmp_path) as r:
        await r.send(full=left)
        r.store.full = True
        with pytest.raises(StoreFullError):
            await r.send(forgotten_agents=[left])
        assert r.state.agents == {"n1": left}
        assert r.store.load().agents == [left]


async def test_a_full_disk_is_not_acknowledged_and_loses_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.send([lldp("n1", "eth0")])
        r.store.full = True
        with pytest.raises(StoreFullError):
            await r.send([lldp("n1", "eth0", T0 + S, neighbour="leaf-9"), lldp("n1", "eth1")])
        assert (r.committer.queue.problem, r.subjects()) == (
            "evidence is not written, and nothing is acknowledged: no room",
            ["eth0"],
        )
        (row,) = all_rows(r.state)
        assert row.observed_ns == T0
        r.store.full = False
        await r.send([lldp("n1", "eth1")])
        assert (r.committer.queue.problem, r.subjects()) == (None, ["eth0", "eth1"])


async def test_more_than_may_wait_is_turned_away(tmp_path: Path) -> None:
    async with rig(tmp_path, max_waiting_bytes=100, space_timeout_s=0.0) as r:
        r.store.go.clear()
        first = await r.submit([lldp("n1", "eth0")], cost_bytes=80)
        with pytest.raises(OverloadedError, match="send it again later"):
            await r.submit([lldp("n1", "eth1")], cost_bytes=80)
        r.store.go.set()
        await first
        await r.send([lldp("n1", "eth1")], cost_bytes=80)
        assert r.committer.waiting_bytes == 0
        # One that is larger than the limit by itself is let through when nothing else waits.
        assert await r.send([lldp("n1", "eth2")], cost_bytes=1000) == []


async def test_what_gathers_while_the_disk_is_busy_goes_in_one_transaction(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.store.go.clear()
        pending = [await r.submit([lldp("n1", "eth0")])]
        await until(lambda: not r.committer.queue._waiting)
        pending += [await r.submit([lldp("n1", f"eth{i}", T0 + i)]) for i in range(1, 50)]
        calls: list[Changes] = []
        apply = r.store.apply
        r.store.apply = lambda changes: (calls.append(changes), apply(changes))[1]  # type: ignore[method-assign]
        r.store.go.set()
        await asyncio.gather(*pending)
        assert [len(changes.upserts) for changes in calls] == [49]


@pytest.mark.parametrize(
    ("limits", "findings", "refused"),
    [
        (Limits(findings_per_node=2), [lldp("n1", f"eth{i}") for i in range(4)], 2),
        (Limits(nodes=2), [lldp(f"n{i}", "eth0") for i in range(4)], 2),
        (Limits(findings_per_node=1), [lldp("n1", "eth0", T0 + i) for i in range(4)], 0),
    ],
)
async def test_bounds_refuse_what_is_new_and_keep_what_is_there(
    tmp_path: Path, limits: Limits, findings: Sequence[Finding], refused: int
) -> None:
    async with rig(tmp_path, limits) as r:
        assert len(await r.send(findings)) == refused
        assert len(await r.send(findings)) == refused
        assert len(r.state) == len({f.key.SerializeToString() for f in findings}) - refused


async def test_renewals_wait_for_others_and_nothing_else_waits(tmp_path: Path) -> None:
    async with rig(tmp_path, renewals_wait_s=3600.0, full_state_wait_s=1800.0) as r:
        await r.send([lldp("n1", "eth0"), lldp("n2", "eth0")])
        r.changes.clear()
        r.clock_ns[0] = T0 + S
        rows = [row.renewed(T0 + S, 0, T0 + S) for row in all_rows(r.state)]
        renewals = [await r.submit(renewed=[row]) for row in rows]
        renewals.append(await r.submit(full=AgentRow("n4", 1, "0.1")))
        for _ in range(10):
            await asyncio.sleep(0)
        assert r.changes == []
        assert not any(done.done() for done in renewals), "nothing is acknowledged before it is stored"
        await r.send([lldp("n3", "eth0")])
        assert [await done for done in renewals] == [[], [], []]
        assert r.state.agents.keys() == {"n4"}
        assert [change.is_renewal for change in r.changes] == [True, True, False]
        assert {row.key.node: row.observed_ns for row in r.store.load().rows} == {
            "n1": T0 + S,
            "n2": T0 + S,
            "n3": T0,
        }


@pytest.mark.parametrize("reporter", ["n1", "switch/leaf-1", "fabric/crawl"])
async def test_a_reporter_is_refused_what_is_above_its_bytes_also_after_a_restart(
    tmp_path: Path, reporter: str
) -> None:
    """Texts count as they are stored. What replaces larger content is always accepted."""
    plain = Random(0).randbytes(30_000)
    text = Bulk(hashlib.sha256(plain).digest(), len(plain), zlib.compress(plain))
    large = [lldp(reporter, f"eth{i}", neighbour="x" * 5000) for i in range(3)]  # 20 KB each, and more
    limits = Limits(bytes_per_node=90_000, bytes_per_fabric_agent=90_000)
    for _ in range(2):
        async with rig(tmp_path, limits) as r:
            (reason,) = await r.send([sweep(reporter, text.sha256), *large], bulks=[text])
            assert reason.startswith(f"findings of {reporter} take 7")
            assert reason.endswith("the collector stores at most 87 KiB")
            assert await r.send([lldp("other", "eth0")]) == []
            assert r.state.bytes_of("other") == decoded_bytes(lldp("other", "eth0"))
    async with rig(tmp_path, limits) as r:
        small = lldp(reporter, "eth0", T0 + S)
        assert await r.send([small, large[2]]) == []
        await r.send(removed=[row.key for row in r.state.rows_of_node(reporter) if row.sha256 is None])
        await r.send(forgotten={row.key: [row] for row in r.state.rows_of_node(reporter)})
        assert r.state.bytes_of(reporter) == r.state.text_bytes(text.sha256) == 0
