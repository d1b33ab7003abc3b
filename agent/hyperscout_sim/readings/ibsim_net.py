"""Writes net files for ibsim(1), so that the real `ibnetdiscover` can sweep a simulated fabric."""

from dataclasses import replace

from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.readings.sweep_text import blocks

_HEAD = "width=3\nspeed=7\nextspeed=7\n"
_FASTEST = "HDR"  # ibsim 0.10 silently treats faster rates as SDR
_TOO_FAST = ("NDR", "XDR")


def ibsim_net(fabric: SimFabric) -> bytes:
    """Return the net file of the whole fabric, with disjoint parts and adapters without a cable.

    ibsim refuses a cable that only one end reports, so hidden ends are written as well. The Id of a node is
    as in `ibnetdiscover` text: "H-<GUID>" (SIM_HOST) and "S-<GUID>".
    """
    cables = []
    for cable in fabric.cables:
        width, _, speed = cable.rate.partition("x")
        cables.append(cable._replace(rate=f"{width}x{_FASTEST}") if speed in _TOO_FAST else cable)
    whole = replace(fabric, cables=tuple(cables), hidden=frozenset())
    guids = [*fabric.levels(), *(x.guid for x in fabric.adapters)]
    return (_HEAD + "".join(blocks(whole, guids))).encode()
