"""Names under which findings are reported: a node's own, and for others one that no node can have.

Kubernetes allows no slash in a node's name (RFC 1123), and neither does the agent's setting `node`.
"""

from typing import Final

SWITCH_PROBE: Final = "switch"
# What an agent of the role `fabric` runs, and nobody else; each reports whole switches or a whole fabric.
FABRIC_PROBES: Final = frozenset({"snmp", "ufm", "netq", "nmx"})
# What a device in a node (a DPU) reports under the node's name by MQTT, and no agent: neither's full state
# says anything about the other's.
DEVICE_PROBE: Final = "device"
_SWITCH: Final = "switch/"
_FABRIC: Final = "fabric/"


def switch_reporter(name: str) -> str:
    """Under which name the switch of that name reports."""
    return _SWITCH + name


def fabric_reporter(name: str) -> str:
    """Under which name an agent reports that looks at a whole fabric."""
    return _FABRIC + name


def is_switch(reporter: str) -> bool:
    """Whether it is a switch that reports under this name."""
    return reporter.startswith(_SWITCH)


def is_fabric(reporter: str) -> bool:
    """Whether it is an agent that looks at whole fabrics that reports under this name."""
    return reporter.startswith(_FABRIC)


def is_node(reporter: str) -> bool:
    """Whether it is a node."""
    return "/" not in reporter


def is_reporter(text: str) -> bool:
    """Whether anybody can report under this name."""
    return "/" not in text.removeprefix(_FABRIC if is_fabric(text) else _SWITCH) and text not in (
        "",
        _SWITCH,
        _FABRIC,
    )
