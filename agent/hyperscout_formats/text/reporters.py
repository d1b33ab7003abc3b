"""Defines the names of reporters: a node's own name, or a name that no node can have.

Kubernetes allows no slash in the name of a node (RFC 1123), and neither does the agent's setting `node`.
"""

from typing import Final

SWITCH_PROBE: Final = "switch"
# Probes that only agents of the role `fabric` run. Each reports whole switches or a whole fabric.
FABRIC_PROBES: Final = frozenset({"snmp", "ufm", "netq", "nmx"})
# Probe of a device in a node (a DPU), which reports under the name of the node by MQTT. No agent runs it. The
# full state of the device and the full state of the agent are independent of each other.
DEVICE_PROBE: Final = "device"
_SWITCH: Final = "switch/"
_FABRIC: Final = "fabric/"


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
    """Return whether the reporter is a node."""
    return "/" not in reporter


def is_reporter(text: str) -> bool:
    """Return whether the text is a valid reporter name."""
    return "/" not in text.removeprefix(_FABRIC if is_fabric(text) else _SWITCH) and text not in (
        "",
        _SWITCH,
        _FABRIC,
    )
