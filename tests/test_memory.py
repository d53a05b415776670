import subprocess
import sys

import pytest

_ARENAS = """
import ctypes, os, sys, tempfile, threading
from mirror_mlx import memory
if sys.argv[1] == "apart":
    memory.apart()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
threads = 8 * os.cpu_count() + 8
together = threading.Barrier(threads)
def work():
    libc.malloc(ctypes.c_size_t(100_000))
    together.wait()
for thread in [threading.Thread(target=work) for _ in range(threads)]:
    thread.start()
libc.fopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as file:
    stream = libc.fopen(file.name.encode(), b"w")
    libc.malloc_info(0, ctypes.c_void_p(stream))
    libc.fclose(ctypes.c_void_p(stream))
    print(threads, file.read().count(b"<heap nr"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_threads_that_are_kept_apart_have_arenas_of_their_own():
    found = {}
    for how in ("apart", "as usual"):
        done = subprocess.run([sys.executable, "-c", _ARENAS, how], capture_output=True, text=True, check=True)
        threads, found[how] = map(int, done.stdout.split())
    assert found["apart"] > threads
    assert found["as usual"] <= threads - 8 + 1
