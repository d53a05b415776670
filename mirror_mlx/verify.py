"""Which proposals the target accepts (Mirror-SD, arXiv 2510.13161, equation 11).

Both are one rule, since greedy decoding is sampling without noise: the target's own token of each row is known, and
proposals hold as long as they equal it. What is emitted are the target's tokens alone, so any window is safe.
"""

from collections.abc import Collection, Sequence

from mirror_mlx.messages import Outcome


def verify(window: Sequence[int], chosen: Sequence[int]) -> Outcome:
    """Compare γ proposals with the target's γ+1 own tokens.

    window  [γ]    proposals for positions n … n+γ-1
    chosen  [γ+1]  the target's tokens for positions n … n+γ

    >>> verify([5, 6, 7], [5, 6, 9, 2])
    Outcome(accepted=2, token=9)
    >>> verify([5, 6], [5, 6, 3])
    Outcome(accepted=2, token=3)
    """
    if len(chosen) != len(window) + 1:
        raise ValueError(f"{len(window)} proposals need {len(window) + 1} target tokens, got {len(chosen)}")
    accepted = common(window, chosen)
    return Outcome(accepted, chosen[accepted])


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with.

    >>> common([5, 6, 7], [5, 6, 9, 2]), common([5, 6], [5, 6, 7])
    (2, 2)
    """
    differ = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))


def shorten(outcome: Outcome, window: Sequence[int], stops: Collection[int], limit: int) -> Outcome:
    """End an outcome at the first accepted stop token, or at `limit` emitted tokens, as if the rest had never been
    proposed: what follows is neither emitted nor kept in any cache.

    >>> shorten(Outcome(3, 9), [5, 2, 7], stops={2}, limit=100)
    Outcome(accepted=1, token=2)
    """
    for row in range(min(outcome.accepted, limit)):
        if window[row] in stops or row + 1 == limit:
            return Outcome(row, window[row])
    return outcome
