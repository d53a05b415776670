"""How long a prediction takes, alone and while the GPU works, and what the GPU loses by it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import mlx.core as mx

CALLS = 50
_WARM = 5
_SIDE = 2048
"""Of the square matrices that keep the GPU busy: 17 GFLOP a product, some milliseconds."""


@dataclass(frozen=True)
class Latency:
    """alone, busy  ms of each call, by itself and beside the load; kept: products a second of the load during the
    calls ÷ those without them."""

    alone: list[float]
    busy: list[float]
    kept: float


def alone(call: Callable[[], object]) -> list[float]:
    """ms of each of `CALLS` calls, after some that are not counted."""
    for _ in range(_WARM):
        call()
    return [_timed(call) for _ in range(CALLS)]


def beside(call: Callable[[], object]) -> Latency:
    """`call` by itself, and while MLX's default device is kept busy."""
    free_calls = alone(call)
    with load() as done:
        before, began = done(), time.perf_counter()
        time.sleep(max(0.3, 1e-3 * sum(free_calls) / 4))
        free = (done() - before) / (time.perf_counter() - began)
        before, began = done(), time.perf_counter()
        busy = [_timed(call) for _ in range(CALLS)]
        kept = (done() - before) / (time.perf_counter() - began)
    return Latency(free_calls, busy, kept / free if free else 1.0)


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - began)


@contextmanager
def load(side: int = _SIDE) -> Iterator[Callable[[], int]]:
    """Keep MLX's default device busy with products of two matrices; gives a function that counts them so far."""
    counted, stop, ready = [0], threading.Event(), threading.Event()

    def work() -> None:
        with mx.stream(mx.new_stream(mx.default_device())):
            a, b = mx.random.normal((side, side)), mx.random.normal((side, side))
            mx.eval(a @ b)
            ready.set()
            while not stop.is_set():
                mx.eval(a @ b)
                counted[0] += 1

    thread = threading.Thread(target=work, name="mirror-load", daemon=True)
    thread.start()
    ready.wait(60)
    try:
        yield lambda: counted[0]
    finally:
        stop.set()
        thread.join(10)
