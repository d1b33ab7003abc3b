"""REST of a running collector, asked by a plain client: the same objects as elsewhere, and clear refusals."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hyperscout.v1.finding_pb2 import NcclRun
from hyperscout.v1.measurement_pb2 import RunNcclRequest
from hyperscout_collector.app.build import ports
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.serve.http import protocol as protocol_module
from hyperscout_collector.serve.http import server as server_module
from hyperscout_collector.serve.rest import app as app_module
from hyperscout_collector.serve.rest.kinds import KINDS
from hyperscout_collector.serve.rest.static import Pages
from hyperscout_publish.hypernodes.yaml_text import hypernodes_yaml
from hyperscout_publish.slurm import text as slurm
from hyperscout_sim.fabric.nvlink import hgx_host
from hyperscout_topology import objects
from hyperscout_topology.objects import to_json
from support.collectors import eight_hosts
from support.rest import Reply, ask
from support.rest_collector import played, publish, rest_collector
from support.topologies import two_leaves
from support.waiting import TIMEOUT_S

JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def collector(tmp_path: Path) -> AsyncIterator[Collector]:
    """One that has published two leaves."""
    async with rest_collector(tmp_path, two_leaves(), history_max_days=0) as running:
        yield running


async def get(collector: Collector, path: str, **headers: str) -> Reply:
    return await ask(
        collector.rest_address, path, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )


async def listed(collector: Collector, path: str) -> list[dict[str, Any]]:
    """All pages."""
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        joint = "&" if "?" in path else "?"
        reply = await get(collector, f"{path}{joint}pageSize=2" + (f"&pageToken={token}" if token else ""))
        assert reply.status == 200, reply.body
        found += reply.json["items"]
        if not (token := reply.json["nextPageToken"]):
            return found


# --- the picture


async def test_the_topology_is_that_of_the_command_line(collector: Collector) -> None:
    reply = await get(collector, "/v1/topology")
    assert reply.json == to_json(two_leaves())
    assert (await get(collector, "/v1/topology", accept_encoding="gzip")).json == reply.json
    small = (await get(collector, "/v1/topology?links=false")).json
    assert small == reply.json | {"links": [], "adapters": []}


@pytest.mark.parametrize(
    ("query", "accept", "writer"),
    [
        ("", "application/yaml", hypernodes_yaml),
        ("?output=hypernodes", "*/*", hypernodes_yaml),
        ("", "text/plain", slurm.slurm_tree),
        ("?output=slurm-block", "application/json", slurm.slurm_block),
        ("?output=slurm-yaml", "*/*", slurm.slurm_yaml),
    ],
)
async def test_texts_for_others(collector: Collector, query: str, accept: str, writer: Any) -> None:
    reply = await get(collector, "/v1/topology" + query, accept=accept)
    assert reply.body.decode() == "".join(writer(two_leaves()))
    assert reply.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("kind", objects.OF_TOPOLOGY)
async def test_lists_are_the_objects_of_get(collector: Collector, kind: str) -> None:
    expected = sorted(objects.OF_TOPOLOGY[kind](two_leaves()), key=KINDS[kind].place)
    assert expected
    assert await listed(collector, f"/v1/{kind}") == expected
    assert (await get(collector, f"/v1/{kind}")).json["generation"] == 7


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("hypernodes?tier=1", ["leaf-a", "leaf-b"]),
        ("hypernodes?tier=1&node=n01", ["leaf-a"]),
        ("hypernodes?tierName=leaf&parent=core", ["leaf-a", "leaf-b"]),
        ("hypernodes?name=leaf-a&name=core", ["core", "leaf-a"]),
        ("hypernodes?condition=Degraded", ["leaf-b"]),
        ("hypernodes?condition=Ready%3DTrue", ["leaf-a"]),
        ("hypernodes?switch=sw-core", ["core"]),
        ("nodes?hypernode=leaf-b", ["n03", "n04"]),
        ("nodes?evidence=false", ["n09"]),
        ("nodes?name=n04&name=n03", ["n03", "n04"]),
        ("switches?level=2", ["spine"]),
        ("switches?name=s1", ["leaf-a"]),
        ("links?source=lldp", ["n04 mlx5_0"]),
        ("links?node=n01&node=n02", ["n01 mlx5_0", "n02 mlx5_0"]),
        ("links?device=s9", ["leaf-a", "leaf-b"]),
        ("links?fabric=other", []),
        ("anomalies?kind=MissingLink&hypernode=leaf-b", ["n03"]),
        ("anomalies?kind=Miswired", []),
        ("anomalies?name=leaf-b", ["n03"]),
    ],
)
async def test_filters(collector: Collector, path: str, expected: list[str]) -> None:
    def name(one: dict[str, Any]) -> str:
        return str(one["name"] if "name" in one else one.get("a", one.get("subject"))["name"])

    assert [name(one) for one in await listed(collector, f"/v1/{path}")] == expected


async def test_one_by_its_name(collector: Collector) -> None:
    for path, expected in (
        ("hypernodes/leaf-b", objects.hypernodes(two_leaves())[1]),
        ("nodes/n01", objects.nodes(two_leaves())[0]),
        ("switches/s9", objects.switches(two_leaves())[2]),
        ("switches/spine", objects.switches(two_leaves())[2]),
    ):
        assert (await get(collector, f"/v1/{path}")).json == expected
    assert (await get(collector, "/v1/nodes/a%2Fb%3F%00")).status == 404
    unknown = await get(collector, "/v1/switches/s77")
    assert unknown.json["detail"] == "no switch 's77': GET /v1/switches lists them"


async def test_a_page_goes_on_while_things_change(collector: Collector) -> None:
    first = (await get(collector, "/v1/nodes?pageSize=2")).json
    there = two_leaves()
    fewer = replace(there.hypernodes[0], nodes=("n02",))
    await publish(collector, replace(there, generation=8, hypernodes=(fewer, *there.hypernodes[1:])))
    second = (await get(collector, f"/v1/nodes?pageSize=9&pageToken={first['nextPageToken']}")).json
    assert [x["name"] for x in first["items"]] == ["n01", "n02"]
    assert [x["name"] for x in second["items"]] == ["n03", "n04", "n09"]
    assert (first["generation"], second["generation"]) == (7, 8)


async def test_what_did_not_change_is_not_sent_again(collector: Collector) -> None:
    paths = ("topology", "topology?output=slurm-tree", "hypernodes", "hypernodes/core", "nodes", "links")
    for path in (*paths, "switches", "anomalies", "openapi.json"):
        etag = (await get(collector, f"/v1/{path}")).headers["etag"]
        again = await get(collector, f"/v1/{path}", if_none_match=etag)
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", etag)
    await publish(collector, replace(two_leaves(), generation=8))
    for path in paths:
        assert (await get(collector, f"/v1/{path}", if_none_match=etag)).status == 200


async def test_head_is_get_without_its_body(collector: Collector) -> None:
    reply = await ask(collector.rest_address, "/v1/topology", method="HEAD")
    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.headers["content-length"]) > 100
    assert (await ask(collector.rest_address, "/v1/stream", method="HEAD")).status == 200
    assert collector.components.callers.rest is not None
    assert collector.components.callers.rest.readers_total == 0


# --- what stands behind it


async def test_a_live_cluster(tmp_path: Path) -> None:
    """Findings, explain, status and the life of a placement, on what agents really sent."""
    gpus = {host: hgx_host(host) for host in eight_hosts().hosts}
    async with rest_collector(tmp_path) as collector, played(collector, gpus=gpus) as player:
        host = player.fabric.hosts[0]
        findings = await listed(collector, f"/v1/findings?node={host}")
        assert {x["finding"]["key"]["node"] for x in findings} == {host}
        assert all(x["stale"] is False for x in findings)
        explained = (await get(collector, f"/v1/explain?a={host}&b={player.fabric.hosts[1]}")).json
        assert (explained["tier"], explained["hypernodesA"][0]) == (1, explained["hypernode"])
        kinds = [leg["kind"] for leg in explained["legs"]]
        assert kinds == ["nvlink", "pcie", "cable", "cable", "pcie", "nvlink"]
        speed = min(leg["bandwidthGbps"] for leg in explained["legs"] if leg["kind"] == "cable")
        assert (explained["bandwidthGbps"], explained["bandwidthSource"]) == (speed, "read")
        status = (await get(collector, "/v1/status")).json
        assert len(status["agents"]) == 8
        assert all(agent["connected"] for agent in status["agents"])
        without = (await get(collector, "/v1/status?agents=false")).json
        assert without["agents"] == []
        assert (without["findings"], without["wrong"]) == (status["findings"], status["wrong"])
        await _placement_s_life(collector)
        await _what_was(collector)


async def _what_was(collector: Collector) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not (events := (await get(collector, "/v1/history")).json.get("items")):
            await asyncio.sleep(0.05)
    now = (await get(collector, "/v1/topology")).json
    at = (await get(collector, f"/v1/topology?at={events[0]['at']}")).json
    assert at["generation"] == max(event["generation"] for event in events)
    assert [h["name"] for h in at["hypernodes"]] == [h["name"] for h in now["hypernodes"]]
    before = await get(collector, "/v1/topology?at=2001-01-01T00:00:00Z")
    assert (before.status, before.json["type"]) == (404, "urn:hyperscout:problem:not-found")
    kind = events[0]["kind"]
    alike = (await get(collector, f"/v1/history?kind={kind}")).json["items"]
    assert alike == [event for event in events if event["kind"] == kind]
    for path in ("/v1/history", "/v1/diff"):
        other = await get(collector, f"{path}?since=2001-01-01T00:00:00Z&cluster=east")
        assert (other.status, other.json["field"]) == (400, "cluster")
    for query in (
        "since=2001-01-01T00:00:00Z",
        f"since={events[0]['at']}",
        "since=2001-01-01T00:00:00Z&pageSize=1",
    ):
        differs = (await get(collector, f"/v1/diff?{query}")).json
        net = (await get(collector, f"/v1/history?net=true&{query}")).json
        assert differs["items"] == net["items"]
        assert "flaps" not in differs


async def _placement_s_life(collector: Collector) -> None:
    address = collector.rest_address
    gang = {"gang": "train-7", "parts": [{"workers": {"count": 4}}], "mode": "PLACEMENT_MODE_SOFT"}
    tried = await ask(address, "/v1/placements", method="POST", body={**gang, "dryRun": True})
    assert (tried.status, tried.json["placed"], tried.json["tier"]) == (200, True, 1)
    assert tried.json["predicted"]["sources"] == "latency assumed, bandwidth read"
    assert (await get(collector, "/v1/queue")).json == {"gangs": []}
    assert (await get(collector, "/v1/placements")).json["items"] == []
    done = await ask(address, "/v1/placements", method="POST", body={**gang, "expiresIn": "3600s"})
    assert done.json["assignments"] == tried.json["assignments"]
    assert "expiresAt" in done.json
    (held,) = (await get(collector, "/v1/placements?name=train-7")).json["items"]
    assert held == done.json | {"predicted": None}  # which is not reckoned for a list
    explained = await ask(address, "/v1/explain-placement", method="POST", body={"gang": "train-7"})
    assert explained.status == 200
    assert explained.json["placement"]["placed"] is True
    (chosen,) = (one for one in explained.json["candidates"] if not one["why"])
    assert chosen["hypernode"] == explained.json["placement"]["hypernode"]
    failed = done.json["assignments"][0]["node"]
    asked = {"gang": "train-7", "failedNodes": [failed]}
    trial = await ask(address, "/v1/repair", method="POST", body={**asked, "dryRun": True})
    assert [(move["rank"], move["source"]) for move in trial.json["moves"]] == [(0, failed)]
    assert (await get(collector, "/v1/placements?name=train-7")).json["items"] == [held]
    moved = await ask(address, "/v1/repair", method="POST", body=asked)
    assert (moved.status, moved.json["moves"]) == (200, trial.json["moves"])
    assert moved.json["placement"]["assignments"][0]["node"] == moved.json["moves"][0]["target"]
    assert (await get(collector, f"/v1/placements?node={failed}")).json["items"] == []
    assert (await get(collector, "/v1/placements?node=elsewhere")).json["items"] == []
    again = await ask(address, "/v1/placements", method="POST", body=gang)
    assert (again.status, again.json["type"]) == (409, "urn:hyperscout:problem:exists")
    assert (await ask(address, "/v1/placements/train-7", method="DELETE")).status == 204
    gone = await ask(address, "/v1/placements/train-7", method="DELETE")
    assert (gone.status, gone.headers["content-type"]) == (404, "application/problem+json")
    wrong = await ask(address, "/v1/placements", method="POST", body={**gang, "highestTierAllowed": "moon"})
    assert (wrong.status, wrong.json["field"]) == (400, "highestTierAllowed")
    too_many = {"dryRun": True, "parts": [{"workers": {"count": 400}}]}
    refused = await ask(address, "/v1/placements", method="POST", body=too_many)
    assert (refused.status, refused.json["placed"]) == (200, False)
    assert refused.json["reason"]


async def test_measuring_is_paused_and_resumed(collector: Collector) -> None:
    address = collector.rest_address
    for paused, reason in ((True, "row 7"), (False, "")):
        body = {"paused": paused, "reason": reason}
        done = await ask(address, "/v1/measuring", method="POST", body=body)
        assert (done.status, done.body) == (204, b"")
        now = (await get(collector, "/v1/measuring")).json
        assert (now["state"] == "paused") is paused
        assert now["reason"].endswith(reason)


async def test_a_run_of_nccl_ends_with_its_client(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def run_nccl(request: RunNcclRequest) -> NcclRun:
        if list(request.nodes) == ["n01"]:
            return NcclRun(method="libnccl", ranks=8)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError("it is not cancelled")

    monkeypatch.setattr(collector.components.inference.nccl, "run_nccl", run_nccl)

    def run(*nodes: str) -> Coroutine[Any, Any, Reply]:
        body = {"nodes": nodes}
        return ask(collector.rest_address, "/v1/measuring/nccl", method="POST", body=body)

    done = await run("n01")
    assert (done.status, done.json["run"]["ranks"]) == (200, 8)
    client = asyncio.create_task(run("n01", "n02"))
    async with asyncio.timeout(TIMEOUT_S):
        await begun.wait()
        client.cancel()
        await ended.wait()


# --- what is not answered


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "word"),
    [
        ("GET", "/v1/nothing", {}, 404, "not-found"),
        ("GET", "/nothing", {}, 404, "not-found"),
        ("GET", "/../../etc/passwd", {}, 404, "not-found"),
        ("GET", "/%2e%2e/%2e%2e/settings.py", {}, 404, "not-found"),
        ("GET", "/assets/../../app.py", {}, 404, "not-found"),
        ("PUT", "/v1/topology", {"body": {}}, 405, "method-not-allowed"),
        ("OPTIONS", "/v1/placements", {}, 405, "method-not-allowed"),
        ("BREW", "/v1/approve", {}, 405, "method-not-allowed"),
        ("GET", "/v1/hypernodes/absent", {}, 404, "not-found"),
        ("GET", "/v1/nodes/", {}, 404, "not-found"),
        ("GET", "/v1/nodes/a%0Ab", {}, 404, "not-found"),
        ("DELETE", "/v1/placements/a%0Ab", {}, 404, "not-found"),
        ("GET", "/%0A", {}, 404, "not-found"),
        ("GET", "/v1/topology", {"headers": {"Accept": "image/png"}}, 406, "not-acceptable"),
        ("GET", "/v1/topology?output=png", {}, 400, "bad-request"),
        ("GET", "/v1/nodes?pageToken=%F0%9F%98%80", {}, 400, "bad-request"),
        ("GET", "/v1/findings?pageToken=x", {}, 400, "bad-request"),
        ("GET", "/v1/explain?a=n01", {}, 400, "bad-request"),
        ("GET", "/v1/explain?a=n01&b=absent", {}, 404, "not-found"),
        ("GET", "/v1/topology?at=2001-01-01T00:00:00Z", {}, 404, "not-found"),
        ("GET", "/v1/history?pageSize=5000", {}, 400, "bad-request"),
        ("POST", "/v1/approve", {"body": {"generation": 99}}, 409, "conflict"),
        ("POST", "/v1/approve", {"body": b"{"}, 400, "bad-request"),
        ("POST", "/v1/approve", {"body": b"\xff\xfe"}, 400, "bad-request"),
        ("POST", "/v1/approve", {"body": []}, 400, "bad-request"),
        ("POST", "/v1/approve", {"body": {"generation": -1}}, 400, "bad-request"),
        ("POST", "/v1/approve", {"body": {"generation": 1, "more": 2}}, 400, "bad-request"),
        ("POST", "/v1/placements", {"body": {"dryRun": True, "gang": "/"}}, 400, "bad-request"),
        ("POST", "/v1/placements", {"body": b"[" * 100_000}, 400, "bad-request"),
        ("POST", "/v1/placements", {"body": b" " * (5 << 20)}, 413, "too-large"),
        (
            "POST",
            "/v1/approve",
            {"body": {"generation": 7}, "headers": {"Content-Type": "text/plain"}},
            415,
            "unsupported-media-type",
        ),
        (
            "POST",
            "/v1/approve",
            {"body": b"generation=7", "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
            415,
            "unsupported-media-type",
        ),
        ("DELETE", "/v1/placements/absent", {}, 404, "not-found"),
        ("GET", "/v1/diff", {}, 400, "bad-request"),
        ("GET", "/v1/diff?since=2001-01-01T00:00:00Z", {}, 409, "conflict"),
        ("POST", "/v1/explain-placement", {"body": {}}, 400, "bad-request"),
        ("POST", "/v1/explain-placement", {"body": {"gang": "absent"}}, 404, "not-found"),
        ("POST", "/v1/explain-placement", {"body": {"gang": "absent", "limit": 1001}}, 400, "bad-request"),
        ("POST", "/v1/repair", {"body": {"gang": "absent", "failedNodes": ["n01"]}}, 404, "not-found"),
        ("POST", "/v1/measuring/nccl", {"body": {}}, 400, "bad-request"),
        ("POST", "/v1/measuring", {"body": {"reason": "row 7"}}, 400, "bad-request"),
        ("POST", "/v1/measuring/nccl", {"body": {"nodes": ["n01"]}}, 409, "conflict"),
        ("GET", "/v1/topology", {"headers": {"Host": "evil.example"}}, 403, "wrong-host"),
        ("GET", "/", {"headers": {"Host": "evil.example"}}, 403, "wrong-host"),
        ("GET", "/v1/topology", {"headers": {"Authorization": "Basic eDp5"}}, 401, "unauthenticated"),
    ],
)
async def test_every_refusal_is_a_problem_document(
    collector: Collector, method: str, path: str, more: dict[str, Any], status: int, word: str
) -> None:
    reply = await ask(collector.rest_address, path, method=method, **more)
    assert reply.status == status, reply.body
    assert reply.headers["content-type"] == "application/problem+json"
    found = reply.json
    assert found["type"] == f"urn:hyperscout:problem:{word}"
    assert (found["status"], bool(found["title"]), bool(found["detail"])) == (status, True, True)
    assert reply.headers["cache-control"] == "no-store"
    if status == 405:
        assert "GET" in reply.headers["allow"] or "POST" in reply.headers["allow"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("path", ["/", "/x", "/v1/x", "/assets/..%2f.."])
async def test_without_the_built_map_an_unknown_path_is_a_404_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, method: str
) -> None:
    monkeypatch.setattr(app_module, "Pages", lambda hosts: Pages(hosts, tmp_path / "none"))
    async with rest_collector(tmp_path, two_leaves()) as running:
        reply = await ask(running.rest_address, path, method=method)
        assert (reply.status, reply.headers["content-type"]) == (404, "application/problem+json")
        if method != "HEAD":
            assert reply.json["type"] == "urn:hyperscout:problem:not-found"


async def test_every_answer_has_the_headers_that_keep_browsers_in_order(collector: Collector) -> None:
    for path in ("/", "/v1/topology", "/v1/nothing", "/v1/status"):
        headers = (await get(collector, path)).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers


async def test_names_are_texts_wherever_they_come_from(collector: Collector) -> None:
    there = two_leaves()
    nasty = '<script>alert(1)</script>\r\nSet-Cookie: a=b\u2028"'
    await publish(collector, replace(there, generation=8, nodes_without_evidence=(nasty,)))
    reply = await get(collector, "/v1/nodes?evidence=false")
    assert [x["name"] for x in reply.json["items"]] == [nasty]
    assert "set-cookie" not in reply.headers
    assert b"\r" not in reply.body


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /v1/topology HTTP/9.9\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"GET /v1/topology HTTP/1.1\r\n" + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
        b"POST /v1/approve HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST /v1/approve HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET http://[::1/v1/topology HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /%ff%fe%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/nodes/%ff?%ff=%ff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
async def test_garbage_ends_its_own_connection_alone(
    collector: Collector, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    host, _, port = collector.rest_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    writer.write_eof()
    answer = b""
    async with asyncio.timeout(TIMEOUT_S):
        with suppress(ConnectionResetError):  # closed, with some of it unread
            answer = await reader.read(-1) if b"localhost" not in sent else await reader.read(20)
    writer.close()
    assert not answer.startswith(b"HTTP/1.1 5"), answer[:200]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert (await get(collector, "/v1/status")).status == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 20_000 + b"\r\n",
        (
            b"POST /v1/approve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"
        ),
    ],
    ids=["a head of many lines", "two lengths"],
)
async def test_what_may_be_meant_badly_is_refused_and_nothing_read_after_it(
    collector: Collector, sent: bytes
) -> None:
    host, _, port = collector.rest_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    async with asyncio.timeout(TIMEOUT_S):
        answer = await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionResetError):
            answer += await reader.read(-1)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"content-type: application/problem+json" in answer.lower()
    assert b" 200 " not in answer


HALF_A_BODY = (
    b"POST /v1/approve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{"
)


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /v1/topology HTTP/1.1\r\nHost: localhost\r\n", HALF_A_BODY],
    ids=["nothing", "head", "body"],
)
async def test_a_client_that_does_not_finish_its_request_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(protocol_module, "_REQUEST_TIMEOUT_S", 0.1)
    async with rest_collector(tmp_path, two_leaves()) as running:
        host, _, port = running.rest_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        async with asyncio.timeout(TIMEOUT_S):
            with suppress(ConnectionResetError):
                assert await reader.read(-1) == b""
        writer.close()


async def test_there_are_no_more_connections_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_OTHER_CONNECTIONS", 1)
    monkeypatch.setattr(ports, "MAX_READERS", 1)
    async with rest_collector(tmp_path, two_leaves()) as running:
        host, _, port = running.rest_address.rpartition(":")
        held = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            reply = await ask(running.rest_address, "/v1/status")
            raise AssertionError(f"a third got in: {reply.status}")
        for _, writer in held:
            writer.close()
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                with suppress(ConnectionError, asyncio.IncompleteReadError):
                    if (await ask(running.rest_address, "/v1/status")).status == 200:
                        break
                await asyncio.sleep(0.01)


async def test_the_description_is_there(collector: Collector) -> None:
    found = (await get(collector, "/v1/openapi.json", accept_encoding="gzip")).json
    assert found["openapi"] == "3.1.0"
    assert json.dumps(found).count("http://") == 0
