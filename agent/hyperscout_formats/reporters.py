"""Names under which findings are reported: a node's own, and for a switch one that no node can have.

Kubernetes allows no slash in a node's name (RFC 1123), and neither does the agent's setting `node`.
"""

from typing import Final

SWITCH_PROBE: Final = "switch"
_PREFIX: Final = "switch/"


def switch_reporter(name: str) -> str:
    """Under which name the switch of that name reports."""
    return _PREFIX + name


def is_switch(reporter: str) -> bool:
    """Whether it is a switch that reports under this name."""
    return reporter.startswith(_PREFIX)


def is_reporter(text: str) -> bool:
    """Whether anybody can report under this name."""
    return "/" not in text.removeprefix(_PREFIX) and text not in ("", _PREFIX)
