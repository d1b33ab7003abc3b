"""The description of REST: every field is explained, with its unit, and what is said is what is sent."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from typing import Any

import hyperscout_collector.serve.rest
import jsonschema
import pytest
from hyperscout_collector.serve.http.problems import TITLES, ProblemError
from hyperscout_collector.serve.rest.kinds import KINDS
from hyperscout_topology import objects
from hyperscout_topology.diff import Diff
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import Topology
from support.topologies import two_leaves

DOCUMENT: dict[str, Any] = json.loads((files(hyperscout_collector.serve.rest) / "openapi.json").read_text())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
# end of a field's name -> what its description must name
UNITS = {
    "S": r"[Ss]econds?\b|\bs\b",
    "Us": "[Mm]icroseconds",
    "Bytes": "[Bb]ytes",
    "Gbps": "Gbit/s",
    "Mbps": "Mbit/s",
    "GbytesPerS": "GB/s",
}


def fields() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for message, schema in SCHEMAS.items():
        for name, found in schema["properties"].items():
            yield message, name, found


def valid(message: str, found: Any) -> None:
    schema = {"$ref": f"#/components/schemas/{message}", "components": DOCUMENT["components"]}
    jsonschema.validate(found, schema, cls=jsonschema.Draft202012Validator)


def test_every_field_is_explained_with_its_unit() -> None:
    for message, name, schema in fields():
        about = schema["description"]
        assert about.endswith((".", ":", "Or")), (message, name, about)
        for ending, unit in UNITS.items():
            if re.search(rf"[a-z]{ending}$", name):
                assert re.search(unit, about), (message, name, about)


def test_nothing_is_allowed_that_is_not_described() -> None:
    for message, schema in SCHEMAS.items():
        assert schema["additionalProperties"] is False, message


def test_every_parameter_is_explained_and_has_an_example_where_it_must_be_given() -> None:
    for path, by_method in DOCUMENT["paths"].items():
        for method, operation in by_method.items():
            assert operation["summary"], (path, method)
            assert operation["responses"]["default"] == {"$ref": "#/components/responses/Problem"}
            for one in operation.get("parameters", ()):
                assert one["description"], (path, one["name"])
                assert "example" in one or not one.get("required"), (path, one["name"])


def test_topologies_are_as_described() -> None:
    valid("Topology", to_json(two_leaves()))
    for kind, make in objects.OF_TOPOLOGY.items():
        for one in make(two_leaves()):
            valid(KINDS[kind].message, one)


def test_deltas_are_as_described() -> None:
    """The stream is left out of what schemathesis looks at."""
    there = two_leaves()
    for old, new in ((there, Topology(8)), (Topology(8), replace(there, generation=9))):
        valid("TopologyDelta", objects.delta(Diff(old, new)))


@pytest.mark.parametrize("word", TITLES)
def test_problems_are_as_described(word: str) -> None:
    valid("Problem", ProblemError(400, word, "why", field="x", leader="h:1").document("/v1/x"))


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("Switch", {"id": "s", "name": "n", "level": 1, "more": 1}),
        ("Switch", {"id": "s", "name": "n"}),
        ("Switch", {"id": "s", "name": None, "level": 1}),
        ("Switch", {"id": "s", "name": "n", "level": "1"}),
    ],
)
def test_a_drift_would_be_seen(message: str, found: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        valid(message, found)
