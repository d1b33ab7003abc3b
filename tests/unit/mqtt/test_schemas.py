"""The committed schemas are those of the code, describe every field, and know what the contract knows."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hyperscout.v1.finding_pb2 import DESCRIPTOR as FINDING_FILE
from hyperscout_collector.ingest import mqtt_schemas as schemas
from hyperscout_collector.ingest.findings_schema import FINDINGS
from hyperscout_collector.ingest.schema_check import KEYWORDS
from hyperscout_topology.events import KINDS
from support.mqtt_world import SCHEMAS


def test_the_committed_files_are_not_stale() -> None:
    committed = {path.name: path.read_text() for path in SCHEMAS.iterdir()}
    assert committed == schemas.files(), "run `make mqtt-schemas`"


@pytest.mark.parametrize("name", sorted(schemas.ALL))
def test_they_are_schemas_and_say_what_each_field_is(name: str) -> None:
    schema = schemas.ALL[name]
    jsonschema.Draft202012Validator.check_schema(schema)
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


def keywords(schema: Any) -> Iterator[str]:
    for word, part in schema.items():
        yield word
        inner = part.values() if word in ("properties", "$defs") else [part] if isinstance(part, dict) else ()
        for one in inner:
            yield from keywords(one)
        if word == "allOf":
            for one in part:
                yield from keywords(one)


def test_what_findings_are_checked_by_is_known_to_the_checker() -> None:
    assert set(keywords(FINDINGS)) <= KEYWORDS


MESSAGES = ("LldpPort", "LldpNeighbour", "SwitchPort", "InfinibandPort", "PortCounters")


@pytest.mark.parametrize("message", MESSAGES)
def test_a_field_of_the_contract_is_a_field_of_the_schema(message: str) -> None:
    contract = {field.json_name for field in FINDING_FILE.message_types_by_name[message].fields}
    assert FINDINGS["$defs"][message]["properties"].keys() == contract


def test_events_are_those_of_the_history() -> None:
    kinds = schemas.EVENTS["properties"]["events"]["items"]["properties"]["kind"]["enum"]
    assert set(kinds) == set(KINDS) - {"GenerationPublished"}


def test_every_file_names_itself() -> None:
    names = {json.loads(text)["$id"] for text in schemas.files().values()}
    assert names == {f"urn:hyperscout:mqtt:v1:{name}" for name in schemas.ALL}
