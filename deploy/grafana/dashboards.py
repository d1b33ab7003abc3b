"""Generates the JSON of the Grafana dashboards from dashboards.yaml.

    make manifests      writes *.json beside this file

Every panel queries the data source in the variable `datasource`, so the dashboards fit any installation.
A test runs all queries on a real Prometheus, and fails for a query without result.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "dashboards.yaml"
SCHEMA_VERSION = 41  # of Grafana 12; those from 10 on read it, too
_COLUMNS = 24
_WIDTHS = {"stat": 4, "lines": 8, "table": 12}
_HEIGHTS = {"stat": 4, "lines": 8, "table": 8}
_TYPES = {"stat": "stat", "lines": "timeseries", "table": "table"}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_NO_COLUMNS = dict.fromkeys(("Time", "__name__", "instance", "job", "namespace", "pod"), True)


def names() -> list[str]:
    return list(_read())


def text(name: str) -> str:
    """A dashboard's JSON."""
    return json.dumps(_dashboard(_read()[name]), indent=1) + "\n"


def _read() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(SOURCE.read_text())
    return found


def _dashboard(said: Mapping[str, Any]) -> dict[str, Any]:
    panels = [panel | {"id": number} for number, panel in enumerate(_laid_out(said["rows"]), start=1)]
    others = {
        "type": "dashboards",
        "tags": ["hyperscout"],
        "asDropdown": False,
        "keepTime": True,
        "title": "",
    }
    return {
        "title": said["title"],
        "description": said["about"],
        "tags": ["hyperscout"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,  # one cross hair in all panels
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "links": [others],
        "annotations": {"list": []},
        "templating": {"list": list(_variables(said.get("variables", {})))},
        "panels": panels,
    }


def _laid_out(rows: Mapping[str, list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """The headline of each row, and its panels from left to right in as many lines as needed."""
    y = 0
    for headline, panels in rows.items():
        yield {
            "type": "row",
            "title": headline,
            "collapsed": False,
            "panels": [],
            "gridPos": _at(0, y, _COLUMNS, 1),
        }
        x, y, height = 0, y + 1, 0
        for said in panels:
            kind = next(kind for kind in _TYPES if kind in said)
            width = said.get("width", _WIDTHS[kind])
            if x + width > _COLUMNS:
                x, y, height = 0, y + height, 0
            height = max(height, _HEIGHTS[kind])
            yield _panel(said, kind) | {"gridPos": _at(x, y, width, _HEIGHTS[kind])}
            x += width
        y += height


def _at(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _variables(queries: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
    }
    for name, query in queries.items():
        yield {
            "name": name,
            "type": "query",
            "datasource": _SOURCE,
            "definition": query,
            "query": {"query": query, "refId": name},
            "refresh": 2,  # on each change of the time range
            "sort": 1,
            "current": {},
        }


def _panel(said: Mapping[str, Any], kind: str) -> dict[str, Any]:
    queries = said[kind] if kind == "lines" else {"__auto": said[kind]}
    found: dict[str, Any] = {
        "type": _TYPES[kind],
        "title": said["panel"],
        "description": said.get("about", ""),
        "datasource": _SOURCE,
        "targets": [
            _target(chr(ord("A") + n), expr, legend, kind) for n, (legend, expr) in enumerate(queries.items())
        ],
        "fieldConfig": {"defaults": {"unit": said.get("unit", "short"), "min": 0}, "overrides": []},
    }
    match kind:
        case "stat":
            steps = _colours(said)
            if steps:
                found["fieldConfig"]["defaults"]["thresholds"] = {"mode": "absolute", "steps": steps}
            found["options"] = {"colorMode": "background" if steps else "none", "graphMode": "none"}
        case "lines":
            legend = {"displayMode": "list", "placement": "bottom"}
            found["options"] = {"tooltip": {"mode": "multi"}, "legend": legend}
        case "table":
            found["transformations"] = [{"id": "organize", "options": {"excludeByName": _NO_COLUMNS}}]
    return found


def _colours(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Thresholds of colours; none for a value that is neither good nor bad."""
    for key, below, above in (("bad_from", "green", "red"), ("good_from", "red", "green")):
        if key in said:
            return [{"color": below, "value": None}, {"color": above, "value": said[key]}]
    return []


def _target(ref: str, expr: str, legend: str, kind: str) -> dict[str, Any]:
    now = kind != "lines"
    return {
        "refId": ref,
        "datasource": _SOURCE,
        "expr": expr,
        "legendFormat": legend,
        "instant": now,
        "range": not now,
        "format": "table" if kind == "table" else "time_series",
    }
