"""Reads this host's AMD GPUs, their xGMI hives and links from sysfs, and the errors of their links.

Subjects are PCI addresses. A host without AMD GPUs is no failure. A GPU that the kernel lists, but does not
let this process read, gives a failed finding.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from hyperscout_formats.amd.kfd import parse
from hyperscout_formats.facts.facts import Gpu
from hyperscout_formats.facts.wire_measured import gpu_to_proto

from hyperscout_agent.accelerators.kfd_tree import read_errors, read_nodes
from hyperscout_agent.accelerators.pci_tree import AMD, read_pci_tree
from hyperscout_agent.findings.probe import Observation, ProbeContext, ProbeParts, Scope, data, failed
from hyperscout_agent.runtime.threads import in_thread

_NODES: Final = "class/kfd/kfd/topology/nodes"
_ERRORS_EVERY_S: Final = 300.0  # some kernels log a line at each read
_SHOWN_S: Final = 3600.0  # an error is reported so long after it was read
_TODO: Final = "give the agent access to /dev/kfd and /dev/dri, or set xgmi.enabled: false"


def build(context: ProbeContext) -> ProbeParts | None:
    settings = context.settings.xgmi
    if not settings.enabled:
        return None
    return ProbeParts(XgmiProbe(sysfs=context.sysfs, read_errors=settings.read_errors))


class XgmiProbe:
    """Reads GPUs from the topology of the driver amdkfd. `read_errors`: whether to read `xgmi_error`."""

    name = "xgmi"
    scope: Scope = "node"
    timeout_s = 30.0
    max_findings = 256

    def __init__(
        self,
        *,
        sysfs: Path = Path("/sys"),
        read_errors: bool = True,
        interval_s: float = 30.0,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_s: float | None = interval_s
        self._sysfs = sysfs
        self._read_errors = read_errors
        self._timer = timer
        self._next_s = timer()  # errors are not read before
        self._errors: dict[str, tuple[float, str]] = {}  # by address: until when it is shown, and the text

    async def observe(self) -> Observation:
        return await in_thread(self._read, "xgmi")

    def _read(self) -> Observation:
        files = read_nodes(self._sysfs / _NODES)
        gpus, problems = parse(files, str(self._sysfs / _NODES)) if files else ((), ())
        if gpus:
            self._note_errors()
        samples = {gpu.pci_address: data(gpu_to_proto(gpu)) for gpu in self._placed(gpus)}
        samples |= {f"kfd{n}": failed(f"{problem}: {_TODO}") for n, problem in enumerate(problems)}
        return Observation(samples, complete=not problems)

    def _placed(self, gpus: Sequence[Gpu]) -> Sequence[Gpu]:
        """Return the GPUs with their places in the PCI tree, and the recent errors of their links."""
        if not gpus:
            return ()
        tree = read_pci_tree(self._sysfs, AMD)
        return [self._with_errors(tree.placed(gpu)) for gpu in gpus]

    def _with_errors(self, gpu: Gpu) -> Gpu:
        until_s, text = self._errors.get(gpu.pci_address, (0.0, ""))
        if gpu.fabric is None or not text or self._timer() >= until_s:
            return gpu
        return replace(gpu, fabric=replace(gpu.fabric, health=(text,)))

    def _note_errors(self) -> None:
        now_s = self._timer()
        if not self._read_errors or now_s < self._next_s:
            return
        self._next_s = now_s + _ERRORS_EVERY_S
        for address, errors in read_errors(self._sysfs).items():
            if errors:
                is_again = self._errors.get(address, (0.0, ""))[0] > now_s
                text = "several errors" if errors > 1 or is_again else "an error"
                self._errors[address] = (now_s + _SHOWN_S, f"xgmi_error counted {text} in the last hour")
