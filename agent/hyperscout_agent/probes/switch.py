"""Reports the ports of this switch: announced ids, lldpd's neighbours, and error counters.

It is the only probe of an agent with role `switch`. The collector identifies a link by the ids that both ends
announce, so the probe also reads from lldpd the switch's own chassis id and port ids.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from re import Pattern

from hyperscout_formats.facts import interface_counters
from hyperscout_formats.facts.facts import LldpNeighbour, SwitchPort
from hyperscout_formats.facts.wire import switch_port_to_proto
from hyperscout_formats.lldp.lldpctl import parse_own
from hyperscout_formats.text.errors import FormatError
from hyperscout_formats.text.reporters import SWITCH_PROBE

from hyperscout_agent.findings.probe import (
    Observation,
    ProbeContext,
    ProbeError,
    ProbeParts,
    Sample,
    Scope,
    data,
    nothing,
)
from hyperscout_agent.lldp.lldpd import TOOL_TIMEOUT_S, lldpd_output, neighbours_by_port
from hyperscout_agent.lldp.neighbours import NO_CARRIER
from hyperscout_agent.runtime.ports import PortState, compiled, physical_ports, read_ports, read_statistics
from hyperscout_agent.runtime.rtnetlink import LinkWatch
from hyperscout_agent.runtime.threads import in_thread

NOTHING_HEARD = "nothing heard on a port that is up: the other end sends no LLDP, or has just been plugged in"
NOT_LLDPD = "lldpd does not use this port (`configure system interface pattern`)"

_IF_MISSING = "install lldpd, or set `lldp.lldpctl_command`"
# More than any switch has: 64 cages, each split into eight, are 512 ports.
_MAX_PORTS = 1024
# A new neighbour is heard some seconds after the carrier comes up, without another carrier change. So the
# probe then runs at shorter intervals: seconds for which a port is up without a neighbour, and the interval.
_QUIET_INTERVALS_S = ((5.0, 0.5), (60.0, 2.0))
# Changed counters (drops change on healthy ports too) are reported at this interval, or with other changes.
_COUNTERS_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class _Reported:
    """The last reported state of a port. Times are monotonic seconds."""

    port: SwitchPort
    counters_at_s: float
    quiet_since_s: float | None  # since when the port is up without a neighbour


def build(context: ProbeContext) -> ProbeParts:
    lldp = context.settings.lldp
    probe = SwitchProbe(
        lldpctl=lldp.lldpctl_command,
        lldpcli=context.settings.lldpcli,
        sysfs=context.sysfs,
        pattern=compiled(lldp.ports),
        interval_s=lldp.interval_s,
    )
    return ProbeParts(probe, {"link-watch": LinkWatch(context.trigger).run})


class SwitchProbe:
    """Reads the ports of a switch. Subjects are port names.

    `lldpctl` and `lldpcli`: the command lines before `-f json0`. `pattern`: selects ports (see
    `physical_ports`) instead of all ports that lldpd works on.
    """

    name = SWITCH_PROBE
    scope: Scope = "node"
    timeout_s = 2 * TOOL_TIMEOUT_S + 10.0
    max_findings = _MAX_PORTS

    def __init__(
        self,
        *,
        lldpctl: Sequence[str] = ("lldpctl",),
        lldpcli: Sequence[str] = ("lldpcli",),
        sysfs: Path = Path("/sys"),
        pattern: Pattern[str] | None = None,
        interval_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lldpctl = tuple(lldpctl)
        self._lldpcli = tuple(lldpcli)
        self._sysfs = sysfs
        self._pattern = pattern
        self._interval_s = interval_s
        self._clock = clock
        self._reported: dict[str, _Reported] = {}

    @property
    def interval_s(self) -> float | None:
        """Seconds between runs; shorter while a port that came up has no neighbour yet."""
        now_s = self._clock()
        quiet_since_s = (reported.quiet_since_s for reported in self._reported.values())
        age_s = now_s - max((since_s for since_s in quiet_since_s if since_s is not None), default=-inf)
        intervals_s = (interval_s for limit_s, interval_s in _QUIET_INTERVALS_S if age_s < limit_s)
        return min(self._interval_s, next(intervals_s, self._interval_s))

    async def observe(self) -> Observation:
        own = await self._own()
        heard = await neighbours_by_port(self._lldpctl, _IF_MISSING)
        states = await in_thread(lambda: self._states(own), "switch-sysfs")
        if not states:
            raise ProbeError(self._why_no_ports(own))
        chassis = next(iter(own.values()))
        now_s = self._clock()
        reported: dict[str, _Reported] = {}
        samples: dict[str, Sample] = {}
        for state, files in states:
            neighbours = heard.get(state.name, ()) if state.carrier else ()
            port = replace(
                _fact(state, own.get(state.name), chassis),
                neighbours=neighbours,
                counters=interface_counters.parse(files),
            )
            reported[state.name] = self._settled(port, now_s)
            payload = switch_port_to_proto(reported[state.name].port)
            if neighbours:
                samples[state.name] = data(payload)
            else:
                why = NO_CARRIER if not state.carrier else NOTHING_HEARD if port.port_id else NOT_LLDPD
                samples[state.name] = nothing(why, payload)
        self._reported = reported
        return Observation(samples)

    async def _own(self) -> dict[str, LldpNeighbour]:
        """Return the ids that this switch announces, by port. Raises ProbeError."""
        output = await lldpd_output(
            (*self._lldpcli, "-f", "json0", "show", "interfaces"), "lldpcli", _IF_MISSING
        )
        try:
            own, problems = parse_own(output)
        except FormatError as error:
            raise ProbeError(str(error)) from error
        if not own:
            why = str(problems[0]) if problems else "lldpd uses no port"
            raise ProbeError(f"{why}: the ids that this switch announces are unknown")
        return own

    def _states(self, own: dict[str, LldpNeighbour]) -> list[tuple[PortState, dict[str, bytes]]]:
        """Read the state and the counter files of each port. Blocks."""
        if self._pattern is None:
            names = sorted(own)[:_MAX_PORTS]
        else:
            names = physical_ports(self._sysfs, self._pattern, _MAX_PORTS)
        return [
            (state, read_statistics(self._sysfs, state.name, interface_counters.COUNTERS))
            for state in read_ports(self._sysfs, names)
        ]

    def _why_no_ports(self, own: dict[str, LldpNeighbour]) -> str:
        some = ", ".join(sorted(own)[:5])
        if self._pattern is None:
            return f"{self._sysfs}/class/net has none of the ports that lldpd uses ({some})"
        return f"`lldp.ports` ({self._pattern.pattern}) matches no port name: lldpd uses {some}"

    def _settled(self, port: SwitchPort, now_s: float) -> _Reported:
        """Return the port to report. If only counters changed, they are updated at most once a minute."""
        before = self._reported.get(port.interface)
        quiet_since_s = None
        if port.carrier and not port.neighbours and port.port_id:
            changed = before is not None and (
                before.port.carrier_changes != port.carrier_changes or before.port.neighbours
            )
            quiet_since_s = now_s if before is None or changed else before.quiet_since_s
        if (
            before is not None
            and replace(port, counters=before.port.counters) == before.port
            and now_s - before.counters_at_s < _COUNTERS_EVERY_S
        ):
            return replace(before, quiet_since_s=quiet_since_s)
        return _Reported(port, now_s, quiet_since_s)


def _fact(state: PortState, own: LldpNeighbour | None, chassis: LldpNeighbour) -> SwitchPort:
    return SwitchPort(
        interface=state.name,
        chassis_id_subtype=chassis.chassis_id_subtype,
        chassis_id=chassis.chassis_id,
        neighbours=(),
        system_name=chassis.system_name,
        port_id_subtype=own.port_id_subtype if own else "",
        port_id=own.port_id if own else "",
        port_description=own.port_description if own else "",
        mac=state.mac,
        carrier=state.carrier,
        speed_mbps=state.speed_mbps,
        carrier_changes=state.carrier_changes,
    )
