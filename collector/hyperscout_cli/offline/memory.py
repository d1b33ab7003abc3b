"""Memory of a command that makes many objects, writes its output and ends."""

import contextlib
import gc
from collections.abc import Iterator

# Parameters of mallopt(3), and their values. glibc maps larger arrays, and accepts no larger value.
_TRIM_THRESHOLD, _KEPT_BYTES = -1, 1 << 30
_MMAP_THRESHOLD, _MAPPED_BYTES = -3, 32 << 20


@contextlib.contextmanager
def permanent_objects() -> Iterator[None]:
    """Do not collect cyclic garbage within the block, and leave out what was made in it from then on.

    Each collection, also the one at the end of the process, would traverse all these objects.
    """
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collected:
            gc.enable()


def keep_freed_memory() -> None:
    """Do not return freed memory to the kernel, which would clear it before its next use."""
    import ctypes

    set_parameter = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc has it
    if set_parameter is not None:
        set_parameter(_TRIM_THRESHOLD, _KEPT_BYTES)
        set_parameter(_MMAP_THRESHOLD, _MAPPED_BYTES)
