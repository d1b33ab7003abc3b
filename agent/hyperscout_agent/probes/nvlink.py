"""Reads this host's GPUs, the remote ends of their NVLinks, and the NVLink domain that NVML reports.

Subjects are PCI addresses. A host without GPUs is no failure, with or without a driver. The probe fails when
there are GPUs but NVML is unusable. A GPU that NVML cannot read gives a failed finding.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from hyperscout_formats.facts.facts import Gpu
from hyperscout_formats.facts.wire_measured import gpu_to_proto

from hyperscout_agent.findings.probe import Observation, ProbeError, Scope, Sight, data, failed
from hyperscout_agent.nvml.gpus import GpuReader, Unreadable
from hyperscout_agent.nvml.library import DriverAbsentError, Nvml, NvmlUnusableError
from hyperscout_agent.nvml.pci_tree import PciTree, read_pci_tree
from hyperscout_agent.runtime.threads import in_thread

_HANGS: Final = "NVML has not come back from an earlier look: the driver is stuck, see the kernel's log"
_NOT_LISTED: Final = (
    "the driver holds it, but NVML does not list it: lost, excluded, or hidden from this container"
)
_DRIVER: Final = "nvidia"


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
        self._looking = threading.Lock()

    async def observe(self) -> Observation:
        if self._looking.locked():  # an earlier thread hangs; do not start another one
            raise ProbeError(_HANGS)
        return await in_thread(self._look, "nvml")

    def _look(self) -> Observation:
        with self._looking:
            tree = read_pci_tree(self._sysfs)
            try:
                self._nvml.open()
                gpus, unreadable = self._reader.read()
            except DriverAbsentError as error:
                if not tree.gpus:
                    return Observation()
                raise ProbeError(
                    f"{len(tree.gpus)} NVIDIA GPUs are here, but {error}: install the driver, "
                    "and let the agent's container have it (runtimeClassName: nvidia)"
                ) from error
            except NvmlUnusableError as error:
                self._nvml.close()
                raise ProbeError(str(error)) from error
            sights, nameless = _sights(gpus, unreadable, tree)
            if len(sights) > len(gpus):  # an open library does not find a GPU that returns
                self._nvml.close()
            return Observation(sights, complete=not nameless)


def _sights(
    gpus: Sequence[Gpu], unreadable: Sequence[Unreadable], tree: PciTree
) -> tuple[dict[str, Sight], bool]:
    """Return the samples by PCI address, and whether there are GPUs without a known address.

    The latter have subjects such as "gpu3", by NVML index.
    """
    sights: dict[str, Sight] = {}
    for gpu in gpus:
        device = tree.gpus.get(gpu.pci_address)
        placed = replace(
            gpu,
            numa_node=device.numa_node if device else None,
            nearest_nics=tree.nearest_nics(gpu.pci_address),
        )
        sights[gpu.pci_address] = data(gpu_to_proto(placed))
    sights |= {one.pci_address: failed(one.reason) for one in unreadable if one.pci_address}
    nameless = [one for one in unreadable if not one.pci_address]
    unseen = [at for at, device in tree.gpus.items() if device.driver == _DRIVER and at not in sights]
    for address in sorted(unseen):
        sights[address] = failed(nameless.pop(0).reason if nameless else _NOT_LISTED)
    sights |= {f"gpu{one.index}": failed(one.reason) for one in nameless}
    return sights, bool(nameless)
