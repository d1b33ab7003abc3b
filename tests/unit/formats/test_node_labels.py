"""Labels of nodes out of `kubectl get nodes -o json`."""

import contextlib
import json
from typing import Any

import pytest
from hyperscout_formats.text import node_labels
from hyperscout_formats.text.errors import FormatError
from hypothesis import given
from hypothesis import strategies as st


def node(name: Any, labels: Any = None) -> dict[str, Any]:
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}}


def read(document: Any) -> tuple[dict[str, dict[str, str]], list[str]]:
    found, problems = node_labels.parse(json.dumps(document).encode())
    return found, [problem.reason for problem in problems]


def test_nodes_and_their_labels() -> None:
    items = [node("a", {"x": "1", "y": 2}), node("b"), node("c", [1])]
    assert read({"kind": "List", "items": items}) == ({"a": {"x": "1"}, "b": {}, "c": {}}, [])
    assert read(items[0]) == ({"a": {"x": "1"}}, [])


@pytest.mark.parametrize(
    "odd", [node("a"), node(""), node(7), node("two\nlines"), {}, 3, {"kind": "Pod"}, None]
)
def test_what_is_passed_over_is_named(odd: Any) -> None:
    found, problems = read({"items": [node("a"), odd]})
    assert list(found) == ["a"]
    assert len(problems) == 1


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"items": []}', b'{"items": 3}', b"7", b"{\xff", b'{"a":' * 100_000]
)
def test_other_texts_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        node_labels.parse(data)


@given(
    st.recursive(
        st.none() | st.text(max_size=9),
        lambda x: (
            st.lists(x) | st.dictionaries(st.sampled_from(("kind", "metadata", "name", "labels", "items")), x)
        ),
        max_leaves=15,
    ),
    st.binary(max_size=20),
)
def test_any_document(document: Any, data: bytes) -> None:
    for text in (json.dumps({"items": document}).encode(), json.dumps(document).encode(), b"{" + data):
        with contextlib.suppress(FormatError):
            node_labels.parse(text)
