"""--sort-by, --selector, --no-headers and prefixes of names: pure parts."""

import click
import pytest
from click.shell_completion import ShellComplete
from hyperscout_cli.main import cli
from hyperscout_cli.shared.kinds import TABLES, select
from hyperscout_cli.shared.options import with_prefixes
from hyperscout_cli.shared.table_view import Requirement, View, parse_selector
from hyperscout_cli.shared.tables import Row, Table
from hypothesis import given
from hypothesis import strategies as st
from support.topologies import two_leaves


def has(key: str, *values: str, negated: bool = False) -> Requirement:
    return Requirement(key, frozenset(values) if values else None, negated)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tier=1", [has("tier", "1")]),
        ("tier==1", [has("tier", "1")]),
        ("tier = 1", [has("tier", "1")]),
        ("tier!=1", [has("tier", "1", negated=True)]),
        ("reason", [has("reason")]),
        ("!reason", [has("reason", negated=True)]),
        ("reason=", [has("reason", "")]),
        ("kind in (a, b)", [has("kind", "a", "b")]),
        ("kind notin (a)", [has("kind", "a", negated=True)]),
        ("kind in (a,b),tier=1,!x", [has("kind", "a", "b"), has("tier", "1"), has("x", negated=True)]),
        ("in=in", [has("in", "in")]),
        ("a=gpu-01 mlx5_0", [has("a", "gpu-01 mlx5_0")]),
        ("change=up -> down", [has("change", "up -> down")]),
        ("nodes in (n[01,03],x)", [has("nodes", "n[01,03]", "x")]),
        ("failed=n-[3-4,6],tier=1", [has("failed", "n-[3-4,6]"), has("tier", "1")]),
    ],
)
def test_selectors(text: str, expected: list[Requirement]) -> None:
    assert list(parse_selector(text)) == expected


@pytest.mark.parametrize("text", ["", ",", "a=1,", "=1", "a in", "a in (b", "a b", "!a=1", "a in b"])
def test_what_is_no_selector_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="expected KEY, !KEY"):
        parse_selector(text)


def test_a_long_selector_is_refused() -> None:
    with pytest.raises(ValueError, match="8193 characters: expected at most 4096"):
        parse_selector("a," * 4096 + "a")


@given(st.text(max_size=40))
def test_any_text_is_a_selector_or_a_named_error(text: str) -> None:
    try:
        found = parse_selector(text)
    except ValueError as error:
        assert "expected KEY" in str(error)  # noqa: PT017 (either outcome is right)
    else:
        assert found


@pytest.mark.parametrize(
    ("kind", "selector", "expected"),
    [
        ("hypernodes", "tier=1", ["leaf-a", "leaf-b"]),
        ("hypernodes", "TIERNAME=core", ["core"]),
        ("hypernodes", "tier=1,reason", ["leaf-b"]),
        ("hypernodes", "!reason", ["leaf-a", "core"]),
        ("hypernodes", "reason=", ["leaf-a", "core"]),
        ("hypernodes", "reason!=LinksDown", ["leaf-a", "core"]),
        ("hypernodes", "reason notin (LinksDown,Other)", ["leaf-a", "core"]),
        ("hypernodes", "parent=core,degraded in (True,Unknown)", ["leaf-b"]),
        ("nodes", "leaf=leaf-b", ["n03", "n04"]),
        ("nodes", "core", ["n01", "n02", "n03", "n04"]),
        ("nodes", "note=no evidence", ["n09"]),
        ("links", "sources=lldp", ["a04:1--s2:2"]),
        ("links", "sources=ibnetdiscover,fabric=ib,b=spine", ["s1:9--s9:1", "s2:9--s9:2"]),
        ("links", "port=2", ["a02:1--s1:2", "a04:1--s2:2", "s2:9--s9:2"]),
        ("switches", "level=2", ["spine"]),
        ("anomalies", "kind=MissingLink,hypernode=leaf-b", ["MissingLink:a03:1"]),
        ("anomalies", "kind=Miswired", []),
    ],
)
def test_rows_are_selected_by_their_columns(kind: str, selector: str, expected: list[str]) -> None:
    table = View(selector=parse_selector(selector)).of(TABLES[kind](two_leaves(), 0))
    assert sorted(row.name for row in table.rows) == sorted(expected)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["n10", "n9", "", "n1"], ["n1", "n9", "n10", ""]),
        (["10", "9", "", "100"], ["9", "10", "100", ""]),
        (["0.9", "0.95", "0.5", "1"], ["0.5", "0.9", "0.95", "1"]),
        (["12us", "6.1us", "100us"], ["6.1us", "12us", "100us"]),
        (["2d4h", "12s", "5m12s", "41d", "3h20m"], ["12s", "5m12s", "3h20m", "2d4h", "41d"]),
        (["in 59m", "in 3s", ""], ["in 3s", "in 59m", ""]),
        (["1", "n2", "n10", "0x1"], ["0x1", "1", "n2", "n10"]),
        (["2026-01-31T14:03:07Z", "2026-01-02T14:03:07Z"], ["2026-01-02T14:03:07Z", "2026-01-31T14:03:07Z"]),
    ],
)
@pytest.mark.parametrize("column", ["some", "SOME"])
def test_columns_are_sorted_by_what_they_mean(cells: list[str], expected: list[str], column: str) -> None:
    table = Table("x", ("NAME",), ("SOME",), tuple(Row("r", ("r",), (cell,)) for cell in cells))
    assert [row.more[0] for row in View(sort_by=column).of(table).rows] == expected


def test_equal_cells_keep_their_order() -> None:
    rows = [Row(name, (name, "x")) for name in ("b", "a", "c")]
    table = Table("x", ("NAME", "KIND"), (), tuple(rows))
    assert View(sort_by="kind").of(table) == table


@pytest.mark.parametrize(
    ("view", "flag"),
    [(View(sort_by="size"), "--sort-by"), (View(selector=parse_selector("size=1")), "--selector")],
)
def test_an_unknown_column_is_an_error_that_names_the_columns(view: View, flag: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        view.of(TABLES["switches"](two_leaves(), 0))
    assert caught.value.message == (
        f"{flag}: no column 'size': expected one of NAME, ID, LEVEL, LINKS, HYPERNODES"
    )


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["n1*"], ["n1", "n10"]),
        (["n1*", "n1"], ["n1", "n10"]),
        (["n1"], ["n1"]),
        (["*"], ["n1", "n2", "n10", "odd*"]),
        (["odd*"], ["odd*"]),
        (["x*"], ["x*"]),
    ],
)
def test_a_prefix_stands_for_the_names_that_begin_so(names: list[str], expected: list[str]) -> None:
    assert with_prefixes(names, ["n1", "n2", "n10", "odd*"]) == expected


@pytest.mark.parametrize(
    ("kind", "names", "expected", "missing"),
    [
        ("nodes", ["n0*"], ["n01", "n02", "n03", "n04", "n09"], []),
        ("nodes", ["n[03-04]", "n01*", "x*"], ["n01", "n03", "n04"], ["x*"]),
        ("hypernodes", ["leaf-*"], ["leaf-a", "leaf-b"], []),
        ("switches", ["sp*"], ["spine"], []),
        ("links", ["n01*"], ["a01:1--s1:1"], []),
    ],
)
def test_get_takes_prefixes(kind: str, names: list[str], expected: list[str], missing: list[str]) -> None:
    table, absent = select(kind, TABLES[kind](two_leaves(), 0), names)
    assert sorted(row.name for row in table.rows) == expected
    assert absent == missing


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        (["get", "hn", "--sort-by"], "t", ["TIER", "TIERNAME"]),
        (["get", "sw", "--sort-by"], "", ["NAME", "ID", "LEVEL", "LINKS", "HYPERNODES"]),
        (["get", "fi", "-l"], "pro", ["probe="]),
        (["get", "an", "-l"], "kind=MissingLink,hy", ["kind=MissingLink,hypernode="]),
        (["get", "no", "--selector"], "n", ["name=", "note="]),
        (["get", "what", "--sort-by"], "", []),
        (["placements", "list", "--sort-by"], "h", ["HOLDER", "HYPERNODE"]),
        (["history", "--sort-by"], "c", ["CHANGE", "CAUSE"]),
        (["get", "ln", "-o"], "d", ["dot"]),
        (["tree", "-o"], "d", ["dot"]),
        (["infer", "-o"], "d", ["dot"]),
        (["place", "-o"], "h", ["hostlist"]),
        (["placements", "list", "-o"], "h", ["hostlist"]),
        (["demo"], "--st", ["--stay"]),
    ],
)
def test_the_shell_completes_columns(words: list[str], incomplete: str, expected: list[str]) -> None:
    shell = ShellComplete(cli, {}, "hyperscout", "_HYPERSCOUT_COMPLETE")
    assert [item.value for item in shell.get_completions(words, incomplete)] == expected
