"""Chooses the NUMA zones of a placement, after the solver has chosen the nodes.

The solver counts the workers that fit in the zones of a node, so each worker finds a zone.
"""

from dataclasses import replace

from hyperscout_placer.book.node_capacity import NodeCapacity
from hyperscout_placer.book.reservation import Reservation, not_arrived, places
from hyperscout_placer.cluster.answer import Placement
from hyperscout_placer.cluster.numa_zones import zone_share
from hyperscout_placer.cluster.request import Request, ends, ranks


def shares(request: Request) -> list[str]:
    """The shares of a NUMA zone that the request names, each once."""
    return list(filter(None, dict.fromkeys(zone_share(kind.resources) for kind in ends(request.gang))))


def kept_zones(placement: Placement, before: Placement) -> Placement:
    """The placement with the zones of those ranks that are on the same node as before."""
    if not before.zones or placement.zones or len(placement.nodes) != len(before.nodes):
        return placement
    pairs = zip(placement.nodes, before.nodes, before.zones, strict=True)
    return replace(placement, zones=tuple(zone if node == old else None for node, old, zone in pairs))


def with_zones(nodes: NodeCapacity, request: Request, placement: Placement) -> Placement:
    """The placement with a zone for each worker that needs one and has none."""
    if not shares(request):
        return placement
    zones = list(placement.zones or [None] * len(placement.nodes))
    needs = tuple(ranks(request.gang))
    waiting = [rank for rank, zone in enumerate(zones) if zone is None]
    chosen = nodes.zones_for([placement.nodes[rank] for rank in waiting], [needs[rank] for rank in waiting])
    for rank, zone in zip(waiting, chosen, strict=True):
        zones[rank] = zone
    return replace(placement, zones=tuple(zones))


def restored(nodes: NodeCapacity, held: Reservation, before: Reservation | None) -> Reservation:
    """A reservation that is not booked yet, with its zones. `before`: the one that it replaces."""
    if not shares(held.request):
        return held
    if before is not None:
        held = replace(held, placement=kept_zones(held.placement, before.placement))
    # The ranks that have a zone are booked meanwhile, so that no other rank gets the same devices.
    zones = held.placement.zones
    booked = places(held, [rank for rank in not_arrived(held) if zones and zones[rank] is not None])
    nodes.book(*booked)
    placement = with_zones(nodes, held.request, held.placement)
    nodes.unbook(*booked)
    return replace(held, placement=placement)
