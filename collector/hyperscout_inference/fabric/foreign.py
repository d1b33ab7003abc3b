"""Find endpoints that do not compute: storage, fabric managers, gateways, login nodes.

Their names are the last resort. An endpoint is foreign by name only if the name ends in a whole word for such
a role, and the endpoint is not wired like the compute hosts. An endpoint that an agent or the cluster's list
of nodes claims is a host, whatever its name.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from hyperscout_topology.memo import MemoByNode, memoized

from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.fabric.part import Part

_ROLE = re.compile(
    r"(?i:(?:^|[_-])(?:ufm|opensm|sm|fm|fabric-?manager|subnet-?manager|stor|storage|nas|nfs|lustre|oss|ost|mds"
    r"|mdt|gpfs|nsd|weka|vast|ddn|ceph|gw|gateway|router|login|head|bastion)\d*"
    r"(?:[_-](?:(?:node|server|srv|host)?\d*|[a-d]))*$)"
)
_ZEROS = str.maketrans("123456789", "0" * 9)
_NO_DIGITS = str.maketrans("", "", "0123456789")
# A number of cables that belongs to less than this share of the compute hosts' cables is unusual, unless it
# is more than half of a usual one: cables may be missing.
_USUAL = 0.1
# Wiring of one or two cables says little. Endpoints of one name are then foreign if they are few, less than
# this share of all cables, and have no switch of their own.
_FEW_CABLES = 2
_RARE = 0.15
# A switch above several others is a spine if it has less than this many cables to compute hosts for each one.
_FEW, _SEVERAL = 0.25, 2


def is_foreign(name: str) -> bool:
    """Return whether a name is that of storage, a fabric manager, a gateway or a login node: "login-1", but
    not "gw-gpu01"."""
    host = name.partition(".")[0]
    return _ROLE.search(host) is not None


def any_foreign(names: Iterable[str]) -> bool:
    """Return whether a name among these is that of such an endpoint. Names differ mostly in their numbers, so
    one of each form is tried."""
    return any(map(is_foreign, set("\n".join(names).translate(_ZEROS).split("\n"))))


def reporting_nodes(inputs: FabricInputs, options: InferOptions) -> frozenset[str]:
    """Return the nodes that compute, whatever their names: those with an agent, and the cluster's."""
    nodes = _with_lldp(inputs.lldp), _with_infiniband(inputs.infiniband), _with_gpus(inputs.gpus)
    return _union(*nodes, inputs.answering, options.cluster_nodes or frozenset())


# The same objects while the nodes are the same.
_with_lldp, _with_infiniband, _with_gpus = [MemoByNode[object, bool](lambda *_: True) for _ in range(3)]


@memoized
def _union(*names: Collection[str]) -> frozenset[str]:
    return frozenset().union(*names)


def foreign_by_name(
    cables: Sequence[tuple[str, str]], between: Iterable[tuple[str, str]], named: Collection[str]
) -> set[str]:
    """Return the hosts that are foreign by name and wiring.

    `cables`: a host and its switch, for each cable. `between`: pairs of switches with a cable. `named`: hosts
    that nothing but a name identifies.
    """
    count = Counter(host for host, _ in cables)
    of_name: Counter[str] = Counter()
    for host, n in count.items():
        of_name[_without_numbers(host)] += n
    # Compute hosts have most of the cables. If those are hosts of one such name, the name means nothing.
    roles = {
        host
        for host in count
        if host in named and is_foreign(host) and of_name[_without_numbers(host)] * 2 <= len(cables)
    }
    suspects = roles if sum(count[host] for host in roles) * 2 <= len(cables) else set()
    usual: Counter[int] = Counter()
    for host, n in count.items():
        if host not in suspects:
            usual[n] += n
    widths = {n for n, share in usual.items() if share >= _USUAL * usual.total()}
    on: Counter[str] = Counter()
    every: Counter[str] = Counter()
    of_name_on: Counter[tuple[str, str]] = Counter()
    switches: dict[str, set[str]] = {host: set() for host in roles}
    for host, switch in cables:
        on[switch] += host not in suspects
        every[switch] += 1
        if host in switches:
            switches[host].add(switch)
            of_name_on[_without_numbers(host), switch] += 1
    leaves_below: Counter[str] = Counter()
    for one, other in {*between}:
        leaves_below[one] += on[other] > 0
        leaves_below[other] += on[one] > 0
    rare = _RARE * len(cables)

    def at_others(host: str) -> bool:
        """Return whether the host is alone on its switches, or shares them with as many endpoints of other
        names."""
        own = {switch: of_name_on[_without_numbers(host), switch] for switch in switches[host]}
        return all(n == 1 or n * 2 <= every[switch] for switch, n in own.items())

    found = {
        host
        for host in roles
        if not any(width < 2 * count[host] <= 2 * width for width in widths)
        or all(
            on[switch] < _FEW * leaves_below[switch] and leaves_below[switch] >= _SEVERAL
            for switch in switches[host]
        )
        or (
            host in suspects
            and count[host] <= _FEW_CABLES
            and of_name[_without_numbers(host)] < rare
            and at_others(host)
        )
    }
    # Endpoints of one name are of one kind, that of most of them.
    balance = Counter(map(_without_numbers, found))
    balance.subtract(map(_without_numbers, roles - found))
    return {host for host in found if balance[_without_numbers(host)] >= 0}


def _without_numbers(name: str) -> str:
    return name.translate(_NO_DIGITS)


def leave_out_foreign_names(part: Part, nodes: frozenset[str]) -> None:
    """Make the endpoints foreign that are so by name and wiring. `nodes`: those that compute."""
    hosts = part.hosts
    named = _names_beside(hosts, nodes)
    if not any_foreign(named):
        return
    cables: list[tuple[str, str]] = []
    between: set[tuple[str, str]] = set()
    for a, b in zip(part.a.tolist(), part.b.tolist(), strict=True):
        if (host := hosts[a]) is not None:
            cables.append((host, part.ids[b]))
        elif (host := hosts[b]) is not None:
            cables.append((host, part.ids[a]))
        elif part.is_switch[a] and part.is_switch[b]:
            between.add((part.ids[a], part.ids[b]))
    foreign = foreign_by_name(cables, between, named)
    part.hosts = [None if host in foreign else host for host in hosts]


@memoized
def _names_beside(hosts: Sequence[str | None], nodes: frozenset[str]) -> set[str]:
    """Return the names of hosts that are not among the nodes."""
    return {host for host in hosts if host is not None and host not in nodes}
