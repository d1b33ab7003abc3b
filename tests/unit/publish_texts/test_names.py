"""Host lists, YAML scalars and name rules, each against an independent reading of the same text."""

import re

import pytest
import yaml
from hyperscout_collector.publish.texts.names import (
    host_list,
    is_node_name,
    is_slurm_name,
    left_out,
    scalar,
)
from hypothesis import given, settings
from hypothesis import strategies as st


def expand(text: str) -> list[str]:
    """What Slurm makes of a host list: numbers are printed as wide as the first one of their range."""
    hosts = []
    for part in re.findall(r"[^,\[]*\[[^\]]*\]|[^,\[]+", text):
        prefix, _, ranges = part.partition("[")
        if not ranges:
            hosts.append(prefix)
        for run in ranges.rstrip("]").split(",") if ranges else ():
            first, _, last = run.partition("-")
            hosts += [f"{prefix}{n:0{len(first)}d}" for n in range(int(first), int(last or first) + 1)]
    return hosts


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], ""),
        (["login"], "login"),
        (["n1"], "n1"),
        (["n3", "n1", "n2"], "n[1-3]"),
        (["n1", "n3", "n4", "n9"], "n[1,3-4,9]"),
        (["n08", "n09", "n10", "n11"], "n[08-11]"),
        (["n8", "n9", "n10"], "n[8-10]"),
        (["n9", "n09", "n10"], "n[9,09-10]"),
        (["n99", "n100", "n099"], "n[99,099-100]"),
        (["n0", "n00"], "n[0,00]"),
        (["n9", "n010"], "n[9,010]"),
        (["gpu-1-ib", "gpu-2-ib"], "gpu-1-ib,gpu-2-ib"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["n", "n1", "n2", "a"], "a,n,n[1-2]"),
        (["n1", "n1"], "n1"),
        (["7", "8"], "[7-8]"),
        (["0002c90300048208", "0002c90300048209"], "0002c90300048208,0002c90300048209"),
        (["n1234567890123", "n1234567890124"], "n1234[567890123-567890124]"),
    ],
)
def test_a_host_list_is_compressed_as_slurm_reads_it(names: list[str], expected: str) -> None:
    assert host_list(names) == expected


@settings(max_examples=200, deadline=None)
@given(st.sets(st.from_regex(r"[a-c]?-?[0-9]{0,3}[0-9]{0,2}(-x)?", fullmatch=True).filter(bool)))
def test_a_host_list_expands_to_the_same_hosts(names: set[str]) -> None:
    hosts = expand(host_list(names))
    assert len(hosts) == len(names)
    assert set(hosts) == names


def test_no_range_is_longer_than_slurm_takes() -> None:
    text = host_list(f"n{i}" for i in range(70_000))
    assert text == "n[0-65535,65536-69999]"


@pytest.mark.parametrize("name", ["on", "1e3", "null", "0x1f", "NO", "~", "12:30", "1_000", ".inf", "-", ""])
def test_a_name_that_looks_like_something_else_stays_a_text(name: str) -> None:
    assert yaml.safe_load(f"a: {scalar(name)}") == {"a": name}
    assert scalar(name).startswith('"')


@settings(max_examples=200, deadline=None)
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
    ],
)
def test_who_may_have_which_name(name: str, kubernetes: bool, slurm: bool) -> None:
    assert (is_node_name(name), is_slurm_name(name)) == (kubernetes, slurm)


def test_what_is_left_out_is_one_bounded_comment() -> None:
    assert list(left_out([], "x")) == []
    (line,) = left_out([f"a\n{i:02}" for i in range(30)], "since odd")
    assert line.startswith('# left out, since odd: "a\\n00", ')
    assert line.endswith(" and 10 more\n")
    assert line.count("\n") == 1
