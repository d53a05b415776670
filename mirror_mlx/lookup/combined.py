"""Several proposers as one."""

from collections.abc import Sequence
from typing import Literal

from mirror_mlx.errors import UsageError
from mirror_mlx.lookup.protocol import Proposer


class Combined:
    """Asks several proposers and takes one answer.

    choose  "first": of the first that has one, in this order; the others are not asked
            "longest": the longest, of equal ones the first

    Each learns and follows the text whether or not it was asked.

    >>> from mirror_mlx.lookup.prompt import PromptLookup
    >>> both = Combined([PromptLookup(min_ngram=3), PromptLookup(max_ngram=1)])
    >>> both.begin([1, 2, 1])
    >>> both.propose(2)
    [2, 1]
    """

    def __init__(self, proposers: Sequence[Proposer], choose: Literal["first", "longest"] = "first") -> None:
        """Raises UsageError where there is no proposer, or no such choice."""
        if not proposers:
            raise UsageError("there is nothing to combine: give at least one proposer")
        if choose not in ("first", "longest"):
            raise UsageError(f"choose is {choose!r}: it must be 'first' or 'longest'")
        self.proposers = tuple(proposers)
        self.name = "+".join(proposer.name for proposer in proposers)
        self.wants = max(proposer.wants for proposer in proposers)
        self._first = choose == "first"

    def begin(self, tokens: Sequence[int]) -> None:
        for proposer in self.proposers:
            proposer.begin(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        for proposer in self.proposers:
            proposer.extend(tokens)

    def learn(self, rows: Sequence[int], likely: Sequence[Sequence[int]]) -> None:
        for proposer in self.proposers:
            if proposer.wants:
                proposer.learn(rows, [candidates[: proposer.wants] for candidates in likely])

    def propose(self, length: int) -> list[int]:
        longest: list[int] = []
        for proposer in self.proposers:
            chain = proposer.propose(length)
            if len(chain) > len(longest):
                longest = chain
            if longest and self._first:
                break
        return longest
