"""What the doctor makes of what was collected on a node: tables of facts and answers."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome
from hyperscout_agent.doctor import way_checks
from hyperscout_agent.doctor.agent_page import read_page
from hyperscout_agent.doctor.checks import agent_probe, agent_runs, node_checks
from hyperscout_agent.doctor.facts import (
    AgentSeen,
    Check,
    CollectorSeen,
    Device,
    HostSeen,
    ProbeSeen,
    Program,
    TokenSeen,
    WithoutData,
)
from hyperscout_agent.findings.scheduler import ProbeStats
from hyperscout_agent.findings.store import FindingStore
from hyperscout_agent.lldp.neighbours import NO_CARRIER, NOTHING_HEARD, NOTHING_YET
from hyperscout_agent.pages.findings import MAX_LISTED, findings_page
from hyperscout_agent.runtime.ports import PortState
from hyperscout_agent.settings.settings import load_settings
from hyperscout_formats.facts.facts import InfinibandPort

NOW_S = 1_790_000_000.0
UP = PortState("eth0", "02:00:00:00:00:01", True, 100_000, 1)
DOWN = PortState("eth1", "02:00:00:00:00:02", False, 0, 1)
WELL = AgentSeen("127.0.0.1:50053", reporter="n1", connected=True)
GONE = AgentSeen("127.0.0.1:50053", "no program listens (Connection refused)")
GREETED = CollectorSeen("c:50051", "greeted", version="0.1.0", clock_offset_s=0.01)
TOOLS = {name: Program(name, f"/usr/sbin/{name}", "44.0") for name in ("ibnetdiscover", "ibqueryerrors")}


def ib(state: str, link_layer: str = "InfiniBand") -> InfinibandPort:
    return InfinibandPort(
        device="mlx5_0",
        port=1,
        node_guid=1,
        system_image_guid=1,
        port_guid=2,
        state=state,
        physical_state="LINK_UP",
        link_layer=link_layer,
        rate_gbps=400.0,
        lid=1,
        sm_lid=1,
        node_description="n1",
    )


def host(**more: Any) -> HostSeen:
    return HostSeen(**({"user": 0, "raw_socket": True, "ports": (UP,), "free_bytes": 1 << 30} | more))


def verdicts(
    seen: HostSeen,
    agent: AgentSeen = WELL,
    collectors: Sequence[CollectorSeen] = (GREETED,),
    token: TokenSeen | None = None,
    **settings: Any,
) -> dict[str, Check]:
    found = load_settings(None, {"node": "n1", **settings})
    return {check.name: check for check in node_checks(found, seen, agent, collectors, token, NOW_S)}


def test_a_well_node_has_nothing_wrong() -> None:
    found = verdicts(host())
    assert {check.verdict for check in found.values()} <= {"ok", "skipped"}, found
    assert all(not check.todo for check in found.values()), found


LISTENER = {"lldp": {"source": "listener"}}
POD = {"lldp": {"source": "listener", "spawn_listener": False}}  # as the chart writes them
HEARS = AgentSeen("a", reporter="n1", connected=True, probes={"lldp": ProbeSeen(True, data=1)})
DEAF = AgentSeen("a", reporter="n1", connected=True, probes={"lldp": ProbeSeen(True, failed=1)})


@pytest.mark.parametrize(
    ("seen", "agent", "settings", "check", "verdict", "words"),
    [
        pytest.param(
            host(ports=(DOWN,)), WELL, {}, "devices", "failed", "no port has a link", id="no carrier"
        ),
        pytest.param(host(ports=()), WELL, {}, "devices", "failed", "no visible physical port", id="no port"),
        pytest.param(host(ports=(), gpus=8), WELL, {}, "devices", "ok", "GPUs: 8", id="GPUs alone"),
        pytest.param(
            host(ports=(DOWN, UP)), WELL, {}, "devices", "ok", "carrier: eth0 of 2", id="one with carrier"
        ),
        pytest.param(host(), WELL, {}, "infiniband", "skipped", "no InfiniBand", id="no InfiniBand"),
        pytest.param(
            host(infiniband=(ib("ACTIVE", "Ethernet"),)), WELL, {}, "infiniband", "skipped", "", id="RoCE"
        ),
        pytest.param(
            host(infiniband=(ib("INIT"),)), WELL, {}, "infiniband", "failed", "subnet manager", id="no SM"
        ),
        pytest.param(host(infiniband=(ib("DOWN"),)), WELL, {}, "infiniband", "failed", "mlx5_0/1", id="down"),
        pytest.param(
            host(infiniband=(ib("ACTIVE"), ib("DOWN"))),
            WELL,
            {},
            "infiniband",
            "warning",
            "of 2 down",
            id="one of two down",
        ),
        pytest.param(
            host(infiniband=(ib("ACTIVE"),)),
            WELL,
            {},
            "umad",
            "warning",
            "has no /dev/infiniband",
            id="no umad",
        ),
        pytest.param(
            host(user=1000, infiniband=(ib("ACTIVE"),), umad=(Device("/dev/infiniband/umad0", False),)),
            WELL,
            {},
            "umad",
            "warning",
            "user 1000 may not open /dev/infiniband/umad0",
            id="umad is closed",
        ),
        pytest.param(
            host(infiniband=(ib("ACTIVE"),), umad=(Device("/dev/infiniband/umad0", True),)),
            WELL,
            {},
            "umad",
            "ok",
            "can be opened: 1",
            id="umad is open",
        ),
        pytest.param(
            host(infiniband=(ib("ACTIVE"),)),
            WELL,
            {"ibnetdiscover": {"enabled": False}},
            "umad",
            "skipped",
            "in Kubernetes, agent.infiniband.resourceName in the chart turns sweeps on",
            id="sweeps are off",
        ),
        pytest.param(
            host(infiniband=(ib("ACTIVE"),)),
            WELL,
            {},
            "ibnetdiscover",
            "warning",
            "another node",
            id="no tool",
        ),
        pytest.param(
            host(infiniband=(ib("ACTIVE"),), programs=TOOLS),
            WELL,
            {},
            "ibnetdiscover",
            "ok",
            "version 44.0",
            id="the tool",
        ),
        pytest.param(
            host(raw_socket=False), WELL, LISTENER, "lldp source", "failed", "CAP_NET_RAW", id="root"
        ),
        pytest.param(
            host(raw_socket=False, user=1000), DEAF, {}, "lldp source", "failed", "user 1000", id="a user"
        ),
        pytest.param(
            host(raw_socket=False, user=1000),
            HEARS,
            {},
            "lldp source",
            "ok",
            "receives",
            id="a pod that hears",
        ),
        pytest.param(
            host(raw_socket=False, user=10001, listener=True),
            WELL,
            POD,
            "lldp source",
            "ok",
            "connected to /run/hyperscout/lldp.sock",
            id="a pod without ports",
        ),
        pytest.param(
            host(raw_socket=False, user=1000, listener=True),
            DEAF,
            {},
            "lldp source",
            "ok",
            "connected",
            id="a listener that was started by hand",
        ),
        pytest.param(
            host(raw_socket=False, user=10001),
            DEAF,
            POD,
            "lldp source",
            "failed",
            "no LLDP listener is connected to /run/hyperscout/lldp.sock",
            id="a pod whose listener is gone",
        ),
        pytest.param(
            host(raw_socket=True, listener=False),
            WELL,
            POD,
            "lldp source",
            "failed",
            "lldp.spawn_listener is off",
            id="the right is of no use",
        ),
        pytest.param(
            host(raw_socket=False, listener=None),
            WELL,
            POD,
            "lldp source",
            "warning",
            "cannot be read",
            id="the kernel does not tell",
        ),
        pytest.param(
            host(raw_socket=False, lldpd=True), WELL, {}, "lldp source", "ok", "lldpd", id="lldpd is here"
        ),
        pytest.param(
            host(lldpd=True, lldpctl_trouble="lldpctl: exit 1: permission denied"),
            WELL,
            {},
            "lldp source",
            "failed",
            "permission denied",
            id="lldpd does not let us",
        ),
        pytest.param(
            host(),
            WELL,
            {"lldp": {"source": "lldpctl"}},
            "lldp source",
            "failed",
            "does not exist",
            id="no lldpd",
        ),
        pytest.param(
            host(), WELL, {"lldp": {"enabled": False}}, "lldp source", "skipped", "off", id="lldp is off"
        ),
        pytest.param(
            host(gpus=8, nvml_trouble="the NVIDIA driver is not loaded"),
            WELL,
            {},
            "gpus",
            "failed",
            "not loaded",
            id="no driver",
        ),
        pytest.param(host(gpus=8), WELL, {}, "gpus", "ok", "8 GPUs", id="GPUs"),
        pytest.param(
            host(infiniband=(ib("ACTIVE", "Ethernet"),)),
            WELL,
            {},
            "ib_send_lat",
            "skipped",
            "UDP",
            id="no perftest",
        ),
        pytest.param(host(lldpd=True), WELL, {}, "lldpctl", "failed", "not found", id="no lldpctl"),
        pytest.param(
            host(socket_folder="/run/hyperscout", socket_folder_writable=False, user=1000),
            WELL,
            {},
            "disk",
            "warning",
            "may not write to /run/hyperscout",
            id="not writable",
        ),
        pytest.param(host(free_bytes=0), WELL, {}, "disk", "failed", "full", id="full"),
        pytest.param(
            host(free_bytes=None, user=1000), WELL, {}, "disk", "warning", "does not exist", id="no folder"
        ),
    ],
)
def test_host(
    seen: HostSeen, agent: AgentSeen, settings: dict[str, Any], check: str, verdict: str, words: str
) -> None:
    found = verdicts(seen, agent, **settings)[check]
    assert found.verdict == verdict
    assert words in found.why
    assert bool(found.todo) == (verdict in ("failed", "warning")), "each trouble comes with what to do"


@pytest.mark.parametrize(
    ("agent", "verdict", "words"),
    [
        (GONE, "failed", "no program listens"),
        (AgentSeen("a", reporter="n2", connected=True), "failed", "reports as n2, these settings say n1"),
        (AgentSeen("a", reporter="n1"), "failed", "no stream to a collector"),
        (WELL, "ok", "n1"),
    ],
)
def test_the_agent(agent: AgentSeen, verdict: str, words: str) -> None:
    found = agent_runs(agent, load_settings(None, {"node": "n1"}))
    assert (found.verdict, words in found.why) == (verdict, True), found


def probe(seen: ProbeSeen, *without: tuple[str, str, str]) -> Check:
    listed = tuple(WithoutData("lldp", *one) for one in without)
    return agent_probe("lldp", AgentSeen("a", reporter="n1", probes={"lldp": seen}, without_data=listed))


def test_a_probe_that_heard_nothing_on_a_port_that_is_up_names_the_firmware() -> None:
    found = probe(ProbeSeen(True, nothing=1), ("eth0", "nothing", NOTHING_HEARD))
    assert found.verdict == "warning"
    assert "disable-fw-lldp" in found.why
    assert "LLDP agent" in found.todo


@pytest.mark.parametrize(
    ("found", "verdict", "todo"),
    [
        (probe(ProbeSeen(True, data=2)), "ok", ""),
        (probe(ProbeSeen(True)), "skipped", ""),
        (probe(ProbeSeen(None)), "skipped", ""),
        (probe(ProbeSeen(False)), "failed", "log"),
        (probe(ProbeSeen(True, data=1, nothing=1), ("eth1", "nothing", NO_CARRIER)), "ok", "cable"),
        (probe(ProbeSeen(True, failed=1), ("eth0", "failed", NOTHING_YET)), "warning", "in a minute"),
        (
            probe(ProbeSeen(True, failed=1), ("eth0", "failed", "the LLDP listener is not connected")),
            "failed",
            "",
        ),
        (probe(ProbeSeen(True, data=1, failed=1), ("eth0", "failed", "a bad frame")), "warning", ""),
    ],
)
def test_a_probe(found: Check, verdict: str, todo: str) -> None:
    assert (found.verdict, todo in found.todo) == (verdict, True), found


def test_reasons_are_told_once_and_failures_first() -> None:
    found = probe(
        ProbeSeen(True, nothing=1, failed=5),
        ("a", "nothing", "no cable"),
        *[(f"p{i}", "failed", "frame") for i in range(5)],
    )
    assert found.why == "1 nothing, 5 failed: p0, p1, p2 and 2 more: frame; a: no cable"


@pytest.mark.parametrize(
    ("seen", "verdict", "words", "todo"),
    [
        (CollectorSeen("c:1", "settings", "never in the clear"), "failed", "in the clear", "settings"),
        (CollectorSeen("c:1", "name", "not known"), "failed", "name is not found", "DNS"),
        (CollectorSeen("c:1", "connect", "Connection refused"), "failed", "refused", "firewall"),
        (CollectorSeen("c:1", "tls", "its certificate is not trusted"), "failed", "trusted", "tls_ca"),
        (CollectorSeen("c:1", "standby", "there is no leader yet"), "failed", "is a standby", "Lease"),
        (CollectorSeen("c:1", "identity", "no", "UNAUTHENTICATED"), "failed", "Hello: no", "token_file"),
        (CollectorSeen("c:1", "identity", "no", "PERMISSION_DENIED"), "failed", "no", "node and role"),
        (CollectorSeen("c:1", "identity", "no", "UNAVAILABLE"), "failed", "no", "tls_ca"),
        (CollectorSeen("c:1", "identity", "no", "INTERNAL"), "failed", "no", "log"),
        (CollectorSeen("c:1", "greeted", version="7"), "ok", "version 7", ""),
        (CollectorSeen("c:1", "greeted", "a newer agent", "ABORTED"), "ok", "has the stream of n1", ""),
    ],
)
def test_the_way_to_a_collector(seen: CollectorSeen, verdict: str, words: str, todo: str) -> None:
    found = way_checks.collector(seen, "n1", WELL)
    assert (found.verdict, words in found.why, todo in found.todo) == (verdict, True, True), found


def test_another_agent_under_our_name_is_told() -> None:
    seen = CollectorSeen("c:1", "greeted", "a newer agent", "ABORTED")
    assert "another agent reports as n1" in way_checks.collector(seen, "n1", GONE).why


def test_of_several_collectors_one_is_enough() -> None:
    away = CollectorSeen("c:2", "connect", "Connection refused")
    assert verdicts(host(), collectors=(away,))["collector c:2"].verdict == "failed"
    assert verdicts(host(), collectors=(away, GREETED))["collector c:2"].verdict == "warning"


@pytest.mark.parametrize(
    ("offset_s", "uncertain_s", "verdict"),
    [
        (0.5, 0.0, "ok"),
        (2.5, 1.0, "ok"),
        (2.5, 0.1, "warning"),
        (-2.5, 0.1, "warning"),
        (-3600.0, 0.1, "failed"),
    ],
)
def test_the_clock(offset_s: float, uncertain_s: float, verdict: str) -> None:
    seen = CollectorSeen("c:1", "greeted", clock_offset_s=offset_s, uncertain_s=uncertain_s)
    found = way_checks.clock((GREETED, seen))
    assert found.verdict == verdict
    if verdict != "ok":
        assert ("ahead of" if offset_s > 0 else "behind") in found.why


def test_a_clock_without_a_collector_s_time_is_not_judged() -> None:
    assert way_checks.clock((CollectorSeen("c:1", "connect"),)).verdict == "skipped"


def test_a_certificate_that_ends_soon_is_told() -> None:
    soon, later = (
        CollectorSeen("c:1", "greeted", certificate_until_s=NOW_S + s) for s in (3600, 90 * 86_400)
    )
    assert [check.verdict for check in way_checks.certificates((soon, later), NOW_S)] == ["warning"]


@pytest.mark.parametrize(
    ("token", "verdict", "words"),
    [
        (TokenSeen("/t", "No such file or directory"), "failed", "/t: No such file"),
        (TokenSeen("/t", expires_s=NOW_S - 1), "failed", "expired at 2026-09-21T14:13:19Z"),
        (TokenSeen("/t", expires_s=NOW_S + 1), "ok", "is valid until"),
        (TokenSeen("/t", expires_s=1e300), "ok", "1e+300"),
        (TokenSeen("/t"), "ok", "no expiry time"),
    ],
)
def test_the_token(token: TokenSeen, verdict: str, words: str) -> None:
    found = way_checks.token_file(token, NOW_S)
    assert found is not None
    assert (found.verdict, words in found.why) == (verdict, True), found


def test_what_the_agent_says_of_itself_is_read_back() -> None:
    store = FindingStore("n1")
    for number in range(MAX_LISTED + 5):
        key = FindingKey(node="n1", probe="lldp", subject=f"eth{number}")
        store.put(Finding(key=key, outcome=Outcome.OUTCOME_NOTHING, reason=NOTHING_HEARD))
    seen = Finding(key=FindingKey(node="n1", probe="lldp", subject="up"), outcome=Outcome.OUTCOME_DATA)
    store.put(seen)
    lost = Finding(key=seen.key, outcome=Outcome.OUTCOME_FAILED, reason="gone")
    store.put(lost)
    stats = {"lldp": ProbeStats(success=True), "nvlink": ProbeStats()}
    page = read_page("a", json.loads(findings_page(store, stats, connected=True)))
    assert (page.reporter, page.connected) == ("n1", True)
    assert page.probes["nvlink"] == ProbeSeen(None)
    assert page.probes["lldp"] == ProbeSeen(True, nothing=MAX_LISTED + 5, failed=1), "the newest look counts"
    assert len(page.without_data) == MAX_LISTED
    assert page.without_data[0] == WithoutData("lldp", "eth0", "nothing", NOTHING_HEARD)
