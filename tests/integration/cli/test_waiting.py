"""`status --wait` and `--for` on the command line: exit codes, output and errors."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from support.command_line import CommandLine
from support.topology_service import FakeTopologyService


def test_status_waits(run: CommandLine, service: FakeTopologyService) -> None:
    ran = run("status", "--for", "generation=7", "--for", "node/n[01-04]")
    assert (ran.code, ran.err) == (0, "")
    assert "Wrong:" in ran.out
    ran = run("status", "--for", "node/n[01-05]", "--for", "generation=9", "--wait-timeout", 0)
    assert ran.code == 3
    assert ran.err == "the time limit of 0 s has passed: no evidence of n05; generation 7 is published\n"
    ran = run("status", "--for", "hypernode/leaf-b=Ready", "--wait-timeout", 0, "-o", "json")
    assert (ran.code, ran.out[:1]) == (3, "{")
    assert run("status", "--for", "happiness").code == 2


def test_a_collector_that_refuses_connections_is_an_error_and_no_unmet_condition(run: CommandLine) -> None:
    with refusing_address() as address:
        ran = run("status", "--wait", "--wait-timeout", 0, "--collector", address)
        assert ran.code == 1
        assert "cannot reach the collector" in ran.err


@contextmanager
def refusing_address() -> Iterator[str]:
    """An address that no other program can take. It refuses connections: its socket does not listen."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{reserved.getsockname()[1]}"
