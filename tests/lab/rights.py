"""What hyperscout's pods may do, found out by trying it in them: not by reading what their specs ask for.

`look` runs a program in a container and gives what came of it; `judge` says what of that must not be; `check`
does both for the containers of an installed chart. A specification that the kubelet or the runtime does not
carry out as it reads, or a kernel that has another idea, would show here and nowhere else.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Facts = dict[str, Any]
# Runs a command in a container (its name, the command); gives what it printed.
Exec = Callable[[str, Sequence[str]], str]

PROGRAM = (Path(__file__).parent / "rights_program.py").read_text(encoding="utf-8")
TOKEN = "/var/run/secrets/hyperscout/token"
CONFIG, TLS, CLIENTS = "/etc/hyperscout/config", "/etc/hyperscout/tls", "/etc/hyperscout/clients"
KUBERNETES = "/var/run/secrets/kubernetes.io/serviceaccount"
USER = "10001"
NET_RAW = 1 << 13  # linux/capability.h
_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_FILTER = "2"  # SECCOMP_MODE_FILTER
_REFUSED = ("401", "403")
_NO = ("EPERM", "EACCES")
TIMEOUT_S = 240.0


class RightsError(AssertionError):
    """A pod may do something that it must not; says what."""


class Runs(Protocol):
    """What is needed of a lab."""

    def kubectl(self, *words: str, stdin: Any = None, timeout_s: float = 60, check: bool = True) -> str: ...


@dataclass(frozen=True, slots=True)
class Allowed:
    """What one container may. `files`: those that its volumes show, beside its own image's. `api`: whether it
    has a token for the Kubernetes API; `raw`: whether it may open raw sockets."""

    user: str
    capabilities: int = 0
    files: frozenset[str] = frozenset()
    token: bool = False
    api: bool = False
    raw: bool = False


_AGENT_FILES = frozenset({f"{CONFIG}/agent.yaml", f"{TLS}/ca.crt", TOKEN})
_COLLECTOR_FILES = frozenset(
    [f"{CONFIG}/collector.yaml", f"{CLIENTS}/ca.crt", TOKEN]
    + [f"{TLS}/{name}" for name in ("ca.crt", "tls.crt", "tls.key")]
    + [f"/var/run/hyperscout/{name}" for name in ("tls.crt", "tls.key")]  # it issues these itself
    + [f"{KUBERNETES}/{name}" for name in ("token", "ca.crt", "namespace")]
)
AGENT = Allowed(USER, files=_AGENT_FILES, token=True)
LISTENER = Allowed("0", NET_RAW, raw=True)
COLLECTOR = Allowed(USER, files=_COLLECTOR_FILES, token=True, api=True)


def look(run: Exec, container: str, *, kubelet: str = "") -> Facts:
    """Try it all in a container. `kubelet`: host at which a kubelet might answer."""
    said = run(container, ["python3", "-c", PROGRAM, TOKEN, kubelet])
    found: Facts = json.loads(said)
    return found


def judge(facts: Facts, allowed: Allowed) -> list[str]:
    """What must not be; nothing when all is as it should."""
    parts = (_process, _files, _attempts, _api)
    return [wrong for part in parts for wrong in part(facts, allowed)]


def _process(facts: Facts, allowed: Allowed) -> list[str]:
    process = facts["process"]
    wrong = []
    for name in _SETS:
        most = allowed.capabilities if name in ("CapPrm", "CapEff", "CapBnd") else 0
        if int(process[name], 16) & ~most:
            wrong.append(f"{name} is {process[name]}, more than {most:016x}")
    if set(process["Uid"].split()) != {allowed.user}:
        wrong.append(f"runs as user {process['Uid']}, not {allowed.user}")
    if process["NoNewPrivs"] != "1":
        wrong.append("may gain privileges by running a program (NoNewPrivs is 0)")
    if process["Seccomp"] != _FILTER:
        wrong.append(f"has no seccomp filter (mode {process['Seccomp']})")
    return wrong


def _files(facts: Facts, allowed: Allowed) -> list[str]:
    refusals = ("EROFS", "ENOENT", *_NO)  # not all of the folders are in every image
    wrong = [f"wrote into {where}: {how}" for where, how in facts["writes"].items() if how not in refusals]
    if "ro" not in facts["root"].split(","):
        wrong.append(f"its root is not read-only: {facts['root']}")
    # As specs name them: /var/run is a link to /run in some images.
    seen = {f"/var{path}" if path.startswith("/run/") else path for path in facts["files"]}
    if more := sorted(seen - allowed.files):
        wrong.append(f"sees files that it has no use for: {', '.join(more)}")
    return wrong


def _attempts(facts: Facts, allowed: Allowed) -> list[str]:
    wrong = []
    for what, how in facts["attempts"].items():
        may = what == "raw socket" and allowed.raw
        if may != (how == "done"):
            wrong.append(f"{what}: {how}")
        elif not may and how not in (*_NO, "EROFS"):
            wrong.append(f"{what}: {how} is no refusal: nothing is proved")
    return wrong


def _api(facts: Facts, allowed: Allowed) -> list[str]:
    wrong = []
    for whose, answers in facts["asked"].items():
        if whose == "the default token" and not allowed.api:
            wrong.append("has a token for the Kubernetes API")
        for path, code in answers.items():
            # What it may do there is tested verb by verb elsewhere; others' Secrets are never among it.
            if whose == "the default token" and not path.endswith("/secrets"):
                continue
            # The API server must have said no: a server that was not reached proves nothing.
            if code not in _REFUSED and not (path == "kubelet" and code.endswith("Error")):
                wrong.append(f"{path} with {whose}: {code}")
    token = facts["token"]
    if (token is not None) is not allowed.token:
        wrong.append("has a token" if token else "has no token of its own")
    elif token is not None:
        if token["audiences"] != ["hyperscout"]:
            wrong.append(f"its token is for {token['audiences']}")
        if not token["node"] or not token["pod"]:
            wrong.append(f"its token is bound to pod {token['pod']!r} and node {token['node']!r}")
        if token["lasts_s"] > 2 * 3600:
            wrong.append(f"its token lasts {token['lasts_s']} s")
    return wrong


def tell(name: str, facts: Facts) -> list[str]:
    """What was found, for people."""
    process, token = facts["process"], facts["token"]
    user, writes, tried = process["Uid"].split()[0], facts["writes"].items(), facts["attempts"].items()
    caps = ", ".join(f"{one} {process[one]}" for one in ("CapEff", "CapPrm", "CapBnd"))
    lines = [
        f"{name}: user {user}, {caps}, NoNewPrivs {process['NoNewPrivs']}, Seccomp {process['Seccomp']}",
        f"   root: {facts['root'].split(',')[0]}; writes: " + ", ".join(f"{x} {how}" for x, how in writes),
        "   tried: " + ", ".join(f"{what}: {how}" for what, how in tried),
        f"   files: {', '.join(facts['files']) or 'none'}",
    ]
    if token is not None:
        lines.append(
            f"   its token: for {', '.join(token['audiences'])}, pod {token['pod']} on node {token['node']}, "
            f"{token['lasts_s']} s"
        )
    for whose, answers in facts["asked"].items():
        told = ", ".join(f"{path} {code}" for path, code in answers.items())
        lines.append(f"   Kubernetes API, {whose}: {told}")
    return lines


def check(lab: Runs, namespace: str, agent: str, collector: str) -> list[str]:
    """Both containers of an agent's pod, and a collector's; what was found. Raises RightsError."""
    lines: list[str] = []
    wrong: list[str] = []
    for pod, container, allowed in (
        (agent, "agent", AGENT),
        (agent, "lldp", LISTENER),
        (collector, "collector", COLLECTOR),
    ):

        def run(container: str, argv: Sequence[str], pod: str = pod) -> str:
            words = ("exec", "-n", namespace, pod, "-c", container, "--", *argv)
            return lab.kubectl(*words, timeout_s=TIMEOUT_S)

        # On the node's own network its kubelet is the nearest thing to ask.
        facts = look(run, container, kubelet="" if container == "collector" else "127.0.0.1")
        lines += tell(f"{pod}/{container}", facts)
        wrong += [f"{pod}/{container}: {one}" for one in judge(facts, allowed)]
    if wrong:
        raise RightsError("\n".join([*wrong, *lines]))
    return lines
