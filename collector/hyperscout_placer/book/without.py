"""The free resources as if a gang had no reservation."""

from hyperscout_placer.book.node_capacity import NodeCapacity, summed
from hyperscout_placer.book.reservation import Reservation, not_arrived, places
from hyperscout_placer.cluster.capacity import Capacity


def without(held: Reservation, capacity: Capacity, free: NodeCapacity) -> Capacity:
    """Return `capacity`, changed to what would be free without the reservation.

    `free`: what is free on the nodes with it. A large gang takes long: call it in a thread, on copies.
    """
    waiting = summed(*places(held, not_arrived(held)))
    arrived = summed(*places(held, held.arrived))
    for node in {*waiting, *arrived}:
        if node in capacity.forest.index:
            capacity.set_free(node, free.free_on(node, waiting.get(node, {}), arrived.get(node, {})))
    return capacity
