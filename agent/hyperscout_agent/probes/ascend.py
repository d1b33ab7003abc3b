"""Reads this host's Ascend NPUs, their super pod and the state of their network ports with Huawei's tools.

Subjects are, for example, "npu3/1": chip 1 of NPU 3. Nothing runs on a host without Ascend NPUs on its PCI
bus. The probe fails when there are NPUs but npu-smi is unusable.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_formats.facts.accelerators import ASCEND
from hyperscout_formats.facts.facts import Gpu, NvlinkFabric, NvlinkLink
from hyperscout_formats.facts.wire_measured import gpu_to_proto
from hyperscout_formats.huawei.ascend import Chip, parse_health, parse_link, parse_map, parse_super_pod
from hyperscout_formats.text.counts import count, first_few
from hyperscout_formats.text.errors import FormatError

from hyperscout_agent.accelerators.pci_tree import HUAWEI, read_pci_tree
from hyperscout_agent.findings.probe import (
    Observation,
    ProbeContext,
    ProbeError,
    ProbeParts,
    Sample,
    Scope,
    data,
    failed,
)
from hyperscout_agent.runtime.subprocesses import ToolError, first_line, run_tool
from hyperscout_agent.runtime.threads import in_thread

_CALL_S: Final = 10.0
_MAX_OUTPUT_BYTES: Final = 64 * 1024
_FAMILY: Final = "Ascend910"  # the chips whose resource is huawei.com/Ascend910; also "Ascend 910B3"


def build(context: ProbeContext) -> ProbeParts | None:
    settings = context.settings.ascend
    if not settings.enabled:
        return None
    return ProbeParts(
        AscendProbe(npu_smi=settings.npu_smi, hccn_tool=settings.hccn_tool, sysfs=context.sysfs)
    )


class AscendProbe:
    """Runs three commands for each chip, one after the other. `npu_smi`, `hccn_tool`: commands."""

    name = "ascend"
    scope: Scope = "node"
    timeout_s = 240.0
    max_findings = 256

    def __init__(
        self,
        *,
        npu_smi: Sequence[str],
        hccn_tool: Sequence[str],
        sysfs: Path = Path("/sys"),
        interval_s: float = 60.0,
    ) -> None:
        self.interval_s: float | None = interval_s
        self._npu_smi = npu_smi
        self._hccn_tool = hccn_tool
        self._sysfs = sysfs

    async def observe(self) -> Observation:
        tree = await in_thread(functools.partial(read_pci_tree, self._sysfs, HUAWEI), "ascend")
        if not tree.gpus:
            return Observation()
        try:
            chips = parse_map(await _output((*self._npu_smi, "info", "-m")))
        except (ToolError, FormatError) as error:
            raise ProbeError(
                f"this host has {count(len(tree.gpus), 'Ascend NPU')}, but {error}: install the driver, set "
                "ascend.npu_smi, or set ascend.enabled: false"
            ) from error
        mine = [chip for chip in chips if chip.name.replace(" ", "").startswith(_FAMILY)]
        samples = {f"npu{chip.npu}/{chip.chip}": await self._sample(chip) for chip in mine}
        # Also a trouble of the probe, so that doctor and the metrics show it.
        unknown = sorted(
            {x.reason for x in samples.values() if x.reason and x.outcome == Outcome.OUTCOME_DATA}
        )
        return Observation(samples, trouble=first_few(unknown, 1))

    async def _sample(self, chip: Chip) -> Sample:
        command = (*self._npu_smi, "info", "-t", "spod-info", "-i", str(chip.npu), "-c", str(chip.chip))
        try:
            pod = parse_super_pod(await _output(command, may_fail=True))
        except (ToolError, FormatError) as error:
            return failed(str(error))
        links, trouble, why = await self._port(chip)
        fabric = None
        if pod is not None:
            domain = "" if pod.id is None else str(pod.id)
            fabric = NvlinkFabric("completed", health=trouble, domain=domain, server_index=pod.server_index)
        elif trouble:
            fabric = NvlinkFabric("not-supported", health=trouble)
        gpu = Gpu("", chip.name, f"npu{chip.npu}/{chip.chip}", links=links, fabric=fabric, kind=ASCEND)
        return data(gpu_to_proto(gpu), why)

    async def _port(self, chip: Chip) -> tuple[tuple[NvlinkLink, ...], tuple[str, ...], str]:
        """Return the network port, its trouble, and why they are unknown, "" = they are known."""
        command = (*self._hccn_tool, "-i", str(chip.device))
        try:
            is_up = parse_link(await _output((*command, "-link", "-g")))
        except (ToolError, FormatError) as error:
            return (), (), f"the state of its network port is unknown: {error}"
        links = (NvlinkLink(0, is_up),)
        if not is_up:
            return links, (), ""
        try:
            health = parse_health(await _output((*command, "-net_health", "-g")))
        except (ToolError, FormatError) as error:
            return links, (), f"the health of its network is unknown: {error}"
        return links, (f"network health is {health}",) if health else (), ""


async def _output(argv: Sequence[str], *, may_fail: bool = False) -> bytes:
    """Return what a tool prints. Raises ToolError. `may_fail`: its text says why it exits with an error."""
    output = bytearray()
    result = await run_tool(argv, take=output.extend, timeout_s=_CALL_S, max_output_bytes=_MAX_OUTPUT_BYTES)
    if result.exit_code and not (may_fail and output):
        why = first_line(result.stderr) or first_line(bytes(output)) or "no output"
        raise ToolError(f"{argv[0]}: exit {result.exit_code}: {why}")
    return bytes(output)
