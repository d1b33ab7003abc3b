"""Reads `kubectl get nodes -o json`: the labels of each node."""

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
    if data[:64].lstrip()[:1] != b"{":
        raise FormatError(source, 0, f"no JSON object; {_EXPECTED}")
    document = json_document.document(data, source, MAX_BYTES, _EXPECTED)
    items = document.get("items", [document])
    if not isinstance(items, list) or len(items) > MAX_NODES:
        raise FormatError(source, 0, f"no list of at most {MAX_NODES} nodes; {_EXPECTED}")
    problems = Problems(source)
    found: dict[str, dict[str, str]] = {}
    for item in items:
        node = item if isinstance(item, Mapping) else {}
        metadata = node.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        name = metadata.get("name")
        if node.get("kind") != "Node" or not isinstance(name, str) or not name.isprintable() or not name:
            problems.add(0, "an item that is not a node with a name")
        elif name in found:
            problems.add(0, f"a second node {name[:60]!a}; the first is used")
        else:
            found[name] = dict(_texts(metadata.get("labels")))
    if not found:
        raise FormatError(source, 0, f"no node; {_EXPECTED}")
    return found, problems.listed()


def _texts(labels: Any) -> Mapping[str, str]:
    if not isinstance(labels, Mapping):
        return {}
    return {key: value for key, value in labels.items() if isinstance(value, str) and value.isprintable()}
