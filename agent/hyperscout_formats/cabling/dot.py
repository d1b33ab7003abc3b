"""Reads cabling plans in Graphviz's DOT language, as Cumulus Linux's Prescriptive Topology Manager uses it.

    graph G {
        "leaf01":"swp49" -- "spine01":"swp1"
    }

Grammar: https://graphviz.org/doc/info/lang.html. Meaning of nodes and ports: Cumulus Linux 5.15,
Prescriptive Topology Manager. A node is a device and an edge is a cable; attributes are ignored. Not in
plans, and refused: edges of subgraphs, compass points, HTML labels, concatenated strings.

The reader is hyperscout's own. pydot 4.0.1 (MIT), which parses DOT without Graphviz, took 36 s for 3,600
cables and raised RecursionError for nested braces.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from hyperscout_formats.cabling.plan import MAX_CABLES, Place, Plan, PlanBuilder, PlannedEnd, text_of
from hyperscout_formats.text.errors import FormatError

_BLANK: Final = r"(?:\s++|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/|(?<![^\n])#[^\n]*+)*+"
# Graphviz reads leaf-1 as the two nodes leaf and -1. Here it is an error.
_ID: Final = r'"(?:[^"\\]++|\\.)*+"|[^\W\d]\w*+(?![-.]?\w)|-?(?:\.\d++|\d++(?:\.\d*+)?)(?![\w.])'
_TOKEN: Final = re.compile(
    rf"{_BLANK}(?:(?P<name>{_ID})|(?P<sign>--|->|[{{}}\[\];,=:])|(?P<end>\Z))", re.DOTALL
)
_BETWEEN: Final = re.compile(_BLANK, re.DOTALL)
_HEADER: Final = re.compile(
    rf"\ufeff?{_BLANK}(?:strict\b{_BLANK})?(?:di)?graph\b{_BLANK}(?:(?:{_ID}){_BLANK})?\{{",
    re.DOTALL | re.IGNORECASE,
)
_MAX_DEPTH: Final = 100
_MAX_TOKENS: Final = 20 * MAX_CABLES  # a cable without attributes has 8
_DRAWING: Final = "hyperscout"  # the name of the graph that `-o dot` prints
_NO_PLAN: Final = "a drawing of hyperscout is no plan: use `hyperscout get links -o netbox-csv`"
_HEAD_BYTES: Final = 64 << 10
_ESCAPE: Final = re.compile(r'\\("|\r?\n)')
_EDGES: Final = ("--", "->")
_END: Final = "the end of the file"


def matches(data: bytes) -> bool:
    """Return whether the data begins as a graph does."""
    return _HEADER.match(data[:_HEAD_BYTES].decode("utf-8", "replace")) is not None


def parse(data: bytes, source: str = "dot") -> Plan:
    """Return the cables of a graph. Raises FormatError."""
    builder = PlanBuilder(data, source)
    tokens = _Tokens(text_of(data, source), builder)
    edge = tokens.header()
    depth = 1
    while depth:
        if depth > _MAX_DEPTH:
            raise tokens.wrong(tokens.next, f"at most {_MAX_DEPTH} levels of braces")
        token = tokens.take()
        match token.word:
            case "{":
                depth += 1
            case "}":
                depth -= 1
            case ";":
                pass
            case "subgraph":
                if tokens.next.word != "{":
                    tokens.name("a name of the subgraph")
                tokens.expect("{")
                depth += 1
            case "graph" | "node" | "edge":
                tokens.attributes()
            case _:
                _statement(tokens, token, edge, builder)
    if tokens.next.word != _END:
        raise tokens.wrong(tokens.next, "one graph in a file")
    return builder.plan()


def _statement(tokens: "_Tokens", first: "_Token", edge: str, builder: PlanBuilder) -> None:
    """Read a node, an edge or an attribute of the graph that begins with a name."""
    if first.name is None:
        raise tokens.wrong(first, "DEVICE:PORT or an attribute")
    if tokens.next.word == "=":
        tokens.take()
        tokens.name("a value")
        return
    place = Place(first.line)
    end = _end(tokens, first, place, builder)
    while tokens.next.word in _EDGES:
        if (token := tokens.take()).word != edge:
            raise tokens.wrong(token, f"{edge}, as it is a {'graph' if edge == '--' else 'digraph'}")
        other = _end(tokens, tokens.name("DEVICE:PORT"), place, builder)
        builder.add(place, end, other)
        end = other
    tokens.attributes()


def _end(tokens: "_Tokens", device: "_Token", place: Place, builder: PlanBuilder) -> PlannedEnd:
    port = ""
    if tokens.next.word == ":":
        tokens.take()
        port = builder.name(place, "port", tokens.name("a port").name)
    return PlannedEnd(builder.name(place, "device", device.name), port)


class _Token(NamedTuple):
    """`word`: a sign, or an unquoted name in lower case, "" = a quoted name. `name`: None = a sign."""

    line: int
    word: str
    name: str | None


class _Tokens:
    """The tokens of a text, with one token of lookahead in `next`."""

    def __init__(self, text: str, builder: PlanBuilder) -> None:
        self._builder = builder
        self._tokens = self._split(text)
        self.next = next(self._tokens)

    def _split(self, text: str) -> Iterator[_Token]:
        at, line, number = 0, 1, 0
        while match := _TOKEN.match(text, at):
            if (number := number + 1) > _MAX_TOKENS:
                raise self._builder.error(Place(line), f"more than {_MAX_TOKENS} names and signs")
            start = match.start(match.lastgroup or 0)
            line += text.count("\n", at, start)
            at = match.end()
            found = text[start:at]
            if match.lastgroup == "sign":
                yield _Token(line, found, None)
            elif match.lastgroup == "end":
                yield _Token(line, _END, None)
            elif found[0] == '"':
                yield _Token(line, "", _ESCAPE.sub(lambda x: x[1].strip("\r\n"), found[1:-1]))
                line += found.count("\n")
            else:
                yield _Token(line, found.lower(), found)
        blank = _BETWEEN.match(text, at)
        end = blank.end() if blank else at
        hint = 'put a name with other characters than letters, digits and _ in "quotes"'
        reason = f"found {text[end : end + 20]!a}: {hint}"
        raise self._builder.error(Place(line + text.count("\n", at, end)), reason)

    def take(self) -> _Token:
        token = self.next
        if token.word == _END:
            raise self.wrong(token, "a closing }")
        self.next = next(self._tokens)
        return token

    def expect(self, word: str) -> None:
        if self.next.word != word:
            raise self.wrong(self.next, word)
        self.take()

    def name(self, expected: str) -> _Token:
        if self.next.name is None or self.next.word in {"subgraph", "node", "edge", "graph", "digraph"}:
            raise self.wrong(self.next, expected)
        return self.take()

    def header(self) -> str:
        """Read the start of the graph. Returns the operator of its edges."""
        if self.next.word == "strict":
            self.take()
        edge = {"graph": "--", "digraph": "->"}.get(self.next.word)
        if edge is None:
            raise self.wrong(self.next, "graph or digraph")
        self.take()
        if self.next.word != "{" and self.name("a name of the graph").name == _DRAWING:
            raise self._builder.error(Place(0), _NO_PLAN)
        self.expect("{")
        return edge

    def attributes(self) -> None:
        """Read over [name=value, ...], any number of times."""
        while self.next.word == "[":
            self.take()
            while self.next.word != "]":
                self.name("an attribute or ]")
                self.expect("=")
                self.name("a value")
                if self.next.word in {",", ";"}:
                    self.take()
            self.take()

    def wrong(self, token: _Token, expected: str) -> FormatError:
        shown = token.word if token.word == _END else ascii((token.name or token.word)[:60])
        return self._builder.error(Place(token.line), f"found {shown}, expected {expected}")
