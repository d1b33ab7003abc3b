"""Reports LLDP neighbours like the `lldp` probe, from an lldpd that already runs on the host."""

from collections.abc import Callable, Sequence
from pathlib import Path
from re import Pattern

from hyperscout_formats.facts.facts import LldpNeighbour
from hyperscout_formats.facts.wire import lldp_to_proto
from hyperscout_formats.lldp.lldpctl import parse
from hyperscout_formats.text.errors import FormatError

from hyperscout_agent.findings.probe import Observation, ProbeError, Scope, Sight, data, nothing
from hyperscout_agent.probes.lldp import NO_CARRIER, NOTHING_HEARD, fact, read_ports
from hyperscout_agent.runtime.subprocesses import ToolError, ToolMissingError, run_tool
from hyperscout_agent.runtime.threads import in_thread

_MAX_OUTPUT_BYTES = 16 * 1024 * 1024
TOOL_TIMEOUT_S = 10.0
_LLDPD_SOCKETS = ("run/lldpd.socket", "run/lldpd/lldpd.socket", "var/run/lldpd.socket")


def lldpd_is_here(root: Path = Path("/")) -> bool:
    """Whether lldpd's control socket exists on this host."""
    return any((root / path).is_socket() for path in _LLDPD_SOCKETS)


class LldpctlProbe:
    """Reads the output of `lldpctl -f json0`. `command`: the command line before `-f json0`."""

    name = "lldp"
    scope: Scope = "node"
    timeout_s = TOOL_TIMEOUT_S + 10.0
    max_findings = 256

    def __init__(
        self,
        *,
        command: Sequence[str] = ("lldpctl",),
        sysfs: Path = Path("/sys"),
        pattern: Pattern[str] | None = None,
        interval_s: float = 30.0,
        trigger: Callable[[], None] = lambda: None,
    ) -> None:
        self.interval_s: float | None = interval_s
        self.trigger = trigger
        self._command = tuple(command)
        self._sysfs = sysfs
        self._pattern = pattern

    async def observe(self) -> Observation:
        heard = await self._ask()
        ports = await in_thread(lambda: read_ports(self._sysfs, self._pattern), "lldp-sysfs")
        sights: dict[str, Sight] = {}
        for port in ports:
            neighbours = heard.get(port.name, ()) if port.carrier else ()
            payload = lldp_to_proto(fact(port, neighbours))
            if neighbours:
                sights[port.name] = data(payload)
            else:
                sights[port.name] = nothing(NOTHING_HEARD if port.carrier else NO_CARRIER, payload)
        return Observation(sights)

    async def _ask(self) -> dict[str, tuple[LldpNeighbour, ...]]:
        return await neighbours_by_port(self._command, "install lldpd, or set `lldp.source: listener`")


async def neighbours_by_port(command: Sequence[str], if_missing: str) -> dict[str, tuple[LldpNeighbour, ...]]:
    """Return lldpd's neighbours by port. `if_missing`: advice when the tool is missing. Raises ProbeError."""
    output = await asked((*command, "-f", "json0"), "lldpctl", if_missing)
    try:
        ports, problems = parse(output)
    except FormatError as error:
        raise ProbeError(str(error)) from error
    if problems and not ports:
        raise ProbeError(str(problems[0]))
    return {port.interface: port.neighbours for port in ports}


async def asked(argv: Sequence[str], name: str, if_missing: str) -> bytes:
    """Run one of lldpd's tools and return its output. Raises ProbeError, which names the tool `name`."""
    pieces: list[bytes] = []
    try:
        result = await run_tool(
            argv, take=pieces.append, timeout_s=TOOL_TIMEOUT_S, max_output_bytes=_MAX_OUTPUT_BYTES
        )
    except ToolMissingError as error:
        raise ProbeError(f"{error}: {if_missing}") from error
    except ToolError as error:
        raise ProbeError(str(error)) from error
    if result.exit_code != 0:
        said = result.stderr.decode(errors="replace").strip().splitlines()
        raise ProbeError(f"{name}: exit {result.exit_code}: {said[-1][:300] if said else 'no reason given'}")
    return b"".join(pieces)
