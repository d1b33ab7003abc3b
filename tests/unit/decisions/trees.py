"""Small trees for the tests of this room."""

from collections.abc import Mapping, Sequence

from hyperscout_topology.topology import Anomaly, Endpoint, Link, LinkTable, Switch, Topology
from support.builders import anomaly, hypernode

GENERATION_OF_INFERENCE = 4711  # inference counts on its own; what is published is counted here


def tree(
    leaves: Mapping[str, Sequence[str]],
    anomalies: Sequence[Anomaly] = (),
    *,
    top: bool = True,
    links: Sequence[Link] = (),
    absent: Sequence[str] = (),
) -> Topology:
    """Leaves of nodes under one root (`top`), each with the switch "sw-<leaf>"."""
    root = "top" if top and leaves else None
    hypernodes = [
        hypernode(name, sorted(nodes), parent=root, switches=(f"sw-{name}",))
        for name, nodes in sorted(leaves.items())
    ]
    if root:
        nodes = sorted(n for members in leaves.values() for n in members)
        hypernodes.append(hypernode(root, nodes, children=sorted(leaves), switches=("sw-top",)))
    switches = [Switch(s, s, h.tier) for h in hypernodes for s in h.switches]
    return Topology(
        generation=GENERATION_OF_INFERENCE,
        hypernodes=tuple(hypernodes),
        switches=tuple(sorted(switches, key=lambda s: s.id)),
        links=LinkTable.of(list(links)),
        anomalies=tuple(sorted(anomalies, key=lambda x: (x.key, x.message))),
        nodes_without_evidence=tuple(absent),
    )


def leaves_of(count: int, size: int = 4) -> dict[str, list[str]]:
    """l00: n0000.., l01: ..."""
    return {f"l{k:02}": [f"n{k * size + i:04}" for i in range(size)] for k in range(count)}


def lost_uplink(
    number: int, kind: str = "MissingLink", hypernode: str | None = "l00", message: str = ""
) -> Anomaly:
    """An anomaly of uplink `number` of the leaf."""
    leaf, top = (Endpoint(device, device, str(number)) for device in (f"sw-{hypernode}", "sw-top"))
    return anomaly(kind, leaf, top, confidence=0.95, message=message, hypernode=hypernode)


def uplink(number: int, leaf: str = "l00") -> Link:
    """The cable that `lost_uplink(number)` is about."""
    return Link(f"sw-{leaf}", str(number), "sw-top", str(number), "ib", ("ibnetdiscover",))
