"""How many of a draft's passes a window takes. Pure."""

from functools import lru_cache
from math import ceil

from mirror_mlx.messages import first_pass

_LONGEST = 64
_EXACT = 100  # passes are looked up by tokens, to a hundredth


def passes(tokens: float, length: int, window: int | None = None, checks: int = 0) -> float:
    """For so many proposals of a window, on average.

    tokens  that a pass brings; with streams that are checked, each but the first, which brings one, on average
    window  of how many proposals, if not of as many
    checks  streams that a pass checks of the one before

    >>> [passes(3.0, length) for length in (0, 1, 2, 4, 5, 7)], [passes(3.0, length, 7) for length in (1, 4, 7)]
    ([0.0, 1.0, 1.0, 2.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    >>> [round(passes(2.0, length, checks=2), 2) for length in (0, 1, 2, 3, 4, 7)]
    [0.0, 1.0, 2.0, 2.38, 2.76, 4.33]
    """
    if length < 1:
        return 0.0
    if checks:
        return 1.0 + _renewals(round(tokens * _EXACT), checks)[length - 1]
    return 1.0 + max(0, ceil((length - first_pass(window or length, int(tokens))) / tokens))


def spared(tokens: float, length: int, checks: int = 0) -> float:
    """Passes that a window needs less whose first one has streams to check, as others have."""
    if not checks or length < 1:
        return 0.0
    more = _renewals(round(tokens * _EXACT), checks)
    return max(0.0, 1.0 + more[length - 1] - more[length])


def brought(tokens: float, passes: float, window: int, checks: int = 0) -> int:
    """How many proposals of a window there are after so many passes.

    >>> [brought(3.0, passes, 7) for passes in range(4)], [brought(2.0, passes, 7, checks=2) for passes in (1, 2, 4.3)]
    ([0, 1, 4, 7], [1, 3, 7])
    """
    if passes < 1:
        return 0
    first = 1 if checks else first_pass(window, int(tokens))
    return min(window, int(first + (passes - 1) * tokens + 1 / _EXACT))


@lru_cache(maxsize=256)
def _renewals(hundredths: int, checks: int) -> tuple[float, ...]:
    """By number of proposals: passes for as many, each of which brings one and those of so many streams that hold,
    until one does not."""
    mean = hundredths / _EXACT
    holds = _chance(mean, checks)
    shares = [holds**more * (1 - holds) for more in range(checks)] + [holds**checks]
    found = [0.0]
    for count in range(1, _LONGEST + 1):
        found.append(1.0 + sum(share * found[max(0, count - more)] for more, share in enumerate(shares, 1)))
    return tuple(found)


def _chance(mean: float, checks: int) -> float:
    """How likely a stream's proposal holds, given those before it did, if a pass brings so many tokens on average."""
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**more for more in range(checks + 1)) < mean else (low, middle)
    return high
