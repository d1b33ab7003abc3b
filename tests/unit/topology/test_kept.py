"""What is kept of each node's evidence."""

from hyperscout_topology.kept import KeptByNode, kept


def test_only_changed_evidence_is_worked_on() -> None:
    seen: list[tuple[int, ...]] = []

    def total(node: str, numbers: tuple[int, ...]) -> int:
        seen.append(numbers)
        return sum(numbers)

    totals = KeptByNode(total)
    a, b, c = (1, 2), (3,), (4, 5)
    assert totals({"a": a, "b": b}) == {"a": 3, "b": 3}
    seen.clear()
    assert totals({"a": a, "b": c, "c": b}) == {"a": 3, "b": 9, "c": 3}
    assert seen == [c, b]
    assert totals({"a": a}) == {"a": 3}
    seen.clear()
    assert totals({"a": a, "b": c}) == {"a": 3, "b": 9}, "what was forgotten is worked on again"
    assert seen == [c]


def test_a_result_is_kept_for_equal_arguments() -> None:
    seen: list[tuple[object, ...]] = []

    @kept
    def both(one: tuple[int, ...], other: str) -> str:
        seen.append((one, other))
        return f"{one} {other}"

    assert both((1, 2), "a") == both((1, 2), "a") == "(1, 2) a"
    assert both((1, 3), "a") == "(1, 3) a"
    assert both((1, 3), "b") == "(1, 3) b"
    assert both((1, 2), "a") == "(1, 2) a", "only the last result is kept"
    assert seen == [((1, 2), "a"), ((1, 3), "a"), ((1, 3), "b"), ((1, 2), "a")]
