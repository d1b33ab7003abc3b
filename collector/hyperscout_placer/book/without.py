"""The free resources as if gangs had no reservation."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from hyperscout_placer.book.node_capacity import NodeCapacity, summed
from hyperscout_placer.book.reservation import Reservation, not_arrived, places
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.request import Workers


@dataclass(frozen=True, slots=True)
class Booked:
    """`capacity`: what is free. `held`: the gangs whose resources it lacks. `nodes`: the same by node."""

    capacity: Capacity
    held: Collection[Reservation]
    nodes: NodeCapacity

    def without(self, over: Callable[[Reservation], bool] = lambda held: True) -> Capacity:
        """What is free when these gangs have ended."""
        return without(filter(over, self.held), self.capacity.copy(), self.nodes)


def without(gangs: Iterable[Reservation], capacity: Capacity, free: NodeCapacity) -> Capacity:
    """Return `capacity`, changed to what would be free without these reservations.

    `free`: what is free on the nodes with them. A large gang takes long: call it in a thread, on copies.
    """
    waiting: tuple[list[str], list[Workers]] = [], []
    arrived: tuple[list[str], list[Workers]] = [], []
    for held in gangs:
        for found, ranks in ((waiting, not_arrived(held)), (arrived, held.arrived)):
            nodes, needs = places(held, ranks)
            found[0].extend(nodes)
            found[1].extend(needs)
    booked, left = summed(*waiting), summed(*arrived)
    for node in {*booked, *left}:
        if node in capacity.forest.index:
            capacity.set_free(node, free.free_on(node, booked.get(node, {}), left.get(node, {})))
    return capacity
