"""The command line and a collector that authenticates callers: flags, variables, and advice on a refusal."""

import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from hyperscout_formats.text.leader import refusal
from support.command_line import CommandLine
from support.identities import Family
from support.topologies import two_leaves
from support.topology_service import FakeTopologyService


class Doorman(grpc.ServerInterceptor):
    """Remembers what was shown, and refuses callers without good credentials."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.refuse: tuple[grpc.StatusCode, str] | None = None
        self.leader = ""  # set: this is a standby

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        self.shown.append(dict(details.invocation_metadata).get("authorization", ""))
        if self.leader:
            return grpc.unary_unary_rpc_method_handler(self._stand_by)
        if self.refuse is None:
            return continuation(details)
        code, words = self.refuse
        return grpc.unary_unary_rpc_method_handler(lambda request, context: context.abort(code, words))

    def _stand_by(self, request: Any, context: Any) -> None:
        words, metadata = refusal(self.leader)
        context.set_trailing_metadata(metadata)
        context.abort(grpc.StatusCode.UNAVAILABLE, words)


@contextmanager
def plaintext_standby(leader: str) -> Iterator[str]:
    doorman = Doorman()
    doorman.leader = leader
    server = grpc.server(futures.ThreadPoolExecutor(2), interceptors=(doorman,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait(10)


@pytest.fixture
def doorman() -> Doorman:
    return Doorman()


@contextmanager
def serving(family: Family, doorman: Doorman, *, mutual: bool = False, name: str = "") -> Iterator[str]:
    from hyperscout.v1.topology_pb2_grpc import add_TopologyServiceServicer_to_server

    pair = family.pair(f"DNS:{name}") if name else family.server
    credentials = grpc.ssl_server_credentials(
        [(pair.key.read_bytes(), pair.cert.read_bytes())], family.ca.read_bytes(), mutual
    )
    server = grpc.server(futures.ThreadPoolExecutor(2), interceptors=(doorman,))
    add_TopologyServiceServicer_to_server(FakeTopologyService(topology=two_leaves()), server)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        stopped: threading.Event = server.stop(None)
        stopped.wait(10)


def test_a_token_from_a_file_or_the_environment_over_tls(
    run: CommandLine, family: Family, doorman: Doorman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("from.a.file\n")
    with serving(family, doorman) as address:
        monkeypatch.setenv("HYPERSCOUT_COLLECTOR", address)
        assert run("get", "hn", "--tls-ca", family.ca, "--token-file", file).code == 0
        monkeypatch.setenv("HYPERSCOUT_TLS_CA", str(family.ca))
        monkeypatch.setenv("HYPERSCOUT_TOKEN", "from.the.environment\n")
        assert run("get", "hn").code == 0
        monkeypatch.setenv("HYPERSCOUT_TOKEN_FILE", str(file))
        assert run("status").code == 0
    assert doorman.shown == [
        "Bearer from.a.file",
        "Bearer from.the.environment",
        "Bearer from.a.file",
        "Bearer from.a.file",
    ]


def test_a_client_certificate(run: CommandLine, family: Family, doorman: Doorman) -> None:
    mine = family.client("reader/ann")
    shown = ("--tls-cert", mine.cert, "--tls-key", mine.key)
    with serving(family, doorman, mutual=True) as address:
        common = ("get", "hn", "--collector", address, "--tls-ca", family.ca)
        assert run(*common, *shown).code == 0
        ran = run(*common)
        assert (
            ran.code,
            "if it requires a client certificate, give --tls-cert and --tls-key" in ran.err,
        ) == (
            1,
            True,
        )


def test_a_name_that_is_not_the_address(run: CommandLine, family: Family, doorman: Doorman) -> None:
    with serving(family, doorman, name="collector.hyperscout.svc") as address:
        common = ("get", "hn", "--collector", address, "--tls-ca", family.ca)
        ran = run(*common)
        assert ran.code == 1
        assert "its certificate is for another name: set the expected name (--tls-server-name)" in ran.err
        assert run(*common, "--tls-server-name", "collector.hyperscout.svc").code == 0


def test_a_port_without_tls(run: CommandLine, family: Family) -> None:
    with plaintext_standby("127.0.0.1:1") as address:
        ran = run("status", "--collector", address, "--tls-ca", family.ca)
    assert (ran.code, "does not use TLS on this port: leave out --tls-ca" in ran.err) == (1, True)


def test_a_collector_that_others_vouch_for(
    run: CommandLine, family: Family, doorman: Doorman, tmp_path: Path
) -> None:
    with serving(family, doorman) as address:
        ran = run("status", "--collector", address, "--tls-ca", Family(tmp_path).ca)
        assert (ran.code, "not signed by the CA that was given (--tls-ca)" in ran.err) == (1, True)
        ran = run("status", "--collector", address)
        assert (ran.code, "It closed the connection: if it uses TLS, give --tls-ca" in ran.err) == (1, True)


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (
            (grpc.StatusCode.UNAUTHENTICATED, "no credentials: send TOKEN"),
            "no credentials: send TOKEN (give a token with --token-file FILE or in HYPERSCOUT_TOKEN)",
        ),
        (
            (grpc.StatusCode.PERMISSION_DENIED, "ann may not get hypernodes"),
            "error: ann may not get hypernodes",
        ),
        (
            (grpc.StatusCode.UNAVAILABLE, "cannot check credentials: the request failed"),
            "cannot check credentials",
        ),
    ],
)
def test_refusals(run: CommandLine, family: Family, doorman: Doorman, refusal: Any, words: str) -> None:
    doorman.refuse = refusal
    with serving(family, doorman) as address:
        ran = run("get", "hn", "--collector", address, "--tls-ca", family.ca)
    assert ran.code == 1
    assert words in ran.err


def test_a_standby_s_word_about_the_leader_is_followed(
    run: CommandLine, family: Family, doorman: Doorman, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    standby = Doorman()
    common = ("--tls-ca", family.ca, "--token-file", token)
    with serving(family, doorman) as leader, serving(family, standby) as address:
        standby.leader = leader
        for command in (("get", "hn"), ("tree",), ("status",)):
            assert run(*command, "--collector", address, *common).code == 0
        assert doorman.shown
        standby.leader = "127.0.0.1:1"
        ran = run("get", "hn", "--collector", address, *common)
        assert (ran.code, "cannot reach the collector at 127.0.0.1:1" in ran.err) == (1, True)
        standby.leader = address  # it says that it leads itself, and does not
        standby.shown.clear()
        ran = run("get", "hn", "--collector", address, *common)
        assert (ran.code, "standby" in ran.err) == (1, True)
        assert len(standby.shown) == 1


def test_two_standbys_that_point_at_each_other(run: CommandLine, family: Family) -> None:
    one, other = Doorman(), Doorman()
    with serving(family, one) as first, serving(family, other) as second:
        one.leader, other.leader = second, first
        ran = run("get", "hn", "--collector", first, "--tls-ca", family.ca)
    assert (ran.code, "standby" in ran.err) == (1, True)
    assert len(one.shown) + len(other.shown) == 4


def test_no_standby_can_lead_a_caller_out_of_tls(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    with plaintext_standby("10.0.0.1:50051") as address:
        ran = run("get", "hn", "--collector", address)
    assert (ran.code, "'10.0.0.1:50051' is not on this machine" in ran.err) == (1, True)


def test_no_standby_gets_a_token_out_in_the_clear(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As through a tunnel that ends on this machine, where a token needs no TLS."""
    monkeypatch.setenv("HYPERSCOUT_TOKEN", "secret")
    with plaintext_standby("192.0.2.1:50051") as address:
        ran = run("get", "hn", "--collector", address, "--insecure", "--timeout", "1s")
    assert (ran.code, "never sent in the clear" in ran.err) == (1, True)


@pytest.mark.parametrize(
    ("flags", "environment", "words"),
    [
        (["--collector", "c:1"], {}, "--insecure"),
        ([], {"HYPERSCOUT_COLLECTOR": "c:1"}, "(--tls-ca)"),
        (["--collector", "c:1", "--insecure", "--token-file", "t"], {}, "never sent in the clear"),
        (["--collector", "c:1"], {"HYPERSCOUT_TOKEN": "t", "HYPERSCOUT_INSECURE": "1"}, "in the clear"),
        (["--tls-cert", "c"], {}, "--tls-cert and --tls-key: give both"),
        (["--tls-cert", "c", "--tls-key", "k"], {}, "need --tls-ca"),
        (["--tls-server-name", "n"], {}, "need --tls-ca"),
        (["--collector", "nonsense"], {}, "expected host:port"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(
    run: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    environment: dict[str, str],
    words: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ran = run("get", "hn", *flags)
    assert ran.code == 2
    assert words in ran.err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--tls-ca", "nowhere"], "nowhere: No such file"),
        (["--token-file", "nowhere"], "nowhere: No such file"),
    ],
)
def test_files_that_cannot_be_read(run: CommandLine, flags: list[str], words: str) -> None:
    ran = run("get", "hn", *flags)
    assert (ran.code, words in ran.err) == (2, True)


def test_a_token_that_is_none_is_not_repeated(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERSCOUT_TOKEN", "my secret words")
    ran = run("get", "hn")
    expected = "error: HYPERSCOUT_TOKEN: not a token: expected one word of ASCII characters\n"
    assert (ran.code, ran.err) == (2, expected)


def test_a_saved_topology_needs_no_authentication(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import json

    from hyperscout_topology.objects import to_json

    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(to_json(two_leaves())))
    monkeypatch.setenv("HYPERSCOUT_COLLECTOR", "elsewhere:1")
    assert run("tree", "--topology", saved).code == 0
