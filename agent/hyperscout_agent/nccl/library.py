"""Calls the functions of libnccl and libcudart that a worker needs, through ctypes.

No headers, compiler or Python package are needed. Signatures and numbers are those of nccl.h (NCCL 2.7 and
newer) and cuda_runtime_api.h (CUDA 11 and newer), which keep them stable. Only a worker process may load the
libraries, because CUDA cannot be unloaded from a process.
"""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char, c_char_p, c_float, c_int, c_size_t, c_void_p
from typing import Any

UNIQUE_ID_BYTES = 128
INT8, FLOAT32 = 0, 7  # ncclDataType_t
SUM = 0  # ncclRedOp_t
# A CUDA runtime without its development files has no "libcudart.so".
_CUDA_NAMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0")


class MissingError(Exception):
    """A library or function is missing, or CUDA finds no GPU. The message names it."""


class CallError(Exception):
    """A library call failed. The message contains the function and the library's error text."""


class UniqueId(ctypes.Structure):
    """ncclUniqueId, which is passed by value."""

    _fields_ = (("internal", c_char * UNIQUE_ID_BYTES),)


def _load(*names: str) -> ctypes.CDLL:
    first: OSError | None = None
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            first = first or error
    raise MissingError(f"{names[0]} cannot be loaded: {first}") from first


class _Library:
    """A library with calls that return a status. Any status but 0 raises CallError."""

    _words: str  # name of the function that converts a status to text

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        words = self._function(self._words)
        words.restype, words.argtypes = c_char_p, [c_int]
        self._describe = words

    def _function(self, name: str) -> Any:
        try:
            return getattr(self._library, name)
        except AttributeError as error:
            raise MissingError(f"{self._library._name} has no {name}: too old, or another library") from error

    def _call(self, name: str, kinds: list[Any], *values: Any) -> None:
        function = self._function(name)
        function.restype, function.argtypes = c_int, kinds
        if status := function(*values):
            text = (self._describe(status) or b"").decode(errors="replace")
            raise CallError(f"{name}: error {status} ({text[:200]})")

    def _new(self, kind: Any, name: str, kinds: Sequence[Any] = (), *values: Any) -> Any:
        """Return what a function writes to where its first argument points."""
        found = kind()
        self._call(name, [POINTER(kind), *kinds], byref(found), *values)
        return found


class Cuda(_Library):
    """The CUDA runtime on one device. Pointers, streams and events are integers."""

    _words = "cudaGetErrorString"

    def __init__(self, name: str) -> None:
        names = (name, *_CUDA_NAMES) if name == "libcudart.so" else (name,)
        super().__init__(_load(*names))

    def devices(self) -> int:
        return int(self._new(c_int, "cudaGetDeviceCount").value)

    def use(self, device: int) -> None:
        self._call("cudaSetDevice", [c_int], device)

    def malloc(self, size_bytes: int) -> int:
        return int(self._new(c_void_p, "cudaMalloc", [c_size_t], size_bytes).value or 0)

    def fill(self, pointer: int, size_bytes: int) -> None:
        """Fill memory with zeros. Uninitialised memory may contain NaNs, which some hardware adds slowly."""
        self._call("cudaMemset", [c_void_p, c_int, c_size_t], pointer, 0, size_bytes)

    def free(self, pointer: int) -> None:
        self._call("cudaFree", [c_void_p], pointer)

    def stream(self) -> int:
        return int(self._new(c_void_p, "cudaStreamCreate").value or 0)

    def synchronize(self, stream: int) -> None:
        self._call("cudaStreamSynchronize", [c_void_p], stream)

    def end_stream(self, stream: int) -> None:
        self._call("cudaStreamDestroy", [c_void_p], stream)

    def event(self) -> int:
        return int(self._new(c_void_p, "cudaEventCreate").value or 0)

    def record(self, event: int, stream: int) -> None:
        self._call("cudaEventRecord", [c_void_p, c_void_p], event, stream)

    def elapsed_us(self, begin: int, end: int) -> float:
        """Return the microseconds between two recorded events of a synchronized stream."""
        found = self._new(c_float, "cudaEventElapsedTime", [c_void_p, c_void_p], begin, end)
        return float(found.value) * 1000.0


class Nccl(_Library):
    """The NCCL library. A communicator is an integer."""

    _words = "ncclGetErrorString"

    def __init__(self, name: str) -> None:
        super().__init__(_load(name))

    def version(self) -> int:
        return int(self._new(c_int, "ncclGetVersion").value)

    def unique_id(self) -> bytes:
        """Return a new id. Its process must keep running, because the ranks connect to a socket of it."""
        # The whole structure: `internal` would end at the first zero byte.
        return bytes(self._new(UniqueId, "ncclGetUniqueId"))

    def join(self, unique_id: bytes, rank: int, ranks: int) -> int:
        """Create and return a communicator. Blocks until all ranks have joined."""
        found = UniqueId.from_buffer_copy(unique_id)
        kinds = [c_int, UniqueId, c_int]
        return int(self._new(c_void_p, "ncclCommInitRank", kinds, ranks, found, rank).value or 0)

    def all_reduce(self, source: int, target: int, floats: int, comm: int, stream: int) -> None:
        kinds = [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]
        self._call("ncclAllReduce", kinds, source, target, floats, FLOAT32, SUM, comm, stream)

    def send_and_receive(
        self, source: int, target: int, size_bytes: int, peer: int, comm: int, stream: int
    ) -> None:
        """Send to and receive from the peer in one group call."""
        kinds = [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]
        self._call("ncclGroupStart", [])
        self._call("ncclSend", kinds, source, size_bytes, INT8, peer, comm, stream)
        self._call("ncclRecv", kinds, target, size_bytes, INT8, peer, comm, stream)
        self._call("ncclGroupEnd", [])

    def leave(self, comm: int) -> None:
        self._call("ncclCommDestroy", [c_void_p], comm)

    def abort(self, comm: int) -> None:
        self._call("ncclCommAbort", [c_void_p], comm)
