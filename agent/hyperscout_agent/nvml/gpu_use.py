"""Checks with NVML whether this host's GPUs are idle, so that a measurement does not disturb a job."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hyperscout_formats.text.counts import count, first_few

from hyperscout_agent.nvml.library import DriverAbsentError, GpuUnreadableError, Nvml, NvmlUnusableError
from hyperscout_agent.runtime.tasks import Wait
from hyperscout_agent.runtime.threads import BlockedError, in_thread

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


def gpu_use(library: Path | None = None) -> GpuUse:
    """Query NVML. Blocks. Raises NoGpusError and GpusUnknownError.

    `library`: path of the library, instead of the driver's own.
    """
    nvml = Nvml(library)
    try:
        nvml.open()
        return _use(nvml)
    except DriverAbsentError as error:
        raise NoGpusError("no NVIDIA driver on this host") from error
    except (NvmlUnusableError, GpuUnreadableError) as error:
        raise GpusUnknownError(f"it is unknown whether the GPUs are idle: {error}") from error
    finally:
        nvml.close()


def _use(nvml: Nvml) -> GpuUse:
    gpus = int(nvml.needed("nvmlDeviceGetCount"))
    if gpus == 0:
        raise NoGpusError("no GPU on this host")
    processes: list[str] = []
    busy: list[str] = []
    for index in range(min(gpus, _MAX_GPUS)):
        handle = nvml.needed("nvmlDeviceGetHandleByIndex", index)
        if running := len(nvml.needed("nvmlDeviceGetComputeRunningProcesses", handle)):
            processes.append(f"GPU {index} runs {count(running, 'process')}")
        if percent := int(nvml.needed("nvmlDeviceGetUtilizationRates", handle).gpu):
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
        except BlockedError as error:
            raise GpusUnknownError(f"it is unknown whether the GPUs are idle: {error}") from error
        if use.processes:
            break
        if not use.busy:
            return use.count
        if turn + 1 < _READS:
            await wait(asyncio.Event(), _PAUSE_S)
    found = (*use.processes, *use.busy)
    raise GpusUnknownError(f"the GPUs are not idle: {first_few(found, 3)}")
