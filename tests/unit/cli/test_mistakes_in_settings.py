"""Mistakes in settings: files, environment and flags of the agent and the collector, before they start."""

import errno
import os
from pathlib import Path

import pytest
from hyperscout_collector.app.settings.configured import inference_inputs
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_runtime.connections import why_not_listening
from hyperscout_runtime.errors import StartError
from support.command_line import CommandLine
from support.mistakes import Mistake, write_files

LISTEN = "HYPERSCOUT_COLLECTOR_LISTEN"
ROWS = [
    Mistake("collector --config nowhere", 2, "nowhere: No such file or directory", "name a YAML file"),
    Mistake(
        "collector --config folder", 2, "folder: Is a directory", "name a YAML file of settings (--config)"
    ),
    Mistake("collector --config bad.yaml", 2, "bad.yaml: line 3: not YAML", "expected `name: value` lines"),
    Mistake("collector --config binary.yaml", 2, "binary.yaml: line 2: not YAML", "a text file in UTF-8"),
    Mistake("collector --config binary.bin", 2, "binary.bin: line 1: not YAML", "a text file in UTF-8"),
    Mistake("collector --config list.yaml", 2, "list.yaml: expected `name: value` lines", "found a list"),
    Mistake(
        "collector --config typo.yaml", 2, "typo.yaml: setle_s: no such setting", "did you mean 'settle_s'?"
    ),
    Mistake(
        "collector --config unit.yaml",
        2,
        "settle_s: expected seconds without a unit",
        "such as 10, found '10s'",
    ),
    Mistake("collector --config low.yaml", 2, "evidence_max_mib: expected at least 1", "found 0"),
    Mistake("collector --config word.yaml", 2, "log_level: expected 'debug', 'info'", "found 'verbose'"),
    Mistake("collector --config yes.yaml", 2, "insecure: expected true or false", "found 'perhaps'"),
    Mistake("collector --settle-s 10s", 2, "flag settle_s: expected seconds without a unit", "such as 10"),
    Mistake("collector --setle-s 10", 2, "--setle-s", "--settle-s"),
    Mistake(
        "collector", 2, "LISTN: no such setting", f"did you mean '{LISTEN}'?", env={f"{LISTEN[:-2]}N": "x"}
    ),
    Mistake(
        "collector",
        2,
        "HYPERSCOUT_COLLECTOR_REST_HOSTS: not JSON",
        'expected a list such as ["a", "b"]',
        env={"HYPERSCOUT_COLLECTOR_REST_HOSTS": "["},
    ),
    Mistake("collector", 2, "LISTEN: 'c': expected host:port", "such as 127.0.0.1:50051", env={LISTEN: "c"}),
    Mistake("collector --rest-listen http://c:1", 2, "rest_listen: ", "host:port without http://"),
    Mistake(
        "collector --rest-listen 0.0.0.0:1",
        2,
        "plaintext HTTP is allowed on this machine only",
        "insecure: true",
    ),
    Mistake(
        "collector --listen 0.0.0.0:1", 2, "plaintext gRPC is allowed on this machine only", "give tls_cert"
    ),
    Mistake("collector --tls-cert x", 2, "tls_cert and tls_key", "give both or neither"),
    Mistake("collector --dry-run --kubernetes publish", 2, "--dry-run and --kubernetes", "give one of them"),
    Mistake("collector --compute-ports (", 2, "compute_ports: expected a regular expression", "unterminated"),
    Mistake("collector serve", 2, "unexpected argument 'serve'", "`hyperscout collector --help`"),
    Mistake("agent --config group.yaml", 2, "lldp.sorce: no such setting", "did you mean 'lldp.source'?"),
    Mistake("agent --config flat.yaml", 2, "lldp: expected a group of settings", "`name: value` lines"),
    Mistake("agent --config role.yaml", 2, "role: expected 'node', 'switch' or 'fabric'", "found 'swich'"),
    Mistake("agent --collector http://c:50080", 2, "without http://", "50080 is REST's"),
    Mistake("agent --collector 10.9.8.7:1", 2, "the stream is not encrypted", "tls_ca"),
    Mistake("agent --metrics-port x", 2, "metrics.port: expected a whole number", "found 'x'"),
    Mistake(
        "agent",
        2,
        "HYPERSCOUT_AGENT_LLDP__SORCE",
        "did you mean",
        env={"HYPERSCOUT_AGENT_LLDP__SORCE": "auto"},
    ),
]


@pytest.mark.parametrize("mistake", ROWS, ids=lambda x: " ".join([x.arguments, *x.env]))
def test_a_setting_is_named_with_its_next_step(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: Mistake
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    for name, value in mistake.env.items():
        monkeypatch.setenv(name, value)
    mistake.check(run(*mistake.arguments.split()))


@pytest.mark.parametrize(
    ("setting", "host", "code", "words"),
    [
        (
            "listen",
            "127.0.0.1",
            errno.EADDRINUSE,
            "listen: port 50051 of 127.0.0.1 is in use: end the process",
        ),
        ("metrics.port", "::1", errno.EADDRINUSE, "or set metrics.port to another port"),
        ("http_listen", "::1", errno.EACCES, "http_listen: [::1]:50051: this user may not listen"),
        ("rest_listen", "10.0.0.1", errno.EADDRNOTAVAIL, "set rest_listen to an address of this machine"),
    ],
)
def test_a_port_that_cannot_be_used_is_named_with_its_setting(
    setting: str, host: str, code: int, words: str
) -> None:
    assert words in why_not_listening(setting, host, 50051, OSError(code, os.strerror(code)))


@pytest.mark.parametrize(
    ("setting", "file", "words"),
    [
        ("node_map", "nowhere", "node_map: nowhere: No such file or directory: name a file that"),
        ("expected_nodes_file", "folder", "expected_nodes_file: folder: Is a directory: name a file that"),
        ("expected_nodes_file", "binary.bin", "expected_nodes_file: binary.bin"),
    ],
)
def test_a_file_of_a_setting_is_named_with_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, file: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    with pytest.raises(StartError) as caught:
        inference_inputs(CollectorSettings(**{setting: Path(file)}))
    assert str(caught.value).startswith(words)
