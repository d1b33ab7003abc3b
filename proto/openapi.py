"""Writes REST's OpenAPI document from the proto messages and REST's table of operations; --check compares it.

Comments in the .proto files are the descriptions of fields. Operations and their parameters are defined in
`hyperscout_collector.serve.rest.operations`. A field without a comment is an error.
"""

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet
from hyperscout_collector.serve.http.problems import PROBLEM_JSON
from hyperscout_collector.serve.rest.operations import OPERATIONS, Operation
from hyperscout_collector.serve.rest.parameters import Parameter
from hyperscout_collector.serve.rest.rendered import OUTPUTS

ROOT = Path(__file__).resolve().parent
TARGET = ROOT.parent / "collector" / "hyperscout_collector" / "serve" / "rest" / "openapi.json"
_PACKAGE = ".hyperscout.v1."
_F = FieldDescriptorProto

# Fields without presence. An object omits those in LEFT_OUT if they are empty, and has null for those in
# NULL_FOR_ZERO if they are 0.
LEFT_OUT = {
    ("Placement", "gang"),
    ("Placement", "holder"),
    ("Placement", "failed_nodes"),
    ("Placement", "cluster"),
    ("Placement", "elastic"),
    ("Placement", "min_workers"),
    ("Placement", "max_workers"),
    ("Assignment", "nics"),
    ("Link", "note"),
    ("Link", "speed_gbps"),
    ("Link", "width"),
    ("Condition", "nodes"),
    ("Condition", "switches"),
    ("Condition", "details"),
    ("Anomaly", "nodes"),
    ("Anomaly", "figures"),
    ("Anomaly", "flaps"),
}
NULL_FOR_ZERO = {("Anomaly", "tier")}
# Operations whose response has no content, and what it means.
NO_CONTENT = {
    "release": "The gang holds no nodes now.",
    "set_measuring": "Measuring is paused or resumed.",
}

Schema = dict[str, Any]

INTRODUCTION = """\
The tiered hierarchy of a cluster's network: its wiring, its faults since when, and the evidence of both.

Objects are those of gRPC (`hyperscout.v1`) under the same names, and those of `hyperscout get KIND -o json`.
A client authenticates with a token (`Authorization: Bearer`) or a client certificate, as the collector's
settings say. Reading requires the right to get HyperNodes, changing requires the right to update them.
"""
STREAM = """\
Server-sent events. `snapshot` has the whole topology (Topology), `delta` the changes since the event before \
it (TopologyDelta), `error` a problem document in the last line of its data, after which the stream ends. \
A client sends `id` back as `Last-Event-ID` or `since` to resume. The collector sends a comment every 15 s."""


class Protos:
    """Messages and enums of hyperscout.v1, and their comments."""

    def __init__(self) -> None:
        self.messages: dict[str, DescriptorProto] = {}
        self.enums: dict[str, list[str]] = {}
        self._comments: dict[tuple[str, str], str] = {}
        for file in _descriptors().file:
            if file.package != "hyperscout.v1":
                continue
            said = {tuple(x.path): _one_line(x.leading_comments) for x in file.source_code_info.location}
            for i, message in enumerate(file.message_type):
                self.messages[message.name] = message
                self._comments[message.name, ""] = said.get((4, i), "")
                for j, field in enumerate(message.field):
                    self._comments[message.name, field.name] = said.get((4, i, 2, j), "")
            for enum in file.enum_type:
                self.enums[enum.name] = [value.name for value in enum.value]

    def about(self, message: str, field: str = "") -> str:
        return self._comments[message, field]


def _descriptors() -> FileDescriptorSet:
    from grpc_tools import protoc

    sources = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("hyperscout/v1/*.proto"))
    includes = [f"-I{ROOT}", f"-I{Path(protoc.__file__).parent / '_proto'}"]
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "set"
        words = ["protoc", *includes, "--include_source_info", f"--descriptor_set_out={file}", *sources]
        if protoc.main(words) != 0:
            sys.exit("protoc failed")
        return FileDescriptorSet.FromString(file.read_bytes())


def _one_line(comment: str) -> str:
    return " ".join(comment.split())


class Schemas:
    """Schemas of the referenced messages, by name. `undescribed`: fields without a comment."""

    def __init__(self, protos: Protos) -> None:
        self.found: dict[str, Schema] = {}
        self.undescribed: list[str] = []
        self._protos = protos

    def ref(self, name: str, *, asked: bool = False) -> Schema:
        """`asked`: for a request body. Every field is optional and may be null (protobuf's JSON mapping)."""
        if name not in self.found:
            self.found[name] = {}
            self.found[name] = self._schema(name, asked=asked)
        return {"$ref": f"#/components/schemas/{name}"}

    def _schema(self, name: str, *, asked: bool) -> Schema:
        message = self._protos.messages[name]
        properties: Schema = {}
        required = []
        for field in message.field:
            about = self._protos.about(name, field.name)
            if not about:
                self.undescribed.append(f"{name}.{field.name}")
            schema = self._field(message, field, asked=asked)
            if asked or _has_presence(field) or (name, field.name) in NULL_FOR_ZERO:
                schema = _or_null(schema)
            properties[field.json_name] = {"description": about, **schema}
            if not _has_presence(field) and (name, field.name) not in LEFT_OUT:
                required.append(field.json_name)
        found: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
        if about := self._protos.about(name):
            found = {"description": about, **found}
        return found if asked or not required else {**found, "required": required}

    def _field(self, message: DescriptorProto, field: _F, *, asked: bool) -> Schema:
        for nested in message.nested_type:
            if nested.options.map_entry and field.type_name.endswith(f".{message.name}.{nested.name}"):
                keys, values = nested.field
                found: Schema = {"type": "object", "additionalProperties": self._single(values, asked=asked)}
                if keys.type != _F.TYPE_STRING:
                    found["propertyNames"] = {"pattern": "^[0-9]+$"}
                return found
        single = self._single(field, asked=asked)
        return {"type": "array", "items": single} if field.label == _F.LABEL_REPEATED else single

    def _single(self, field: _F, *, asked: bool) -> Schema:
        if field.type == _F.TYPE_MESSAGE:
            return _WELL_KNOWN.get(field.type_name) or self.ref(
                field.type_name.removeprefix(_PACKAGE), asked=asked
            )
        if field.type == _F.TYPE_ENUM:
            return {"type": "string", "enum": self._protos.enums[field.type_name.removeprefix(_PACKAGE)]}
        return _SCALARS[field.type]


_WELL_KNOWN: dict[str, Schema] = {
    ".google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    ".google.protobuf.Duration": {
        "type": "string",
        "pattern": r"^[0-9]{1,12}(\.[0-9]{1,9})?s$",
        "examples": ["3600s"],
    },
}
_SCALARS: dict[int, Schema] = {
    _F.TYPE_STRING: {"type": "string"},
    _F.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    _F.TYPE_BOOL: {"type": "boolean"},
    _F.TYPE_DOUBLE: {"type": "number"},
    _F.TYPE_FLOAT: {"type": "number"},
    _F.TYPE_UINT32: {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
    _F.TYPE_SINT32: {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    _F.TYPE_INT32: {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    _F.TYPE_UINT64: {"type": "integer", "minimum": 0, "maximum": 2**64 - 1},
    _F.TYPE_INT64: {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    # An identity is a string: a number in JavaScript has 53 bits.
    _F.TYPE_FIXED64: {"type": "string", "pattern": "^[0-9]{1,20}$"},
}


def _has_presence(field: _F) -> bool:
    alone = field.label != _F.LABEL_REPEATED
    return alone and (field.proto3_optional or field.HasField("oneof_index") or field.type == _F.TYPE_MESSAGE)


def _or_null(schema: Schema) -> Schema:
    if "$ref" in schema or "enum" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]}


# Operations


def document() -> tuple[Schema, list[str]]:
    """The document, and fields without a description."""
    protos = Protos()
    schemas = Schemas(protos)
    paths: dict[str, Schema] = {}
    for operation in OPERATIONS:
        path = re.sub(r":path\}", "}", operation.path)
        paths.setdefault(path, {})[operation.http.lower()] = _operation(operation, schemas)
    schemas.ref("Topology")
    schemas.ref("Problem")
    found = {
        "openapi": "3.1.0",
        "info": {"title": "hyperscout", "version": "v1", "description": INTRODUCTION},
        "servers": [{"url": "/", "description": "The collector that serves this document."}],
        "security": [{"token": []}, {"certificate": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.found.items())),
            "responses": {
                "Problem": {
                    "description": "The request failed; the body says why.",
                    "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
            },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of Kubernetes for the collector's audience "
                    "(`authenticate: kubernetes`).",
                },
                "certificate": {
                    "type": "mutualTLS",
                    "description": "A client certificate with a URI hyperscout://reader/NAME or "
                    "hyperscout://admin/NAME (`tls_client_ca`).",
                },
            },
        },
    }
    return found, schemas.undescribed


def _operation(operation: Operation, schemas: Schemas) -> Schema:
    in_path = set(re.findall(r"\{(\w+):path\}", operation.path))
    found: Schema = {"operationId": operation.name, "summary": operation.summary}
    if operation.name == "stream":
        found["description"] = STREAM
    parameters = [_parameter(one, in_path=one.name in in_path) for one in operation.parameters]
    if operation.cached:
        about = "ETag of an earlier response. The answer is 304 if nothing changed since."
        parameters.append(_header("If-None-Match", about, 'W/"42-18c0ffee"'))
    if operation.name == "stream":
        parameters.append(
            _header("Last-Event-ID", "`id` of the last event that was received.", "42-18c0ffee")
        )
    if parameters:
        found["parameters"] = parameters
    if operation.body is not None:
        schema = schemas.ref(operation.body.DESCRIPTOR.name, asked=True)
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    responses = {"200": _answer(operation, schemas)}
    if done := NO_CONTENT.get(operation.name):
        responses = {"204": {"description": done}}
    if operation.cached:
        responses["304"] = {"description": "Nothing changed."}
    found["responses"] = responses | {"default": {"$ref": "#/components/responses/Problem"}}
    return found


def _answer(operation: Operation, schemas: Schemas) -> Schema:
    if operation.name == "openapi":
        return {
            "description": "OpenAPI 3.1.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    schema = schemas.ref(operation.message) if operation.message else {}
    if operation.name.startswith("list_"):
        schema = _page(operation, schema, schemas)
    headers = {"ETag": {"description": "Identifies the generation.", "schema": {"type": "string"}}}
    content: Schema = {"application/json": {"schema": schema}}
    if operation.name == "stream":
        content = {"text/event-stream": {"schema": {"type": "string"}}}
    if operation.name == "get_topology":
        others = {media.partition(";")[0] for media, _ in OUTPUTS.values()} - {"application/json"}
        content |= {media: {} for media in sorted(others)}
    found: Schema = {"description": "The requested objects.", "content": content}
    return {**found, "headers": headers} if operation.cached else found


def _page(operation: Operation, item: Schema, schemas: Schemas) -> Schema:
    properties: Schema = {
        "items": {"description": "The objects of this page.", "type": "array", "items": item},
        "nextPageToken": {
            "description": "`pageToken` of the next page; empty at the end.",
            "type": "string",
        },
        "generation": {
            "description": "The generation that this page shows.",
            "type": "integer",
            "minimum": 0,
        },
    }
    required = list(properties)
    if operation.message == "HistoryEvent":
        properties["oldest"] = {
            "description": "Time of the oldest entry of the history (UTC).",
            "type": "string",
            "format": "date-time",
        }
    if operation.name == "list_history":
        flaps = schemas.ref("FlapCount")
        properties["flaps"] = {
            "description": "On the first page: what changed more than twice, sorted by number of changes.",
            "type": "array",
            "items": flaps,
        }
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": required,
    }


def _parameter(one: Parameter, *, in_path: bool) -> Schema:
    schema: Schema
    match one.kind:
        case "number":
            schema = {"type": "integer", "minimum": one.least, "maximum": one.most}
        case "flag":
            schema = {"type": "boolean"}
        case "time":
            schema = {"type": "string", "format": "date-time"}
        case _:
            schema = {"type": "string"}
    if one.choices:
        schema["enum"] = list(one.choices)
    elif one.required:
        schema["minLength"] = 1
    if one.repeated:
        schema = {"type": "array", "items": schema, "maxItems": 100}
    found: Schema = {"name": one.name, "in": "path" if in_path else "query", "description": one.description}
    if one.required or in_path:
        found["required"] = True
    if one.repeated:
        found |= {"style": "form", "explode": True}
    found["schema"] = schema
    if one.example is not None:
        found["example"] = [one.example] if one.repeated else one.example
    return found


def _header(name: str, about: str, example: str) -> Schema:
    return {
        "name": name,
        "in": "header",
        "description": about,
        "schema": {"type": "string"},
        "example": example,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when it is stale")
    check = parser.parse_args().check
    found, undescribed = document()
    if undescribed:
        sys.exit("no comment in proto/: " + ", ".join(undescribed))
    text = json.dumps(found, indent=1) + "\n"
    if TARGET.exists() and TARGET.read_text() == text:
        return
    if check:
        sys.exit(f"stale: {TARGET.relative_to(ROOT.parent)}; run `make openapi`")
    TARGET.write_text(text)
    print(f"wrote {TARGET.relative_to(ROOT.parent)}")  # noqa: T201 - a command line prints


if __name__ == "__main__":
    main()
