"""Idle connections make room for new ones, and one address cannot keep another out."""

import pytest
from hyperscout_runtime.connections import SilentConnections


@pytest.mark.parametrize(
    ("addresses", "closed"),
    [
        ("aaa", []),
        ("aaaa", [0]),
        ("abbbb", [1, 2]),  # never the only one of another address
        ("abcdef", [0, 1, 2]),
    ],
)
def test_a_new_connection_closes_the_oldest_of_the_most_crowded_address(
    addresses: str, closed: list[int]
) -> None:
    found: list[int] = []
    silent = SilentConnections(3)
    for number, address in enumerate(addresses):
        silent.add(number, address, lambda number=number: found.append(number))  # type: ignore[misc]
    assert found == closed
    assert len(silent) == 3


def test_what_has_sent_its_request_is_not_closed() -> None:
    found: list[int] = []
    silent = SilentConnections(1)
    for number in range(3):
        silent.add(number, "a", lambda: found.append(0))
        silent.discard(number)
    assert (found, len(silent)) == ([], 0)
