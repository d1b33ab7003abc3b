"""A pod that claims to be another node, tried in a running cluster: what it hears, what is kept of it.

The agent in the pod is the real one, with the pod's own token; only its setting `node` was changed.
"""

import re
import time
from typing import Any, Protocol

_TIMEOUT_S = 240.0
_REFUSED = 'hyperscout_collector_refused_total{reason="another_name"}'
_AGENTS = "hyperscout_collector_agents"

# Runs in the agent's container: a second agent, until it is refused or time is up.
_LIAR = """
import subprocess, sys, threading
words = ["hyperscout", "agent", "--config", "/etc/hyperscout/config/agent.yaml", "--node", sys.argv[1]]
words += ["--metrics-port", "0", "--no-lldp-enabled"]
liar = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
threading.Timer(30.0, liar.kill).start()
for line in liar.stderr:
    if "PERMISSION_DENIED" in line or ": connected" in line:
        print(line, end="", flush=True)
        break
liar.kill()
liar.wait()
sys.stdout.flush()
import os
os._exit(0)
"""
_METRICS = """
import socket
page = socket.create_connection(("127.0.0.1", 50052), 5)
page.sendall(b"GET /metrics HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
while got := page.recv(65536):
    print(got.decode(), end="")
"""


class ClaimError(AssertionError):
    """The claim was accepted, or no log line shows that it was tried."""


class Runs(Protocol):
    """What is needed of a lab."""

    def kubectl(self, *words: str, stdin: Any = None, timeout_s: float = 60, check: bool = True) -> str: ...


def check(lab: Runs, namespace: str, agent: str, node: str, other: str, collector: str) -> list[str]:
    """Have the pod `agent`, on `node`, say that it is `other`; `collector` is the pod that leads. What came
    of it, for people. Raises ClaimError."""
    before, agents = _metric(lab, namespace, collector, _REFUSED), _metric(lab, namespace, collector, _AGENTS)
    words = ("exec", "-n", namespace, agent, "-c", "agent", "--", "python3", "-c", _LIAR, other)
    heard = lab.kubectl(*words, timeout_s=_TIMEOUT_S).strip()
    if "PERMISSION_DENIED" not in heard:
        raise ClaimError(f"{agent} on {node} says that it is {other}, and hears: {heard or 'nothing'}")
    give_up_s = time.monotonic() + _TIMEOUT_S
    while (after := _metric(lab, namespace, collector, _REFUSED)) <= before:
        if time.monotonic() > give_up_s:
            raise ClaimError(f"{_REFUSED} stays at {before:.0f}")
        time.sleep(0.2)
    log = lab.kubectl("logs", "-n", namespace, collector, "-c", "collector", timeout_s=_TIMEOUT_S)
    lines = [line for line in log.splitlines() if "refused:" in line and repr(node) in line]
    if len(lines) != 1 or repr(other) not in lines[0]:
        raise ClaimError(f"the collector's log has {len(lines)} lines of it:\n" + "\n".join(lines))
    if (still := _metric(lab, namespace, collector, _AGENTS)) != agents:
        raise ClaimError(f"{agents:.0f} agents were connected, and then {still:.0f}")
    return [
        f"{agent} on {node} says that it is {other}, and hears:",
        f"   {heard}",
        "the collector's log, once:",
        f"   {lines[0]}",
        f"{_REFUSED} {before:.0f} -> {after:.0f}",
    ]


def _metric(lab: Runs, namespace: str, collector: str, name: str) -> float:
    words = ("exec", "-n", namespace, collector, "-c", "collector", "--", "python3", "-c", _METRICS)
    text = lab.kubectl(*words, timeout_s=_TIMEOUT_S)
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    if found is None:
        raise ClaimError(f"{collector} has no metric {name}")
    return float(found[1])
