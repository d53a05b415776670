"""OpenBLAS for MLX on Linux, loaded before MLX is.

MLX's Linux wheel carries reference BLAS, with which eight rows cost eight times one row and verifying a window
can never pay. A BLAS loaded with global symbols before `mlx.core` takes its place.
"""

import ctypes
import ctypes.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_library: ctypes.CDLL | None = None
_too_late = False

ADVICE = "install OpenBLAS (Debian, Ubuntu: apt install libopenblas0-pthread) for several times the speed"


def preload() -> None:
    """Load OpenBLAS with global symbols, once, if this is Linux and it is installed.

    One thread unless OPENBLAS_NUM_THREADS says otherwise: the products here are a few rows tall, and the other
    cores belong to the draft.
    """
    global _library, _too_late
    if sys.platform != "linux" or _library is not None:
        return
    _too_late = "mlx.core" in sys.modules
    name = ctypes.util.find_library("openblas")
    if name is None or _too_late:
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        _library = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return


def set_threads(count: int) -> None:
    """Let one product use `count` threads (training: all cores). No effect where OpenBLAS is not loaded."""
    if _library is not None:
        _library.openblas_set_num_threads(ctypes.c_int(count))


@contextmanager
def every_core() -> Iterator[None]:
    """For a while, one product uses all cores: what runs alone, and has many rows."""
    before = 1 if _library is None else _library.openblas_get_num_threads()
    set_threads(os.cpu_count() or 1)
    try:
        yield
    finally:
        set_threads(before)


def missing() -> str | None:
    """One line saying that MLX runs without a fast BLAS and what to do, or None where all is well."""
    if sys.platform != "linux" or _library is not None:
        return None
    if _too_late:
        return "MLX was imported before mirror_mlx, so OpenBLAS could not be put under it: import mirror_mlx first"
    return f"MLX runs on reference BLAS here: {ADVICE}"
