"""Builds the probes of the fabric managers that have a URL."""

from hyperscout_agent.findings.probe import Probe
from hyperscout_agent.probes.netq import NetqProbe
from hyperscout_agent.probes.nmx import NmxProbe
from hyperscout_agent.probes.ufm import UfmProbe
from hyperscout_agent.settings.settings import AgentSettings


def manager_probes(settings: AgentSettings) -> list[Probe]:
    """Return the fabric-manager probes of an agent with role `fabric`."""
    probes: list[Probe] = []
    if settings.ufm.on:
        probes.append(UfmProbe(settings.ufm))
    if settings.netq.on:
        probes.append(NetqProbe(settings.netq))
    if settings.nmx.on:
        probes.append(NmxProbe(settings.nmx))
    return probes
