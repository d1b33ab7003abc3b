"""The real promtool has nothing against what is shown, by parts that are seldom there, too."""

import re
import subprocess
from collections.abc import Callable

import pytest
from hyperscout_agent.findings.scheduler import ProbeStats
from hyperscout_agent.findings.store import FindingStore
from hyperscout_agent.pages.metrics import AgentMetrics
from hyperscout_agent.probes.latency import LatencyProbe
from hyperscout_agent.probes.snmp import SnmpProbe
from hyperscout_agent.settings.fabric_settings import SnmpSettings
from hyperscout_agent.uplink.session import UplinkStats
from hyperscout_collector.app.metrics.page import standby_text
from support.metric_families import FAMILIES
from support.real import require_real, tool
from support.waiting import TIMEOUT_S


def agent() -> bytes:
    latency = LatencyProbe(interfaces=list)
    for counts in (latency.tasks.refused, latency.tasks.dropped, latency.keyring.dropped):
        counts["forged"] += 1
    crawl = SnmpProbe(SnmpSettings(), trigger=lambda: None)
    stats = {"lldp": ProbeStats(True, 0.1, 1.0, 1.0, 3), "snmp": ProbeStats()}
    metrics = AgentMetrics(
        FindingStore("n"),
        UplinkStats(),
        stats,
        version="0",
        of_probes=[latency.metrics, crawl.metrics],
    )
    return metrics.text()


def test_an_agent_shows_all_that_agents_may() -> None:
    found = set(re.findall(r"^# TYPE (hyperscout_\w+)", agent().decode(), re.MULTILINE))
    assert found == {f.name for f in FAMILIES if f.name.startswith("hyperscout_agent_")}


def declared() -> bytes:
    """Each family with one figure, whatever it needs to be shown."""
    plain = [f for f in FAMILIES if f.kind != "histogram"]
    return "".join(f.by({("x",) * len(f.labels): 1}) if f.labels else f.of(1) for f in plain).encode()


@pytest.mark.parametrize("page", [agent, declared, lambda: standby_text(2)], ids=["agent", "all", "standby"])
def test_promtool_has_nothing_to_say(page: Callable[[], bytes]) -> None:
    require_real("prometheus")
    promtool = tool("promtool")
    assert promtool is not None
    text = page()
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
