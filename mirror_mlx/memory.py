"""What the C library does with memory that was freed (glibc; elsewhere nothing needs to be done)."""

import ctypes
import gc
import sys
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_ARENAS = 1 << 10


def reuse() -> None:
    """From now on keep freed blocks of up to 32 MB for the next who asks: work that allocates and frees the same
    hundreds of megabytes over and over otherwise spends half its time on fresh pages. For processes that soon end."""
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(_M_TRIM_THRESHOLD, 96 << 20)


def apart() -> None:
    """Give each thread that begins from now on an arena of its own, however many there are. Beyond eight for each core
    threads share them, and two that work at the same time wait for one another. To be called while there are few."""
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_ARENA_MAX, _ARENAS)


def release() -> None:
    """Give everything that was freed back to the system, cycles included: before the next large thing is read."""
    gc.collect()
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


def _glibc() -> Any:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
