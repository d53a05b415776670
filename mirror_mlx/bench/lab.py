"""The lab: instruments that turn a small pair on a CPU into a picture of the machine this project is built for.

Four of them, and every figure says which were on: the *inflated target* (`bench.inflate`) costs what a model of
100-300 M parameters costs and computes what the small one computes; the *paced target* takes a set time for each
forward, so that neither neighbours nor the draft slow it; the *paced draft* takes a set time for each pass, as a Neural
Engine does, whose passes are bound by reading weights; each device has a *core* of its own.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import mlx.core as mx

from mirror_mlx.draft.protocol import Draft, Joined
from mirror_mlx.draft.wrapped import Wrapped
from mirror_mlx.messages import Candidates, Key, Root
from mirror_mlx.target.submission import Submission

ROW = 0.015  # of a paced target's one-row forward, for each further row: eight rows take what the inflated one's do
_SPIN = 200_000  # ns before the end of a pass from which its thread no longer trusts `sleep`
_CHUNK = 2048  # prompt tokens in one forward of a draft's prefill


class Kept:
    """How often a device was done in its set time. One that seldom is takes what this machine takes.

    >>> kept = Kept()
    >>> for ns in (9_000_000, 10_400_000, 12_000_000, 10_000_000):
    ...     kept.saw(ns, 10_000_000)
    >>> kept.share
    0.75
    """

    _FAR = 1.05  # times the set time

    def __init__(self) -> None:
        self._count = self._inside = 0

    def saw(self, took: float, ns: float) -> None:
        """A piece of work took so long by itself, where it was to take so many ns."""
        self._count += 1
        self._inside += took <= self._FAR * ns

    def wait(self, began: int, ends: int) -> None:
        """A piece of work that was to take from one moment to the other is done: wait until then."""
        self.saw(time.perf_counter_ns() - began, ends - began)
        wait_until(ends)

    @property
    def share(self) -> float | None:
        """None: nothing had a set time."""
        return self._inside / self._count if self._count else None


class Pace:
    """Makes each piece of work last at least a set time, as on a device whose pass time is fixed.

    ns    how long a piece lasts; 0: as long as it takes. May be changed between pieces.
    kept  is told of each piece

    >>> pace = Pace(10e-3)
    >>> with pace:                                                               # doctest: +SKIP
    ...     model(tokens)
    """

    def __init__(self, seconds: float = 0.0, kept: Kept | None = None) -> None:
        self.ns = round(seconds * 1e9)
        self._began, self._kept = 0, kept or Kept()

    def __enter__(self) -> None:
        self._began = time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        if self.ns:
            self._kept.wait(self._began, self._began + self.ns)


def wait_until(moment: int) -> None:
    """Wait until `moment` of `time.perf_counter_ns`: asleep, and for the last bit awake but without the GIL."""
    while (left := moment - time.perf_counter_ns()) > 0:
        time.sleep((left - _SPIN) / 1e9 if left > 2 * _SPIN else 0)


class PacedDraft(Wrapped):
    """Any draft, at a set time for each forward pass: it does its real work and then waits until the time is over.

    A call that makes a pass is paced: a prefill chunk, a glue that gives candidates, an advance, both in one, and a
    commit that computes the rows that no pass has carried. What else it does costs what it costs.

    joins  whether it may have both in one
    """

    def __init__(self, draft: Draft, pace: Pace, joins: bool = True) -> None:
        super().__init__(draft)
        self._pace, self._joins = pace, joins
        self._pending = False  # glued rows that no pass has computed

    def prefill(self, tokens: Sequence[int]) -> None:
        for start in range(0, len(tokens), _CHUNK):
            with self._pace:
                super().prefill(tokens[start : start + _CHUNK])

    def glue(self, tokens: Sequence[int], candidates: int) -> Candidates | None:
        self._pending = candidates == 0
        with nullcontext() if self._pending else self._pace:
            return super().glue(tokens, candidates)

    def joins(self, rows: int) -> bool:
        return self._joins and super().joins(rows)

    def join(self, tokens: Sequence[int], candidates: int, root: Root, after: Sequence[int] = ()) -> Joined:
        self._pending = False
        with self._pace:
            return super().join(tokens, candidates, root, after)

    def advance(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[int]]:
        self._pending = False
        with self._pace:
            return super().advance(keys)

    def commit(self, rows: int) -> None:
        with self._pace if self._pending and rows else nullcontext():
            super().commit(rows)
        self._pending = False


class Cores:
    """A core for each device, where the system lets a thread choose: the target's is the first, the draft's the next.

    MLX runs a stream on a thread of its own, which starts on the cores of the thread that makes the stream.
    """

    def __init__(self) -> None:
        usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self.target, self.draft = (usable[0], usable[1]) if len(usable) > 1 else (None, None)

    def __str__(self) -> str:
        if self.target is None:
            return "not pinned: " + (
                "this machine has one core" if hasattr(os, "sched_getaffinity") else "this system does not pin threads"
            )
        return f"target on core {self.target}, draft on core {self.draft}"

    def for_target(self) -> AbstractContextManager[None]:
        """This thread, for a while: its core, and a stream on it."""
        return _device(self.target)

    def for_draft(self) -> AbstractContextManager[None]:
        """The same for the draft's thread: the engine's `draft_work`."""
        return _device(self.draft)


@contextmanager
def _device(core: int | None) -> Iterator[None]:
    before = None if core is None else os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        with mx.stream(mx.new_stream(mx.default_device())):
            yield
    finally:
        if before is not None:
            os.sched_setaffinity(0, before)


class Others:
    """How much of this machine other programs took since this object was made, where the system tells (Linux)."""

    def __init__(self) -> None:
        self._before = self._now()

    def cores(self) -> float | None:
        """In cores: 0.5 is half of one core."""
        now = self._now()
        if self._before is None or now is None:
            return None
        wall, theirs = (after - before for after, before in zip(now, self._before, strict=True))
        return max(0.0, theirs / wall) if wall > 0 else None

    def _now(self) -> tuple[float, float] | None:
        """Seconds of clock, and of all cores' time that was not this program's."""
        try:
            fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
            user, nice, system, _, _, irq, softirq, steal = (int(field) for field in fields)
        except (OSError, ValueError):
            return None
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), busy - time.process_time()


class PacedTarget:
    """A `Submission` whose device takes a set time for each forward, and does one after another: the target does its
    real work and then waits. Prefill takes what it takes.

    seconds  a forward of one row; each further row takes `ROW` of that
    layers   of the model, which take equally long
    kept     is told of each forward
    """

    def __init__(self, inner: Submission, seconds: float, layers: int, kept: Kept | None = None) -> None:
        self.eager = inner.eager
        self._inner, self._ns, self._layers = inner, seconds * 1e9, layers
        self._kept = kept or Kept()
        self._began = 0  # when the device began with a step's rows
        self._free = 0  # when it has done what was submitted

    def _submitted(self, rows: int) -> int:
        """When it begins. It ends at `_free`."""
        begins = max(time.perf_counter_ns(), self._free)
        self._free = begins + round(self._ns * (1 + ROW * (rows - 1)))
        return begins

    def begin(self, prefix: Sequence[Any], tap: Sequence[mx.array], tokens: mx.array) -> None:
        self._began = begins = self._submitted(tokens.size)
        self._inner.begin(prefix, tap, tokens)
        if self.eager:
            wait_until(begins + round((self._free - begins) * len(prefix) / self._layers))

    def proceed(self, tokens: mx.array) -> None:
        self._inner.proceed(tokens)

    def finish(self, suffix: Sequence[Any], tokens: mx.array) -> None:
        self._inner.finish(suffix, tokens)
        self._kept.wait(self._began, self._free)

    def ahead(self, token: mx.array) -> Callable[[], int]:
        began = self._submitted(1)
        ends, read = self._free, self._inner.ahead(token)

        def paced() -> int:
            found = read()
            self._kept.wait(began, ends)
            return found

        return paced
