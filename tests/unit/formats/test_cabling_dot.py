"""Cabling plans in DOT: documented plans, the rest of the language, and errors with their lines."""

import pytest
from hyperscout_formats.cabling import dot
from hyperscout_formats.text.errors import FormatError
from support.cabling_files import rows

# Cumulus Linux 5.15, Prescriptive Topology Manager: templates, and a cable that is listed twice.
TEMPLATES = b"""\
graph G {
          hostnametype="hostname"
          LLDP=""
          LLDP1="match_type=ifname"
          "cumulus":"swp44" -- "qct-ly2-04":"swp20" [LLDP="lldptmpl=LLDP1"]
          "cumulus":"swp46" -- "qct-ly2-04":"swp22" [LLDP="lldptmpl=LLDP2"]
          "cumulus":"swp46" -- "qct-ly2-04":"swp22"
}
"""
# UFM Cable Validation Tool 1.5.0, Dot File, shortened.
ROLES = b"""\
graph network { "l1" [ label="l1" role="leaf" os="cumulus"] "s1" [label="s1", role="spine"]
"l1":"swp1s0" -- "compute01":"enp3s0np0" "l1":"swp1s1" -- "compute02":"enp3s0np0" }
"""


def test_the_documented_plans_are_read() -> None:
    assert rows(dot.parse(TEMPLATES)) == [
        ("cumulus", "swp44", "qct-ly2-04", "swp20"),
        ("cumulus", "swp46", "qct-ly2-04", "swp22"),
    ]
    assert rows(dot.parse(ROLES)) == [
        ("l1", "swp1s0", "compute01", "enp3s0np0"),
        ("l1", "swp1s1", "compute02", "enp3s0np0"),
    ]
    assert [cable.place.line for cable in dot.parse(TEMPLATES).cables] == [5, 6]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("graph { a:1 -- b:2 }", [("a", "1", "b", "2")]),
        ("STRICT Graph x { a:1 -- b:2; }", [("a", "1", "b", "2")]),
        ("digraph { a:1 -> b:2 }", [("a", "1", "b", "2")]),
        ("graph { a -- b a -- b }", [("a", "", "b", "")] * 2),
        ("graph { a:1 -- b -- c:2 }", [("a", "1", "b", ""), ("b", "", "c", "2")]),
        ("graph { a:1 -- b:2 b:2 -- a:1 }", [("a", "1", "b", "2")]),
        ("graph { node [shape=box] edge [w=1][x=2;] { subgraph { subgraph s { a:1 -- b:-.5 } } } }",
         [("a", "1", "b", "-.5")]),
        ("# hall\ngraph /* { */ { // a:0 -- b:0\n# a:0 -- b:0\na:1/**/--b:2 }\n#", [("a", "1", "b", "2")]),
        (r'graph { "a\"b":1 -- "c\d":2 }', [('a"b', "1", r"c\d", "2")]),
        ('graph { "leaf\\\n-1":1 -- b:2 }', [("leaf-1", "1", "b", "2")]),
        ('graph { "node":1 -- "--":2 }', [("node", "1", "--", "2")]),
        ("graph { é:1 -- b:2 }", [("é", "1", "b", "2")]),
    ],
)  # fmt: skip
def test_the_language(text: str, expected: list[tuple[str, ...]]) -> None:
    assert dot.matches(text.encode())
    assert rows(dot.parse(text.encode())) == expected


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("graph {\n}", 0, "no cable between two network ports"),
        ("graph {\n\n a:1 -- ", 3, "found the end of the file, expected DEVICE:PORT"),
        ("graph {\n a:1 -- b:1", 2, "found the end of the file, expected a closing }"),
        ("graph {\n a:1 -> b:1 }", 2, "found '->', expected --, as it is a graph"),
        ("digraph {\n a:1 -- b:1 }", 2, "found '--', expected ->, as it is a digraph"),
        ("graph {\n leaf-1:1 -- b:1 }", 2, "found 'leaf-1:1 -- b:1 }': put a name"),
        ("graph {\n 1a:1 -- b:1 }", 2, "found '1a:1 -- b:1 }'"),
        ("graph {\n a:1 -- {b c} }", 2, "found '{', expected DEVICE:PORT"),
        ("graph {\n a:1 -- subgraph {} }", 2, "found 'subgraph', expected DEVICE:PORT"),
        ("graph {\n {a b} -- c:1 }", 2, "found '--', expected DEVICE:PORT or an attribute"),
        ("graph {\n a:1:ne -- b:1 }", 2, "found ':', expected DEVICE:PORT or an attribute"),
        ('graph {\n a: -- b:1 }', 2, "found '--', expected a port"),
        ('graph {\n a:1 -- b:" " }', 2, "port: found ' ', expected a name of 1 to 253 printable characters"),
        ('graph {\n "a\x1b":1 -- b:1 }', 2, "device: found 'a\\x1b'"),
        ('graph {\n "a\nb":1 -- b:1 }', 2, "device: found 'a\\nb'"),
        (f"graph {{\n {'a' * 254}:1 -- b:1 }}", 2, "device: found 'aaaa"),
        ("graph {\n a [label=<b>] }", 2, "found '<b>] }'"),
        ("graph {\n a [label] }", 2, "found ']', expected ="),
        ("graph {\n x= ; }", 2, "found ';', expected a value"),
        ('graph {\n "a }', 2, "found '\"a }'"),
        ("graph {\n a:1 -- b:1 }\n}", 3, "found '}', expected one graph in a file"),
        ("graph " + "{" * 102, 1, "at most 100 levels of braces"),
    ],
)  # fmt: skip
def test_an_error_has_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        dot.parse(text.encode(), "plan.dot")
    assert reason in caught.value.reason
    assert (caught.value.source, caught.value.line) == ("plan.dot", line)


def test_another_encoding_is_refused() -> None:
    with pytest.raises(FormatError, match=r"plan.dot:2: not UTF-8"):
        dot.parse('graph {\n "é":1 -- b:1 }'.encode("latin-1"), "plan.dot")


def test_the_number_of_signs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dot, "_MAX_TOKENS", 9)
    with pytest.raises(FormatError, match="more than 9 names and signs"):
        dot.parse(b"graph {" + b";" * 20)
