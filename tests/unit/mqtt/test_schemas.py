"""The schemas of MQTT messages describe every field, and have the fields and limits of the code."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hyperscout.v1.discovery_pb2 import FindingBatch
from hyperscout.v1.finding_pb2 import DESCRIPTOR as FINDING_FILE
from hyperscout.v1.topology_pb2 import Anomaly
from hyperscout_collector.evidence.rows import MAX_NAME_CHARS, MAX_REASON_CHARS
from hyperscout_collector.ingest.device_messages import MAX_FINDINGS, MAX_ITEMS, MAX_RATE_GBPS, MAX_TEXT_CHARS
from hyperscout_mqtt.envelope import SCHEMA_VERSION
from hyperscout_topology.events import KINDS
from hyperscout_topology.topology import ANOMALY_KINDS
from support.mqtt_world import SCHEMAS

ALL = {path.name.partition(".")[0]: json.loads(path.read_text()) for path in SCHEMAS.iterdir()}
FINDINGS = ALL["findings"]


@pytest.mark.parametrize("name", sorted(ALL))
def test_they_are_schemas_and_say_what_each_field_is(name: str) -> None:
    schema = ALL[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:hyperscout:mqtt:v{SCHEMA_VERSION}:{name}"
    undescribed = [path for path, part in fields(schema, "") if not said(part)]
    assert undescribed == []


def said(part: dict[str, Any]) -> bool:
    """A field says what it is, or its values do."""
    return "description" in part or "enum" in part or part.get("maximum") == 1


def fields(schema: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, list):
        for part in schema:
            yield from fields(part, path)
    elif isinstance(schema, dict):
        for name, part in schema.get("properties", {}).items():
            yield f"{path}.{name}", part
        for word, part in schema.items():
            if word not in ("enum", "required"):
                yield from fields(part, f"{path}/{word}")


MESSAGES = ("LldpPort", "LldpNeighbour", "SwitchPort", "InfinibandPort", "PortCounters")


@pytest.mark.parametrize("message", MESSAGES)
def test_a_field_of_the_contract_is_a_field_of_the_schema(message: str) -> None:
    contract = {field.json_name for field in FINDING_FILE.message_types_by_name[message].fields}
    assert FINDINGS["$defs"][message]["properties"].keys() == contract


def test_a_batch_has_the_contract_s_fields() -> None:
    of_streams = {"sequence", "unchanged"}
    contract = {field.json_name for field in FindingBatch.DESCRIPTOR.fields} - of_streams
    assert FINDINGS["properties"].keys() == contract
    texts = {"sweep", "gpu", "latency", "nccl", "switchTable", "deviceResource"}  # not of devices
    finding = {field.json_name for field in FINDING_FILE.message_types_by_name["Finding"].fields} - texts
    assert FINDINGS["$defs"]["Finding"]["properties"].keys() == finding


def test_the_limits_are_those_of_the_code() -> None:
    lists, texts, rates = set(), set(), set()
    for path, part in fields(FINDINGS, ""):
        lists.add((path.count(".") > 1 or "$defs" in path, part.get("maxItems")))
        texts.add(part.get("maxLength"))
        rates.add(part.get("maximum") if part.get("type") == "number" else None)
    assert lists - {(False, None), (True, None)} == {(False, MAX_FINDINGS), (True, MAX_ITEMS)}
    assert texts == {None, MAX_TEXT_CHARS, MAX_REASON_CHARS, MAX_NAME_CHARS}
    assert rates == {None, MAX_RATE_GBPS}


def test_kinds_are_those_of_the_code() -> None:
    kinds = ALL["events"]["properties"]["events"]["items"]["properties"]["kind"]["enum"]
    assert kinds == [kind for kind in KINDS if kind != "GenerationPublished"]
    anomaly = ALL["hypernode"]["properties"]["anomalies"]["items"]["properties"]["kind"]["enum"]
    assert anomaly == list(ANOMALY_KINDS)


def test_an_anomaly_has_the_contract_s_fields() -> None:
    contract = {field.json_name for field in Anomaly.DESCRIPTOR.fields}
    assert ALL["hypernode"]["properties"]["anomalies"]["items"]["properties"].keys() == contract
