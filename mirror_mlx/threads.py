"""Threads that share an interpreter: taking turns soon, and ending for good."""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_PAUSE = 0.0005  # seconds between looks at whether a thread is gone
_TURN = 0.0005  # seconds that a thread which waits for the interpreter leaves it to another at most
_turns = threading.Lock()
_brisk = 0  # how many want it
_before = 0.0  # what was set before


@contextmanager
def brisk() -> Iterator[None]:
    """While any such context is open, threads that run Python take turns ten times as often as usual.

    A target's step and a draft's pass are made of short pieces of Python around long ones of C: by default the thread
    whose piece is due waits up to 5 ms for one that goes on, which is most of a small target's step.
    """
    global _brisk, _before
    with _turns:
        _brisk += 1
        if _brisk == 1:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_TURN, _before))
    try:
        yield
    finally:
        with _turns:
            _brisk -= 1
            if not _brisk:
                sys.setswitchinterval(_before)


def interrupt(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raise `error` in a thread that hangs in Python code; one that hangs in C does not notice."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error))


def join(thread: threading.Thread, timeout: float) -> bool:
    """Wait until a thread has ended and the system's thread under it is gone; False if it has not in `timeout` seconds.

    Before Python 3.13 `Thread.join` returns while MLX still releases what it keeps for each thread (its compiled
    functions); an interpreter that ends in that moment aborts.
    """
    deadline = time.monotonic() + timeout
    thread.join(timeout)
    if sys.version_info < (3, 13):
        while not thread.is_alive() and _exists(thread) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
    return not thread.is_alive()


def _exists(thread: threading.Thread) -> bool:
    if thread.native_id is None or thread.ident is None:
        return False
    if sys.platform == "linux":
        return os.path.exists(f"/proc/self/task/{thread.native_id}")
    try:
        signal.pthread_kill(thread.ident, 0)  # macOS looks the thread up before it uses it
    except ProcessLookupError:
        return False
    return True
