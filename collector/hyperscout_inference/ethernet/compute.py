"""Decide which Ethernet ports belong to the compute fabric.

The first rule that applies decides: the declared pattern, then the NICs nearest to GPUs, then the fastest
speed class of each host. Cables between switches follow. InfiniBand, where present, comes between the last
two rules, or first where few hosts report nearest NICs; `fuse` applies that, because it has both fabrics.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hyperscout_formats.facts.facts import Gpu
from hyperscout_topology.memo import MemoByNode

from hyperscout_inference.ethernet.host_cables import HostCables
from hyperscout_inference.ethernet.neighbours import HOST, NAMED, OTHER
from hyperscout_inference.ethernet.switch_cables import SwitchCable
from hyperscout_inference.ethernet.switch_reports import is_mac
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.fabric.part import Mask

# A port that is slower than the host's compute speed by this factor does not belong to the compute fabric.
_FAR_SLOWER = 8


class Compute(NamedTuple):
    """`ports`: for each cable whether it computes. `usual_mbps`: the usual speed of hosts' compute ports, 0 =
    unknown. `near`: the hosts whose NICs nearest to GPUs decided."""

    ports: Mask
    usual_mbps: int
    near: frozenset[str] = frozenset()


def nearest_nics(gpus: Mapping[str, Sequence[Gpu]]) -> dict[str, set[str]]:
    """Return the names of the NICs that are nearest to a host's GPUs, by node."""
    return {node: nics for node, nics in _nearest_nics(gpus).items() if nics}


def _nics_of(node: str, gpus: Sequence[Gpu]) -> set[str]:
    return {nic for gpu in gpus for nic in gpu.nearest_nics}


_nearest_nics = MemoByNode(_nics_of)


def near_gpus(
    ports: Sequence[tuple[str | None, str]], near: Mapping[str, set[str]], gpus: Mapping[str, Sequence[Gpu]]
) -> list[bool]:
    """Return whether each port (host, name) is nearest to GPUs.

    A port counts if `near` has it on its host, or on most hosts with the same GPU model. A lost GPU therefore
    does not change the ports of its host.
    """
    if not near:
        return [False] * len(ports)
    model = {node: min((gpu.model for gpu in gpus[node]), default="") for node in near}
    there: Counter[tuple[str, str]] = Counter()
    nearest: Counter[tuple[str, str]] = Counter()
    for host, name in set(ports):
        if host is not None and host in near:
            there[model[host], name] += 1
            nearest[model[host], name] += name in near[host]
    usual = {key for key, count in nearest.items() if count * 2 > there[key]}
    return [
        host is not None and (name in near.get(host, ()) or (model.get(host), name) in usual)
        for host, name in ports
    ]


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
    by_gpus = np.zeros(len(cables.rows), np.bool_)
    if near := _nearest_interfaces(inputs):
        ports = [(row.host if row.shapes else None, row.interface) for row in cables.rows]
        by_gpus = np.array(near_gpus(ports, near, inputs.gpus), np.bool_)
    has_near = cables.host.has(by_gpus)
    may = cables.shapes & (cables.kind != OTHER)
    counts = may & (by_gpus | ~has_near[host])
    fastest = np.zeros(len(has_near))
    np.maximum.at(fastest, host[counts], speed[counts])
    # A host that no source claims may be anything, such as a management controller.
    known = cables.host.has(counts & (cables.kind == HOST))
    usual = _usual(fastest[known if known.any() else cables.host.has(counts)])
    is_fast = (speed == fastest[host]) & (speed * _FAR_SLOWER > usual) | (usual == 0)
    is_near = by_gpus & (speed * _FAR_SLOWER > fastest[host])
    chosen = may & np.where(has_near[host], is_near, is_fast)
    chosen |= _slowed(cables, chosen, fastest[host], usual)
    return Compute(chosen, usual, frozenset(compress(cables.host.values, has_near)))


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


def _nearest_interfaces(inputs: FabricInputs) -> dict[str, set[str]]:
    """Return the interfaces that are nearest to a host's GPUs, by node. GPUs name RDMA devices where there
    are some."""
    found: dict[str, set[str]] = {}
    for node, nics in nearest_nics(inputs.gpus).items():
        macs = {
            mac
            for port in inputs.infiniband.get(node, ())
            if port.link_layer == "Ethernet" and port.device in nics
            for mac in _macs_of(port.node_guid)
        }
        found[node] = nics | {port.interface for port in inputs.lldp.get(node, ()) if port.mac in macs}
    return found


def _macs_of(guid: int) -> tuple[str, str]:
    """Return the two addresses that the port of a RoCE device may have. Its GUID has two more bytes in the
    middle; some vendors also flip the universal/local bit, as for an EUI-64 (RFC 4291, appendix A)."""
    raw = guid.to_bytes(8, "big")
    plain = raw[:3] + raw[5:]
    return plain.hex(":"), (bytes((plain[0] ^ 0x02,)) + plain[1:]).hex(":")
