"""What a pod was found to be able to do is judged rightly, and the program that finds it out runs."""

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
from lab.rights import AGENT, COLLECTOR, LISTENER, Allowed, RightsError, check, judge, tell
from support.rights import CONFINED

NET_RAW = dict.fromkeys(("CapPrm", "CapEff", "CapBnd"), "0000000000002000")
LISTENS: dict[str, Any] = {
    **CONFINED,
    "process": {**CONFINED["process"], **NET_RAW, "Uid": "0\t0\t0\t0"},
    "attempts": {**CONFINED["attempts"], "raw socket": "done"},
    "files": [],
    "token": None,
    "asked": {"no token": CONFINED["asked"]["no token"]},
}
COLLECTS: dict[str, Any] = {
    **CONFINED,
    "files": sorted(COLLECTOR.files),
    "asked": {
        **CONFINED["asked"],
        "the default token": {"/api/v1/nodes": "200", "/api/v1/secrets": "403"},
    },
}


def test_as_the_chart_means_it() -> None:
    for facts, allowed in ((CONFINED, AGENT), (LISTENS, LISTENER), (COLLECTS, COLLECTOR)):
        assert judge(facts, allowed) == []
        assert any("CapEff" in line for line in tell("pod", facts))


AGENTS: list[tuple[str, dict[str, Any], str]] = [
    ("a capability", {"process": {"CapEff": "0000000000002000"}}, "CapEff is 0000000000002000"),
    ("one that could come", {"process": {"CapBnd": "00000000a80425fb"}}, "CapBnd"),
    ("one for its children", {"process": {"CapAmb": "0000000000000001"}}, "CapAmb"),
    ("root", {"process": {"Uid": "0\t0\t0\t0"}}, "runs as user"),
    ("root in waiting", {"process": {"Uid": "10001\t10001\t0\t10001"}}, "runs as user"),
    ("privileges by a program", {"process": {"NoNewPrivs": "0"}}, "NoNewPrivs"),
    ("any system call", {"process": {"Seccomp": "0"}}, "seccomp"),
    ("a file written", {"writes": {"/etc": "done"}}, "wrote into /etc"),
    ("a full disk proves nothing", {"writes": {"/": "ENOSPC"}}, "wrote into /"),
    ("a root that can be written", {"root": "rw,relatime"}, "not read-only"),
    ("a key", {"files": ["/etc/hyperscout/tls/tls.key"]}, "tls.key"),
    ("a path of the node", {"files": ["/var/lib/kubelet/config.yaml"]}, "/var/lib/kubelet/config.yaml"),
    ("a raw socket", {"attempts": {"raw socket": "done"}}, "raw socket: done"),
    ("no refusal", {"attempts": {"chroot": "ENOSYS"}}, "nothing is proved"),
    (
        "the API answers",
        {"asked": {"its own token": {"/api/v1/nodes": "200"}}},
        "/api/v1/nodes with its own token",
    ),
    (
        "the API says not found",
        {"asked": {"no token": {"/api/v1/nodes": "404"}}},
        "/api/v1/nodes with no token",
    ),
    ("the API is away", {"asked": {"its own token": {"/api/v1/nodes": "TimeoutError"}}}, "TimeoutError"),
    ("the kubelet answers", {"asked": {"its own token": {"kubelet": "200"}}}, "kubelet with its own token"),
    (
        "a default token",
        {"asked": {"the default token": {"/api/v1/nodes": "403"}}},
        "token for the Kubernetes API",
    ),
    ("a token for more", {"token": {"audiences": ["hyperscout", "api"]}}, "its token is for"),
    ("a token of no pod", {"token": {"pod": None}}, "bound to pod None"),
    ("a token for a year", {"token": {"lasts_s": 31_536_000}}, "lasts"),
]


def changed(facts: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(facts)
    for key, value in change.items():
        if isinstance(value, dict):
            found[key] = changed(found.get(key) or {}, value)
        else:
            found[key] = value
    return found


@pytest.mark.parametrize(("change", "said"), [c[1:] for c in AGENTS], ids=[c[0] for c in AGENTS])
def test_what_must_not_be(change: dict[str, Any], said: str) -> None:
    wrong = judge(changed(CONFINED, change), AGENT)
    assert len(wrong) == 1, wrong
    assert said in wrong[0]


@pytest.mark.parametrize(
    ("facts", "allowed", "change", "said"),
    [
        (LISTENS, LISTENER, {"process": {"CapEff": "0000000000003000"}}, "CapEff"),
        (LISTENS, LISTENER, {"attempts": {"raw socket": "EPERM"}}, "raw socket: EPERM"),
        (LISTENS, LISTENER, {"files": ["/var/run/secrets/hyperscout/token"]}, "no use for"),
        (LISTENS, LISTENER, {"token": CONFINED["token"]}, "has a token"),
        (CONFINED, AGENT, {"token": None}, "no token of its own"),
        (
            COLLECTS,
            COLLECTOR,
            {"asked": {"the default token": {"/api/v1/secrets": "200"}}},
            "/api/v1/secrets",
        ),
    ],
)
def test_each_container_has_its_own_bounds(
    facts: dict[str, Any], allowed: Allowed, change: dict[str, Any], said: str
) -> None:
    [wrong] = judge(changed(facts, change), allowed)
    assert said in wrong


class FakeLab:
    """Answers `kubectl exec` by container."""

    def __init__(self, **facts: dict[str, Any]) -> None:
        self.facts = facts
        self.asked: list[Sequence[str]] = []

    def kubectl(self, *words: str, stdin: Any = None, timeout_s: float = 60, check: bool = True) -> str:
        self.asked.append(words)
        return json.dumps(self.facts[words[words.index("-c") + 1]])


def test_all_containers_are_looked_into() -> None:
    lab = FakeLab(agent=CONFINED, lldp=LISTENS, collector=COLLECTS)
    lines = check(lab, "hyperscout", "agent-1", "collector-1")
    assert [line.split(":")[0] for line in lines if not line.startswith(" ")] == [
        "agent-1/agent",
        "agent-1/lldp",
        "collector-1/collector",
    ]
    assert [words[:4] for words in lab.asked][2] == ("exec", "-n", "hyperscout", "collector-1")
    lab.facts["lldp"] = changed(LISTENS, {"process": {"Seccomp": "0"}})
    with pytest.raises(RightsError, match="agent-1/lldp: has no seccomp filter"):
        check(lab, "hyperscout", "agent-1", "collector-1")
