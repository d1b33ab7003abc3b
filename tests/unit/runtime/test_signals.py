"""Signals between components."""

import pytest
from hyperscout_runtime.signals import Signal


def test_subscribers_are_called_in_order_until_they_unsubscribe() -> None:
    signal = Signal[[str, int]]()
    calls: list[tuple[str, str, int]] = []
    signal("none", 0)
    unsubscribe = signal.subscribe(lambda name, number: calls.append(("first", name, number)))
    signal.subscribe(lambda name, number: calls.append(("second", name, number)))
    signal("a", 1)
    unsubscribe()
    signal("b", 2)
    assert calls == [("first", "a", 1), ("second", "a", 1), ("second", "b", 2)]


def test_a_subscriber_may_unsubscribe_while_it_is_called() -> None:
    signal = Signal[[]]()
    calls: list[int] = []
    ends = [signal.subscribe(lambda: (ends.pop()(), calls.append(1)))]
    signal.subscribe(lambda: calls.append(2))
    signal()
    signal()
    assert calls == [1, 2, 2]


def test_an_exception_reaches_the_emitter() -> None:
    signal = Signal[[]]()

    def fails() -> None:
        raise ValueError("planted")

    signal.subscribe(fails)
    with pytest.raises(ValueError, match="planted"):
        signal()
