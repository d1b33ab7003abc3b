"""Whether the GPUs are idle: only a clear yes counts."""

import ctypes
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hyperscout_agent.nvml import gpu_use as module
from hyperscout_agent.nvml.gpu_use import GpusUnknownError, GpuUse, NoGpusError, gpu_use, idle_gpus
from hyperscout_agent.nvml.library import LIBRARY
from support.fake_time import FakeTime


@dataclass
class FakeNvml:
    """What of NVML is asked for. `utilisation` by GPU; a negative number raises."""

    running: list[int] = field(default_factory=lambda: [0, 0])
    utilisation: list[int] = field(default_factory=lambda: [0, 0])
    init: str = ""
    shut: int = 0

    def module(self) -> Any:
        class NVMLError(Exception):
            value = 999  # unknown

        class NotLoadedError(NVMLError):
            value = 9

        def init() -> None:
            if self.init:
                raise (NotLoadedError if self.init == "unloaded" else NVMLError)("of NVML")

        def rates(handle: int) -> Any:
            if self.utilisation[handle] < 0:
                raise NVMLError("Not Supported")
            return type("Rates", (), {"gpu": self.utilisation[handle]})

        def shut() -> None:
            self.shut += 1

        fake: Any = ModuleType("pynvml")
        fake.NVMLError = NVMLError
        fake.nvmlInit, fake.nvmlShutdown = init, shut
        fake.nvmlDeviceGetCount = lambda: len(self.running)
        fake.nvmlDeviceGetHandleByIndex = lambda index: index
        fake.nvmlDeviceGetComputeRunningProcesses = lambda handle: [object()] * self.running[handle]
        fake.nvmlDeviceGetUtilizationRates = rates
        return fake


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the libraries that were loaded. Only the driver's own and /opt/nvml.so are there."""
    found: list[str] = []

    def load(path: str) -> object:
        if path not in (LIBRARY, "/opt/nvml.so"):
            raise OSError("no such file")
        found.append(path)
        return object()

    monkeypatch.setattr(ctypes, "CDLL", load)
    return found


@pytest.mark.parametrize(
    ("nvml", "use"),
    [
        (FakeNvml(), GpuUse(2)),
        (FakeNvml(running=[0, 1]), GpuUse(2, processes=("GPU 1 runs 1 process",))),
        (FakeNvml(running=[3, 0]), GpuUse(2, processes=("GPU 0 runs 3 processes",))),
        (FakeNvml(utilisation=[0, 7]), GpuUse(2, busy=("GPU 1 is 7 % busy",))),
    ],
)
def test_what_nvml_says(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml, use: GpuUse) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml.module())
    assert gpu_use() == use
    assert nvml.shut == 1


@pytest.mark.parametrize(
    ("nvml", "error", "words"),
    [
        (FakeNvml(init="unloaded"), NoGpusError, "no NVIDIA driver"),
        (FakeNvml(init="other"), GpusUnknownError, "NVML does not start: of NVML"),
        (FakeNvml(running=[]), NoGpusError, "no GPU"),
        (FakeNvml(utilisation=[0, -1]), GpusUnknownError, "Not Supported"),  # MIG, or a lost GPU
    ],
)
def test_what_nvml_cannot_say(
    monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml, error: type[Exception], words: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml.module())
    with pytest.raises(error, match=words):
        gpu_use()
    assert nvml.shut == (0 if nvml.init else 1)


def test_the_library_of_the_settings_is_queried(monkeypatch: pytest.MonkeyPatch, loaded: list[str]) -> None:
    fake = FakeNvml().module()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert gpu_use(Path("/opt/nvml.so")) == GpuUse(2)
    assert loaded == ["/opt/nvml.so"]
    assert fake.nvmlLib is not None
    with pytest.raises(NoGpusError, match="no NVIDIA driver"):
        gpu_use(Path("/opt/absent.so"))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(GpusUnknownError, match="nvidia-ml-py is missing: run `pip install"):
        gpu_use()


class Looks:
    """One answer after the other."""

    def __init__(self, *answers: GpuUse) -> None:
        self.left = list(answers)

    def __call__(self) -> GpuUse:
        return self.left.pop(0)


BUSY, IDLE = GpuUse(8, busy=("GPU 1 is 7 % busy",)), GpuUse(8)


async def waited(time: FakeTime, looks: Looks) -> tuple[int, list[float]]:
    """The GPUs that are idle, and how long was waited for them."""
    waits: list[float] = []

    async def wait(event: Any, timeout_s: float | None) -> None:
        waits.append(timeout_s or 0.0)

    return await idle_gpus(looks, wait), waits


async def test_gpus_that_have_just_finished_are_waited_for() -> None:
    assert await waited(FakeTime(), Looks(IDLE)) == (8, [])
    assert await waited(FakeTime(), Looks(BUSY, BUSY, BUSY, IDLE)) == (8, [1.0, 1.0, 1.0])


async def test_but_not_for_ever_and_processes_not_at_all() -> None:
    with pytest.raises(GpusUnknownError, match=r"not idle: GPU 1 is 7 % busy$"):
        await waited(FakeTime(), Looks(BUSY, BUSY, BUSY, BUSY, IDLE))
    looks = Looks(GpuUse(8, processes=tuple(f"GPU {i} runs 1 process" for i in range(8))), IDLE)
    with pytest.raises(GpusUnknownError, match=r"GPU 0 runs 1 process, .* and 5 more"):
        await waited(FakeTime(), looks)
    assert looks.left == [IDLE]


async def test_a_driver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.0)
    release = threading.Event()

    def look() -> GpuUse:
        release.wait()
        return IDLE

    try:
        with pytest.raises(GpusUnknownError, match="no answer in 0 s"):
            await idle_gpus(look, FakeTime().wait)
    finally:
        release.set()
