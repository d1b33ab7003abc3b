"""Results that are kept until an argument, or the evidence of a node, is another."""

from typing import Any

import numpy as np
import numpy.typing as npt
from hyperscout_topology.memo import Followed, MemoByNode, changed_nodes, memoized, positions
from hypothesis import given
from hypothesis import strategies as st


def test_only_changed_evidence_is_worked_on() -> None:
    seen: list[tuple[int, ...]] = []

    def total(node: str, numbers: tuple[int, ...]) -> int:
        seen.append(numbers)
        return sum(numbers)

    totals = MemoByNode(total)
    a, b, c = (1, 2), (3,), (4, 5)
    assert totals({"a": a, "b": b}) == {"a": 3, "b": 3}
    seen.clear()
    assert totals({"a": a, "b": c, "c": b}) == {"a": 3, "b": 9, "c": 3}
    assert seen == [c, b]
    assert totals({"a": a}) == {"a": 3}
    seen.clear()
    assert totals({"a": a, "b": c}) == {"a": 3, "b": 9}, "what was forgotten is worked on again"
    assert seen == [c]


def test_equal_evidence_is_not_worked_on() -> None:
    seen: list[str] = []

    def total(node: str, numbers: tuple[int, ...]) -> int:
        seen.append(node)
        return sum(numbers)

    totals, nodes = MemoByNode(total), [f"n{i:03}" for i in range(200)]
    first = totals({node: tuple(range(3)) for node in nodes})
    assert seen == nodes
    seen.clear()
    assert totals({node: tuple(range(3)) for node in nodes}) is first
    changed = totals({node: tuple(range(3 + (node in ("n000", "n063", "n199")))) for node in nodes})
    assert seen == ["n000", "n063", "n199"]
    assert [changed[node] for node in ("n000", "n001", "n063", "n064", "n199")] == [6, 3, 6, 3, 6]


def test_nodes_without_a_result_are_left_out() -> None:
    odd = MemoByNode[int, int](lambda _, number: number if number % 2 else None)
    first = odd({"a": 1, "b": 2})
    assert first == {"a": 1}
    assert odd({"a": 1, "b": 4, "c": 6}) is first
    assert odd({"a": 2, "b": 3}) == {"b": 3}
    assert odd({}) == {}


def test_a_result_is_kept_for_equal_arguments() -> None:
    seen: list[tuple[object, ...]] = []

    @memoized
    def both(one: tuple[int, ...], other: str) -> str:
        seen.append((one, other))
        return f"{one} {other}"

    assert both((1, 2), "a") == both((1, 2), "a") == "(1, 2) a"
    assert both((1, 3), "a") == "(1, 3) a"
    assert both((1, 3), "b") == "(1, 3) b"
    assert both((1, 2), "a") == "(1, 2) a", "only the last result is kept"
    assert seen == [((1, 2), "a"), ((1, 3), "a"), ((1, 3), "b"), ((1, 2), "a")]


def test_more_or_fewer_arguments_are_other_arguments() -> None:
    @memoized
    def total(*numbers: int) -> int:
        return sum(numbers)

    assert [total(1, 2, 3), total(1, 2), total(1, 2, 3), total()] == [6, 3, 6, 0]


def test_arrays_are_compared_by_value_and_type() -> None:
    @memoized
    def seen(numbers: npt.NDArray[Any]) -> tuple[str, list[int]]:
        return str(numbers.dtype), numbers.tolist()

    first = seen(np.array([1, 2], np.int64))
    assert seen(np.array([1, 2], np.int64)) is first
    assert seen(np.array([1, 3], np.int64))[1] == [1, 3]
    assert seen(np.array([1, 3], np.int32))[0] == "int32"
    assert seen(np.array([1], np.int32))[1] == [1]


def test_the_same_object_is_returned_while_all_results_are_equal() -> None:
    sizes = MemoByNode(lambda node, ports: len(ports))
    first = sizes({"a": (1, 2), "b": (3,)})
    assert sizes({"a": (4, 5), "b": (3,)}) is first, "another report with an equal result"
    assert sizes({"b": (3,), "a": (4, 5)}) == first
    assert sizes({"a": (4, 5, 6), "b": (3,)}) == {"a": 3, "b": 1}
    assert first == {"a": 2, "b": 1}, "what was returned does not change"


NODES = st.sampled_from("abcd")


@given(st.lists(st.dictionaries(NODES, st.none() | st.integers(1, 2)), max_size=4), st.booleans())
def test_followed_evidence_says_what_changed(changes: list[dict[str, int | None]], are_plain: bool) -> None:
    doubled = MemoByNode[int, int](lambda _, number: 2 * number)
    evidence, plain = Followed[int](), dict[str, int]()
    for change in changes:
        plain = {node: x for node, x in {**plain, **change}.items() if x is not None}
        before, evidence = evidence, evidence.after(change)
        assert evidence == plain
        differ = {node for node in "abcd" if before.get(node) != plain.get(node)}
        for earlier in (before, dict(before)):
            assert {*changed_nodes(earlier, evidence)} == {*changed_nodes(earlier, plain)} == differ
        known = doubled(evidence)
        assert known == {node: 2 * number for node, number in plain.items()}
        assert doubled(dict(evidence) if are_plain else evidence) is known


def test_the_last_position_of_an_id_counts() -> None:
    assert positions(["a", "b", "a"]) == {"a": 2, "b": 1}
