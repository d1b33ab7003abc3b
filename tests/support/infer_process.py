"""`hyperscout infer` in a process of its own, and the topology that it prints."""

import json
import subprocess
import sys
from typing import Any

from support.waiting import TIMEOUT_S


def run(*arguments: object, stdin: bytes = b"", check: bool = True) -> subprocess.CompletedProcess[bytes]:
    """`check`: the command must end with status 0."""
    command = [sys.executable, "-m", "hyperscout_cli.main", "infer", *map(str, arguments)]
    ran = subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=TIMEOUT_S)
    assert not check or ran.returncode == 0, ran.stderr
    assert b"Traceback" not in ran.stderr
    return ran


def inferred(*arguments: object) -> dict[str, Any]:
    """The topology that `-o json` prints. The exit status is 3 if it has no HyperNode."""
    ran = run(*arguments, "-o", "json", check=False)
    topology = json.loads(ran.stdout)
    assert isinstance(topology, dict)
    assert ran.returncode == (0 if topology["hypernodes"] else 3), ran.stderr
    return topology


def domains(topology: dict[str, Any], tier: int) -> set[frozenset[str]]:
    return {frozenset(h["nodes"]) for h in topology["hypernodes"] if h["tier"] == tier}
