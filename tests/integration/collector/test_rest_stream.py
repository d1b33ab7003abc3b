"""The live stream as a reader has it: a snapshot, deltas that lead on from it, and an end that says why."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hyperscout_collector.app.build import servers
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.serve.rest import stream as stream_module
from hyperscout_topology.diff import Diff
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import HyperNode, Link, LinkTable, Topology
from support.rest import Event, ask, follow
from support.rest_collector import publish, rest_collector
from support.topologies import two_leaves
from support.waiting import TIMEOUT_S, eventually


@pytest.fixture
async def collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    monkeypatch.setattr(stream_module, "SPACING_S", 0.0)
    async with rest_collector(tmp_path, two_leaves()) as running:
        yield running


async def one(events: AsyncIterator[Event]) -> Event:
    async with asyncio.timeout(TIMEOUT_S):
        return await anext(events)


async def rest_of(events: AsyncIterator[Event]) -> list[Event]:
    async with asyncio.timeout(TIMEOUT_S):
        return [event async for event in events]


def changed(topology: Topology, generation: int) -> Topology:
    """Every kind of change: a domain comes and one goes, links, switches, adapters, notes, lists."""
    links = list(topology.links)
    gone = links.pop(generation % len(links))
    links.append(replace(gone, note=f"moved in {generation}"))
    links.append(Link(f"new-{generation}", "1", "s1", str(generation), "ib", ("lldp",)))
    hypernodes: tuple[HyperNode, ...] = tuple(
        replace(h, name=f"{h.name.rstrip('0123456789-')}-{generation}") if h.tier == 1 else h
        for h in topology.hypernodes
    )
    return replace(
        topology,
        generation=generation,
        links=LinkTable.of(links),
        hypernodes=tuple(sorted(hypernodes, key=lambda h: (h.tier, h.name))),
        switches=topology.switches[generation % 2 :],
        adapters=topology.adapters[generation % 3 :],
        anomalies=topology.anomalies if generation % 2 else (),
        nodes_without_evidence=(f"n{generation}",),
        foreign_endpoints=(f"storage-{generation}",),
    )


def folded(picture: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    """As a client does it that knows nothing but the description."""
    links = [x for x in picture["links"] if x not in delta["removedLinks"]] + delta["addedLinks"]
    adapters = [x for x in picture["adapters"] if x not in delta["removedAdapters"]] + delta["addedAdapters"]
    names = {x["name"] for x in delta["hypernodes"]} | set(delta["removedHypernodes"])
    ids = {x["id"] for x in delta["switches"]} | set(delta["removedSwitches"])
    whole = ("generation", "anomalies", "tiers", "nodesWithoutEvidence", "foreignEndpoints")
    return {
        **{key: delta[key] for key in whole},
        "hypernodes": [x for x in picture["hypernodes"] if x["name"] not in names] + delta["hypernodes"],
        "switches": [x for x in picture["switches"] if x["id"] not in ids] + delta["switches"],
        "links": links,
        "adapters": adapters,
    }


def unordered(picture: dict[str, Any]) -> dict[str, Any]:
    return {k: sorted(v, key=str) if isinstance(v, list) else v for k, v in picture.items()}


async def test_deltas_lead_from_the_snapshot_to_the_topology(collector: Collector) -> None:
    topology = two_leaves()
    async with follow(collector.rest_address) as events:
        event = await one(events)
        assert event.kind == "snapshot"
        picture = event.json
        assert picture == to_json(topology)
        for generation in range(8, 14):
            topology = changed(topology, generation)
            await publish(collector, topology)
            event = await one(events)
            assert (event.kind, event.json["generation"]) == ("delta", generation)
            assert event.ident.startswith(f"{generation}-")
            picture = folded(picture, event.json)
            assert unordered(picture) == unordered(to_json(topology))


async def test_what_comes_at_once_may_be_told_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "SPACING_S", 0.0)
    async with rest_collector(tmp_path, two_leaves()) as collector, follow(collector.rest_address) as events:
        picture = (await one(events)).json
        topology = two_leaves()
        for generation in range(8, 40):
            topology = changed(topology, generation)
            await publish(collector, topology)
        while picture["generation"] < 39:
            picture = folded(picture, (await one(events)).json)
        assert unordered(picture) == unordered(to_json(topology))


@pytest.mark.parametrize("how", ["header", "query", "bare"])
async def test_a_reader_goes_on_where_it_was(collector: Collector, how: str) -> None:
    address, topology = collector.rest_address, two_leaves()
    async with follow(address) as events:
        ident = (await one(events)).ident
    for generation in (8, 9):
        topology = changed(topology, generation)
        await publish(collector, topology)
        async with follow(address) as events:  # so that each is told by itself
            await one(events)
    headers = {"Last-Event-ID": ident} if how == "header" else {}
    since = {"query": f"?since={ident}", "bare": "?since=7"}.get(how, "")
    async with follow(address, "/v1/stream" + since, headers=headers) as events:
        seen = [await one(events), await one(events)]
    assert [(x.kind, x.json["generation"]) for x in seen] == [("delta", 8), ("delta", 9)]
    async with follow(address, headers={"Last-Event-ID": seen[-1].ident}) as events:
        await publish(collector, changed(topology, 10))
        assert [(x.kind, x.json["generation"]) for x in [await one(events)]] == [("delta", 10)]


@pytest.mark.parametrize("since", ["6", "7-another", "99", "x", "%00", "7" * 5000])
async def test_a_reader_without_a_known_position_gets_a_snapshot(collector: Collector, since: str) -> None:
    reply = await ask(collector.rest_address, f"/v1/stream?since={since}") if "%" in since else None
    if reply is not None:
        assert reply.status == 400
        return
    if len(since) > 1000:
        headers, query = {"Last-Event-ID": since}, ""
    else:
        headers, query = {}, f"?since={since}"
    async with follow(collector.rest_address, "/v1/stream" + query, headers=headers) as events:
        assert (await one(events)).kind == "snapshot"


async def test_after_a_gap_there_is_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "SPACING_S", 0.0)
    monkeypatch.setattr(stream_module, "MAX_DELTAS", 2)
    async with rest_collector(tmp_path, two_leaves()) as collector:
        address, topology = collector.rest_address, two_leaves()
        async with follow(address) as events:
            ident = (await one(events)).ident
            for generation in range(8, 13):
                topology = changed(topology, generation)
                await publish(collector, topology)
                await one(events)
            async with follow(address, headers={"Last-Event-ID": ident}) as late:
                event = await one(late)
    assert (event.kind, event.json["generation"]) == ("snapshot", 12)


def large(generation: int) -> Topology:
    """Some 2 MB of a delta."""
    names = tuple(f"{generation}-{i:05}-{'x' * 90}" for i in range(20_000))
    return replace(two_leaves(), generation=generation, nodes_without_evidence=names)


@pytest.mark.parametrize("why", ["behind", "stalled", "within a snapshot"])
async def test_a_slow_reader_is_told_and_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(stream_module, "SPACING_S", 0.0)
    if why == "stalled":
        monkeypatch.setattr(stream_module, "_STALL_S", 5.0)
        monkeypatch.setattr(stream_module, "_LINGER_S", TIMEOUT_S)
    else:
        monkeypatch.setattr(stream_module, "MAX_BYTES", 5_000_000)
    start = large(7) if why == "within a snapshot" else two_leaves()
    async with rest_collector(tmp_path, start) as collector:
        counted = collector.components.callers.rest
        assert counted is not None
        async with follow(collector.rest_address, small=True) as slow:
            if why != "within a snapshot":
                assert (await one(slow)).kind == "snapshot"
            async with follow(collector.rest_address) as quick:
                assert (await one(quick)).kind == "snapshot"
                for generation in range(8, 20):
                    await publish(collector, large(generation))
                    assert (await one(quick)).json["generation"] == generation, "one reader delays no other"
                if why == "stalled":
                    await eventually(lambda: counted.dropped_total)
                *before, last = await rest_of(slow)
                assert last.kind == "error"
                assert last.problem["type"] == "urn:hyperscout:problem:too-slow"
                assert last.problem["status"] == 429
                assert all(event.json["generation"] for event in before), "what came before is whole"
                assert counted.dropped_total == 1
                assert counted.readers == 1
                await publish(collector, large(20))
                assert (await one(quick)).json["generation"] == 20


async def test_no_more_may_follow_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "MAX_READERS", 1)
    async with rest_collector(tmp_path, two_leaves()) as collector:
        address = collector.rest_address
        async with follow(address) as events:
            await one(events)
            reply = await ask(address, "/v1/stream")
            assert (reply.status, reply.json["type"]) == (429, "urn:hyperscout:problem:busy")
        counted = collector.components.callers.rest
        assert counted is not None
        await eventually(lambda: not counted.readers)
        async with follow(address) as events:
            assert (await one(events)).kind == "snapshot"


async def test_a_collector_that_leaves_says_where_to_go_on(tmp_path: Path) -> None:
    async with rest_collector(tmp_path, two_leaves()) as collector:
        async with follow(collector.rest_address) as events:
            await one(events)
            collector.leave("another replica leads now", "10.0.0.9:50051")
            stopping = asyncio.create_task(collector.stop())
            (last,) = await rest_of(events)
            await stopping
        port = collector.rest_address.rpartition(":")[2]
    assert (last.kind, last.json["type"]) == ("error", "urn:hyperscout:problem:standby")
    assert last.json["leader"] == f"10.0.0.9:{port}"


async def test_without_readers_nothing_is_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "SPACING_S", 0.0)
    monkeypatch.setattr(stream_module, "RESUME_S", 0.0)
    made = []
    encoded_delta = stream_module.encoded_delta

    def counted(diff: Diff, epoch: str) -> bytes:
        made.append(diff.new.generation)
        return encoded_delta(diff, epoch)

    monkeypatch.setattr(stream_module, "encoded_delta", counted)
    async with rest_collector(tmp_path, two_leaves()) as collector:
        await publish(collector, changed(two_leaves(), 8))
        async with follow(collector.rest_address) as events:
            assert (await one(events)).json["generation"] == 8
            await publish(collector, changed(two_leaves(), 9))
            await one(events)
        found = collector.components.callers.rest
        assert found is not None
        await eventually(lambda: not found.readers)
        for generation in (10, 11):
            await publish(collector, changed(two_leaves(), generation))
        async with follow(collector.rest_address) as events:
            assert (await one(events)).json["generation"] == 11
    assert made == [9]


async def test_an_idle_stream_sends_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "BEAT_S", 0.02)
    async with rest_collector(tmp_path, two_leaves()) as collector:
        host, _, port = collector.rest_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(TIMEOUT_S):
            for _ in range(3):
                await reader.readuntil(b": beat\n\n")
        writer.close()
