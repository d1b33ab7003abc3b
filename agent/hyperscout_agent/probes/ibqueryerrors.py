"""Reads the error counters of all ports of an InfiniBand fabric with `ibqueryerrors`, under a sweep lease.

The agent sends the tool's text unchanged, and only when a counter changed; the collector interprets it. The
probe does not clear counters, because other tools use them too. The tool addresses ports by LID. So, unlike
`ibnetdiscover`, it needs a running subnet manager.
"""

import time
from collections.abc import Callable, Sequence

from hyperscout.v1.discovery_pb2 import SweepLease
from hyperscout.v1.finding_pb2 import Sweep
from hyperscout_formats.infiniband.ibqueryerrors import SUMMARY

from hyperscout_agent.findings.bulk import BulkBuilder
from hyperscout_agent.findings.probe import Observation, Scope, Sight, data, failed
from hyperscout_agent.probes.held_leases import HeldLeases
from hyperscout_agent.probes.ibnetdiscover import complaint, first_line
from hyperscout_agent.runtime.subprocesses import ToolError, ToolMissingError, run_tool

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
_PACKAGE = "install it (Debian and RHEL: the package infiniband-diags) or set its path"


class IbqueryerrorsProbe:
    """Reads counters under each lease. Subjects are the leased local ports, for example "mlx5_0/1"."""

    name = "ibqueryerrors"
    scope: Scope = "fabric"
    max_findings = 64

    def __init__(
        self,
        *,
        command: Sequence[str] = ("ibqueryerrors",),
        interval_s: float = 300.0,
        timeout_s: float = 240.0,
        max_output_bytes: int = 64 * 1024 * 1024,
        trigger: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = tuple(command)
        self._interval_s = interval_s
        self._tool_timeout_s = timeout_s
        self._max_output_bytes = max_output_bytes
        self._clock = clock
        self._trigger = trigger
        self._leases = HeldLeases(trigger)
        self._told = False

    @property
    def interval_s(self) -> float | None:
        """Seconds between two runs, None without a lease.

        After the last lease the probe runs once more to withdraw its findings. After a broken stream, stream
        and lease are usually back by then.
        """
        return self._interval_s if self._leases or self._told else None

    @property
    def timeout_s(self) -> float:
        return self._tool_timeout_s * max(len(self._leases), 1) + 10.0

    def take_lease(self, lease: SweepLease) -> None:
        """Take a lease: run immediately, then at the probe's own interval."""
        self._leases.take(lease)

    def revoke(self, lease_id: str) -> None:
        """End one lease and a run under it, and trigger a run that withdraws its findings."""
        self._leases.revoke(lease_id)
        self._trigger()

    def drop_lease(self) -> None:
        """End all leases, when the stream to the collector ends."""
        self._leases.drop()

    async def observe(self) -> Observation:
        """Run the tool once for each lease, one after the other. Findings of earlier leases are removed."""
        found = [await self._leases.under(lease, self._look(lease)) for lease in self._leases]
        looks = [one for one in found if one is not None]
        self._told = bool(looks)
        return Observation(
            {subject: sight for one in looks for subject, sight in one.sights.items()},
            bulks=tuple(bulk for one in looks for bulk in one.bulks),
        )

    async def _look(self, lease: SweepLease) -> Observation:
        started_s = self._clock()
        subject = f"{lease.device}/{lease.port}"
        payload = Sweep(format=self.name, device=lease.device, port=lease.port, lease_id=lease.lease_id)
        builder = BulkBuilder()
        end = b""

        def take(piece: bytes) -> None:
            nonlocal end
            end = (end + piece)[-4096:]
            builder.write(piece)

        argv = (*self._command, *_EVERYTHING, "--suppress", ",".join(_PASSED_OVER))
        try:
            result = await run_tool(
                (*argv, "-C", lease.device, "-P", str(lease.port)),
                take=take,
                timeout_s=self._tool_timeout_s,
                max_output_bytes=self._max_output_bytes,
            )
        except ToolMissingError as error:
            return _only(subject, failed(f"{error}: {_PACKAGE}", payload))
        except ToolError as error:
            return _only(subject, failed(str(error), payload))
        if SUMMARY not in end:  # the tool exits with 0 even when it could not start
            return _only(subject, failed(self._why(result.exit_code, result.stderr), payload))
        bulk = builder.finish()
        payload.sha256 = bulk.sha256
        payload.size_bytes = bulk.size_bytes
        payload.partial_reason = complaint(result.stderr)
        payload.partial = bool(payload.partial_reason)
        payload.duration_s = self._clock() - started_s
        return Observation({subject: data(payload, payload.partial_reason)}, bulks=(bulk,))

    def _why(self, exit_code: int, stderr: bytes) -> str:
        if _NO_MANAGER in stderr:
            return f"{self._command[0]}: no subnet manager answers on this fabric: no port answers without it"
        said = complaint(stderr) or first_line(stderr) or "no summary in its output"
        return f"{self._command[0]}: exit {exit_code}: {said}"


def _only(subject: str, sight: Sight) -> Observation:
    return Observation({subject: sight})
