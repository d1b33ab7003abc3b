"""Reads this host's GPUs, the remote ends of their NVLinks, and the NVLink domain that NVML reports.

Subjects are PCI addresses. A host without GPUs is no failure, with or without a driver. The probe fails when
there are GPUs but NVML is unusable. A GPU that NVML cannot read gives a failed finding.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hyperscout_formats.facts.facts import Gpu
from hyperscout_formats.facts.wire_measured import gpu_to_proto

from hyperscout_agent.accelerators.pci_tree import PciTree, read_pci_tree
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
from hyperscout_agent.nvml.gpus import GpuReader, Unreadable
from hyperscout_agent.nvml.library import DriverAbsentError, Nvml, NvmlUnusableError
from hyperscout_agent.runtime.threads import in_thread

_HANGS: Final = "an earlier call of NVML has not returned: the driver hangs, see the kernel log"
_NOT_LISTED: Final = (
    "the driver is bound to it, but NVML does not list it: lost, excluded, or hidden from this container"
)
_DRIVER: Final = "nvidia"


def build(context: ProbeContext) -> ProbeParts | None:
    settings = context.settings.nvlink
    if not settings.enabled:
        return None
    return ProbeParts(NvlinkProbe(library=settings.library, sysfs=context.sysfs))


class NvlinkProbe:
    """Reads GPUs with NVML. `library`: path of a libnvidia-ml other than the driver's own.

    The probe has no thread between two runs.
    """

    name = "nvlink"
    scope: Scope = "node"
    timeout_s = 60.0  # a GPU without persistence mode takes seconds to initialise
    max_findings = 256

    def __init__(
        self, *, library: Path | None = None, sysfs: Path = Path("/sys"), interval_s: float = 30.0
    ) -> None:
        self.interval_s: float | None = interval_s
        self._sysfs = sysfs
        self._nvml = Nvml(library)
        self._reader = GpuReader(self._nvml)
        self._reading = threading.Lock()

    async def observe(self) -> Observation:
        if self._reading.locked():  # an earlier thread hangs; do not start another one
            raise ProbeError(_HANGS)
        return await in_thread(self._read, "nvml")

    def _read(self) -> Observation:
        with self._reading:
            tree = read_pci_tree(self._sysfs)
            try:
                self._nvml.open()
                gpus, unreadable = self._reader.read()
            except DriverAbsentError as error:
                if not tree.gpus:
                    return Observation()
                raise ProbeError(
                    f"this host has {len(tree.gpus)} NVIDIA GPUs, but {error}: install the driver, "
                    "and give the agent's container access to it (runtimeClassName: nvidia)"
                ) from error
            except NvmlUnusableError as error:
                self._nvml.close()
                raise ProbeError(str(error)) from error
            samples, nameless = _samples(gpus, unreadable, tree)
            if len(samples) > len(gpus):  # an open library does not find a GPU that returns
                self._nvml.close()
            return Observation(samples, complete=not nameless)


def _samples(
    gpus: Sequence[Gpu], unreadable: Sequence[Unreadable], tree: PciTree
) -> tuple[dict[str, Sample], bool]:
    """Return the samples by PCI address, and whether there are GPUs without a known address.

    The latter have subjects such as "gpu3", by NVML index.
    """
    samples: dict[str, Sample] = {}
    for gpu in gpus:
        samples[gpu.pci_address] = data(gpu_to_proto(tree.placed(gpu)))
    samples |= {one.pci_address: failed(one.reason) for one in unreadable if one.pci_address}
    nameless = [one for one in unreadable if not one.pci_address]
    unseen = [at for at, device in tree.gpus.items() if device.driver == _DRIVER and at not in samples]
    for address in sorted(unseen):
        samples[address] = failed(nameless.pop(0).reason if nameless else _NOT_LISTED)
    samples |= {f"gpu{one.index}": failed(one.reason) for one in nameless}
    return samples, bool(nameless)
