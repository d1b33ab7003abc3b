"""The JSON Patch that adds missing printer columns to a HyperNode definition: no I/O.

A definition that another product owns keeps its schema and its own columns. Each patch first tests that the
definition is unchanged, so that it never reverts a concurrent change.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]

NAME = "hypernodes.topology.volcano.sh"
VERSION = "v1alpha1"


class UnsuitableError(ValueError):
    """Columns cannot be added to the definition; the message says why."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The patch, empty if no column is missing, and the names of the columns that it adds.

    `kept`: columns of the same name that show another field; `left_out`: columns for which this definition
    has no field. Both are names.
    """

    patch: tuple[Object, ...]
    added: tuple[str, ...]
    kept: tuple[str, ...]
    left_out: tuple[str, ...]
    has_status: bool


def plan(found: Object, ours: Object) -> ColumnPlan:
    """The patch that adds the columns of `ours` to `found`. Raises UnsuitableError."""
    index, version = _version(found)
    there: list[Object] = list(version.get("additionalPrinterColumns") or [])
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    names = {column["name"].lower() for column in there}
    paths = {column["jsonPath"] for column in there}
    added: list[Object] = []
    kept: list[str] = []
    left_out: list[str] = []
    for column in _version(ours)[1]["additionalPrinterColumns"]:
        if column["jsonPath"] in paths:
            continue
        if column["name"].lower() in names:
            kept.append(column["name"])
        elif not _has_field(schema, column["jsonPath"]):
            left_out.append(column["name"])
        else:
            added.append(column)
    return ColumnPlan(
        tuple(_patch(index, version, found, there, added)) if added else (),
        tuple(column["name"] for column in added),
        tuple(kept),
        tuple(left_out),
        "status" in (version.get("subresources") or {}),
    )


def _version(crd: Object) -> tuple[int, Object]:
    versions: Sequence[Object] = (crd.get("spec") or {}).get("versions") or []
    for index, version in enumerate(versions):
        if version.get("name") == VERSION:
            return index, version
    there = ", ".join(str(version.get("name")) for version in versions) or "none"
    raise UnsuitableError(f"{NAME} has no version {VERSION} (it has {there})")


def _has_field(schema: Object, path: str) -> bool:
    """Whether a definition has the field of a column. Only fields of spec differ between versions."""
    if not path.startswith(".spec."):
        return True
    spec = (schema.get("properties") or {}).get("spec") or {}
    known = path.removeprefix(".spec.") in (spec.get("properties") or {})
    return known or bool(spec.get("x-kubernetes-preserve-unknown-fields"))


def _patch(
    index: int, version: Object, found: Object, there: Sequence[Object], added: Sequence[Object]
) -> Iterator[Object]:
    """Tests, then one `add` for each column: before the age if it is shown by default, else at the end."""
    base = f"/spec/versions/{index}"
    columns = f"{base}/additionalPrinterColumns"
    yield {"op": "test", "path": f"{base}/name", "value": version["name"]}
    if not there:
        # JSON Patch cannot test for an absent list (RFC 6902 4.6), so it tests the version of the object.
        yield {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": found["metadata"]["resourceVersion"],
        }
        yield {"op": "add", "path": columns, "value": [dict(column) for column in added]}
        return
    yield {"op": "test", "path": columns, "value": [dict(column) for column in there]}
    age = next((i for i, c in enumerate(there) if c["jsonPath"] == ".metadata.creationTimestamp"), len(there))
    for column in added:
        if column.get("priority", 0) == 0:
            yield {"op": "add", "path": f"{columns}/{age}", "value": dict(column)}
            age += 1
        else:
            yield {"op": "add", "path": f"{columns}/-", "value": dict(column)}
