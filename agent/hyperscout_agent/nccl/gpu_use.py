"""Checks with NVML whether this host's GPUs are idle, so that a measurement does not disturb a job."""

import asyncio
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hyperscout_formats.text.counts import count, first_few

from hyperscout_agent.runtime.tasks import Wait
from hyperscout_agent.runtime.threads import in_thread

# A faulty driver can take seconds for one answer. No run is started on a driver that takes longer than this.
_TIMEOUT_S = 20.0
# NVML reports the utilisation of about the last second, so a GPU that has just finished still appears busy.
_READS = 4
_PAUSE_S = 1.0
_MAX_GPUS = 64


class NoGpusError(Exception):
    """This host has no GPU or no driver. The message gives the cause."""


class GpusUnknownError(Exception):
    """The GPUs are not known to be idle. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """`count`: number of GPUs. `processes`: GPUs with running processes. `busy`: GPUs with utilisation.

    `processes` and `busy` have one sentence for each such GPU.
    """

    count: int
    processes: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()


ReadGpus = Callable[[], GpuUse]


def gpu_use() -> GpuUse:
    """Query NVML. Blocks. Raises NoGpusError and GpusUnknownError."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError as error:
        raise GpusUnknownError(
            "it is unknown whether the GPUs are idle: install nvidia-ml-py (hyperscout[agent])"
        ) from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if isinstance(error, pynvml.NVMLError_LibraryNotFound | pynvml.NVMLError_DriverNotLoaded):
            raise NoGpusError("no NVIDIA driver on this host") from error
        raise GpusUnknownError(f"it is unknown whether the GPUs are idle: NVML: {error}") from error
    try:
        return _use(pynvml)
    except pynvml.NVMLError as error:
        raise GpusUnknownError(f"it is unknown whether the GPUs are idle: NVML: {error}") from error
    finally:
        pynvml.nvmlShutdown()


def _use(nvml: Any) -> GpuUse:
    gpus = int(nvml.nvmlDeviceGetCount())
    if gpus == 0:
        raise NoGpusError("no GPU on this host")
    processes: list[str] = []
    busy: list[str] = []
    for index in range(min(gpus, _MAX_GPUS)):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        if running := len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)):
            processes.append(f"GPU {index} runs {count(running, 'process', 'processes')}")
        if percent := int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu):
            busy.append(f"GPU {index} is {percent} % busy")
    return GpuUse(gpus, tuple(processes), tuple(busy))


async def idle_gpus(read: ReadGpus, wait: Wait) -> int:
    """Return the number of GPUs if all are idle. Retries while a GPU without processes appears busy.

    Raises NoGpusError. Raises GpusUnknownError when the state is unknown or a GPU is in use.
    """
    for turn in range(_READS):
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                use = await in_thread(read, "gpu-use")
        except TimeoutError:
            raise GpusUnknownError(
                f"it is unknown whether the GPUs are idle: no answer in {_TIMEOUT_S:g} s"
            ) from None
        if use.processes:
            break
        if not use.busy:
            return use.count
        if turn + 1 < _READS:
            await wait(asyncio.Event(), _PAUSE_S)
    found = (*use.processes, *use.busy)
    raise GpusUnknownError(f"the GPUs are not idle: {first_few(found, 3)}")
