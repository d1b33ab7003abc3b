"""Settings of the role `fabric`: what is asked for, what is refused, and that no secret is among them."""

import subprocess
import sys
from typing import Any

import pytest
from support.waiting import TIMEOUT_S

OPEN = {"ranges": ["10.20.0.0/16"], "community_file": "/etc/hyperscout/community"}


IMPORTS = """
import sys
from random import Random
from hyperscout_agent.main import Agent
from hyperscout_agent.settings.settings import load_settings
Agent(load_settings(None, {settings!r}), Random(1))
print(*sorted({{name.partition(".")[0] for name in sys.modules}} & {{"pysnmp", "pyasn1", "cryptography"}}))
"""


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"node": "n1"}, ""),
        ({"node": "leaf-a1", "role": "switch"}, ""),
        ({"node": "switches", "role": "fabric", "snmp": {"access": [OPEN]}}, "cryptography pyasn1 pysnmp"),
    ],
)
def test_only_an_agent_that_crawls_imports_what_a_crawl_needs(settings: dict[str, Any], found: str) -> None:
    """On thousands of nodes it would be megabytes for nothing."""
    program = IMPORTS.format(settings=settings)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    assert done.stdout.strip() == found


WITHOUT = """
import asyncio, logging, sys
sys.modules["pysnmp"] = None
from hyperscout_agent.main import run
from hyperscout_agent.settings.settings import load_settings
logging.basicConfig(level=logging.INFO)
sys.exit(asyncio.run(run(load_settings(None, {settings!r}))))
"""


def test_without_the_extra_it_says_what_to_install() -> None:
    program = WITHOUT.format(settings={"role": "fabric", "snmp": {"access": [OPEN]}, "metrics": {"port": 0}})
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 1
    assert "is not installed: run `pip install 'hyperscout[agent,snmp]'` in this environment" in done.stderr
