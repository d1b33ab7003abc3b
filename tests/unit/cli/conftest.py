"""What tests of the command line share."""

import os
from collections.abc import Iterator

import pytest
from support.command_line import CommandLine
from support.topologies import two_leaves
from support.topology_service import FakeTopologyService, serving


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line; nothing of the caller's environment reaches it."""
    for name in list(os.environ):
        if name.startswith("HYPERSCOUT_") or name == "NO_COLOR":
            monkeypatch.delenv(name)
    return CommandLine(capsysbinary, monkeypatch)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, run: CommandLine) -> Iterator[FakeTopologyService]:
    """A collector that publishes two leaves, found through the environment."""
    with serving(FakeTopologyService(topology=two_leaves())) as fake:
        monkeypatch.setenv("HYPERSCOUT_COLLECTOR", fake.address)
        yield fake
