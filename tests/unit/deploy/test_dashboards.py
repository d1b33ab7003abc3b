"""Dashboards: they ask for metrics that there are, of a data source that is chosen, and their panels fit."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from support.metric_families import FAMILIES
from support.prometheus import ALERTS
from support.real import ROOT

FOLDER = ROOT / "deploy" / "grafana"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
# Of other exporters, and of every Python process.
FOREIGN = ("DCGM_FI_", "node_", "process_", "python_")
_METRIC = re.compile(rf"\b(?:(?:hyperscout_|{'|'.join(FOREIGN)})\w+|\w+:\w+:\w+)")


def metrics_in(expr: str) -> set[str]:
    """Names of metrics in a query, recorded ones too."""
    return set(_METRIC.findall(re.sub(r'"[^"]*"', "", expr)))


def exposed() -> set[str]:
    names = set()
    for family in FAMILIES:
        ends = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
        names |= {family.name + end for end in ends}
    return names


def targets(board: dict[str, Any]) -> Iterator[str]:
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def asked() -> Iterator[tuple[str, str]]:
    for name, board in DASHBOARDS.items():
        yield from ((name, expr) for expr in targets(board))
    yield from (("alerts.yaml", rule["expr"]) for rule in RULES)
    page = (ROOT / "docs" / "metrics.md").read_text()
    for expr in re.findall(r"^```promql\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        yield "docs/metrics.md", expr


@pytest.mark.parametrize(("where", "expr"), list(asked()))
def test_whatever_is_asked_for_exists(where: str, expr: str) -> None:
    records = {rule["record"] for rule in RULES if "record" in rule}
    found = metrics_in(expr)
    assert found, "a query of no metric"
    assert {name for name in found if not name.startswith(FOREIGN)} - exposed() - records == set()


def test_every_record_is_asked_for() -> None:
    asked_for = {name for _, expr in asked() for name in metrics_in(expr)}
    assert {rule["record"] for rule in RULES if "record" in rule} <= asked_for


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_knows_no_installation(name: str) -> None:
    board = DASHBOARDS[name]
    assert not {"uid", "id", "version"} & board.keys()
    assert board["templating"]["list"][0]["type"] == "datasource"
    uids = re.findall(r'"uid": "(.*?)"', json.dumps(board))
    assert set(uids) == {"${datasource}"}
    variables = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([A-Za-z_]\w*)", " ".join(targets(board)))) - {"__rate_interval"}
    assert used <= variables


@pytest.mark.parametrize("name", DASHBOARDS)
def test_its_panels_fit(name: str) -> None:
    panels = DASHBOARDS[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells)), "no panel lies on another"
    assert max(x for x, _ in cells) < 24
