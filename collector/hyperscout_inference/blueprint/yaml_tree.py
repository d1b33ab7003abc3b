"""Parse YAML into plain texts with their line numbers. The input is written by hand and may be hostile.

This module builds the tree from the parser's events. PyYAML's composer is not used: it recurses in C (a file
of brackets ends the process), drops the first value of a duplicate key, and loses line numbers. There are no
anchors, tags or types: every scalar is a text, and the caller checks for numbers.
"""

from collections.abc import Iterator
from typing import NamedTuple

import yaml
from hyperscout_formats.text.errors import FormatError

MAX_BYTES = 32 << 20
MAX_NODES = 2_000_000  # 400 MB of memory
MAX_TEXT = 4096  # characters of one text
_MAX_DEPTH = 6
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, if libyaml is installed


class Node(NamedTuple):
    """`value`: a text, a list of nodes, or nodes by key. `line` counts from 1."""

    line: int
    value: str | list["Node"] | dict[str, "Node"]


def read(data: bytes, source: str) -> Node:
    """Return the only document of a file; an empty mapping for an empty file. Raises FormatError."""
    if len(data) > MAX_BYTES:
        raise FormatError(source, 0, f"{len(data)} bytes: a file has at most {MAX_BYTES}")
    try:
        return _document(yaml.parse(data, _LOADER), source)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
        raise FormatError(source, mark.line + 1 if mark else 0, f"not YAML: {reason}") from error
    except UnicodeError as error:
        raise FormatError(source, 0, "not YAML: not UTF-8") from error


class _Open:
    """A list or mapping that is not yet complete."""

    __slots__ = ("items", "key", "keys", "line")

    def __init__(self, line: int, keys: dict[str, Node] | None) -> None:
        self.line = line
        self.items: list[Node] = []
        self.keys = keys
        self.key: str | None = None

    def add(self, node: Node, source: str) -> None:
        if self.keys is None:
            self.items.append(node)
        elif self.key is None:
            if not isinstance(node.value, str):
                raise FormatError(source, node.line, "expected a name before the colon")
            if node.value in self.keys:
                raise FormatError(source, node.line, f"duplicate key {node.value!a}: remove one")
            self.key = node.value
        else:
            self.keys[self.key] = node
            self.key = None

    def node(self) -> Node:
        return Node(self.line, self.items if self.keys is None else self.keys)


def _document(events: Iterator[yaml.Event], source: str) -> Node:
    found: Node | None = None
    stack: list[_Open] = []
    for number, event in enumerate(events):
        line = event.start_mark.line + 1 if event.start_mark else 0
        done: Node | None = None
        if number > MAX_NODES:
            raise FormatError(source, line, f"more than {MAX_NODES} texts and lists")
        if isinstance(event, yaml.ScalarEvent):
            if len(event.value) > MAX_TEXT:
                raise FormatError(source, line, f"a text of over {MAX_TEXT} characters")
            done = Node(line, event.value)
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            if len(stack) == _MAX_DEPTH:
                raise FormatError(source, line, f"more than {_MAX_DEPTH} levels of nesting")
            stack.append(_Open(line, {} if isinstance(event, yaml.MappingStartEvent) else None))
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            done = stack.pop().node()
        elif isinstance(event, yaml.AliasEvent):
            raise FormatError(source, line, "anchors and aliases are not supported: write out the value")
        if done is None:
            continue
        if stack:
            stack[-1].add(done, source)
        elif found is None:
            found = done
        else:
            raise FormatError(source, line, "a second document: expected one document in a file")
    if found is None or found.value == "":
        return Node(1, {})
    return found
