"""Settings: the later source wins, and a mistake is named with the place where it was made."""

from pathlib import Path
from typing import Any

import pytest
from hyperscout_collector.app.build.inference import generation_settings
from hyperscout_collector.app.settings.settings import load_settings
from hyperscout_runtime.connections import host_port
from hyperscout_runtime.settings import SettingsError

TLS = "tls_cert: c\ntls_key: k\n"


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "collector.yaml"
    path.write_text(text)
    return path


def test_flags_over_environment_over_file_over_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path, "settle_s: 1\nhold_s: 1\nsweep_interval_s: 1\nexpected_nodes: [a, b]\n")
    environ = {
        "HYPERSCOUT_COLLECTOR_HOLD_S": "2",
        "HYPERSCOUT_COLLECTOR_SWEEP_INTERVAL_S": "2",
        "HYPERSCOUT_COLLECTOR": "x:1",
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    found = load_settings(path, {"sweep_interval_s": 3.0, "publish_file": None})
    assert (found.settle_s, found.hold_s, found.sweep_interval_s, found.hold_down_s) == (1.0, 2.0, 3.0, 10.0)
    assert found.expected_nodes == ("a", "b")


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load_settings(file(tmp_path, "# nothing\n")) == load_settings()


@pytest.mark.parametrize(("word", "wanted"), [("on", "on"), ("off", "off"), ("dry-run", "dry-run")])
def test_on_and_off_need_no_quotes(tmp_path: Path, word: str, wanted: str) -> None:
    text = f"kubernetes: publish\nnode_labels: {word}\ntaints: {word}\ngates: {word}\n"
    found = load_settings(file(tmp_path, text))
    assert (found.node_labels, found.taints, found.gates) == (wanted, wanted, wanted)
    assert load_settings(file(tmp_path, "kubernetes: off\n")).kubernetes == "off"


@pytest.mark.parametrize(
    ("text", "flags", "environ", "words"),
    [
        ("setle_s: 1", {}, {}, ["collector.yaml: setle_s: no such setting"]),
        ("settle_s: soon", {}, {}, ["collector.yaml: settle_s", "seconds without a unit"]),
        ("- a\n- b", {}, {}, ["collector.yaml", "name: value"]),
        ("a: [", {}, {}, ["collector.yaml", "line 1"]),
        ("", {"settle_s": -1.0}, {}, ["flag settle_s"]),
        (
            "",
            {},
            {"HYPERSCOUT_COLLECTOR_SETLE_S": "1"},
            ["HYPERSCOUT_COLLECTOR_SETLE_S"],
        ),
        ("", {}, {"HYPERSCOUT_COLLECTOR_SETTLE_S": "x"}, ["environment: HYPERSCOUT_COLLECTOR_SETTLE_S"]),
        (
            "",
            {},
            {"HYPERSCOUT_COLLECTOR_EXPECTED_NODES": "x"},
            ["environment", "HYPERSCOUT_COLLECTOR_EXPECTED_NODES: expected a list"],
        ),
        ("listen: 0.0.0.0:50051", {}, {}, ["insecure: true", "0.0.0.0:50051"]),
        ("listen: ''", {}, {}, ["listen"]),
        ("mtls_listen: nowhere", {}, {}, ["mtls_listen", "host:port"]),
        ("tls_cert: c", {}, {}, ["tls_cert and tls_key", "both"]),
        ("tls_issuer_cert: c", {}, {}, ["tls_issuer_cert and tls_issuer_key", "both"]),
        ("{tls_issuer_cert: c, tls_issuer_key: k}", {}, {}, ["tls_issuer_cert needs tls_cert", "tls_names"]),
        (
            "tls_names: [ä.example]",
            {},
            {},
            ["tls_names", "'ä.example': expected a DNS name"],
        ),
        ("tls_names: ['']", {}, {}, ["tls_names", "expected a DNS name or an IP address"]),
        ("lease_namespace: ../x", {}, {}, ["lease_namespace", "expected a Kubernetes name"]),
        ("gates_namespace: ../x", {}, {}, ["gates_namespace", "expected a Kubernetes name"]),
        ("tls_key: k", {}, {}, ["tls_cert and tls_key", "both"]),
        ("mtls_listen: h:1", {}, {}, ["mtls_listen needs tls_cert, tls_key and tls_client_ca"]),
        (TLS + "mtls_listen: h:1", {}, {}, ["mtls_listen needs tls_cert, tls_key and tls_client_ca"]),
        (
            TLS + "tls_client_ca: ca\nrest_listen: ''",
            {},
            {},
            ["tls_client_ca", "mtls_listen, rest_listen and estimator_listen"],
        ),
        ("tls_client_ca: ca", {}, {}, ["tls_client_ca needs tls_cert"]),
        ("estimator_cluster: a", {}, {}, ["estimator_cluster: set estimator_listen too"]),
        ("estimator_listen: 127.0.0.1:1", {}, {}, ["estimator_listen: set estimator_cluster"]),
        (
            "estimator_listen: 127.0.0.1:1\nestimator_cluster: east\nclusters: [east=kubeconfig]",
            {},
            {},
            ["estimator_cluster east: an entry of clusters has this name"],
        ),
        (
            "estimator_listen: h:1\nestimator_cluster: a",
            {},
            {},
            ["estimator_listen h:1", "every client could read what is free"],
        ),
        ("rest_listen: h:1", {}, {}, ["rest_listen h:1", "plaintext HTTP is allowed on this machine only"]),
        (TLS + "rest_listen: h:1", {}, {}, ["rest_listen h:1", "every client could change"]),
        (
            "rest_listen: h:1\nauthenticate: kubernetes",
            {},
            {},
            ["rest_listen h:1", "tokens need an encrypted connection"],
        ),
        ("listen: h:1\nauthenticate: kubernetes", {}, {}, ["need an encrypted connection", "tls_cert"]),
        ("listen: h:1\nauthenticate: kubernetes\ninsecure: true", {}, {}, ["need an encrypted connection"]),
        (TLS + "listen: h:1", {}, {}, ["every client could report", "authenticate: kubernetes"]),
        ("authenticate: ldap", {}, {}, ["authenticate"]),
        ("token_audience: ''", {}, {}, ["token_audience"]),
        ("agent_service_account: agent", {}, {}, ["agent_service_account", "namespace:name"]),
        ("agent_service_account: a:b:c", {}, {}, ["agent_service_account", "namespace:name"]),
        ("listen: nowhere", {}, {}, ["listen", "host:port"]),
        ("compute_ports: '['", {}, {}, ["compute_ports", "regular expression"]),
        ("expected_nodes: [a]\nexpected_nodes_file: x", {}, {}, ["give one of them"]),
        ("log_level: loud", {}, {}, ["log_level"]),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    flags: dict[str, Any],
    environ: dict[str, str],
    words: list[str],
) -> None:
    path = file(tmp_path, text)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings(path, flags)
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load_settings(tmp_path / "none.yaml")


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:50051", "[::1]:50051", "127.9.9.9:1"])
def test_plaintext_is_fine_on_this_machine(listen: str) -> None:
    assert load_settings(flags={"listen": listen}).listen == listen


@pytest.mark.parametrize(
    "text",
    [
        "authenticate: kubernetes",  # tokens in the clear stay on this machine
        TLS + "listen: h:1\nauthenticate: kubernetes",
        TLS + "listen: h:1\ninsecure: true",
        TLS + "listen: ''\nmtls_listen: h:1\ntls_client_ca: ca",
        TLS + "listen: 127.0.0.1:1\nmtls_listen: h:1\ntls_client_ca: ca",
        TLS + "rest_listen: h:1\ntls_client_ca: ca",
        TLS + "estimator_listen: h:1\nestimator_cluster: a\ntls_client_ca: ca",
        "estimator_listen: h:1\nclusters: [east=/x]\ninsecure: true",
        TLS + "rest_listen: h:1\nauthenticate: kubernetes",
        "rest_listen: h:1\ninsecure: true",
        TLS + "listen: h:1\nauthenticate: kubernetes\nagent_service_account: hyperscout:agent.v1",
    ],
)
def test_with_tls_and_authentication_it_may_listen_beyond_this_machine(tmp_path: Path, text: str) -> None:
    load_settings(file(tmp_path, text))


def test_plaintext_beyond_it_when_asked_for() -> None:
    assert load_settings(flags={"listen": "0.0.0.0:50051", "insecure": True}).insecure


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("h:1", ("h", 1)),
        ("[::1]:2", ("::1", 2)),
        ("::1:2", None),
        ("h", None),
        (":1", None),
        ("h:70000", None),
    ],
)
def test_addresses(address: str, expected: tuple[str, int] | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match=r"host:port|brackets"):
            host_port(address)
    else:
        assert host_port(address) == expected


@pytest.mark.parametrize(
    ("flags", "first_settle_s", "quiet_s"),
    [({}, 2.0, 60.0), ({"settle_s": 0.5, "hold_down_s": 20.0}, 0.5, 120.0)],
)
def test_times_that_follow_from_others(flags: dict[str, Any], first_settle_s: float, quiet_s: float) -> None:
    found = generation_settings(load_settings(flags=flags))
    assert (found.first_settle_s, found.damping.quiet_s) == (first_settle_s, quiet_s)
