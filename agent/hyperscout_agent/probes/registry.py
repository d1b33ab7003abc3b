"""Lists the probes of each role, and builds them.

Each probe is a module of this package with the probe's name, by which a trigger finds the probe. Its
function `build` takes a `ProbeContext` and returns `ProbeParts`, or None when the settings turn the probe
off. A module is imported only for its role, because on nodes the modules of the role `fabric` would only use
memory.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Final

from hyperscout_agent.findings.probe import ProbeContext, ProbeParts
from hyperscout_agent.settings.settings import AgentSettings

PROBES: Final[Mapping[str, tuple[str, ...]]] = {
    "node": (
        "lldp",
        "infiniband",
        "ibnetdiscover",
        "ibqueryerrors",
        "nvlink",
        "xgmi",
        "ascend",
        "latency",
        "nccl",
        "pod_resources",
    ),
    "switch": ("switch",),
    "fabric": ("snmp", "ufm", "netq", "nmx"),
}
"""Names of modules by role, in the order in which the agent announces its probes."""


def build_probes(
    settings: AgentSettings, context_of: Callable[[str], ProbeContext]
) -> tuple[ProbeParts, ...]:
    """Build the probes of the agent's role that its settings turn on. Raises StartError.

    `context_of`: returns the context for a module.
    """
    built = []
    for name in PROBES[settings.role]:
        module = importlib.import_module(f"hyperscout_agent.probes.{name}")
        parts: ProbeParts | None = module.build(context_of(name))
        if parts is not None:
            built.append(parts)
    return tuple(built)
