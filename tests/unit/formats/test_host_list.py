"""Host lists: folded as Slurm reads them, and read as they were folded, whatever the names."""

import re

import pytest
from hyperscout_formats.text.host_list import MAX_NAMES, HostListError, expand, fold, quoted, spread
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples


def as_slurm(text: str) -> list[str]:
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
        (["r10n1", "r9n1", "r9n2"], "r9n[1-2],r10n1"),
        (["n", "n1", "n2", "a"], "a,n,n[1-2]"),
        (["n1", "n1"], "n1"),
        (["7", "8"], "[7-8]"),
        (["0002c90300048208", "0002c90300048209"], "0002c90300048208,0002c90300048209"),
        (["n1234567890123", "n1234567890124"], "n1234[567890123-567890124]"),
    ],
)
def test_a_host_list_is_compressed_as_slurm_reads_it(names: list[str], expected: str) -> None:
    assert fold(names) == expected


@pytest.mark.slow
@examples(5)
@given(st.sets(st.from_regex(r"[a-c]?-?[0-9]{0,3}[0-9]{0,2}(-x)?", fullmatch=True).filter(bool)))
def test_a_host_list_expands_to_the_same_hosts(names: set[str]) -> None:
    hosts = as_slurm(fold(names))
    assert len(hosts) == len(names)
    assert set(hosts) == names


def test_no_range_is_longer_than_slurm_takes() -> None:
    text = fold(f"n{i}" for i in range(70_000))
    assert text == "n[0-65535,65536-69999]"


@given(
    st.from_regex(r"[a-fg\[, ]{0,3}", fullmatch=True),
    st.integers(0, 1100),
    st.integers(1, 30),
    st.integers(1, 16),
)
def test_consecutive_names_are_one_list_in_any_order(prefix: str, start: int, count: int, width: int) -> None:
    names = [f"{prefix}{number:0{width}}" for number in range(start, start + count)]
    assert fold(names) == fold(reversed(names))


@examples(5)
@given(st.sets(st.text(max_size=12) | st.from_regex(r'[a-c\[\],"\\ ]{0,4}[0-9]{0,11}', fullmatch=True)))
@pytest.mark.slow
def test_any_names_come_back(names: set[str]) -> None:
    folded = fold(names)
    assert folded.isprintable()
    found = expand(folded) if folded else []
    assert len(found) == len(names)
    assert set(found) == names
    assert all(expand(quoted(name)) == [name] for name in names)


@examples(5)
@given(st.text(st.sampled_from('ab019,-[]" \\') | st.characters(), max_size=30))
def test_any_text_is_a_list_or_one_error(text: str) -> None:
    found, reason = [], "none"
    try:
        found = expand(text, 1000)
    except HostListError as error:
        reason = str(error)
    assert reason.isprintable()
    assert len(reason) < 200
    assert (0 < len(found) <= 1000) == (reason == "none")
    assert set(expand(fold(found or "a"))) == set(found or "a")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("login", ["login"]),
        ("b,a,b", ["b", "a"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[8-10,008]", ["n8", "n9", "n10", "n008"]),
        ("r[1-2]n[01-02]-ib, x", ["r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib", "x"]),
        (" a [ 1 , 3 ] b ", ["a 1 b", "a 3 b"]),
        ('"a,b","n[1]" , " c "', ["a,b", "n[1]", " c "]),
        (r'"say \"hi\"","\x1b[2J","a\\b"', ['say "hi"', "\x1b[2J", "a\\b"]),
        (r"a\b", [r"a\b"]),
        ("[7-8]", ["7", "8"]),
    ],
)
def test_what_is_read(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "an empty host list"),
        (" ", "an empty host list"),
        ("a,", "an empty name"),
        ("a,,b", "an empty name"),
        ("a[1-2", "an unmatched or nested bracket"),
        ("a1-2]", "an unmatched or nested bracket"),
        (
            "a[[1-2]]",
            "an unmatched or nested bracket (put a name that contains brackets in",
        ),
        ("a[]", "expected numbers in brackets"),
        (
            "a[x]",
            "'a[x]': expected numbers in brackets, as in [1-8,12] (put a name",
        ),
        ("a[1-2-3]", "expected numbers in brackets"),
        ("a[٣]", "expected numbers in brackets"),
        ("a[3-1]", "'a[3-1]': 1 is less than 3"),
        ("l[1-99999999999]", "a number in brackets has at most 9 digits"),
        ("a[0-99999],b", "'a[0-99999],b': more than 100000 names"),
        ("a[1-400][1-400]", "more than 100000 names"),
        ("a[1-999999999]", "more than 100000 names"),
        ('"a', "an unmatched quote"),
        ('"a"b', "no comma after"),
        ('"\\U99999999"', "is not a Unicode character"),
    ],
)
def test_what_is_wrong_is_said(text: str, reason: str) -> None:
    with pytest.raises(HostListError) as caught:
        expand(text)
    assert reason in str(caught.value)


def test_lists_are_bounded() -> None:
    assert len(expand(f"n[1-{MAX_NAMES}]")) == MAX_NAMES
    with pytest.raises(HostListError, match="expected at most 4194304"):
        expand("a" * (5 << 20))
    with pytest.raises(HostListError, match="brackets in a text of over 1000 characters"):
        expand("a" * 1001 + "[1-9]")
    assert spread("a,b-[1-2]") == ["a,b-1", "a,b-2"]
    with pytest.raises(HostListError, match="more than 3 switches"):
        spread("s[1-2][1-2]", 3, "switches")


def test_a_bracket_without_its_other_one_is_refused() -> None:
    for text in ("a]", "a[1-2]]", "a[1[2]]"):
        with pytest.raises(HostListError):
            expand(text)
