"""Decide which Ethernet ports belong to the compute fabric.

The first rule that applies decides: the declared pattern, then the NICs nearest to GPUs, then the fastest
speed class of each host. Cables between switches follow. InfiniBand, where present, comes between the last
two rules, or first where few hosts report nearest NICs; `fuse` applies that, because it has both fabrics.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hyperscout_formats.facts.facts import Gpu, InfinibandPort, LldpPort
from hyperscout_topology.link_changes import contains
from hyperscout_topology.memo import MemoByNode, memoized

from hyperscout_inference.ethernet.host_cables import HostCables, join, split
from hyperscout_inference.ethernet.neighbours import HOST, NAMED, OTHER
from hyperscout_inference.ethernet.switch_cables import SwitchCable
from hyperscout_inference.ethernet.switch_reports import is_mac
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.fabric.network import Ints, distinct_places
from hyperscout_inference.fabric.part import Longs, Mask

# A port that is slower than the host's compute speed by this factor does not belong to the compute fabric.
_FAR_SLOWER = 8


class Compute(NamedTuple):
    """`ports`: for each cable whether it computes. `usual_mbps`: the usual speed of hosts' compute ports, 0 =
    unknown. `near`: the hosts whose NICs nearest to GPUs decided."""

    ports: Mask
    usual_mbps: int
    near: frozenset[str] = frozenset()


def _nics_of(node: str, gpus: Sequence[Gpu]) -> frozenset[str] | None:
    """Return the names of the NICs that are nearest to a host's GPUs."""
    return frozenset(nic for gpu in gpus for nic in gpu.nearest_nics) or None


def _model_of(node: str, gpus: Sequence[Gpu]) -> str:
    return min((gpu.model for gpu in gpus), default="")


nearest_nics, gpu_models = MemoByNode(_nics_of), MemoByNode(_model_of)


class Ports(NamedTuple):
    """Ports of hosts. `host`, `name`: (ports,) index into `hosts` and `names`, whose values are distinct."""

    hosts: Sequence[str | None]
    host: Ints
    names: Sequence[str]
    name: Ints


def near_gpus(ports: Ports, near: Mapping[str, Collection[str]], models: Mapping[str, str]) -> Mask:
    """Return (ports,) whether each port is nearest to GPUs.

    A port counts if `near` has it on its host, or on most hosts with the same GPU model. A lost GPU therefore
    does not change the ports of its host. `models`: see `gpu_models`.
    """
    near_ports, model = _near_ports(ports.hosts, ports.names, near, models)
    if not len(near_ports):
        return np.zeros(len(ports.host), np.bool_)
    each, place = distinct_places(join(ports.host, ports.name))
    host, name = split(each)
    is_near = contains(near_ports, each)
    kinds, kind = distinct_places(join(model[host], name))
    there, nearest = (np.bincount(x, minlength=len(kinds)) for x in (kind, kind[is_near]))
    found: Mask = (is_near | (nearest * 2 > there)[kind])[place]
    return found


@memoized
def _near_ports(
    hosts: Sequence[str | None],
    names: Sequence[str],
    near: Mapping[str, Collection[str]],
    models: Mapping[str, str],
) -> tuple[Longs, Ints]:
    """Return the ports (see `join`) of these hosts and names that `near` has, sorted, and (hosts,) a number
    for the GPU model of each host in `near`, 0 = it is not there."""
    places = {name: i for i, name in enumerate(names)}
    numbers: dict[str, int] = {}
    found: list[int] = []
    model = np.zeros(len(hosts), np.int32)
    for i, host in enumerate(hosts):
        if host is not None and host in near:
            model[i] = numbers.setdefault(models[host], len(numbers) + 1)
            found += [i << 32 | places[name] for name in near[host] if name in places]
    return np.sort(np.array(found, np.int64)), model


def compute_ports(cables: HostCables, inputs: FabricInputs, options: InferOptions) -> Compute:
    """Return which cables compute, by the first rule that applies."""
    host, chassis, speed = cables.host.at, cables.chassis.at, cables.speed_mbps
    if options.compute_ports is not None:
        pattern = re.compile(options.compute_ports)
        matches = np.array([bool(pattern.search(text)) for text in cables.texts.values], np.bool_)
        chosen = cables.shapes & matches[cables.interface]
        # The interface names of a host without an agent are unknown: its cables follow their switch.
        leaves = cables.chassis.has(chosen & (cables.kind == HOST))
        chosen |= cables.shapes & (cables.kind != HOST) & leaves[chassis]
        return Compute(chosen, _usual(speed[chosen]))
    may = cables.shapes & (cables.kind != OTHER)
    counts, has_near, by_gpus = may, frozenset[str](), None
    if near := _nearest_interfaces(inputs):
        ports = Ports(
            cables.host.values, host[cables.shapes], cables.texts.values, cables.interface[cables.shapes]
        )
        found = near_gpus(ports, near, gpu_models(inputs.gpus))
        if found.any():  # else those NICs are of InfiniBand
            by_gpus = np.zeros(len(host), np.bool_)
            by_gpus[cables.shapes] = found
            on_host = cables.host.has(by_gpus)
            has_near = frozenset(compress(cables.host.values, on_host))
            counts = may & (by_gpus | ~on_host[host])
    fastest = np.zeros(len(cables.host.values))
    np.maximum.at(fastest, host, np.where(counts, speed, 0.0))
    # A host that no source claims may be anything, such as a management controller.
    known = cables.host.has(counts & (cables.kind == HOST))
    usual = _usual(fastest[known if known.any() else cables.host.has(counts)])
    of_host = fastest[host]
    chosen = may & (((speed == of_host) & (speed * _FAR_SLOWER > usual)) | (usual == 0))
    if by_gpus is not None:
        chosen = np.where(on_host[host], may & by_gpus & (speed * _FAR_SLOWER > of_host), chosen)
    chosen |= _slowed(cables, chosen, of_host, usual)
    return Compute(chosen, usual, has_near)


def _usual(speeds_mbps: npt.NDArray[np.float64]) -> int:
    return int(np.sort(speeds_mbps)[len(speeds_mbps) // 2]) if len(speeds_mbps) else 0


def _slowed(cables: HostCables, chosen: Mask, fastest_mbps: npt.NDArray[np.float64], usual_mbps: int) -> Mask:
    """Return the ports that came up too slow for their host's `fastest_mbps`: slow cables, none missing.

    Hosts compute with the port's switch. Ports of the same name compute on most hosts; a port that is known
    by its address alone has no namesakes: there most host cables of its switch compute.
    """
    speed, chassis = cables.speed_mbps, cables.chassis.at
    peer = np.where(fastest_mbps > speed, fastest_mbps, usual_mbps)
    slowed = ~chosen & cables.shapes & (speed * _FAR_SLOWER > peer)
    if not slowed.any():  # the common case
        return slowed
    of_hosts = cables.kind == HOST
    leaves, on_switch = (
        np.bincount(chassis[rows], minlength=len(cables.chassis.values))[chassis]
        for rows in (chosen, cables.kind != OTHER)
    )
    computing, there = (
        np.bincount(cables.interface[rows], minlength=len(cables.texts.values))[cables.interface]
        for rows in (chosen, of_hosts)
    )
    slowed &= leaves > 0
    at = np.flatnonzero(slowed)
    by_address = np.zeros(len(slowed), np.bool_)
    by_address[at] = [is_mac(cables.rows[i].interface) for i in at.tolist()]
    slowed &= np.where(by_address, leaves * 2 > on_switch, computing * 2 > there)
    slowed &= of_hosts | by_address & (cables.kind == NAMED)
    return slowed


def compute_between(
    cables: HostCables, compute: Mask, between: Sequence[SwitchCable], usual_mbps: int
) -> list[bool]:
    """Return which cables between switches belong to the compute fabric.

    The search starts at the switches that hosts compute with. It does not pass a switch that hosts use only
    for other traffic, nor a cable that is far slower than the usual compute port (a management port).
    """
    if not between:
        return []
    leaves = cables.chassis.has(compute)
    reached = set(compress(cables.chassis.values, leaves))
    used = cables.chassis.has(cables.shapes & (cables.kind != OTHER))
    other = set(compress(cables.chassis.values, used & ~leaves))
    usable = [
        cable.shapes
        and not {cable.a.chassis, cable.b.chassis} & other
        and (not (cable.speed_mbps and usual_mbps) or cable.speed_mbps * _FAR_SLOWER > usual_mbps)
        for cable in between
    ]
    around: dict[str, list[str]] = {}
    for cable, may in zip(between, usable, strict=True):
        if may:
            around.setdefault(cable.a.chassis, []).append(cable.b.chassis)
            around.setdefault(cable.b.chassis, []).append(cable.a.chassis)
    waiting = list(reached)
    while waiting:
        more = [x for x in around.get(waiting.pop(), ()) if x not in reached]
        reached.update(more)
        waiting += more
    return [may and cable.a.chassis in reached for cable, may in zip(between, usable, strict=True)]


def _nearest_interfaces(inputs: FabricInputs) -> Mapping[str, Collection[str]]:
    """Return the interfaces that are nearest to a host's GPUs, by node. GPUs name RDMA devices where there
    are some."""
    near, roce = nearest_nics(inputs.gpus), _roce(inputs.infiniband)
    return _with_interfaces(near, roce, _addresses(inputs.lldp)) if near and roce else near


def _roce_of(node: str, ports: Sequence[InfinibandPort]) -> Sequence[tuple[str, int]] | None:
    """Return the RDMA devices on Ethernet, and their GUIDs."""
    return tuple((port.device, port.node_guid) for port in ports if port.link_layer == "Ethernet") or None


def _addresses_of(node: str, ports: Sequence[LldpPort]) -> Sequence[tuple[str, str]]:
    return tuple((port.mac, port.interface) for port in ports if port.mac)


_roce, _addresses = MemoByNode(_roce_of), MemoByNode(_addresses_of)


@memoized
def _with_interfaces(
    near: Mapping[str, Collection[str]],
    roce: Mapping[str, Sequence[tuple[str, int]]],
    addresses: Mapping[str, Sequence[tuple[str, str]]],
) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for node, nics in near.items():
        macs = {mac for device, guid in roce.get(node, ()) if device in nics for mac in _macs_of(guid)}
        found[node] = frozenset(nics).union(name for mac, name in addresses.get(node, ()) if mac in macs)
    return found


def _macs_of(guid: int) -> tuple[str, str]:
    """Return the two addresses that the port of a RoCE device may have. Its GUID has two more bytes in the
    middle; some vendors also flip the universal/local bit, as for an EUI-64 (RFC 4291, appendix A)."""
    raw = guid.to_bytes(8, "big")
    plain = raw[:3] + raw[5:]
    return plain.hex(":"), (bytes((plain[0] ^ 0x02,)) + plain[1:]).hex(":")
