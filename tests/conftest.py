"""Shared by all tests: OpenBLAS goes under MLX first, and no test leaves a thread behind."""

import mirror_mlx  # isort: skip  # noqa: F401  (loads OpenBLAS; must come before mlx)
import threading
import time

import pytest
from hypothesis import settings

settings.register_profile("house", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("house")


@pytest.fixture(autouse=True)
def _no_thread_left():
    yield
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        ours = [thread for thread in threading.enumerate() if thread.name.startswith("mirror-")]
        if not ours:
            return
        time.sleep(0.01)
    raise AssertionError(f"left behind: {ours}")
