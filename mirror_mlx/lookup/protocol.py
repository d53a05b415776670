"""What a proposer is: something that guesses the next tokens without a model."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Proposer(Protocol):
    """Proposes one chain of tokens at a time from what it has seen; the target verifies it.

    A request is `begin`, and then for every step `propose`, `learn` (where `wants` is not 0) and `extend`. A guess
    may be wrong, missing or short: it costs speed, never a token. No call raises, in whatever order they come.

    name   as `by_name` knows it
    wants  how many of the target's likeliest next tokens `learn` should be told for each verified row; 0: none
    """

    name: str
    wants: int

    def begin(self, tokens: Sequence[int]) -> None:
        """A request begins with this prompt; the one before it is over."""
        ...

    def extend(self, tokens: Sequence[int]) -> None:
        """These tokens were decoded after all that is known of this request."""
        ...

    def learn(self, rows: Sequence[int], likely: Sequence[Sequence[int]]) -> None:
        """What the target said in the step that ends with the next `extend`, its rejected rows too.

        rows    [γ+1]         the verify input, `[pending, *window]`
        likely  [γ+1][wants]  the likeliest next tokens after each row, best first
        """
        ...

    def propose(self, length: int) -> list[int]:
        """At most `length` tokens that may follow what is known; none where there is nothing to go by."""
        ...
