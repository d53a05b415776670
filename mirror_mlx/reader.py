"""Who reads the tokens, and the time that passes for them."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from mirror_mlx.trace import clock

T = TypeVar("T")
_PAUSE = 50_000_000  # ns: a reader that keeps a token for longer has stopped reading


class Reader(Generic[T]):
    """A reader's usual time is part of decoding: plain decoding goes on meanwhile, a step begins after it."""

    def __init__(self) -> None:
        self._paused = 0

    def given(self, token: T) -> Iterator[T]:
        """One token, until the next is asked for."""
        since = clock()
        yield token
        self._paused += max(0, clock() - since - _PAUSE)

    def now(self) -> int:
        """The clock, ns, which stands still while nobody reads on."""
        return clock() - self._paused
