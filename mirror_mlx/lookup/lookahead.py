"""Lookahead decoding's n-gram pool, filled from the rows that are verified anyway."""

from collections.abc import Sequence
from itertools import takewhile

from mirror_mlx.errors import UsageError


class Lookahead:
    """The n-gram pool of Lookahead decoding (Fu et al. 2024, arXiv 2402.02057), as a chain.

    The target's best tokens after the verified rows, taken in a row, are the next iterate of a Jacobi iteration on
    the window: after the accepted part they say how the target would go on, had the rejected tokens been right. The
    n-grams of `ngram` tokens in these trajectories and in the text go to a pool under their first token. Proposed is
    the most recent one that begins with the last token, then the most recent that begins with where that one ends,
    and so on; one from the text goes before one from a trajectory, which nobody has verified.

    This is not all of the original. There each forward also carries a lookahead branch, a window of W columns and
    N - 1 levels of guesses that advance in parallel beside the verification, and up to G n-grams that begin with the
    last token are verified at once. Here nothing is added to the forward: the rejected rows serve as the trajectories,
    so there are none where everything is accepted or nothing was proposed. One chain is verified, and so the pool
    keeps only the most recent n-gram of each kind.

    O(ngram) a token to learn and extend, O(length) to propose.

    >>> lookahead = Lookahead(ngram=3)
    >>> lookahead.begin([5])
    >>> lookahead.learn([5, 0, 0], [[6], [7], [8]])
    >>> lookahead.extend([6])
    >>> lookahead.propose(4)
    [7, 8]
    """

    name = "lookahead"
    wants = 1

    def __init__(self, ngram: int = 4, *, from_prompt: bool = True) -> None:
        """from_prompt: the prompt's n-grams go to the pool too. Raises UsageError unless ngram ≥ 2."""
        if ngram < 2:
            raise UsageError(f"ngram is {ngram}: it must be 2 or more")
        self._ngram, self._from_prompt = ngram, from_prompt
        self._tail: list[int] = []
        self._text: dict[int, Sequence[int]] = {}
        self._trajectories: dict[int, Sequence[int]] = {}

    def begin(self, tokens: Sequence[int]) -> None:
        self._text, self._trajectories, self._tail = {}, {}, []
        if self._from_prompt:
            self.extend(tokens)
        else:
            self._tail = [int(token) for token in tokens[-1:]]

    def extend(self, tokens: Sequence[int]) -> None:
        text = [*self._tail, *map(int, tokens)]
        self._add(text, self._text)
        self._tail = text[-self._ngram + 1 :]

    def learn(self, rows: Sequence[int], likely: Sequence[Sequence[int]]) -> None:
        iterate = [int(candidates[0]) for candidates in takewhile(len, likely)]
        for row, token in enumerate(rows[: len(iterate)]):
            # The iterate has another token where this row's was rejected: what follows counts for both.
            self._add([int(token), *iterate[row : row + self._ngram - 1]], self._trajectories)
        self._add(iterate, self._trajectories)

    def propose(self, length: int) -> list[int]:
        chain: list[int] = []
        found = self._after(self._tail)
        while found and len(chain) < length:
            chain += found
            found = self._after(chain)
        return chain[: max(length, 0)]

    def _after(self, tokens: Sequence[int]) -> Sequence[int]:
        if not tokens:
            return ()
        return self._text.get(tokens[-1]) or self._trajectories.get(tokens[-1]) or ()

    def _add(self, tokens: Sequence[int], pool: dict[int, Sequence[int]]) -> None:
        for first in range(len(tokens) - self._ngram + 1):
            pool[tokens[first]] = tokens[first + 1 : first + self._ngram]
