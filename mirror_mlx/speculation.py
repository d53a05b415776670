"""The speculation cache of one step: outcome → the window that would follow it."""

from collections.abc import Collection, Sequence
from typing import Any

from mirror_mlx.messages import Key, Source, Window


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
        self._windows: dict[Key, list[int]] = {}
        self._sure: dict[Key, list[float]] = {}
        self._laws: dict[Key, list[Any]] = {}
        self._beyond: dict[Key, list[int]] = {}
        self._passes: dict[Key, int] = {}
        self._checked: dict[Key, tuple[int, int]] = {}
        self._places: dict[Key, int] = {}
        self._open: dict[Key, None] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._windows

    def __len__(self) -> int:
        return len(self._windows)

    def passes(self, key: Key) -> int:
        """How many have been made for this window."""
        return self._passes.get(key, 0)

    @property
    def keys(self) -> tuple[Key, ...]:
        """All roots, in the order they were opened."""
        return tuple(self._windows)

    @property
    def unfinished(self) -> tuple[Key, ...]:
        """The roots whose windows are open, in the order they were opened."""
        return tuple(self._open)

    def open(self, key: Key) -> None:
        """Begin the window of a root."""
        if key not in self._windows:
            self._places[key] = len(self._windows)
            self._windows[key] = []
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
        window = self._windows[key]
        # These before the tokens: whoever sees a finished window sees them too.
        self._sure.setdefault(key, []).extend(confidences)
        self._laws.setdefault(key, []).extend(laws)
        if tokens and self.passes(key):
            passes, held = self._checked.get(key, (0, 0))
            self._checked[key] = passes + 1, held + len(tokens) - 1
        self._passes[key] = self.passes(key) + 1
        for done, token in enumerate(tokens, 1):
            if not 0 <= token < self._vocab_size:
                self._open.pop(key, None)
                return
            window.append(int(token))
            if len(window) == self._length or token in self._stops:
                self._beyond[key] = [*tokens[done:], *guesses]
                self._open.pop(key, None)
                return
        self._beyond[key] = list(guesses)
        if not tokens:
            self._open.pop(key, None)

    def finished(self, key: Key) -> bool:
        return key in self._windows and key not in self._open

    def get(self, key: Key) -> tuple[int, ...] | None:
        """The window of an outcome as far as it has come, or None on a miss."""
        window = self._windows.get(key)
        return None if window is None else tuple(window)

    def window(self, key: Key, source: Source) -> Window:
        """The same with what the draft says of it; empty on a miss."""
        tokens = self.get(key) or ()
        sure, laws = self._sure.get(key, ()), self._laws.get(key, ())
        return Window(
            tokens,
            source,
            tuple(sure[: len(tokens)]) if len(sure) >= len(tokens) else (),
            tuple(laws[: len(tokens)]) if len(laws) >= len(tokens) else (),
            tuple(self._beyond.get(key, ())),
            self.passes(key),
            self._checked.get(key, (0, 0)),
        )

    def place(self, key: Key) -> int | None:
        """Which root this one was, in the order they were opened, from 0 on; None: it is none."""
        return self._places.get(key)
