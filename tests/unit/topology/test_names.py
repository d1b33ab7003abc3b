"""YAML scalars and name rules, each against an independent reading of the same text."""

import pytest
import yaml
from hyperscout_topology.names import is_node_name, is_slurm_name, left_out, scalar
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples


@pytest.mark.parametrize("name", ["on", "1e3", "null", "0x1f", "NO", "~", "12:30", "1_000", ".inf", "-", ""])
def test_a_name_that_looks_like_something_else_stays_a_text(name: str) -> None:
    assert yaml.safe_load(f"a: {scalar(name)}") == {"a": name}
    assert scalar(name).startswith('"')


@examples(5)
@given(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])))
def test_any_text_survives_yaml(text: str) -> None:
    assert yaml.safe_load(f"a: {scalar(text)}\n") == {"a": text}


@pytest.mark.parametrize("text", ["node-1", "n[01-04]", "a,b[1-2],c", "x.y/z", "s[0-2,4]"])
def test_usual_names_stay_plain(text: str) -> None:
    assert scalar(text) == text
    assert yaml.safe_load(f"a: {text}") == {"a": text}


@pytest.mark.parametrize(
    ("name", "kubernetes", "slurm"),
    [
        ("gpu-01", True, True),
        ("on", True, True),
        ("a.b", True, True),
        ("GPU01", False, True),
        ("a_b", False, True),
        ("a b", False, False),
        ("a,b", False, False),
        ("a[1]", False, False),
        ("", False, False),
        ("x" * 254, False, True),
        ("a\n", False, False),
        ("all", True, False),
        ("ALL", False, False),
        ("default", True, False),
        ("all-1", True, True),
    ],
)
def test_which_names_are_valid_where(name: str, kubernetes: bool, slurm: bool) -> None:
    assert (is_node_name(name), is_slurm_name(name)) == (kubernetes, slurm)


def test_what_is_left_out_is_one_bounded_comment() -> None:
    assert list(left_out([], "x")) == []
    (line,) = left_out([f"a\n{i:02}" for i in range(30)], "since odd")
    assert line.startswith('# left out, since odd: "a\\n00", ')
    assert line.endswith(" and 10 more\n")
    assert line.count("\n") == 1
