"""Values of the chart: a setting with a wrong type or beyond its limits is an error of helm."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml
from hyperscout_agent.settings.settings import AgentSettings
from hyperscout_collector.app.settings.settings import CollectorSettings
from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from support.real import ROOT

CHART = ROOT / "deploy" / "chart"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def problems(part: str, settings: dict[str, Any]) -> list[str]:
    values = {**VALUES, part: {**VALUES[part], "settings": settings}}
    return [error.message for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(values)]


@pytest.mark.parametrize(
    ("part", "settings"),
    [
        ("collector", {"stale_after_s": "abc"}),
        ("collector", {"removal_share": 2}),
        ("collector", {"measure": "maybe"}),
        ("collector", {"log_level": "loud"}),
        ("collector", {"max_streams": 1.5}),
        ("agent", {"lldp": {"interval_s": "often"}}),
        ("agent", {"latency": {"port": 70_000}}),
        ("fabric", {"snmp": {"seeds": 10}}),
        ("fabric", {"snmp": {"access": [7]}}),
        ("collector", {"cloud_labels": "aws"}),
        ("collector", {"cloud_labels": [7]}),
        ("agent", {"cluster": "East"}),
        ("agent", {"cluster": "east/west"}),
    ],
)
def test_a_wrong_value(part: str, settings: dict[str, Any]) -> None:
    assert len(problems(part, settings)) == 1


@pytest.mark.parametrize(
    ("part", "settings"),
    [
        ("collector", {"stale_after_s": 300, "measure": False, "expected_nodes": ["n1"]}),
        ("collector", {"cloud_labels": [["zone", "rack"]]}),
        ("collector", {"cloud_labels": ["aws", ["zone", "rack"]]}),
        ("agent", {"ibnetdiscover": {"enabled": True}}),
        ("agent", {"cluster": "east-1"}),
        ("agent", {"cluster": ""}),
        (
            "agent",
            {"lldp": {"interval_s": 5, "ports": "^eth"}, "ibnetdiscover": {"command": "ibnetdiscover -p"}},
        ),
        ("fabric", {"snmp": {"seeds": "10.0.0.1, 10.0.0.2", "access": [{"networks": ["10.0.0.0/8"]}]}}),
    ],
)
def test_a_right_value(part: str, settings: dict[str, Any]) -> None:
    assert problems(part, settings) == []


@pytest.mark.parametrize(
    ("names", "is_right"),
    [(["east", "west"], True), (["switch"], False), (["fabric"], False), (["east", "east"], False)],
)
def test_names_of_clusters(names: list[str], is_right: bool) -> None:
    clusters = [{"name": name, "kubeconfigSecret": "x"} for name in names]
    values = {**VALUES, "collector": {**VALUES["collector"], "clusters": clusters}}
    assert (list(jsonschema.Draft7Validator(SCHEMA).iter_errors(values)) == []) is is_right


@pytest.mark.parametrize(
    ("estimator", "is_right"),
    [
        ({"enabled": True, "cluster": "member1"}, True),
        ({"cluster": ""}, True),
        ({"enabled": "yes"}, False),
        ({"cluster": "Member_1"}, False),
        ({"port": 10352}, False),
    ],
)
def test_values_of_the_estimator(estimator: dict[str, Any], is_right: bool) -> None:
    values = {**VALUES, "collector": {**VALUES["collector"], "estimator": estimator}}
    assert (list(jsonschema.Draft7Validator(SCHEMA).iter_errors(values)) == []) is is_right


def test_the_chart_writes_the_settings_of_the_estimator() -> None:
    assert len(problems("collector", {"estimator_listen": "0.0.0.0:10352"})) == 1


def defaults(model: type[BaseModel], known: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The defaults of those settings that the schema has."""
    for name, field in model.model_fields.items():
        if name not in known:
            continue
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield name, dict(defaults(field.annotation, known[name]["properties"]))
        elif (value := field.get_default(call_default_factory=True)) is not PydanticUndefined:
            yield name, json.loads(json.dumps(value, default=str))


@pytest.mark.parametrize(
    ("part", "model"),
    [("collector", CollectorSettings), ("agent", AgentSettings), ("fabric", AgentSettings)],
)
def test_each_default_is_a_right_value(part: str, model: type[BaseModel]) -> None:
    known = SCHEMA["properties"][part]["properties"]["settings"]["properties"]
    mine = dict(defaults(model, known))
    assert len(mine) > 3
    assert problems(part, mine) == []
