"""Drafts that do all they can to make speculation a loss."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random

from mirror_mlx.draft import Draft, ScriptedDraft
from mirror_mlx.draft.protocol import Joined
from mirror_mlx.draft.wrapped import Wrapped
from mirror_mlx.messages import Candidates, Key, Root

KINDS = ("random", "wrong", "slow", "dying")
_SLOW = 10  # times
_LIFE = 50  # steps


def hostile(kind: str, draft: Draft, vocab_size: int) -> Draft:
    """One of `KINDS`.

    random  any token, and it is sure of it
    wrong   a token that is hardly ever right, and it is sure of it
    slow    a good draft that takes ten times as long
    dying   a good draft that raises in each fiftieth step
    """
    if kind == "random":
        return ScriptedDraft(lambda context: Random(f"{context[-3:]}").randrange(vocab_size))
    if kind == "wrong":
        return ScriptedDraft(lambda context: vocab_size - 1)
    return Slow(draft) if kind == "slow" else Dying(draft)


class Slow(Wrapped):
    """Waits nine times as long as each pass took."""

    def glue(self, tokens: Sequence[int], candidates: int) -> Candidates | None:
        with _slowly():
            return super().glue(tokens, candidates)

    def join(self, tokens: Sequence[int], candidates: int, root: Root, after: Sequence[int] = ()) -> Joined:
        with _slowly():
            return super().join(tokens, candidates, root, after)

    def advance(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[int]]:
        with _slowly():
            return super().advance(keys)


@contextmanager
def _slowly() -> Iterator[None]:
    began = time.perf_counter()
    yield
    time.sleep((_SLOW - 1) * (time.perf_counter() - began))


class Dying(Wrapped):
    """Raises in each fiftieth step, while it is mortal."""

    def __init__(self, inner: Draft) -> None:
        super().__init__(inner)
        self.mortal = True
        self._steps = 0

    def join(self, tokens: Sequence[int], candidates: int, root: Root, after: Sequence[int] = ()) -> Joined:
        self._die()
        return super().join(tokens, candidates, root, after)

    def advance(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[int]]:
        self._die()
        return super().advance(keys)

    def _die(self) -> None:
        if self.mortal and self._steps >= _LIFE:
            self._steps = 0
            raise RuntimeError("a hostile draft dies")

    def commit(self, rows: int) -> None:
        self._steps += self.mortal
        super().commit(rows)
