"""Documents of others: what is no JSON is one named error, and names are cleaned and bounded."""

from typing import Any

import pytest
from hyperscout_formats.text.errors import FormatError
from hyperscout_formats.text.json_document import document, listed, name_in


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b"[1,\n2", 2, "not JSON: Expecting ',' delimiter; expected a thing"),
        (b"", 1, "not JSON: Expecting value; expected a thing"),
        (b"\xff", 0, "not JSON; expected a thing"),
        (b"[" * 100_000, 0, "not JSON; expected a thing"),
        (b"1" * 50_000, 0, "not JSON; expected a thing"),
        (b" " * 200_001, 0, "200001 bytes, at most 200000 are read"),
    ],
)
def test_what_is_no_document(data: bytes, line: int, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        document(data, "them", 200_000, "expected a thing")
    assert (caught.value.source, caught.value.line, caught.value.reason) == ("them", line, reason)


def test_a_document() -> None:
    assert document(b'{"a": [1, null]}', "them", 100, "") == {"a": [1, None]}


@pytest.mark.parametrize(
    ("value", "found"), [(None, []), ([1, 2], [1, 2]), ({"a": 1}, [{"a": 1}]), ("x", ["x"])]
)
def test_listed(value: Any, found: list[Any]) -> None:
    assert listed(value) == found


@pytest.mark.parametrize(
    ("value", "name"),
    [(" leaf-1 ", "leaf-1"), (7, ""), (None, ""), ("x" * 253, "x" * 253), ("x" * 254, ""), ("x" * 10**6, "")],
)
def test_a_name(value: Any, name: str) -> None:
    assert name_in(value) == name
