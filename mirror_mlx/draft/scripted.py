"""A draft from a plain function: for tests, and for trying an idea before there is a model for it."""

from collections.abc import Callable, Mapping, Sequence

from mirror_mlx.messages import Candidates, Key, Root
from mirror_mlx.sampling import Sampling


class ScriptedDraft:
    """Proposes `fn(context)` after each context: the token ids so far → the next one.

    >>> counting = ScriptedDraft(lambda context: context[-1] + 1)
    """

    max_roots: int | None = None

    def __init__(self, fn: Callable[[list[int]], int]) -> None:
        self._fn = fn
        self._trunk: list[int] = []
        self._glued = 0
        self._branches: dict[Key, list[int]] = {}

    def begin(self, sampling: Sampling) -> None:
        pass

    def prefill(self, tokens: Sequence[int]) -> None:
        self._trunk += tokens

    def glue(self, tokens: Sequence[int], candidates: int) -> Candidates | None:
        self._trunk += tokens
        self._glued = len(tokens)
        if not candidates:
            return None
        likely = [[self._fn(self._context(row))] for row in range(len(tokens))]
        own = [0.9 if [token] == guess else 0.1 for token, guess in zip(tokens[1:], likely, strict=False)]
        return Candidates(likely, [[0.9]] * len(likely), own)

    def expand(self, roots: Sequence[Root]) -> None:
        for root in roots:
            self._branches[root.key] = [*self._context(root.row), root.token]

    def advance(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[int]]:
        proposed: dict[Key, list[int]] = {}
        for key in keys:
            token = self._fn(list(self._branches[key]))
            self._branches[key].append(token)
            proposed[key] = [token]
        return proposed

    def commit(self, rows: int) -> None:
        del self._trunk[len(self._trunk) - self._glued + rows :]
        self._glued = 0
        self._branches.clear()

    def rewind(self, length: int) -> None:
        del self._trunk[length:]
        self._glued = 0
        self._branches.clear()

    def close(self) -> None:
        pass

    def _context(self, row: int) -> list[int]:
        return self._trunk[: len(self._trunk) - self._glued + row + 1]
