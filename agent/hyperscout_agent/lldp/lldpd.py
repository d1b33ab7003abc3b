"""Queries an lldpd that runs on this host, through its tools `lldpctl` and `lldpcli`."""

from collections.abc import Sequence
from pathlib import Path

from hyperscout_formats.facts.facts import LldpNeighbour
from hyperscout_formats.lldp.lldpctl import parse
from hyperscout_formats.text.errors import FormatError

from hyperscout_agent.findings.probe import ProbeError
from hyperscout_agent.runtime.subprocesses import ToolError, ToolMissingError, last_line, run_tool

_MAX_OUTPUT_BYTES = 16 * 1024 * 1024
TOOL_TIMEOUT_S = 10.0
_LLDPD_SOCKETS = ("run/lldpd.socket", "run/lldpd/lldpd.socket", "var/run/lldpd.socket")


def lldpd_runs(root: Path = Path("/")) -> bool:
    """Whether lldpd's control socket exists on this host."""
    return any((root / path).is_socket() for path in _LLDPD_SOCKETS)


async def neighbours_by_port(command: Sequence[str], if_missing: str) -> dict[str, tuple[LldpNeighbour, ...]]:
    """Return lldpd's neighbours by port. `if_missing`: advice when the tool is missing. Raises ProbeError."""
    output = await lldpd_output((*command, "-f", "json0"), "lldpctl", if_missing)
    try:
        ports, problems = parse(output)
    except FormatError as error:
        raise ProbeError(str(error)) from error
    if problems and not ports:
        raise ProbeError(str(problems[0]))
    return {port.interface: port.neighbours for port in ports}


async def lldpd_output(argv: Sequence[str], name: str, if_missing: str) -> bytes:
    """Run one of lldpd's tools and return its output. Raises ProbeError, which names the tool `name`."""
    output = bytearray()
    try:
        result = await run_tool(
            argv, take=output.extend, timeout_s=TOOL_TIMEOUT_S, max_output_bytes=_MAX_OUTPUT_BYTES
        )
    except ToolMissingError as error:
        raise ProbeError(f"{error}: {if_missing}") from error
    except ToolError as error:
        raise ProbeError(str(error)) from error
    if result.exit_code != 0:
        raise ProbeError(f"{name}: exit {result.exit_code}: {last_line(result.stderr) or 'no output'}")
    return bytes(output)
