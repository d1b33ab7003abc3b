"""Blueprints as people write them, well and badly."""

import pytest
from hyperscout_cli.shared.dot import dot
from hyperscout_formats.text.errors import FormatError
from hyperscout_inference.blueprint import reading, yaml_tree
from hyperscout_inference.blueprint.declared import Blueprint, DeclaredSwitch
from hyperscout_inference.blueprint.reading import parse
from hypothesis import given
from hypothesis import strategies as st
from support.cabling_files import NETBOX_HEADER
from support.real import ROOT
from support.topologies import two_leaves

PLAN = b"""\
# Hall 2.
# Ask Ines before you change it.

version: 1
switches:
- spine-1
- {name: spine-2, id: "02:00:00:00:00:12"}
- leaf-u[01-02]-[1,3]
patterns:
- name: rails
  for: {u: 1-2, n: [1-2, 9], i: 1-2}
  link: gpu-u{u}-{n:02}/mlx5_{i-1} -> leaf-u{u:02}-{i}/p{n}
- link: leaf-u01-1/Ethernet1/49 -- spine-1
links:
- login-1/eth0 -> leaf-u01-1/p40
- {a: {device: odd/name, port: "1"}, b: {device: leaf-u01-1, port: p41}}
- {a: {device: x}, b: {device: spine-2, port: ""}}
"""


def cables(found: Blueprint) -> list[tuple[str, ...]]:
    return [tuple(map(str, found.cables.ends(row))) for row in range(len(found.cables))]


def test_a_whole_one() -> None:
    found = parse(PLAN)
    assert found.switches == (
        DeclaredSwitch("spine-1"),
        DeclaredSwitch("spine-2", "02:00:00:00:00:12"),
        *(DeclaredSwitch(f"leaf-u0{u}-{i}") for u in (1, 2) for i in (1, 3)),
    )
    assert found.header == "# Hall 2.\n# Ask Ines before you change it.\n"
    assert [p.name for p in found.patterns] == ["rails", "pattern 2"]
    all_ = cables(found)
    assert len(all_) == 12 + 1 + 3
    assert all_[:2] == [
        ("gpu-u1-01/mlx5_0", "leaf-u01-1/p1"),
        ("gpu-u1-01/mlx5_1", "leaf-u01-2/p1"),
    ]
    assert all_[11:] == [
        ("gpu-u2-09/mlx5_1", "leaf-u02-2/p9"),
        ("leaf-u01-1/Ethernet1/49", "spine-1"),
        ("login-1/eth0", "leaf-u01-1/p40"),
        ("odd/name/p1", "leaf-u01-1/p41"),
        ("x", "spine-2"),
    ]
    assert found.cables.origin.tolist() == [-1] * 12 + [-2] + [15, 16, 17]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (b"", 0, "empty"),
        (b"# nothing\n", 0, "empty"),
        (b"version: 1\n", 0, "empty"),
        (b"- a\n", 1, "keys version, switches, patterns, links"),
        (b"switch: [a]\n", 1, "unknown key 'switch'"),
        (b"version: 2\nlinks: []", 1, "expected version 1"),
        (b"# of tomorrow\nversion: 2\n", 2, "version '2': expected version 1"),
        (b"links: []\nlinks: []\n", 2, "duplicate key 'links'"),
        (b"links: a -> b\n", 1, "links: expected a list"),
        (b"links:\n- a -> b -> c\n", 2, "expected DEVICE/PORT -> DEVICE/PORT"),
        (b"links:\n- a/1\n", 2, "expected DEVICE/PORT -> DEVICE/PORT"),
        (b"links:\n- /1 -> b\n", 2, "expected DEVICE/PORT"),
        (b'links:\n- "a\\u0007 -> b"\n', 2, "expected a name of printable characters"),
        (b"links:\n- {a: {device: x}}\n", 2, "two ends"),
        (b"links:\n- {a: {port: x}, b: {device: y}}\n", 2, "an end needs a device"),
        (b"links:\n- [a, b]\n", 2, "keys a, b"),
        (b"links:\n- a/1 -> b/1\n- c/1 -> b/p1\n", 3, "b/p1 has two cables (line 2 and line 3)"),
        (b"links:\n- a/1 -> a/1\n", 2, "a/p1 has two cables"),
        (b"patterns:\n- {link: a/1 -> b/1}\nlinks:\n- a/1 -> c\n", 4, "(pattern 'pattern 1' and line 4)"),
        (b"patterns:\n- for: {u: 1-2}\n", 2, "a pattern needs a link"),
        (b"patterns:\n- {for: [u], link: a -> b}\n", 2, "for: expected variables"),
        (b"patterns:\n- {for: {u: 2-1}, link: a -> b}\n", 2, "1 is less than 2"),
        (b"patterns:\n- {for: {u: [1, 1]}, link: a -> b}\n", 2, "the same value twice"),
        (b"patterns:\n- {for: {u: []}, link: a -> b}\n", 2, "0 values"),
        (b"patterns:\n- {for: {1u: 1}, link: a -> b}\n", 2, "expected a variable name"),
        (b"patterns:\n- {for: {u: 1-2}, link: 'a{u/2} -> b'}\n", 2, "expected numbers, variables"),
        (b"patterns:\n- {for: {u: 1-2}, link: 'a{v} -> b'}\n", 2, "no variable 'v'"),
        (b"patterns:\n- {for: {u: 1-90000, v: 1-90000}, link: 'a{u} -> b{v}'}\n", 2, "8100000000 cables"),
        (b"switches: [a, a]\n", 1, "switch 'a' is declared twice"),
        (b"switches:\n- {id: x}\n", 2, "a switch needs a name"),
        (b"switches:\n- 'leaf-[1-999999]'\n", 2, "more than 100000 switches"),
        (
            b"switches:\n- 'leaf-[1-99999999999]'\n",
            2,
            "a number in brackets has at most 9 digits",
        ),
        (b"switches:\n- 'leaf-[a]'\n", 2, "(write a name with brackets as {name: 'leaf-[a]'})"),
        (b"switches:\n- 'leaf-[1-999]-[1-999]'\n", 2, "more than 100000 switches"),
        (b"links: &x []\nswitches: *x\n", 2, "anchors and aliases are not supported"),
        (b"links: [\n", 2, "not YAML"),
        (b"links: []\n---\nlinks: []\n", 4, "a second document"),
        (b"? [a]\n: b\n", 1, "expected a name before the colon"),
        (b"links: " + b"[" * 100_000, 1, "more than 6 levels of nesting"),
        (b"links: " + b"{a: " * 100_000, 1, "more than 6 levels of nesting"),
        (b"links:\n- " + b"x" * 5000, 2, "a text of over 4096 characters"),
        (b"links:\n- " + b"x" * 400 + b" -> b", 2, "at most 300 characters"),
        (b"\xff\xfe\xfa", 0, "not YAML"),
    ],
)
def test_what_is_wrong_is_named(text: bytes, line: int, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse(text, "plan.yaml")
    assert reason in caught.value.reason
    assert (caught.value.source, caught.value.line) == ("plan.yaml", line)


def test_a_port_left_open_may_have_many_cables() -> None:
    found = parse(b"patterns:\n- {for: {k: 1-3}, link: leaf-1 -> spine-1}\n")
    assert cables(found) == [("leaf-1", "spine-1")] * 3


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_CABLES", 3)
    with pytest.raises(FormatError, match="more than 3 cables"):
        parse(b"links:\n" + b"".join(b"- a/%d -> b/%d\n" % (i, i) for i in range(4)))
    with pytest.raises(FormatError, match="4 cables: a blueprint has at most 3"):
        parse(b"patterns:\n- {for: {u: 1-4}, link: 'a/{u} -> b/{u}'}\n")
    monkeypatch.setattr(yaml_tree, "MAX_NODES", 20)
    with pytest.raises(FormatError, match="more than 20 texts and lists"):
        parse(b"links: [" + b"a, " * 20 + b"]")
    monkeypatch.setattr(yaml_tree, "MAX_BYTES", 10)
    with pytest.raises(FormatError, match="a file has at most 10"):
        parse(b"links: [a -> b]")


@given(st.binary(max_size=300))
def test_any_bytes_give_a_blueprint_or_its_error(data: bytes) -> None:
    _read(data)


@given(st.lists(st.tuples(st.integers(0, len(PLAN) - 1), st.binary(max_size=4)), min_size=1, max_size=6))
def test_a_damaged_blueprint_is_read_or_refused(edits: list[tuple[int, bytes]]) -> None:
    data = PLAN
    for at, new in edits:
        data = data[:at] + new + data[at + 1 :]
    _read(data)


@given(st.text("{}()+-*/%:0123456789uvn ", max_size=40))
def test_any_expression_is_filled_or_refused(text: str) -> None:
    _read(f"patterns:\n- {{for: {{u: 1-3, n: 2}}, link: {text!r}}}\n".encode())
    _read(f"patterns:\n- for: {{u: 1-3, n: 2}}\n  link: a/{text} -> b\n".encode())


def _read(data: bytes) -> None:
    try:
        found = parse(data, "x")
    except FormatError as error:
        assert error.source == "x"  # noqa: PT017 - either outcome is right
    else:
        assert all(end.device for row in range(len(found.cables)) for end in found.cables.ends(row))


def test_the_example_of_the_page_is_one() -> None:
    text = (ROOT / "docs" / "blueprints.md").read_text("utf-8")
    found = parse(text.partition("```yaml\n")[2].partition("```")[0].encode())
    assert len(found.cables) == 4 * 32 * 8 + 4 * 8 * 16 + 2
    assert len(found.switches) == 16 + 32 + 1


def test_an_error_says_which_plan_was_expected() -> None:
    data = f"{NETBOX_HEADER}\nh1,dcim.interface,eth0,l1,dcim.interface,\n".encode()
    with pytest.raises(FormatError, match=r"^plan\.csv:2: as NetBox CSV: side_b_name: found ''"):
        parse(data, "plan.csv")


@pytest.mark.parametrize(
    "data", [b"A-Node,A-Port,Z-Node Name,Z-Port\na,1,b,2\n", b"\0\1", b"generation: 7\n"]
)
def test_what_is_neither_blueprint_nor_plan_says_where_to_look(data: bytes) -> None:
    with pytest.raises(
        FormatError, match=r"; it is no blueprint, and lacks .* check the names of the columns"
    ):
        parse(data)


@pytest.mark.parametrize(
    "text", ["version: 1\nlink: []\n", '{"links": 3}', " switches : {}\n", "'links': 3\n"]
)
def test_an_error_of_a_blueprint_does_not_mention_plans(text: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse(text.encode())
    assert "is no blueprint" not in caught.value.reason


def test_a_drawing_is_no_plan() -> None:
    with pytest.raises(FormatError, match=r"a drawing of hyperscout is no plan: use `hyperscout get links"):
        parse("".join(dot(two_leaves())).encode())


@pytest.mark.parametrize(
    "text",
    [
        "# Name, Port, Name, Port\nlinks: [h1/eth0 -> l1/1]\n",
        '{"links": [{"a": {"device": "a_terminations", "port": "2"}, "b": {"device": "l1", "port": "2"}}]}',
    ],
)
def test_a_blueprint_is_no_plan_of_another_system(text: str) -> None:
    assert parse(text.encode()).kind == ""
