"""Settings from file, environment and flags, and every way to get them wrong."""

from pathlib import Path

import pytest
from hyperscout_agent.settings.settings import AgentSettings, load_settings
from hyperscout_runtime.settings import SettingsError, fields_of


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("HYPERSCOUT_AGENT_"):
            monkeypatch.delenv(name)


def written(folder: Path, text: str) -> Path:
    file = folder / "agent.yaml"
    file.write_text(text)
    return file


def test_defaults_need_nothing() -> None:
    settings = load_settings()
    assert settings.collectors == ("127.0.0.1:50051",)
    assert settings.metrics.host == "127.0.0.1"
    assert settings.node


def test_flags_before_environment_before_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "node: file\nrefresh_interval_s: 30\nlldp: {interval_s: 5, source: listener}\n")
    monkeypatch.setenv("HYPERSCOUT_AGENT_NODE", "environment")
    monkeypatch.setenv("HYPERSCOUT_AGENT_LLDP__INTERVAL_S", "6")
    monkeypatch.setenv("HYPERSCOUT_AGENT_COLLECTORS", "127.0.0.1:1, 127.0.0.1:2")
    monkeypatch.setenv("HYPERSCOUT_AGENT_IBNETDISCOVER__COMMAND", "sudo -n ibnetdiscover")
    settings = load_settings(file, {"node": "flag"})
    assert settings.node == "flag"
    assert settings.lldp.interval_s == 6
    assert settings.lldp.source == "listener"
    assert settings.refresh_interval_s == 30
    assert settings.collectors == ("127.0.0.1:1", "127.0.0.1:2")
    assert settings.ibnetdiscover.command == ("sudo", "-n", "ibnetdiscover")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("nod: a", "nod: no such setting", id="unknown key"),
        pytest.param("lldp: {intervall_s: 5}", "lldp.intervall_s: no such setting", id="unknown nested key"),
        pytest.param("lldp: {interval_s: soon}", "lldp.interval_s: ", id="not a number"),
        pytest.param("ibnetdiscover: {timeout_s: 0}", "ibnetdiscover.timeout_s: ", id="out of range"),
        pytest.param("lldp: {source: cdp}", "lldp.source: ", id="not one of the choices"),
        pytest.param("lldp: {ports: '('}", "lldp.ports: expected a regular expression", id="not a pattern"),
        pytest.param("lldp: 5", "lldp: ", id="not a group"),
        pytest.param("collectors: []", "collectors: ", id="no collector"),
        pytest.param("collectors: ['collector:50051']", "insecure: true", id="plaintext to elsewhere"),
        pytest.param(
            "collectors: ['c:1']\ntoken_file: t\ninsecure: true",
            "never sent in the clear",
            id="bare token",
        ),
        pytest.param("tls_ca: ca\ntls_cert: c", "tls_key: give both", id="certificate without key"),
        pytest.param("tls_cert: c\ntls_key: k", "give tls_ca too", id="certificate without TLS"),
        pytest.param("tls_server_name: x", "give tls_ca too", id="name without TLS"),
        pytest.param("collectors: [nonsense]", "expected host:port", id="not an address"),
        pytest.param("node: switch/leaf-1", "node: 'switch/leaf-1' has a slash", id="a name with a slash"),
        pytest.param("cluster: fabric", "cluster: 'fabric': expected a DNS label", id="no name of a cluster"),
        pytest.param("cluster: a/b", "cluster: 'a/b': expected a DNS label", id="a cluster with a slash"),
        pytest.param(
            "cluster: east\nnode: " + "x" * 249, "node: .* at most 248 characters with cluster", id="too long"
        ),
        pytest.param("cluster: east\nrole: switch", "cluster: has no effect", id="switch of a cluster"),
        pytest.param("role: spine", "role: ", id="no such role"),
        pytest.param("role: switch\nnode: " + "x" * 247, "node: .* at most 246", id="too long for a switch"),
        pytest.param("role: switch\nlldp: {enabled: false}", "lldp.enabled: ", id="switch without LLDP"),
        pytest.param("role: switch\nlldp: {source: listener}", "lldp.source: ", id="switch that listens"),
        pytest.param("role: switch\nlldp: {lldpctl_command: x}", "lldpcli_command too", id="no lldpcli"),
        pytest.param("role: switch\nlatency: {port: 5}", "latency: has no effect", id="switch that pings"),
        pytest.param("role: switch\nnccl: {enabled: true}", "nccl: has no effect", id="switch with GPUs"),
        pytest.param("role: switch\ntls_ca: ca\ntoken_file: t", "token_file: ", id="switch with a token"),
        pytest.param("- a\n- b", "expected `name: value`", id="a list"),
        pytest.param("a: [", "not YAML", id="not YAML"),
        pytest.param("a: !!python/object/apply:os.getcwd []", "not YAML", id="code"),
        pytest.param("x" * 1_100_000, "larger than", id="too large"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        load_settings(written(tmp_path, text))


def test_a_node_of_a_cluster_reports_under_both_names(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, "cluster: east\nnode: gpu-01"))
    assert (settings.node, settings.reporter) == ("gpu-01", "east/gpu-01")


def test_every_complaint_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as error:
        load_settings(written(tmp_path, "nod: a\nlldp: {sources: x}"))
    assert {line.split(": ")[1] for line in str(error.value).splitlines()} == {"nod", "lldp.sources"}


def test_an_empty_file_and_a_missing_one(tmp_path: Path) -> None:
    load_settings(written(tmp_path, "# nothing is set\n"))
    with pytest.raises(SettingsError, match="No such file"):
        load_settings(tmp_path / "nowhere.yaml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="not YAML"):
        load_settings(tmp_path / "binary")


@pytest.mark.parametrize("name", ["HYPERSCOUT_AGENT_NOD", "HYPERSCOUT_AGENT_LLDP__SOURCES"])
def test_misspelt_variables(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(SettingsError, match="no such setting"):
        load_settings()


def test_insecure_is_a_decision(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, "collectors: ['collector:50051']\ninsecure: true"))
    assert settings.collectors == ("collector:50051",)


@pytest.mark.parametrize(
    "text",
    [
        "collectors: ['c:1']\ntls_ca: ca",
        "collectors: ['c:1']\ntls_ca: ca\ntoken_file: t",
        "collectors: ['c:1']\ntls_ca: ca\ntls_cert: c\ntls_key: k\ntls_server_name: x",
        "collectors: ['127.0.0.1:1']\ntoken_file: t",
        "collectors: ['unix:/run/c.sock']\ntoken_file: t",
    ],
)
def test_with_tls_or_on_this_machine_nothing_is_insecure(tmp_path: Path, text: str) -> None:
    assert load_settings(written(tmp_path, text)).credentials.insecure is False


def test_a_switch_reports_under_a_name_that_no_node_can_have(tmp_path: Path) -> None:
    text = "node: leaf-1\nrole: switch\nnvlink: {enabled: false}\nlldp: {lldpctl_command: [lldpctl, -u, s]}"
    settings = load_settings(written(tmp_path, text))
    assert settings.reporter == "switch/leaf-1"
    assert settings.lldpcli == ("lldpcli", "-u", "s")
    assert load_settings(written(tmp_path, "node: leaf-1")).reporter == "leaf-1"
    own = written(tmp_path, "role: switch\nlldp: {lldpctl_command: x, lldpcli_command: y z}")
    assert load_settings(own).lldpcli == ("y", "z")


def test_every_setting_says_what_for() -> None:
    assert [name for name, field in fields_of(AgentSettings) if not field.description] == []
