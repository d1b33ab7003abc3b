"""Probes that ask managers, against servers that answer as documented, and servers that do not."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from zlib import decompress

import pytest
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_agent.findings.probe import Observation, Probe, ProbeError
from hyperscout_agent.managers.client import ManagerConnection, ManagerError
from hyperscout_agent.probes.netq import NetqProbe
from hyperscout_agent.probes.nmx import NmxProbe
from hyperscout_agent.probes.ufm import UfmProbe
from hyperscout_agent.settings.manager_settings import (
    ManagerSettings,
    NetqSettings,
    NmxSettings,
    UfmSettings,
)
from hyperscout_formats.facts.wire import switch_table_from_proto
from hyperscout_formats.infiniband import ibnetdiscover
from hyperscout_formats.managers import nmx
from hyperscout_sim.fabric.shapes import clos2
from hyperscout_sim.readings.netq import netq_graph
from hyperscout_sim.readings.ufm import ufm_answers
from kube.pki import LOOPBACK, Authority
from pydantic import ValidationError
from support import managers
from support.managers import CHOSEN, PASSWORD, TOKEN, Manager, credentials, serving
from support.real import require_real
from support.waiting import TIMEOUT_S

FABRIC = clos2(2, 3, 2)
NODES = [
    {"ID": "n1", "Name": "tray-01", "DomainUUID": "D-1", "GpuIDList": ["g2", "g1"], "UpdatedAt": "now"},
    {"ID": "n2", "Name": "tray-02", "DomainUUID": "D-1", "GpuIDList": ["g3"], "UpdatedAt": "now"},
]
GPUS = [
    {"ID": "g1", "DeviceID": 1, "DomainUUID": "D-1", "PartitionID": 7, "Health": "HEALTHY"},
    {"ID": "g2", "DeviceID": 2, "DomainUUID": "D-1", "PartitionID": 7, "Health": "UNHEALTHY"},
    {"ID": "g3", "DeviceID": 1, "DomainUUID": "D-1", "PartitionID": "7", "Health": "HEALTHY"},
]
PROBES: dict[str, tuple[Callable[[], Manager], type[ManagerSettings], Callable[[Any], Probe]]] = {
    "ufm": (lambda: managers.ufm(ufm_answers(FABRIC)), UfmSettings, UfmProbe),
    "netq": (
        lambda: Manager(premises={7: "hall-1"}, graphs={7: netq_graph(FABRIC)}),
        NetqSettings,
        NetqProbe,
    ),
    "nmx": (lambda: managers.nmx(NODES, GPUS), NmxSettings, NmxProbe),
}


def settings(kind: type[ManagerSettings], manager: Manager, folder: Path, **more: Any) -> Any:
    return kind(**{"url": manager.url, "credentials": credentials(folder / "secret"), **more})


async def look(name: str, manager: Manager, folder: Path, **more: Any) -> Observation:
    _, kind, probe = PROBES[name]
    return await probe(settings(kind, manager, folder, **more)).observe()


async def test_a_ufm_becomes_a_sweep(tmp_path: Path) -> None:
    with serving(PROBES["ufm"][0]()) as manager:
        seen = await look("ufm", manager, tmp_path)
    ((subject, sample),) = seen.samples.items()
    assert subject == manager.url.removeprefix("http://")
    assert sample.outcome == Outcome.OUTCOME_DATA
    (bulk,) = seen.bulks
    assert (sample.payload.format, sample.payload.sha256, sample.payload.partial) == (
        "ufm",
        bulk.sha256,
        False,
    )
    sweep = ibnetdiscover.parse(decompress(bulk.compressed))
    assert len(sweep.line) == 2 * len(FABRIC.cables)
    assert [path.rpartition("/")[2] for _, path in manager.requests] == ["ports", "links", "systems"]


async def test_a_ufm_that_has_just_started_is_partial_until_it_says_so_again(tmp_path: Path) -> None:
    whole, part = ufm_answers(FABRIC), ufm_answers(clos2(1, 3, 1))
    with serving(managers.ufm(whole)) as manager:
        probe = UfmProbe(settings(UfmSettings, manager, tmp_path))

        async def partial(answers: dict[str, Any]) -> bool:
            manager.answers = managers.ufm(answers).answers
            (sample,) = (await probe.observe()).samples.values()
            assert sample.payload.partial == bool(sample.payload.partial_reason) == bool(sample.reason)
            return sample.payload.partial

        assert [await partial(x) for x in (whole, part, whole, part, part, whole)] == [
            False,
            True,
            False,
            True,
            False,
            False,
        ]


async def test_netq_becomes_tables(tmp_path: Path) -> None:
    other = clos2(1, 1, 1)
    hall = Manager(premises={7: "hall-1", 8: "hall-2"}, graphs={7: netq_graph(FABRIC), 8: netq_graph(other)})
    with serving(hall) as manager:
        everything = await look("netq", manager, tmp_path)
        assert set(everything.samples) == {x.name for x in FABRIC.switches} | {x.name for x in other.switches}
        assert "is in several premises" in everything.trouble
        seen = await look("netq", manager, tmp_path, premises=["hall-1"])
        assert seen.trouble == ""
        with pytest.raises(ProbeError, match="has no premises attic"):
            await look("netq", manager, tmp_path, premises=["attic"])
    assert set(seen.samples) == {x.name for x in FABRIC.switches}
    table = switch_table_from_proto(seen.samples[FABRIC.switches[0].name].payload)
    assert {len(port.neighbours) for port in table.ports} == {1}
    assert sum(len(t.payload.ports) for t in seen.samples.values()) == sum(
        2 if cable.a in {x.guid for x in FABRIC.switches} else 1 for cable in FABRIC.cables
    )


async def test_nmx_becomes_a_text_that_changes_with_the_domains_alone(tmp_path: Path) -> None:
    with serving(managers.nmx(NODES, GPUS)) as manager:
        (bulk,) = (await look("nmx", manager, tmp_path)).bulks
        manager.answers["/nmx/v1/compute-nodes"] = [
            NODES[1] | {"UpdatedAt": "later"},
            NODES[0] | {"GpuIDList": ["g1", "g2"]},
        ]
        seen = await look("nmx", manager, tmp_path)
    assert seen.bulks[0].sha256 == bulk.sha256
    ((sample),) = seen.samples.values()
    assert sample.payload.format == "nmx"
    found = nmx.parse(decompress(bulk.compressed))
    assert {name: [gpu.fabric.clique_id for gpu in gpus] for name, gpus in found.gpus.items()} == {
        "tray-01": [7, 7],
        "tray-02": [7],
    }
    assert [gpu.fabric.health for gpu in found.gpus["tray-01"]] == [(), ("unhealthy",)]


@pytest.mark.parametrize("name", PROBES)
async def test_over_tls_with_its_own_ca(name: str, tmp_path: Path) -> None:
    require_real("openssl")
    ours, theirs = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    with serving(PROBES[name][0](), ours.issue("server", "/CN=manager", san=LOOPBACK)) as manager:
        assert (await look(name, manager, tmp_path, ca=ours.cert)).samples
        with pytest.raises(ProbeError, match=r"its certificate: .* \(ca: .*b/ca.crt\)"):
            await look(name, manager, tmp_path, ca=theirs.cert)
        with pytest.raises(ProbeError, match=r"its certificate: .*the system's CAs"):
            await look(name, manager, tmp_path)
        with pytest.raises(ProbeError, match=r"ca: .*missing.crt: No such file"):
            await look(name, manager, tmp_path, ca=tmp_path / "missing.crt")
        with pytest.raises(ProbeError, match="no certificates in PEM"):
            await look(name, manager, tmp_path, ca=credentials(tmp_path / "x") / "username")
        plain = Manager(url=manager.url.replace("https", "http"))
        with pytest.raises(ProbeError):
            await look(name, plain, tmp_path)
    stranger, pair = PROBES[name][0](), ours.issue("other", "/CN=manager", san="DNS:elsewhere")
    with serving(stranger, pair), pytest.raises(ProbeError, match=r"its certificate: Hostname mismatch"):
        await look(name, stranger, tmp_path, ca=ours.cert)


def junk(text: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda request: request.wfile.write(text) and None


def answer(
    text: bytes, *, length: int | None = None, status: int = 200
) -> Callable[[BaseHTTPRequestHandler], None]:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(text) if length is None else length}\r\n\r\n"
    return junk(head.encode() + text)


def endless(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n[")
    while True:
        request.wfile.write(b" " * 100_000)


ENDLESS_HEAD = b"HTTP/1.1 200 OK\r\n" + b"X-Head: y\r\n" * 1000


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize(
    ("says", "words"),
    [
        (answer(b""), "JSON|object"),
        (answer(b"[{]"), "JSON|object"),
        (answer(b"<html>maintenance</html>"), "JSON|object"),
        (answer(b"\xff\xfe"), "JSON|object|UTF-8"),
        (answer(b"[" * 100_000), "JSON|object"),
        (answer(b'{"a":' * 100_000), "JSON|object"),
        (answer(b"[", length=9), r"cut off|IncompleteRead|not valid HTTP"),
        (answer(b"", status=302), "redirects are not followed"),
        (answer(b"", status=401), "rejected the user name and password in"),
        (answer(b"", status=500), "500 Internal Server Error"),
        (junk(b""), "not valid HTTP|RemoteDisconnected|closed"),
        (junk(b"SSH-2.0-OpenSSH_9.2\r\n"), "not valid HTTP"),
        (junk(ENDLESS_HEAD), "not valid HTTP"),
        (endless, "more than 1048576 bytes|too long"),
    ],
    ids=[
        *("empty", "broken", "html", "no-utf8", "brackets", "braces", "cut", "elsewhere", "refused"),
        *("error", "nothing", "ssh", "headers", "endless"),
    ],
)
async def test_answers_that_break_the_protocol(
    name: str,
    says: Callable[[BaseHTTPRequestHandler], None],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PROBES[name][2], "max_answer_bytes", 1 << 20)
    opened: list[socket.socket] = []
    connect = socket.create_connection

    def recorded(*args: Any, **options: Any) -> socket.socket:
        opened.append(connect(*args, **options))
        return opened[-1]

    monkeypatch.setattr(socket, "create_connection", recorded)
    with serving(Manager(says=says)) as manager, pytest.raises(ProbeError, match=words) as refused:
        await look(name, manager, tmp_path)
    assert PASSWORD not in str(refused.value)
    assert opened
    assert {one.fileno() for one in opened} == {-1}  # closed while `refused` holds the frames of the probe


@pytest.mark.parametrize("name", PROBES)
async def test_one_that_hangs_costs_the_time_that_is_set(name: str, tmp_path: Path) -> None:
    hung = Manager(says=lambda request: request.rfile.read(1) and None)
    with serving(hung), pytest.raises(ProbeError, match=r"no complete answer in 0.3 s \(timeout_s\)"):
        await look(name, hung, tmp_path, timeout_s=0.3)


def test_an_abandoned_answer_without_a_length_ends_its_connection(tmp_path: Path) -> None:
    gone = threading.Event()

    def hang(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n[")
        request.rfile.read(1)  # until the client goes away
        gone.set()

    with serving(Manager(says=hang)) as manager:
        connection = ManagerConnection(settings(UfmSettings, manager, tmp_path), 1 << 30)
        answer = connection.get("/ufmRest/resources/links", {})
        assert next(answer) == b"["
        connection.abandon()
        assert gone.wait(TIMEOUT_S)
        connection.close()


async def test_a_look_that_is_cancelled_leaves_no_thread_waiting(tmp_path: Path) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(request: BaseHTTPRequestHandler) -> None:
        loop.call_soon_threadsafe(asked.set)
        request.rfile.read(1)  # until the client goes away
        loop.call_soon_threadsafe(gone.set)

    with serving(Manager(says=hang)) as manager:
        looking = asyncio.create_task(look("ufm", manager, tmp_path, timeout_s=600))
        async with asyncio.timeout(TIMEOUT_S):
            await asked.wait()
            looking.cancel()
            await gone.wait()
    with pytest.raises(asyncio.CancelledError):
        await looking


@pytest.mark.parametrize("name", PROBES)
async def test_wrong_credentials(name: str, tmp_path: Path) -> None:
    with serving(PROBES[name][0]()) as manager:
        wrong = credentials(tmp_path / "wrong", password="another-s3cret")
        with pytest.raises(
            ProbeError, match=r"401: the manager rejected the user name and password in .*wrong"
        ) as no:
            await look(name, manager, tmp_path, credentials=wrong)
        (wrong / "password").unlink()
        with pytest.raises(ProbeError, match="password: No such file"):
            await look(name, manager, tmp_path, credentials=wrong)
        (wrong / "password").write_bytes(b"\xff")
        with pytest.raises(ProbeError, match="expected one line"):
            await look(name, manager, tmp_path, credentials=wrong)
        credentials(wrong)  # put right: read anew
        assert (await look(name, manager, tmp_path, credentials=wrong)).samples
    assert "another" not in str(no.value)


@pytest.mark.parametrize("name", PROBES)
async def test_nothing_that_goes_out_holds_a_secret(name: str, tmp_path: Path) -> None:
    with serving(PROBES[name][0]()) as manager:
        seen = await look(name, manager, tmp_path)
    shown = repr(seen) + repr(settings(PROBES[name][1], manager, tmp_path))
    shown += "".join(decompress(bulk.compressed).decode() for bulk in seen.bulks)
    assert not [secret for secret in (PASSWORD, TOKEN, CHOSEN) if secret in shown]


@pytest.mark.parametrize("token", [None, "", 7, "two\nlines", "ünicode"])
async def test_a_token_that_is_none(token: object, tmp_path: Path) -> None:
    said = json.dumps({"access_token": token, "premises": []}).encode()
    with serving(Manager(says=answer(said))) as manager, pytest.raises(ProbeError, match="no access token"):
        await look("netq", manager, tmp_path)


async def test_no_manager_listens(tmp_path: Path) -> None:
    with serving(Manager()) as manager:
        pass
    with pytest.raises(ProbeError, match="Connection refused"):
        await look("nmx", manager, tmp_path)


def test_the_clock_is_for_the_whole_look(tmp_path: Path) -> None:
    now = [0.0]
    with serving(PROBES["ufm"][0]()) as manager:
        connection = ManagerConnection(
            settings(UfmSettings, manager, tmp_path, timeout_s=60), 1 << 30, lambda: now[0]
        )
        headers = connection.basic()
        assert b"".join(connection.get("/ufmRest/resources/links", headers))
        now[0] = 61.0
        with pytest.raises(ManagerError, match="timeout_s"):
            next(connection.get("/ufmRest/resources/links", headers))


@pytest.mark.parametrize(
    "url",
    [
        "http://ufm.example",
        "ufm.example",
        "https://",
        "https://user:pw@ufm.example",
        "https://ufm.example:port",
        "https://ufm.example?x=1",
        "ftp://127.0.0.1",
        "http://127.0.0.1.example",
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(ValidationError) as refused:
        UfmSettings(url=url, credentials=Path("/x"))
    assert "expected https" in str(refused.value)


@pytest.mark.parametrize(
    "url", ["https://ufm.example", "https://[2001:db8::1]:8443/base/", "http://[::1]:8000"]
)
def test_urls_that_are_taken(url: str) -> None:
    assert UfmSettings(url=url, credentials=Path("/x")).on
    assert not UfmSettings().on
    with pytest.raises(ValidationError, match="credentials"):
        UfmSettings(url=url)


def test_an_abandoned_connection_sends_no_request(tmp_path: Path) -> None:
    with serving(PROBES["ufm"][0]()) as manager:
        connection = ManagerConnection(settings(UfmSettings, manager, tmp_path), 1 << 30)
        connection.abandon()
        with pytest.raises(ManagerError):
            next(connection.get("/ufmRest/resources/links", {}))
    assert not manager.requests
