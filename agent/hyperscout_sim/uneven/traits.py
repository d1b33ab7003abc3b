"""The table of traits: how each is made, what it needs, and which causes of wrong inference it contains.

Causes are the numbers in docs/accuracy.md. Traits of one group exclude each other in one fabric. Traits are
applied in the order of the table: first the names of hosts, then units, then networks of all hosts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from hyperscout_sim.uneven import network_traits as networks
from hyperscout_sim.uneven import unit_traits as units
from hyperscout_sim.uneven.site import ANY, Needs, Site


@dataclass(frozen=True, slots=True)
class Trait:
    """`apply` changes a plan that fits `needs`, or raises UnsuitableError."""

    apply: Callable[[Site, Random], None]
    causes: tuple[int, ...]
    needs: Needs = ANY
    group: str = ""


_INFINIBAND: Final = Needs(ethernet=False)
_ETHERNET: Final = Needs(ethernet=True)

TRAITS: Final[dict[str, Trait]] = {
    "regular": Trait(lambda site, rng: None, ()),
    "role names": Trait(units.role_names, (18,)),
    "thick trunks": Trait(networks.thick_trunks, (15,), Needs(uplinks=2)),
    "two trees": Trait(networks.two_trees, (14,), Needs(tiers=2, per_rail=False, units=6), "on cores"),
    "other adapter names": Trait(units.other_adapter_names, (1,)),
    "fewer rails": Trait(units.fewer_rails, (1,), Needs(rails=2)),
    "single-rail CPU unit": Trait(units.cpu_unit, (1,), Needs(rails=4)),
    "hosts without a rail": Trait(units.hosts_without_a_rail, (2,), Needs(rails=4)),
    "leaves without hosts, two tiers": Trait(
        units.leaves_without_hosts, (3,), Needs(tiers=2, units=4), "empty"
    ),
    "leaves without hosts, three tiers": Trait(
        units.leaves_without_hosts, (3,), Needs(tiers=3, units=4), "empty"
    ),
    "thin pod": Trait(units.thin_pod, (4,), Needs(units=4), "empty"),
    "leaves on cores": Trait(units.leaves_on_cores, (5,), Needs(ethernet=False, tiers=3), "on cores"),
    "storage leaves": Trait(units.storage_leaves, (5,), Needs(ethernet=False, per_rail=False), "on cores"),
    "fewer uplinks": Trait(units.fewer_uplinks, (6,), Needs(uplinks=2)),
    "fewer spines": Trait(units.fewer_spines, (6,)),
    "shifted uplinks": Trait(units.shifted_uplinks, (6,)),
    "other port count": Trait(units.other_port_count, (6,)),
    "control nodes": Trait(units.control_nodes, (7,), Needs(ethernet=False, rails=4)),
    "service hosts": Trait(units.service_hosts, (7,), Needs(ethernet=False, rails=8)),
    "older unit": Trait(units.older_unit, (8,)),
    "splitter cables": Trait(units.splitters, (8,)),
    "RoCE rails": Trait(networks.roce_rails, (9,), Needs(ethernet=True, rails=4)),
    "storage on spines": Trait(units.storage_on_spines, (12,), _INFINIBAND, "on spines"),
    "managers and node map": Trait(units.managers, (18,), _INFINIBAND, "on spines"),
    "factory names": Trait(units.factory_names, (20,), _INFINIBAND),
    "MLAG pairs": Trait(networks.mlag_pairs, (), Needs(ethernet=True, peer_links=True)),
    "NVLink racks": Trait(networks.nvlink_racks, (), Needs(ethernet=False, rails=4)),
    "DGX dump": Trait(networks.dgx_dump, (1, 7), Needs(ethernet=False, rails=8, units=4)),
    "storage fabric": Trait(
        networks.storage_fabric, (10,), Needs(ethernet=False, rails=4, per_rail=False), "side"
    ),
    "management network": Trait(networks.management_network, (17,), _ETHERNET, "side"),
    "front-end network": Trait(networks.front_end_network, (17,), _ETHERNET, "side"),
    "BlueFields in DPU mode": Trait(networks.bluefields, (19,), _ETHERNET, "side"),
    "virtual machines in walks": Trait(networks.virtual_machines, (19,), _ETHERNET, "side"),
    "routing hosts": Trait(networks.routing_hosts, (19,), _ETHERNET, "side"),
}
