"""Reads `kubectl get nodes -o json`: the labels, taints and conditions of each node."""

from collections.abc import Mapping
from typing import Any, Final

from hyperscout_formats.text import json_document
from hyperscout_formats.text.errors import FormatError, Problem
from hyperscout_formats.text.problems import Problems

MAX_BYTES: Final = 1 << 30
"""A node with its images takes 20 kB."""
MAX_NODES: Final = 200_000
_EXPECTED: Final = "expected the output of `kubectl get nodes -o json`"


def parse(data: bytes, source: str = "nodes") -> tuple[dict[str, dict[str, str]], tuple[Problem, ...]]:
    """Return labels by node, and the items that were left out. Raises FormatError for other text."""
    nodes, problems = _nodes(data, source)
    labels = {name: dict(_texts(node["metadata"].get("labels"))) for name, node in nodes.items()}
    return labels, problems.listed()


def node_objects(data: bytes, source: str = "nodes") -> tuple[dict[str, dict[str, Any]], tuple[Problem, ...]]:
    """Return the objects by node, and the items that were left out. Raises FormatError for other text.

    Labels are texts, as are the fields of taints and conditions that say whether a node accepts pods.
    """
    nodes, problems = _nodes(data, source)
    found: dict[str, dict[str, Any]] = {}
    for name, node in nodes.items():
        metadata, spec, status = (_object(node.get(key)) for key in ("metadata", "spec", "status"))
        metadata["labels"] = dict(_texts(metadata.get("labels")))
        taints, conditions = spec.get("taints"), status.get("conditions")
        if _have_texts(taints, "key", "value", "effect") and _have_texts(conditions, "type", "status"):
            found[name] = {"metadata": metadata, "spec": spec, "status": status}
        else:
            problems.add(0, f"node {name[:60]!a}: expected lists of taints and conditions with texts")
    return found, problems.listed()


def _nodes(data: bytes, source: str) -> tuple[dict[str, Mapping[str, Any]], Problems]:
    """Return the nodes with a name. Their metadata is an object."""
    if data[:64].lstrip()[:1] != b"{":
        raise FormatError(source, 0, f"no JSON object; {_EXPECTED}")
    document = json_document.document(data, source, MAX_BYTES, _EXPECTED)
    items = document.get("items", [document])
    if not isinstance(items, list) or len(items) > MAX_NODES:
        raise FormatError(source, 0, f"no list of at most {MAX_NODES} nodes; {_EXPECTED}")
    problems = Problems(source)
    found: dict[str, Mapping[str, Any]] = {}
    for item in items:
        node = _object(item)
        name = _object(node.get("metadata")).get("name")
        if node.get("kind") != "Node" or not isinstance(name, str) or not name.isprintable() or not name:
            problems.add(0, "an item that is not a node with a name")
        elif name in found:
            problems.add(0, f"a second node {name[:60]!a}; the first is used")
        else:
            found[name] = node
    if not found:
        raise FormatError(source, 0, f"no node; {_EXPECTED}")
    return found, problems


def _object(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _have_texts(value: Any, *fields: str) -> bool:
    """Whether the value is missing, or a list of objects in which these fields are texts."""
    if value is None:
        return True
    return isinstance(value, list) and all(
        isinstance(x, Mapping) and all(isinstance(x.get(field, ""), str) for field in fields) for x in value
    )


def _texts(labels: Any) -> Mapping[str, str]:
    if not isinstance(labels, Mapping):
        return {}
    return {key: value for key, value in labels.items() if isinstance(value, str) and value.isprintable()}
