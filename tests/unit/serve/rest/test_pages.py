"""Pages of a list: whatever comes and goes between them, what stays is on exactly one."""

from contextlib import suppress
from typing import Any

import pytest
from hyperscout_collector.serve.http.problems import ProblemError
from hyperscout_collector.serve.rest.pages import page
from hypothesis import given
from hypothesis import strategies as st

Rows = list[tuple[tuple[str, ...], dict[str, Any]]]


def rows(names: set[str]) -> Rows:
    return [((name,), {"name": name}) for name in sorted(names)]


def names(items: list[dict[str, Any]]) -> list[str]:
    return [item["name"] for item in items]


def all_of(_: Any) -> bool:
    return True


@given(
    st.lists(st.sets(st.text(max_size=3), max_size=30), min_size=1, max_size=8),
    st.integers(min_value=1, max_value=7),
)
def test_what_is_there_all_the_time_is_seen_once(generations: list[set[str]], size: int) -> None:
    seen: list[str] = []
    token = ""
    now = generations[0]
    through = set(now)
    for now in (*generations, *[generations[-1]] * 40):
        through &= now
        items, token = page(rows(now), all_of, {"pageSize": size, "pageToken": token})
        assert len(items) <= size
        seen += names(items)
        if not token:
            break
    assert not token
    assert len(seen) == len(set(seen))
    assert through <= set(seen)


def test_a_full_last_page_is_the_last() -> None:
    items, token = page(rows({"a", "b"}), all_of, {"pageSize": 2})
    assert (names(items), token) == (["a", "b"], "")


def test_filters_leave_no_holes() -> None:
    there = rows({f"{i:02}" for i in range(20)})

    def even(item: dict[str, Any]) -> bool:
        return int(item["name"]) % 2 == 0

    first, token = page(there, even, {"pageSize": 4, "tier": 1})
    second, token = page(there, even, {"pageSize": 40, "tier": 1, "pageToken": token})
    assert names(first + second) == [f"{i:02}" for i in range(0, 20, 2)]
    assert token == ""


@pytest.mark.parametrize(
    "token", ["x", "a" * 3000, "W10", "eyJhIjoxfQ", "WyJhIiwgMV0", "\u0661", "=", "[[[["]
)
def test_a_token_that_is_none_of_ours_is_said(token: str) -> None:
    with pytest.raises(ProblemError, match=r"an earlier page|another query") as caught:
        page(rows({"a"}), all_of, {"pageToken": token})
    assert (caught.value.status, caught.value.field) == (400, "pageToken")


def test_a_token_of_another_query_is_said() -> None:
    _, token = page(rows({"a", "b"}), all_of, {"pageSize": 1, "tier": (1,)})
    with pytest.raises(ProblemError, match="another query"):
        page(rows({"a", "b"}), all_of, {"pageSize": 1, "tier": (2,), "pageToken": token})
    items, _ = page(rows({"a", "b"}), all_of, {"pageSize": 5, "tier": (1,), "pageToken": token})
    assert names(items) == ["b"], "the size of a page may change"


@given(st.text(max_size=200))
def test_any_token_gives_a_page_or_a_problem(token: str) -> None:
    with suppress(ProblemError):
        page(rows({"a"}), all_of, {"pageToken": token})
