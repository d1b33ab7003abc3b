"""Parse a blueprint: bytes of YAML -> `Blueprint`, with every pattern expanded. Plans of other systems too.

version: 1
switches: [spine-1, {name: spine-2, id: "02:00:00:00:00:12"}]
patterns:
- name: rails
  for: {u: 1-4, n: 1-32, i: 1-8}
  link: gpu-u{u}-{n:02}/mlx5_{i-1} -> leaf-u{u}-{i}/p{n}
links:
- login-1/eth0 -> leaf-u1-1/p40
- {a: {device: odd/name, port: "1"}, b: {device: leaf-u1-1, port: "41"}}
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from hyperscout_formats.cabling.plan import MAX_CABLES, Place
from hyperscout_formats.cabling.readers import Reader, reader_of
from hyperscout_formats.text import host_list
from hyperscout_formats.text.errors import FormatError

from hyperscout_inference.blueprint.declared import (
    ARROW,
    Blueprint,
    CableList,
    Cables,
    DeclaredSwitch,
    End,
    Pattern,
    end_of,
    plain_port,
)
from hyperscout_inference.blueprint.patterns import (
    MAX_VALUES,
    Loop,
    PatternError,
    Value,
    is_variable,
    template,
    values_of,
)
from hyperscout_inference.blueprint.yaml_tree import Node, read

MAX_SWITCHES = 100_000
_MAX_PATTERNS = 1000
_KEYS = ("version", "switches", "patterns", "links")
_ANY_KEY = re.compile(rb"""^[{ \t]*+["']?(?:%s)["']? *+:""" % "|".join(_KEYS).encode(), re.MULTILINE)
_NO_PLAN = (
    "it is no blueprint, and lacks what marks plans of other systems: for NetBox and P2P files, check the "
    "names of the columns or fields"
)
_MAX_HEADER_BYTES = 16 << 10
MAX_END = 300  # characters


def parse(data: bytes, source: str = "blueprint") -> Blueprint:
    """Parse a blueprint. Raises FormatError with the line of the fault."""
    if reader := reader_of(data):
        try:
            return _imported(reader, data, source)
        except FormatError as error:
            raise FormatError(source, error.line, f"as {reader.kind}: {error.reason}") from error
    try:
        top = _fields(read(data, source), source, *_KEYS)
    except FormatError as error:
        if _ANY_KEY.search(data):
            raise
        raise FormatError(source, error.line, f"{error.reason}; {_NO_PLAN}") from error
    version = top.get("version")
    if version is not None and _text(version, source) != "1":
        raise FormatError(source, version.line, f"version {version.value!a}: expected version 1")
    if not {"switches", "patterns", "links"} & top.keys():
        raise FormatError(source, 0, "empty: expected switches, patterns or links")
    cables = CableList()
    patterns = _patterns(top.get("patterns"), cables, source)
    for node in _list(top.get("links"), source, "links"):
        if len(cables) == MAX_CABLES:
            raise FormatError(source, node.line, f"more than {MAX_CABLES} cables")
        cables.add(*_link(node, source), node.line)
    found = cables.cables()
    _once(
        found,
        source,
        lambda origin: Place(origin) if origin > 0 else Place(0, f"pattern {patterns[-1 - origin].name!a}"),
    )
    return Blueprint(_switches(top.get("switches"), source), patterns, found, _header(data))


def _imported(reader: Reader, data: bytes, source: str) -> Blueprint:
    plan = reader.parse(data, source)
    cables = CableList()
    for number, cable in enumerate(plan.cables, 1):
        a, b = (End(end.device, plain_port(end.port)) for end in (cable.a, cable.b))
        cables.add(a, b, number)
    found = cables.cables()
    _once(found, source, lambda number: plan.cables[number - 1].place)
    return Blueprint((), (), found, kind=reader.kind, left_out=plan.left_out)


def _header(data: bytes) -> str:
    lines: list[str] = []
    for line in data[:_MAX_HEADER_BYTES].decode("utf-8", "replace").splitlines():
        if not line.startswith("#"):
            return "".join(f"{x}\n" for x in lines)
        lines.append(line)
    return ""


def _fields(node: Node, source: str, *known: str) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise FormatError(source, node.line, f"expected a mapping with the keys {', '.join(known)}")
    for key, value in node.value.items():
        if key not in known:
            raise FormatError(source, value.line, f"unknown key {key!a}: expected {', '.join(known)}")
    return node.value


def _list(node: Node | None, source: str, what: str) -> list[Node]:
    if node is None or node.value == "":
        return []
    if not isinstance(node.value, list):
        raise FormatError(source, node.line, f"{what}: expected a list, with a dash before each item")
    return node.value


def _text(node: Node, source: str) -> str:
    if not isinstance(node.value, str):
        raise FormatError(source, node.line, "expected one text, not a list or mapping")
    if not node.value.strip() or not node.value.isprintable():
        raise FormatError(source, node.line, f"{node.value!a}: expected a name of printable characters")
    return node.value


def _switches(node: Node | None, source: str) -> tuple[DeclaredSwitch, ...]:
    found: dict[str, DeclaredSwitch] = {}
    for item in _list(node, source, "switches"):
        if isinstance(item.value, str):
            names, ident = _expanded(_text(item, source), item.line, source), ""
        else:
            fields = _fields(item, source, "name", "id")
            if "name" not in fields:
                raise FormatError(source, item.line, "a switch needs a name")
            names = [_text(fields["name"], source)]
            ident = _text(fields["id"], source) if "id" in fields else ""
        for name in names:
            if name in found:
                raise FormatError(source, item.line, f"switch {name!a} is declared twice: remove one")
            found[name] = DeclaredSwitch(name, ident)
        if len(found) > MAX_SWITCHES:
            raise FormatError(source, item.line, f"more than {MAX_SWITCHES} switches")
    return tuple(found.values())


def _expanded(text: str, line: int, source: str) -> list[str]:
    """Return the names of "leaf-[01-32]"; a comma outside of brackets is part of a name."""
    try:
        return host_list.spread(text, MAX_SWITCHES, "switches")
    except host_list.HostListError as error:
        hint = f"write a name with brackets as {{name: {text[:40]!a}}}"
        raise FormatError(source, line, f"{error} ({hint})") from error


def _patterns(node: Node | None, cables: CableList, source: str) -> tuple[Pattern, ...]:
    nodes = _list(node, source, "patterns")
    if len(nodes) > _MAX_PATTERNS:
        raise FormatError(source, nodes[-1].line, f"more than {_MAX_PATTERNS} patterns")
    found: list[Pattern] = []
    for number, item in enumerate(nodes, 1):
        try:
            pattern = _pattern(item, number, source)
            if pattern.loop.size > MAX_CABLES - len(cables):
                raise PatternError(f"{pattern.loop.size} cables: a blueprint has at most {MAX_CABLES}")
            for values in pattern.loop:
                a, b = pattern.a.filled(values), pattern.b.filled(values)
                cables.add(_end(a), _end(b), -number)
        except PatternError as error:
            raise FormatError(source, item.line, str(error)) from error
        found.append(pattern)
    return tuple(found)


def _pattern(node: Node, number: int, source: str) -> Pattern:
    fields = _fields(node, source, "name", "for", "link")
    if "link" not in fields:
        raise FormatError(source, node.line, "a pattern needs a link")
    loop: dict[str, tuple[Value, ...]] = {}
    written: list[tuple[str, tuple[str, ...]]] = []
    over = fields.get("for")
    if over is not None and not isinstance(over.value, dict):
        raise FormatError(source, over.line, "for: expected variables, as in {u: 1-4, i: 1-8}")
    given: Any = over.value if over is not None else {}
    for name, node_ in given.items():
        if not is_variable(name):
            raise PatternError(f"{name!a}: expected a variable name: at most 32 letters, digits and _")
        rows = node_.value if isinstance(node_.value, list) else [node_]
        texts = [_text(x, source) for x in rows]
        values = [value for text in texts for value in values_of(text)]
        if not values or len(values) > MAX_VALUES:
            raise PatternError(f"{name}: {len(values)} values: expected 1 to {MAX_VALUES}")
        if len(set(values)) < len(values):
            raise PatternError(f"{name}: the same value twice: remove one")
        loop[name] = tuple(values)
        written.append((name, tuple(texts)))
    link = _text(fields["link"], source)
    a, b = (template(text, list(loop)) for text in _two(link))
    name = _text(fields["name"], source) if "name" in fields else f"pattern {number}"
    return Pattern(name, tuple(written), Loop(loop), a, b, link)


def _two(link: str) -> list[str]:
    ends = ARROW.split(link.strip())
    if len(ends) != 2:
        raise PatternError(f"{link!a}: expected DEVICE/PORT -> DEVICE/PORT")
    return ends


def _end(text: str) -> End:
    end = end_of(text)
    if not end.device or len(text) > MAX_END:
        raise PatternError(f"{text[:MAX_END]!a}: expected DEVICE/PORT, at most {MAX_END} characters")
    return end


def _link(node: Node, source: str) -> tuple[End, End]:
    if isinstance(node.value, str):
        try:
            a, b = (_end(text) for text in _two(_text(node, source)))
        except PatternError as error:
            raise FormatError(source, node.line, str(error)) from error
        return a, b
    fields = _fields(node, source, "a", "b")
    if len(fields) < 2:
        raise FormatError(source, node.line, "a link has two ends, a and b")
    ends = []
    for key in ("a", "b"):
        parts = _fields(fields[key], source, "device", "port")
        if "device" not in parts:
            raise FormatError(source, fields[key].line, "an end needs a device")
        port = parts.get("port")
        text = "" if port is None or port.value == "" else _text(port, source)
        ends.append(End(_text(parts["device"], source), plain_port(text)))
    return ends[0], ends[1]


def _once(cables: Cables, source: str, place: Callable[[int], Place]) -> None:
    """Raise FormatError if a port has two cables. `place`: where the cable of an origin is written."""
    devices = np.concatenate([cables.a, cables.b])
    ports = np.concatenate([cables.a_port, cables.b_port])
    ends = np.flatnonzero(ports)
    keys = (devices * len(cables.ports) + ports)[ends]
    order = np.argsort(keys, kind="stable")
    twice = np.flatnonzero(keys[order][1:] == keys[order][:-1])
    if not len(twice):
        return
    first, second = (int(ends[order[twice[0] + i]]) for i in (0, 1))
    places = [place(int(cables.origin[at % len(cables)])) for at in (first, second)]
    end = End(cables.devices[devices[first]], cables.ports[ports[first]])
    raise FormatError(
        source,
        places[1].line,
        f"{end} has two cables ({places[0]} and {places[1]}): remove one",
    )
