"""Parameters: what cannot be meant is refused, with its name."""

from contextlib import suppress

import pytest
from hyperscout_collector.serve.http.problems import ProblemError
from hyperscout_collector.serve.rest.operations import OPERATIONS
from hyperscout_collector.serve.rest.parameters import Parameter, read
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

KNOWN = (
    Parameter("size", "", "number", least=1, most=10),
    Parameter("links", "", "flag"),
    Parameter("at", "", "time"),
    Parameter("name", "", repeated=True),
    Parameter("kind", "", choices=("x", "y")),
)


def asked(query: str | bytes) -> Request:
    raw = query if isinstance(query, bytes) else query.encode("latin-1")
    return Request({"type": "http", "query_string": raw, "headers": []})


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {}),
        ("size=3&links=false", {"size": 3, "links": False}),
        ("name=a&name=b", {"name": ("a", "b")}),
        ("at=1970-01-01T00:00:01Z", {"at": 10**9}),
        ("at=1970-01-01T01:00:01%2B01:00", {"at": 10**9}),
        ("kind=y", {"kind": "y"}),
    ],
)
def test_values(query: str, expected: dict[str, object]) -> None:
    assert read(asked(query), KNOWN) == expected


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("size=0", "size"),
        ("size=11", "size"),
        ("size=-1", "size"),
        ("size=1e1", "size"),
        ("size=%D9%A1", "size"),
        ("size=" + "9" * 4000, "size"),
        ("size=1&size=2", "size"),
        ("links=1", "links"),
        ("at=yesterday", "at"),
        ("at=0001-01-01T00:00:00Z", "at"),
        ("at=9999-12-31T23:59:59Z", "at"),
        ("kind=z", "kind"),
        ("name=%00", "name"),
        ("name=" + "x" * 5000, "name"),
        ("&".join(["name=x"] * 101), "name"),
        ("nmae=x", "nmae"),
    ],
)
def test_what_is_wrong_is_named(query: str, field: str) -> None:
    with pytest.raises(ProblemError) as caught:
        read(asked(query), KNOWN)
    assert (caught.value.status, caught.value.field) == (400, field)
    assert caught.value.detail.startswith(field)


def test_what_must_be_there_is_missed() -> None:
    with pytest.raises(ProblemError, match="a: missing"):
        read(asked(""), (Parameter("a", "", required=True),))


@given(st.binary(max_size=200))
def test_any_query_is_read_or_refused(raw: bytes) -> None:
    for operation in OPERATIONS:
        with suppress(ProblemError):
            read(asked(raw), operation.parameters)
