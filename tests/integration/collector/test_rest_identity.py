"""Which caller may ask REST for what: certificates and tokens as at gRPC's ports, and no other caller."""

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator
from importlib.resources import files
from json import loads
from pathlib import Path
from typing import Any

import hyperscout_collector.serve.rest
import pytest
from hyperscout_collector.app.replica.standby import Standby
from hyperscout_collector.identity import access as access_module
from hyperscout_collector.serve.rest import app as app_module
from hyperscout_collector.serve.rest.operations import OPERATIONS
from support.collectors import collector_settings
from support.identities import FakeReviews, Family
from support.rest import Reply, ask, follow
from support.rest_collector import publish, rest_collector
from support.topologies import two_leaves
from support.waiting import TIMEOUT_S

DOCUMENT: dict[str, Any] = loads((files(hyperscout_collector.serve.rest) / "openapi.json").read_text())
Operation = tuple[str, str, Any]


def operations() -> Iterator[Operation]:
    """(method, path, body) of every operation that is described, with the examples of its parameters."""
    for template, by_method in DOCUMENT["paths"].items():
        for method, operation in by_method.items():
            path, query = template, []
            for one in operation.get("parameters", ()):
                if one["in"] == "path":
                    path = path.replace(f"{{{one['name']}}}", str(one["example"]))
                elif one["in"] == "query" and one.get("required"):
                    query.append(f"{one['name']}={one['example']}")
            body = {} if "requestBody" in operation else None
            yield method.upper(), path + "?" * bool(query) + "&".join(query), body


EVERY = list(operations())
READING = "/v1/explain-placement"  # the one POST that changes nothing
CHANGING = [one for one in EVERY if one[0] != "GET" and one[1] != READING]


@pytest.fixture
def reviews() -> FakeReviews:
    return FakeReviews(rights={("ann", "get"), ("ann", "update"), ("bob", "get"), ("eve", "update")})


def tls(family: Family, identity: str = "", signed_by: Family | None = None) -> ssl.SSLContext:
    """Of a client that trusts `family`. `identity`: "reader/ann"; "" = without a certificate."""
    context = ssl.create_default_context(cafile=str(family.ca))
    if identity:
        pair = (signed_by or family).pair(f"URI:hyperscout://{identity}")
        context.load_cert_chain(pair.cert, pair.key)
    return context


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def refused(reply: Reply, status: int, one: Operation) -> None:
    assert reply.status == status, (one, reply.status, reply.body)
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json["status"] == status
    assert ("www-authenticate" in reply.headers) is (status == 401)


def test_the_walk_is_over_everything() -> None:
    assert len(EVERY) == len(OPERATIONS) > 15
    assert sorted(method for method, _, _ in CHANGING) == ["DELETE", *["POST"] * 6]


async def test_no_unknown_caller_gets_anything_anywhere(
    tmp_path: Path, family: Family, reviews: FakeReviews
) -> None:
    stranger = "header.payload.signature"
    async with rest_collector(tmp_path, two_leaves(), family=family, reviews=reviews) as collector:
        for one in EVERY:
            method, path, body = one
            for headers in (
                {},
                bearer(stranger),
                {"Authorization": "Basic eDp5"},
                {"Authorization": "Bearer"},
            ):
                reply = await ask(
                    collector.rest_address, path, method=method, body=body, headers=headers, tls=tls(family)
                )
                refused(reply, 401, one)
        assert collector.watchers.current.topology.generation == 7


async def test_readers_and_agents_get_403_beyond_their_rights(
    tmp_path: Path, family: Family, reviews: FakeReviews
) -> None:
    reader, token = tls(family, "reader/ann"), bearer(reviews.user("bob"))
    without_rights = bearer(reviews.user("carl"))
    agent, of_agent = tls(family, "node/n01"), bearer(reviews.agent("n01"))
    async with rest_collector(tmp_path, two_leaves(), family=family, reviews=reviews) as collector:
        address = collector.rest_address
        for one in CHANGING:
            method, path, body = one
            more: dict[str, Any] = {"method": method, "body": body}
            refused(await ask(address, path, tls=reader, **more), 403, one)
            refused(await ask(address, path, tls=tls(family), headers=token, **more), 403, one)
        for one in EVERY:
            method, path, body = one
            more = {"method": method, "body": body}
            refused(await ask(address, path, tls=agent, **more), 403, one)
            for headers in (without_rights, of_agent):
                refused(await ask(address, path, tls=tls(family), headers=headers, **more), 403, one)


async def test_a_caller_with_rights_is_served(tmp_path: Path, family: Family, reviews: FakeReviews) -> None:
    ann, bob = reviews.user("ann"), reviews.user("bob")
    async with rest_collector(tmp_path, two_leaves(), family=family, reviews=reviews) as collector:
        address = collector.rest_address
        dry = {"dryRun": True, "parts": [{"workers": {"count": 1}}]}
        reserve = {"gang": "g", "parts": [{"workers": {"count": 1}}]}
        for context, headers, changes in (
            (tls(family, "reader/r"), {}, False),
            (tls(family, "admin/a"), {}, True),
            (tls(family), bearer(bob), False),
            (tls(family), bearer(ann), True),
        ):
            more: dict[str, Any] = {"tls": context, "headers": headers}
            assert (await ask(address, "/v1/topology", **more)).json["generation"] == 7
            tried = await ask(address, "/v1/placements", method="POST", body=dry, **more)
            assert tried.status != 403, "a dry run takes what reading takes"
            repair = {"gang": "absent", "failedNodes": ["n01"]}
            for path, body, status in (
                ("/v1/explain-placement", {"gang": "absent"}, 404),
                ("/v1/repair", {**repair, "dryRun": True}, 404),
                ("/v1/repair", repair, 404 if changes else 403),
                ("/v1/measuring", {"paused": True}, 204 if changes else 403),
                ("/v1/measuring/nccl", {}, 400 if changes else 403),
            ):
                assert (await ask(address, path, method="POST", body=body, **more)).status == status, path
            held = await ask(address, "/v1/placements", method="POST", body=reserve, **more)
            assert (held.status != 403) is changes
            approved = await ask(address, "/v1/approve", method="POST", body={"generation": 99}, **more)
            assert approved.status == (409 if changes else 403)
        eve = bearer(reviews.user("eve"))  # may update, and not get
        assert (await ask(address, "/v1/status", tls=tls(family), headers=eve)).status == 403


async def test_a_certificate_of_others_does_not_even_connect(
    tmp_path: Path, family: Family, strangers: Family
) -> None:
    async with rest_collector(tmp_path, two_leaves(), family=family) as collector:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await ask(
                collector.rest_address, "/v1/topology", tls=tls(family, "admin/eve", signed_by=strangers)
            )
        assert (await ask(collector.rest_address, "/v1/topology", tls=tls(family))).status == 200


async def test_beyond_this_machine_a_certificate_is_demanded_where_no_tokens_are_reviewed(
    tmp_path: Path, family: Family
) -> None:
    listen = "0.0.0.0:0"
    async with rest_collector(tmp_path, two_leaves(), family=family, rest_listen=listen) as collector:
        address = f"127.0.0.1:{collector.rest_address.rpartition(':')[2]}"
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await ask(address, "/", tls=tls(family))
        assert (await ask(address, "/v1/topology", tls=tls(family, "reader/ann"))).status == 200


async def test_renewed_certificates_are_taken_up_while_it_runs(
    tmp_path: Path, family: Family, strangers: Family
) -> None:
    cert, key, ca = (tmp_path / name for name in ("tls.crt", "tls.key", "ca.crt"))

    def put(one: Family) -> None:
        for path, data in ((key, one.server.key), (cert, one.server.cert), (ca, one.ca)):
            path.write_bytes(data.read_bytes())

    put(family)
    files = {"tls_cert": cert, "tls_key": key, "tls_client_ca": ca}
    async with rest_collector(tmp_path, two_leaves(), **files) as collector:
        address = collector.rest_address
        assert (await ask(address, "/v1/topology", tls=tls(family, "reader/ann"))).status == 200
        put(strangers)
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                try:
                    await ask(address, "/v1/topology", tls=tls(strangers, "reader/ann"))
                    break
                except (ssl.SSLError, ConnectionError):
                    await asyncio.sleep(0.1)
        for old in (tls(family), tls(strangers, "admin/eve", signed_by=family)):
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await ask(address, "/v1/topology", tls=old)


async def test_a_certificate_is_looked_at_at_each_connection(
    tmp_path: Path, family: Family, strangers: Family, reviews: FakeReviews, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that could be resumed would outlive the CA that let it in."""
    monkeypatch.setattr("hyperscout_collector.identity.certificates._REREAD_S", 0.0)
    ca = tmp_path / "ca.pem"
    ca.write_bytes(family.ca.read_bytes())
    async with rest_collector(tmp_path, two_leaves(), family=family, reviews=reviews, tls_client_ca=ca) as it:
        host, _, port = it.rest_address.rpartition(":")
        context = tls(family, "reader/dashboard")

        def status(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
            plain = socket.create_connection((host, int(port)), timeout=60)
            with context.wrap_socket(plain, server_hostname="localhost", session=session) as connection:
                connection.sendall(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                try:
                    return connection.recv(12), connection.session
                except (ConnectionError, ssl.SSLError):
                    return b"", None

        said, session = await asyncio.to_thread(status, None)
        assert said == b"HTTP/1.1 200"
        ca.write_bytes(strangers.ca.read_bytes())
        again = session if session is not None and session.has_ticket else None
        assert (await asyncio.to_thread(status, again))[0] == b""


async def test_a_certificate_that_expires_on_a_connection_is_good_no_more(
    tmp_path: Path, family: Family, reviews: FakeReviews, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rest_collector(tmp_path, two_leaves(), family=family, reviews=reviews) as it:
        context = tls(family, "reader/dashboard")
        monkeypatch.setattr(access_module, "not_after_s", lambda _: time.time() - 1)
        refused = await ask(it.rest_address, "/v1/status", tls=context)
        assert (refused.status, "expired" in refused.json["detail"]) == (401, True)


async def test_the_body_of_an_unknown_caller_is_not_read(
    tmp_path: Path, family: Family, reviews: FakeReviews, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Megabytes of JSON from any client would cost the collector time and memory."""
    monkeypatch.setattr(app_module._Gate, "_parsed", None)
    async with rest_collector(tmp_path, two_leaves(), family=family, reviews=reviews) as it:
        refused = await ask(it.rest_address, "/v1/placements", method="POST", body={}, tls=tls(family))
        assert refused.status == 401


async def test_a_reader_that_follows_is_looked_at_again(
    tmp_path: Path, family: Family, reviews: FakeReviews, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "_RECHECK_S", 0.0)
    token = reviews.user("bob", exp=time.time() + 600)
    async with (
        rest_collector(tmp_path, two_leaves(), family=family, reviews=reviews) as collector,
        follow(collector.rest_address, headers=bearer(token), tls=tls(family)) as events,
    ):
        assert (await anext(events)).kind == "snapshot"
        reviews.rights.clear()
        collector.components.callers.reviews[""]._rights._kept.clear()
        await publish(collector, two_leaves())
        async with asyncio.timeout(TIMEOUT_S):
            last = await anext(events)
    assert (last.kind, last.problem["status"]) == ("error", 403)


async def test_a_standby_names_the_leader(tmp_path: Path, family: Family) -> None:
    settings = collector_settings(tmp_path, rest_listen="127.0.0.1:0")
    leader = ["10.0.0.9:50051"]
    async with Standby(settings, lambda: leader[0]) as standby:
        port = standby.rest_address.rpartition(":")[2]
        for one in (*EVERY, ("GET", "/", None)):
            method, path, body = one
            reply = await ask(standby.rest_address, path, method=method, body=body)
            refused(reply, 503, one)
            assert reply.json["leader"] == f"10.0.0.9:{port}"
            assert reply.headers["connection"] == "close"
        leader[0] = ""
        assert "leader" not in (await ask(standby.rest_address, "/v1/topology")).json
