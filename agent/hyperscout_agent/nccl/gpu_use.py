"""Whether anybody uses this host's GPUs, by NVML: what measures with them must disturb nobody."""

import asyncio
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hyperscout_agent.runtime.threads import in_thread
from hyperscout_agent.runtime.waiting import Wait

# A driver in trouble may take seconds for one answer; one that takes longer is not asked to do more.
_TIMEOUT_S = 20.0
# Utilisation is of the last second or so, so GPUs that have just finished still seem to be at work.
_LOOKS = 4
_PAUSE_S = 1.0
_MAX_GPUS = 64


class NoGpusError(Exception):
    """This host has no GPU, or no driver for one; says which."""


class GpusUnknownError(Exception):
    """It cannot be told whether the GPUs are idle; says why."""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """`count`: GPUs of this host. `processes`: which run something. `busy`: which seem to be at work."""

    count: int
    processes: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()


LookAtGpus = Callable[[], GpuUse]


def gpu_use() -> GpuUse:
    """Ask NVML; blocks. Raises NoGpusError and GpusUnknownError."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError as error:
        raise GpusUnknownError(
            "cannot tell whether the GPUs are idle: install nvidia-ml-py (hyperscout[agent])"
        ) from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if isinstance(error, pynvml.NVMLError_LibraryNotFound | pynvml.NVMLError_DriverNotLoaded):
            raise NoGpusError("no NVIDIA driver on this host") from error
        raise GpusUnknownError(f"cannot tell whether the GPUs are idle: NVML: {error}") from error
    try:
        return _use(pynvml)
    except pynvml.NVMLError as error:
        raise GpusUnknownError(f"cannot tell whether the GPUs are idle: NVML: {error}") from error
    finally:
        pynvml.nvmlShutdown()


def _use(nvml: Any) -> GpuUse:
    count = int(nvml.nvmlDeviceGetCount())
    if count == 0:
        raise NoGpusError("no GPU on this host")
    processes: list[str] = []
    busy: list[str] = []
    for index in range(min(count, _MAX_GPUS)):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        if running := len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)):
            processes.append(f"GPU {index} runs {running} {'process' if running == 1 else 'processes'}")
        if percent := int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu):
            busy.append(f"GPU {index} is {percent} % busy")
    return GpuUse(count, tuple(processes), tuple(busy))


async def idle_gpus(look: LookAtGpus, wait: Wait) -> int:
    """How many GPUs there are, all of them idle.

    Raises NoGpusError, and GpusUnknownError also when one is in use: then too nothing may run.
    """
    for turn in range(_LOOKS):
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                use = await in_thread(look, "gpu-use")
        except TimeoutError:
            raise GpusUnknownError(
                f"cannot tell whether the GPUs are idle: no answer in {_TIMEOUT_S:g} s"
            ) from None
        if use.processes:
            break
        if not use.busy:
            return use.count
        if turn + 1 < _LOOKS:
            await wait(asyncio.Event(), _PAUSE_S)
    found = (*use.processes, *use.busy)
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    raise GpusUnknownError(f"the GPUs are not idle: {', '.join(found[:3])}{more}")
