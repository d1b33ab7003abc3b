"""Alert rules by the real promtool: each fires when it should and not before, and its runbook is there."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.prometheus import ALERTS
from support.real import ROOT, require_real, tool
from support.waiting import TIMEOUT_S

RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
OURS = {rule["alert"]: rule for rule in RULES if "alert" in rule}


@dataclass(frozen=True, slots=True)
class Case:
    """`series`: in promtool's notation, a value a minute; most are well for five minutes and then are not.

    `quiet_min`: the last minute at which it must not fire; `fires_min`: one at which it must."""

    alert: str
    series: dict[str, str]
    quiet_min: int
    fires_min: int


def condition_metric(condition: str) -> str:
    return f'hyperscout_collector_hypernode_condition{{hypernode="leaf-1",tier="1",condition="{condition}"}}'


C, A = "hyperscout_collector", "hyperscout_agent"
BAD = f'{C}_hypernodes_in_condition{{tier="1",condition="Degraded"}}'
WRITES = f"{C}_kubernetes_writes_total"
INFERENCES = {
    f'{C}_inference_seconds_bucket{{le="{le}"}}': f"0+{count}x60"
    for le, count in (("5", 5), ("10", 10), ("+Inf", 10))
}

CASES = [
    Case("HyperscoutHyperNodeDegraded", {condition_metric("Degraded"): "0x5 1x60"}, 10, 11),
    Case("HyperscoutHyperNodeNotReady", {condition_metric("Ready"): "1x5 0x60"}, 15, 16),
    Case("HyperscoutHyperNodeInconsistent", {condition_metric("Consistent"): "1x5 0x60"}, 35, 36),
    Case(
        "HyperscoutManyHyperNodesDegraded",
        {BAD: "2x5 3x60", f'{C}_hypernodes{{tier="1"}}': "8x60"},
        10,
        12,  # promtool may evaluate the recorded ratio after the alert, so that it counts a minute later
    ),
    Case("HyperscoutSwitchMissing", {f'{C}_anomalies{{kind="MissingSwitch"}}': "0x5 1x60"}, 10, 11),
    Case("HyperscoutNoSingleTree", {f"{C}_separate_roots": "0x5 2x60"}, 20, 21),
    Case("HyperscoutNodesWithoutEvidence", {f"{C}_nodes_without_evidence": "0x5 2x60"}, 20, 21),
    Case("HyperscoutStaleNodes", {f"{C}_stale_nodes": "0x5 2x60"}, 15, 16),
    Case(
        "HyperscoutNoLeader", {f'{C}_leader{{pod="a"}}': "1x5 0x60", f'{C}_leader{{pod="b"}}': "0x60"}, 7, 8
    ),
    Case(
        "HyperscoutNoLeader", {f"{C}_leader": "1x5 _x60"}, 7, 13
    ),  # no replica is scraped; the last 5 min are kept
    Case(
        "HyperscoutTwoLeaders", {f'{C}_leader{{pod="a"}}': "1x60", f'{C}_leader{{pod="b"}}': "0x5 1x60"}, 6, 7
    ),
    Case("HyperscoutLeaderChanges", {f"{C}_leader_transitions_total": "0x5 1+1x60"}, 8, 12),
    Case("HyperscoutEvidenceNotWritten", {f"{C}_write_failures_total": "0x5 1+1x60"}, 7, 8),
    Case("HyperscoutGenerationHeld", {f"{C}_held": "0x5 1x60"}, 6, 7),
    Case("HyperscoutPublisherFailing", {f'{C}_publisher_failing{{publisher="file"}}': "0x5 1x60"}, 10, 11),
    Case(
        "HyperscoutKubernetesWritesFailing",
        {
            f'{WRITES}{{method="PATCH",outcome="written"}}': "0+9x60",
            f'{WRITES}{{method="PATCH",outcome="conflict"}}': "0+9x60",
            f'{WRITES}{{method="PATCH",outcome="forbidden"}}': "0x5 4+4x60",
        },
        15,
        20,
    ),
    Case("HyperscoutInferenceSlow", INFERENCES, 15, 17),
    Case("HyperscoutReportsRefused", {f'{C}_refused_total{{reason="another_name"}}': "0x5 1x60"}, 5, 6),
    Case("HyperscoutSweepsPartial", {f"{C}_leases_partial": "0x5 1x60"}, 20, 21),
    Case(
        "HyperscoutAgentsGone",
        {f"{C}_agents": "20x5 17x60", f"{C}_nodes": "18x60", f"{C}_switches": "2x60"},
        15,
        16,
    ),
    Case(
        "HyperscoutFindingsFailed",
        {
            f'{C}_evidence{{probe="lldp",outcome="data"}}': "90x60",
            f'{C}_evidence{{probe="lldp",outcome="failed"}}': "1x5 10x60",
        },
        35,
        36,
    ),
    Case("HyperscoutCollectorProblems", {f"{C}_problems": "0x5 1x60"}, 20, 21),
    Case(
        "HyperscoutRestErrors",
        {f'{C}_rest_requests_total{{method="GET",route="/v1/nodes",status="5xx"}}': "0x5 1+1x60"},
        10,
        11,
    ),
    Case("HyperscoutMqttDown", {f"{C}_mqtt_connected": "1x5 0x60"}, 10, 11),
    Case("HyperscoutHistoryNotWritten", {f"{C}_history_write_failures_total": "0x5 1+1x60"}, 7, 8),
    Case("HyperscoutAgentDisconnected", {f'{A}_uplink_connected{{instance="n1"}}': "1x5 0x60"}, 15, 16),
    Case("HyperscoutProbeFailing", {f'{A}_probe_success{{instance="n1",probe="lldp"}}': "1x5 0x60"}, 20, 21),
    Case("HyperscoutFindingsNotAcked", {f'{A}_findings_dirty{{instance="n1"}}': "0x5 1x60"}, 15, 16),
]


def checked(path: Path, *words: str) -> None:
    promtool = tool("promtool")
    assert promtool is not None
    done = subprocess.run(
        [promtool, *words, path], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def promtool_test(path: Path, tests: list[dict[str, Any]]) -> None:
    said = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}
    path.write_text(yaml.safe_dump(said, sort_keys=False))
    checked(path, "test", "rules")


def of(case: Case) -> dict[str, Any]:
    firing = f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}}) or vector(0)'
    return {
        "interval": "1m",
        "name": case.alert,
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "promql_expr_test": [
            {"expr": firing, "eval_time": f"{at_min}m", "exp_samples": [{"labels": "{}", "value": value}]}
            for at_min, value in ((case.quiet_min, 0), (case.fires_min, 1))
        ],
    }


def test_the_rules_are_rules() -> None:
    require_real("prometheus")
    checked(ALERTS, "check", "rules")


def test_the_configuration_in_the_docs_is_one(tmp_path: Path) -> None:
    require_real("prometheus")
    block = re.search(
        r"^```yaml\n(rule_files.*?)^```", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert block is not None
    (tmp_path / "alerts.yaml").write_text(ALERTS.read_text())
    (tmp_path / "prometheus.yaml").write_text(block[1])
    checked(tmp_path / "prometheus.yaml", "check", "config")


def test_each_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    require_real("prometheus")
    promtool_test(tmp_path / "cases.yaml", [of(case) for case in CASES])


def test_there_is_a_case_for_each() -> None:
    assert {case.alert for case in CASES} == OURS.keys()


def test_what_people_read(tmp_path: Path) -> None:
    """The words of one alert, with its figure put in."""
    require_real("prometheus")
    alert = OURS["HyperscoutManyHyperNodesDegraded"]
    words = alert["annotations"] | {"summary": "37.5% of the innermost domains are degraded"}
    fires = {"exp_labels": {"severity": "critical", "tier": "1"}, "exp_annotations": words}
    case = next(case for case in CASES if case.alert == alert["alert"])
    series = [{"series": name, "values": values} for name, values in case.series.items()]
    test = {"alertname": case.alert, "eval_time": "12m", "exp_alerts": [fires]}
    promtool_test(
        tmp_path / "words.yaml", [{"interval": "1m", "input_series": series, "alert_rule_test": [test]}]
    )


@pytest.mark.parametrize("alert", OURS.values(), ids=lambda alert: alert["alert"])
def test_its_runbook_is_where_it_says(alert: dict[str, Any]) -> None:
    page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {heading.lower() for heading in headings}
    assert anchor == alert["alert"].lower()
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert {"summary", "description", "runbook_url"} == alert["annotations"].keys()


def test_no_runbook_is_left_over() -> None:
    headings = re.findall(r"^### (.+)$", (ROOT / "docs" / "runbooks.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(OURS)
