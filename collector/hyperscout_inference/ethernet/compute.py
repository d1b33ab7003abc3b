"""Decide which Ethernet ports belong to the compute fabric.

The first rule that applies decides: the declared pattern, then the NICs nearest to GPUs, then the fastest
speed class of each host. Cables between switches follow. InfiniBand, where present, comes between the last
two rules, or first where few hosts report nearest NICs; `fuse` applies that, because it has both fabrics.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hyperscout_formats.facts.facts import Gpu

from hyperscout_inference.ethernet.neighbours import HOST, NAMED, OTHER
from hyperscout_inference.ethernet.switch_cables import SwitchCable
from hyperscout_inference.ethernet.switch_reports import is_mac
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions

# A port that is slower than the host's compute speed by this factor does not belong to the compute fabric.
_FAR_SLOWER = 8


class HostCable(NamedTuple):
    """A cable of a device that is not a switch. `kind` as in `neighbours`; `shapes`: no other cable
    contradicts it."""

    host: str
    interface: str
    chassis: str
    port: str
    speed_mbps: int  # 0 = unknown
    sources: tuple[str, ...]
    note: str = ""
    shapes: bool = True
    kind: int = HOST


class Compute(NamedTuple):
    """`ports`: for each cable whether it computes. `usual_mbps`: the usual speed of hosts' compute ports, 0 =
    unknown. `near`: the hosts whose NICs nearest to GPUs decided."""

    ports: list[bool]
    usual_mbps: int
    near: frozenset[str] = frozenset()


def nearest_nics(gpus: Mapping[str, Sequence[Gpu]]) -> dict[str, set[str]]:
    """Return the names of the NICs that are nearest to a host's GPUs, by node."""
    found = {node: {nic for gpu in mine for nic in gpu.nearest_nics} for node, mine in gpus.items()}
    return {node: nics for node, nics in found.items() if nics}


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


def compute_ports(rows: Sequence[HostCable], inputs: FabricInputs, options: InferOptions) -> Compute:
    """Return which cables compute, by the first rule that applies."""
    if options.compute_ports is not None:
        pattern = re.compile(options.compute_ports)
        chosen = [row.shapes and bool(pattern.search(row.interface)) for row in rows]
        # The interface names of a host without an agent are unknown: its cables follow their switch.
        leaves = {row.chassis for row, mine in zip(rows, chosen, strict=True) if mine and row.kind == HOST}
        chosen = [
            mine or (row.shapes and row.kind != HOST and row.chassis in leaves)
            for row, mine in zip(rows, chosen, strict=True)
        ]
        speeds = sorted(row.speed_mbps for row, mine in zip(rows, chosen, strict=True) if mine)
        return Compute(chosen, speeds[len(speeds) // 2] if speeds else 0)
    near = _nearest_interfaces(inputs)
    by_gpus = [False] * len(rows)
    if near:
        ports = [(row.host if row.shapes else None, row.interface) for row in rows]
        by_gpus = near_gpus(ports, near, inputs.gpus)
    has_near = frozenset(row.host for row, mine in zip(rows, by_gpus, strict=True) if mine)
    fastest: dict[str, int] = {}
    known: set[str] = set()
    for row, mine in zip(rows, by_gpus, strict=True):
        if row.shapes and row.kind != OTHER and (mine or row.host not in has_near):
            fastest[row.host] = max(fastest.get(row.host, 0), row.speed_mbps)
            if row.kind == HOST:
                known.add(row.host)
    # A host that no source claims may be anything, such as a management controller.
    ranked = sorted(speed for host, speed in fastest.items() if not known or host in known)
    usual = ranked[len(ranked) // 2] if ranked else 0

    def computes(row: HostCable, mine: bool) -> bool:
        if not row.shapes or row.kind == OTHER:
            return False
        if row.host in has_near:
            return mine and row.speed_mbps * _FAR_SLOWER > fastest[row.host]
        return usual == 0 or (row.speed_mbps == fastest[row.host] and row.speed_mbps * _FAR_SLOWER > usual)

    chosen = [computes(row, mine) for row, mine in zip(rows, by_gpus, strict=True)]
    return Compute(_with_slowed(rows, chosen, fastest, usual), usual, has_near)


def _with_slowed(
    rows: Sequence[HostCable], chosen: list[bool], fastest: Mapping[str, int], usual_mbps: int
) -> list[bool]:
    """Return `chosen` with the ports that came up too slow for their host's `fastest` class: slow cables,
    none missing.

    Hosts compute with the port's switch. Ports of the same name compute on most hosts; a port that is known
    by its address alone has no namesakes: there most host cables of its switch compute.
    """
    if all(chosen):
        return chosen
    there: Counter[str] = Counter(row.interface for row in rows if row.kind == HOST)
    computing = Counter(row.interface for row, mine in zip(rows, chosen, strict=True) if mine)
    on_switch: Counter[str] = Counter(row.chassis for row in rows if row.kind != OTHER)
    leaves = Counter(row.chassis for row, mine in zip(rows, chosen, strict=True) if mine)

    def slowed(row: HostCable) -> bool:
        own = fastest.get(row.host, 0)
        peer = own if own > row.speed_mbps else usual_mbps
        if not row.shapes or row.speed_mbps * _FAR_SLOWER <= peer or not leaves[row.chassis]:
            return False
        if is_mac(row.interface):
            return row.kind in (HOST, NAMED) and leaves[row.chassis] * 2 > on_switch[row.chassis]
        return row.kind == HOST and computing[row.interface] * 2 > there[row.interface]

    return [mine or slowed(row) for row, mine in zip(rows, chosen, strict=True)]


def compute_between(
    rows: Sequence[HostCable], compute: Sequence[bool], between: Sequence[SwitchCable], usual_mbps: int
) -> list[bool]:
    """Return which cables between switches belong to the compute fabric.

    The search starts at the switches that hosts compute with. It does not pass a switch that hosts use only
    for other traffic, nor a cable that is far slower than the usual compute port (a management port).
    """
    reached = {row.chassis for row, mine in zip(rows, compute, strict=True) if mine}
    other = {row.chassis for row in rows if row.shapes and row.kind != OTHER} - reached
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
