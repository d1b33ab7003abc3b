"""What tests of the command line with a collector share."""

from collections.abc import Iterator

import pytest
from support.command_line import CommandLine, run  # noqa: F401  a fixture
from support.topologies import two_leaves
from support.topology_service import FakeTopologyService, serving


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, run: CommandLine) -> Iterator[FakeTopologyService]:  # noqa: F811
    """A collector that publishes two leaves. The environment holds its address."""
    with serving(FakeTopologyService(topology=two_leaves())) as fake:
        monkeypatch.setenv("HYPERSCOUT_COLLECTOR", fake.address)
        yield fake
