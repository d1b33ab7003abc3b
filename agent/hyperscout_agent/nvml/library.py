"""Calls NVML through nvidia-ml-py, with errors named by what the caller does next.

The library belongs to the driver. An older library than the binding lacks functions or supports only older
structures. A missing optional function returns None; a missing required function is an error. The library
and the binding are loaded on the first `open`.
"""

import contextlib
import ctypes
import importlib
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

from hyperscout_runtime.errors import install_extra

LIBRARY: Final = "libnvidia-ml.so.1"

# Values of nvmlReturn_t.
_INVALID_ARGUMENT: Final = 2
_FUNCTION_NOT_FOUND: Final = 13
_GPU_IS_LOST: Final = 15
_RESET_REQUIRED: Final = 16
_ARGUMENT_VERSION_MISMATCH: Final = 25
# Codes for values that this GPU or driver does not have or does not disclose.
_ABSENT: Final = frozenset(
    {
        _INVALID_ARGUMENT,
        3,  # not supported
        4,  # no permission
        6,  # not found
        _FUNCTION_NOT_FOUND,
        21,  # no data
        _ARGUMENT_VERSION_MISMATCH,
        26,  # deprecated
        27,  # not ready
        29,  # invalid state
    }
)
_DRIVER_NOT_LOADED: Final = 9
_VERSION_MISMATCH: Final = 18
# Codes after which NVML is unusable: not initialised, driver not loaded, or driver replaced.
_OVER: Final = frozenset({1, _DRIVER_NOT_LOADED, _VERSION_MISMATCH})
_ADVICE: Final = {
    _GPU_IS_LOST: "the GPU is lost: see the kernel's log for an Xid, then reset it or restart the host",
    _RESET_REQUIRED: "the GPU needs a reset",
    _VERSION_MISMATCH: "the driver and its library have different versions: restart the agent, "
    "or the host when nvidia-smi reports the same",
}
_TOO_OLD: Final = "the driver is too old: its library lacks a required function"
# nvmlFieldValue_t: field, scope, time stamp, latency, type of the value, code, value. Unpacked as bytes:
# reading a thousand members through the binding's objects takes longer than everything else.
_FIELD_VALUE: Final = struct.Struct("@IIqqII8s")
# The formats of the value, indexed by nvmlValueType_t.
_VALUES: Final = tuple(struct.Struct(f"@{kind}") for kind in ("d", "I", "L", "Q", "q", "i", "H"))
# The binding has no limit. This value reads a GPU with 18 links in one call.
MAX_FIELDS: Final = 256


class DriverAbsentError(Exception):
    """The driver or its library is missing. This is no error on a host without GPUs."""


class NvmlUnusableError(Exception):
    """NVML as a whole is unusable now. The caller retries at the next run."""


class GpuUnreadableError(Exception):
    """One GPU cannot be read. The others can."""


class Nvml:
    """The NVML library, kept open until an error. Every call may block, so use a thread.

    `library`: path of the library, instead of the driver's own.
    """

    def __init__(self, library: Path | None = None) -> None:
        self._library = library
        self._binding: Any = None
        self._is_open = False

    def open(self) -> None:
        """Load and initialise NVML, if it is not open. Raises DriverAbsentError or NvmlUnusableError."""
        if self._is_open:
            return
        if self._binding is None:
            try:
                loaded = ctypes.CDLL(str(self._library or LIBRARY))
            except OSError as error:
                raise DriverAbsentError(f"{self._library or LIBRARY} cannot be loaded ({error})") from error
            try:
                binding = importlib.import_module("pynvml")
            except ImportError as error:
                raise NvmlUnusableError(f"nvidia-ml-py is missing: {install_extra('agent')}") from error
            if self._library is not None:  # the binding has no public function to set another library
                binding.nvmlLib = loaded  # type: ignore[attr-defined]
            self._binding = binding
        try:
            self._binding.nvmlInit()
        except self._binding.NVMLError as error:
            if error.value == _DRIVER_NOT_LOADED:
                raise DriverAbsentError("the NVIDIA driver is not loaded") from error
            why = _TOO_OLD if error.value == _FUNCTION_NOT_FOUND else _described(error)
            raise NvmlUnusableError(f"NVML does not start: {why}") from error
        self._is_open = True

    def close(self) -> None:
        """Shut NVML down. The next `open` finds GPUs that have returned, which an open library does not."""
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(self._binding.NVMLError):
                self._binding.nvmlShutdown()

    def needed(self, name: str, *arguments: Any) -> Any:
        """Call a required function of the binding. Raises GpuUnreadableError or NvmlUnusableError."""
        try:
            return self._function(name)(*arguments)
        except self._binding.NVMLError as error:
            if error.value == _FUNCTION_NOT_FOUND:
                raise NvmlUnusableError(f"{_TOO_OLD} ({name})") from error
            raise self._named(error) from error
        except UnicodeDecodeError as error:
            raise GpuUnreadableError(f"{name}: the answer is not text") from error

    def optional(self, name: str, *arguments: Any) -> Any:
        """Call an optional function of the binding. Returns None when GPU or driver do not support it.

        Raises GpuUnreadableError or NvmlUnusableError.
        """
        try:
            return self._function(name)(*arguments)
        except self._binding.NVMLError as error:
            if error.value in _ABSENT:
                return None
            raise self._named(error) from error
        except UnicodeDecodeError:
            return None

    def field_values(self, handle: Any, wanted: Sequence[tuple[int, int]]) -> list[int | float | None] | None:
        """Return the values of (field, scope) pairs, in as few calls as possible. A missing value is None.

        Returns None when the driver does not have the function.
        """
        values: list[int | float | None] = []
        for first in range(0, len(wanted), MAX_FIELDS):
            answers = self.optional("nvmlDeviceGetFieldValues", handle, wanted[first : first + MAX_FIELDS])
            if answers is None:
                return None
            for *_, kind, code, raw in _FIELD_VALUE.iter_unpack(bytes(answers)):
                if code == 0 and kind < len(_VALUES):
                    values.append(_VALUES[kind].unpack_from(raw)[0])
                elif code == 0 or code in _ABSENT:
                    values.append(None)
                else:
                    raise self._named(self._binding.NVMLError(code))
        return values

    def fabric_info(self, handle: Any) -> Any:
        """Return fabric information in the newest structure that this driver supports, None without any."""
        attempts = (
            ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
            ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
            ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
        )
        for name, structure in attempts:
            info = getattr(self._binding, structure)()
            try:
                self._function(name)(handle, ctypes.byref(info))
            except self._binding.NVMLError as error:
                if error.value in (_ARGUMENT_VERSION_MISMATCH, _INVALID_ARGUMENT, _FUNCTION_NOT_FOUND):
                    continue  # try an older structure
                if error.value in _ABSENT:
                    return None
                raise self._named(error) from error
            return info
        return None

    def words(self, code: int) -> str:
        """Return the text of an nvmlReturn_t code."""
        return str(self._binding.NVMLError(code))

    def _function(self, name: str) -> Callable[..., Any]:
        return cast(Callable[..., Any], getattr(self._binding, name))

    def _named(self, error: Any) -> Exception:
        return (NvmlUnusableError if error.value in _OVER else GpuUnreadableError)(_described(error))


def _described(error: Any) -> str:
    return _ADVICE.get(error.value) or str(error)
