"""Defines the names of reporters: the name of a node, or a name that no node can have.

Kubernetes allows no slash in the name of a node (RFC 1123), and neither does the agent's setting `node`. A
node of one of several clusters is called CLUSTER/NODE. A node of the collector's own cluster has no prefix.
"""

import re
from typing import Final

SWITCH_PROBE: Final = "switch"
# Probes that only agents of the role `fabric` run. Each reports whole switches or a whole fabric.
FABRIC_PROBES: Final = frozenset({"snmp", "ufm", "netq", "nmx"})
# Probe of a device in a node (a DPU), which reports under the name of the node by MQTT. No agent runs it. The
# full state of the device and the full state of the agent are independent of each other.
DEVICE_PROBE: Final = "device"
_SWITCH: Final = "switch/"
_FABRIC: Final = "fabric/"
CLUSTER_PATTERN: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"  # a DNS label (RFC 1123)
_LABEL: Final = re.compile(CLUSTER_PATTERN)
_NO_CLUSTERS: Final = frozenset({_SWITCH[:-1], _FABRIC[:-1]})  # reporters with these prefixes are no nodes
ANY_CLUSTER: Final = "any"  # in a request for a placement
CLUSTER_FORM: Final = (
    "a DNS label (at most 63 lower-case letters, digits and '-') other than 'switch', 'fabric' and 'any'"
)


def switch_reporter(name: str) -> str:
    """Return the reporter name of the switch with that name."""
    return _SWITCH + name


def plain_switch_name(name: str) -> str:
    """Return the name of a switch, or of its agent (`switch/NAME`), in lower case and without a domain."""
    return name.removeprefix(_SWITCH).lower().partition(".")[0]


def fabric_reporter(name: str) -> str:
    """Return the reporter name of an agent that observes a whole fabric."""
    return _FABRIC + name


def is_switch(reporter: str) -> bool:
    """Return whether the reporter is a switch."""
    return reporter.startswith(_SWITCH)


def is_fabric(reporter: str) -> bool:
    """Return whether the reporter is an agent that observes whole fabrics."""
    return reporter.startswith(_FABRIC)


def is_node(reporter: str) -> bool:
    """Return whether the reporter is a node, of any cluster."""
    return not (is_switch(reporter) or is_fabric(reporter))


def is_cluster(text: str) -> bool:
    """Return whether the text is a valid name of a cluster. `CLUSTER_FORM` says what is."""
    return _LABEL.fullmatch(text) is not None and text not in {*_NO_CLUSTERS, ANY_CLUSTER}


def node_in(cluster: str, name: str) -> str:
    """Return the name of a node of a cluster; "" = the collector's own cluster."""
    return f"{cluster}/{name}" if cluster else name


def cluster_of(reporter: str) -> str:
    """Return the cluster of a node; "" = the collector's own cluster, or the reporter is no node."""
    return reporter.partition("/")[0] if "/" in reporter and is_node(reporter) else ""


def device_of(reporter: str) -> str:
    """Return the name of the node, the switch or the agent of role fabric, without the role."""
    return reporter if is_node(reporter) else reporter.partition("/")[2]


def name_in_cluster(node: str) -> str:
    """Return the name of a node without the prefix of its cluster."""
    return node.rpartition("/")[2]


def is_reporter(text: str) -> bool:
    """Return whether the text is a valid reporter name."""
    prefix, slash, name = text.rpartition("/")
    return bool(name) and (not slash or prefix in _NO_CLUSTERS or is_cluster(prefix))
