"""Reads the error counters of all ports of an InfiniBand fabric with `ibqueryerrors`, under a sweep lease.

The agent sends the tool's text unchanged, and only when a counter changed; the collector interprets it. The
probe does not clear counters, because other tools use them too. The tool addresses ports by LID. So, unlike
`ibnetdiscover`, it needs a running subnet manager.
"""

from typing import Any

from hyperscout.v1.discovery_pb2 import SweepLease
from hyperscout_formats.infiniband.ibqueryerrors import SUMMARY

from hyperscout_agent.findings.bulk import BulkBuilder
from hyperscout_agent.findings.probe import Observation, ProbeContext, ProbeParts
from hyperscout_agent.runtime.subprocesses import ToolError, first_line, run_tool
from hyperscout_agent.sweeps.leased import LeasedProbe, Swept, error_lines

# The site's own thresholds would hide counters, and with them their growth.
_EVERYTHING = ("--threshold-file", "/dev/null")
# Counters that do not indicate a faulty cable. They change all the time and would cause a new text each run.
_PASSED_OVER = (
    "PortXmitWait",
    "PortRcvSwitchRelayErrors",
    "PortRcvRemotePhysicalErrors",
    "PortXmitConstraintErrors",
    "PortRcvConstraintErrors",
    "VL15Dropped",
    "QP1Dropped",
)
_NO_MANAGER = b"No SM/SA found"
_MAX_OUTPUT_BYTES = 64 * 1024 * 1024


def build(context: ProbeContext) -> ProbeParts | None:
    settings = context.settings.ibqueryerrors
    if not (settings.enabled and context.settings.ibnetdiscover.enabled):
        return None
    return IbqueryerrorsProbe(
        command=settings.command,
        timeout_s=settings.timeout_s,
        max_output_bytes=_MAX_OUTPUT_BYTES,
        trigger=context.trigger,
    ).parts()


class IbqueryerrorsProbe(LeasedProbe):
    """Reads counters under each lease. Findings of earlier leases are removed."""

    name = "ibqueryerrors"
    complete = True

    def __init__(self, *, interval_s: float = 300.0, **options: Any) -> None:
        super().__init__(**options)
        self._interval_s = interval_s
        self._has_reported = False

    @property
    def interval_s(self) -> float | None:
        """Seconds between two runs, None without a lease.

        After the last lease the probe runs once more to withdraw its findings. After a broken stream, stream
        and lease are usually back by then.
        """
        return self._interval_s if self._leases or self._has_reported else None

    @property
    def timeout_s(self) -> float:
        return self._tool_timeout_s * max(len(self._leases), 1) + 10.0

    def revoke(self, lease_id: str) -> None:
        """End one lease and a run under it, and trigger a run that withdraws its findings."""
        super().revoke(lease_id)
        self._trigger()

    async def observe(self) -> Observation:
        observation = await super().observe()
        self._has_reported = bool(observation.samples)
        return observation

    async def _sweep(self, lease: SweepLease) -> Swept:
        builder = BulkBuilder()
        end = b""

        def take(piece: bytes) -> None:
            nonlocal end
            end = (end + piece)[-4096:]
            builder.write(piece)

        argv = (*self._command, *_EVERYTHING, "--suppress", ",".join(_PASSED_OVER))
        result = await run_tool(
            (*argv, "-C", lease.device, "-P", str(lease.port)),
            take=take,
            timeout_s=self._tool_timeout_s,
            max_output_bytes=self._max_output_bytes,
        )
        if SUMMARY not in end:  # the tool exits with 0 even when it could not start
            raise ToolError(f"{self._command[0]}: {_reason(result.exit_code, result.stderr)}")
        return Swept(builder.finish(), error_lines(result.stderr))


def _reason(exit_code: int, stderr: bytes) -> str:
    if _NO_MANAGER in stderr:
        return "no subnet manager answers on this fabric, and without one no port answers"
    return f"exit {exit_code}: {error_lines(stderr) or first_line(stderr) or 'no summary in its output'}"
