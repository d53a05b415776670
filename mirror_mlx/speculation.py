"""The speculation cache of one step: outcome → the window that would follow it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirror_mlx.messages import Key, Source, Window


@dataclass(slots=True)
class _Rollout:
    """A window as far as it has come, and what the draft says of it (see `messages.Window`). place: of its root."""

    place: int
    tokens: list[int] = field(default_factory=list)
    sure: list[float] = field(default_factory=list)
    laws: list[Any] = field(default_factory=list)
    beyond: tuple[int, ...] = ()
    passes: int = 0
    checked: tuple[int, int] = (0, 0)


class SpeculationCache:
    """Windows under construction, one for each root, each up to `length` tokens.

    A window is *open* while it may still grow. It closes when it is full, when the text would end there (a token of
    `stops`), when a proposal is no token of the target (an id outside `[0, vocab_size)` must never reach the target's
    embedding), or when the draft gives it nothing.
    """

    def __init__(self, length: int, vocab_size: int, stops: Collection[int] = ()) -> None:
        self._length = length
        self._vocab_size = vocab_size
        self._stops = stops
        self._rollouts: dict[Key, _Rollout] = {}
        self._open: dict[Key, None] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._rollouts

    def __len__(self) -> int:
        return len(self._rollouts)

    def passes(self, key: Key) -> int:
        """How many have been made for this window."""
        return self._rollouts[key].passes if key in self._rollouts else 0

    def count(self, key: Key) -> int:
        """How many proposals its window has."""
        return len(self._rollouts[key].tokens) if key in self._rollouts else 0

    @property
    def keys(self) -> tuple[Key, ...]:
        """All roots, in the order they were opened."""
        return tuple(self._rollouts)

    @property
    def unfinished(self) -> tuple[Key, ...]:
        """The roots whose windows are open, in the order they were opened."""
        return tuple(self._open)

    def open(self, key: Key) -> None:
        """Begin the window of a root."""
        if key not in self._rollouts:
            self._rollouts[key] = _Rollout(len(self._rollouts))
            if self._length > 0:
                self._open[key] = None

    def extend(
        self,
        key: Key,
        tokens: Sequence[int],
        confidences: Sequence[float] = (),
        laws: Sequence[Any] = (),
        guesses: Sequence[int] = (),
    ) -> None:
        """Add what one draft pass proposed for an open window, how sure it is, what it drew from, and what it takes to
        follow; nothing at all closes it."""
        one = self._rollouts[key]
        # These before the tokens: whoever sees a finished window sees them too.
        one.sure.extend(confidences)
        one.laws.extend(laws)
        if tokens and one.passes:
            passes, held = one.checked
            one.checked = passes + 1, held + len(tokens) - 1
        one.passes += 1
        for done, token in enumerate(tokens, 1):
            if not 0 <= token < self._vocab_size:
                self._open.pop(key, None)
                return
            one.tokens.append(int(token))
            if len(one.tokens) == self._length or token in self._stops:
                one.beyond = (*tokens[done:], *guesses)
                self._open.pop(key, None)
                return
        one.beyond = tuple(guesses)
        if not tokens:
            self._open.pop(key, None)

    def finished(self, key: Key) -> bool:
        return key in self._rollouts and key not in self._open

    def get(self, key: Key) -> tuple[int, ...] | None:
        """The window of an outcome as far as it has come, or None on a miss."""
        return tuple(self._rollouts[key].tokens) if key in self._rollouts else None

    def window(self, key: Key, source: Source) -> Window:
        """The same with what the draft says of it; empty on a miss."""
        one = self._rollouts.get(key) or _Rollout(0)
        count = len(one.tokens)
        sure, laws = (tuple(said[:count]) if len(said) >= count else () for said in (one.sure, one.laws))
        return Window(tuple(one.tokens), source, sure, laws, one.beyond, one.checked)

    def place(self, key: Key) -> int | None:
        """Which root this one was, in the order they were opened, from 0 on; None: it is none."""
        return self._rollouts[key].place if key in self._rollouts else None
