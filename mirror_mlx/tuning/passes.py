"""How many of a draft's passes a window takes. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from math import ceil

from mirror_mlx.messages import first_pass

_LONGEST = 64
_EXACT = 100  # passes are looked up by tokens, to a hundredth
_COARSE = 20  # and how they scatter, to a twentieth
_FEW = 0.01  # a share of windows that nobody makes a pass for


@dataclass(frozen=True, slots=True)
class Needed:
    """How many passes windows take until there are so many proposals: with streams that are checked, one takes more and
    another fewer.

    open  the share of them that are not there after 0, 1, … passes; none is after as many as these

    >>> three = Needed((1.0, 1.0, 1.0))
    >>> [three.after(made) for made in range(5)], [three.left(made) for made in range(5)]
    ([1.0, 1.0, 1.0, 0.0, 0.0], [3.0, 2.0, 1.0, 0.0, 0.0])
    >>> some = Needed((1.0, 1.0, 0.4))
    >>> some.after(2), round(some.after(1.5), 2), round(some.left(0), 2), round(some.more(1), 2), some.more(2)
    (0.4, 0.7, 2.4, 1.4, 1.0)
    """

    open: Sequence[float]

    def after(self, made: float) -> float:
        """The share that is not there after so many."""
        low, count = int(made), len(self.open)
        here = self.open[low] if low < count else 0.0
        if made == low:  # mostly, and this is asked for often
            return here
        return here + (made - low) * ((self.open[low + 1] if low + 1 < count else 0.0) - here)

    def left(self, made: float) -> float:
        """How many more it takes then, on average over all of them."""
        low = int(made)
        return sum(self.open[low:]) - (made - low) * (self.open[low] if low < len(self.open) else 0.0)

    def more(self, made: float) -> float:
        """And over those that are not there, one at least."""
        share = self.after(made)
        return max(1.0, self.left(made) / share) if share > 0 else 1.0

    def done(self, made: float) -> bool:
        """Whether there is hardly one to make a pass for."""
        return self.after(made) < _FEW

    def mixed(self, other: "Needed", often: float) -> "Needed":
        """So often these windows, else the other ones.

        >>> Needed((1.0, 1.0)).mixed(Needed((1.0,)), 0.25)
        Needed(open=(1.0, 0.25))
        """
        both = zip_longest(self.open, other.open, fillvalue=0.0)
        return Needed(tuple(often * here + (1 - often) * there for here, there in both))


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


def needed(tokens: float, length: int, window: int | None = None, checks: int = 0, first: int = 0) -> Needed:
    """The same, by window. Their mean is that of `passes`, to what is looked up. first: streams that the first pass
    checks.

    >>> needed(3.0, 7), [round(share, 2) for share in needed(2.0, 4, checks=2).open]
    (Needed(open=(1.0, 1.0, 1.0)), [1.0, 1.0, 0.62, 0.15])
    >>> [needed(3.0, 4, checks=2, first=first) for first in (1, 2)]
    [Needed(open=(1.0, 1.0)), Needed(open=(1.0, 1.0))]
    """
    if not checks or length < 1:
        return Needed((1.0,) * round(passes(tokens, length, window)))
    return Needed(_scattered(round(tokens * _COARSE), checks, first, length))


def there(tokens: float, passes: float, window: int, checks: int = 0, first: int = 0) -> Sequence[float]:
    """The share of windows in which there are 1, 2, … proposals after so many passes. first: as of `needed`.

    >>> there(3.0, 2, 7), there(3.0, 1, 4, checks=2, first=1)
    ((1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 0.0, 0.0))
    >>> [round(share, 2) for share in there(2.0, 2, 4, checks=2)]
    [1.0, 1.0, 0.62, 0.38]
    """
    if not checks:
        return (1.0,) * brought(tokens, passes, window)
    return _there(round(tokens * _COARSE), checks, first, window, round(passes * _EXACT))


def brought(tokens: float, passes: float, window: int, checks: int = 0) -> int:
    """How many proposals of a window there are after so many passes.

    >>> [brought(3.0, passes, 7) for passes in range(4)], [brought(2.0, passes, 7, checks=2) for passes in (1, 2, 4.3)]
    ([0, 1, 4, 7], [1, 3, 7])
    """
    if passes < 1:
        return 0
    first = 1 if checks else first_pass(window, int(tokens))
    return min(window, int(first + (passes - 1) * tokens + 1 / _EXACT))


def beyond(tokens: float, length: int, checks: int, often: float) -> float:
    """The share of windows of checked streams that something is cut off, as the last pass brought more than was left.
    often: how often one follows a window that was whole, and begins with what is known beyond that: as many streams to
    check if something was cut off, else one less. The others begin with none.

    >>> [round(beyond(3.0, length, checks=2, often=1.0), 1) for length in (3, 5)], beyond(3.0, 3, checks=2, often=0.0)
    ([0.5, 1.0], 1.0)
    """
    often = min(often, 1 - _FEW)  # there was a first one
    after, usual, first = (_beyond(round(tokens * _COARSE), checks, n, length) for n in (checks, checks - 1, 0))
    return (often * usual + (1 - often) * first) / (1 - often * (after - usual))


@lru_cache(maxsize=256)
def _renewals(hundredths: int, checks: int) -> tuple[float, ...]:
    """By number of proposals: passes for as many, each of which brings one and those of so many streams that hold,
    until one does not."""
    brings, found = shares(hundredths / _EXACT, checks), [0.0]
    for count in range(1, _LONGEST + 1):
        found.append(1.0 + sum(share * found[max(0, count - more)] for more, share in enumerate(brings, 1)))
    return tuple(found)


@lru_cache(maxsize=4096)
def _scattered(twentieths: int, checks: int, first: int, count: int) -> tuple[float, ...]:
    """The share of windows that have fewer than so many proposals after 0, 1, … such passes, the first of which checks
    so many streams."""
    if count < 1:
        return ()
    before = [
        (share, _scattered(twentieths, checks, checks, count - more))
        for more, share in enumerate(shares(twentieths / _COARSE, checks, first), 1)
    ]
    longest = max((len(open) for share, open in before if share), default=0)
    later = (sum(share * open[at] for share, open in before if at < len(open)) for at in range(longest))
    return (1.0, *later)


@lru_cache(maxsize=4096)
def _beyond(twentieths: int, checks: int, first: int, count: int) -> float:
    """As `beyond` says, of windows of so many proposals whose first pass checks so many streams."""
    brings = enumerate(shares(twentieths / _COARSE, checks, first), 1)
    left = ((share, count - more) for more, share in brings)
    return sum(share * (_beyond(twentieths, checks, checks, open) if open > 0 else open < 0) for share, open in left)


@lru_cache(maxsize=4096)
def _there(twentieths: int, checks: int, first: int, window: int, hundredths: int) -> tuple[float, ...]:
    tokens, passes = twentieths / _COARSE, hundredths / _EXACT
    counts = range(1, window + 1)
    return tuple(1.0 - needed(tokens, count, window, checks, first).after(passes) for count in counts)


def shares(mean: float, checks: int, here: int | None = None) -> list[float]:
    """How often a pass brings 1, 2, … proposals. here: streams that it checks, where others check `checks`."""
    holds, here = _chance(mean, checks), checks if here is None else here
    return [holds**more * (1 - holds) for more in range(here)] + [holds**here]


@lru_cache(maxsize=512)
def _chance(mean: float, checks: int) -> float:
    """How likely a stream's proposal holds, given those before it did, if a pass brings so many tokens on average."""
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**more for more in range(checks + 1)) < mean else (low, middle)
    return high
