"""How many roots each row gets where the draft names them: Saguaro's fan-out (SSD, arXiv 2603.03251, 4.1). Pure.

Which rows verification ends at, and how often the outcome is among the first F of the draft's candidates there, are
counted as it goes; each root then goes where it catches most. Theorem 12 is what that comes to where every proposal
holds with the same probability and misses are a power of F: a geometric series, and a longer last row.
"""

from collections.abc import Callable, Sequence

from mirror_mlx.messages import FanOut
from mirror_mlx.tuning.ranks import Ranks
from mirror_mlx.tuning.running import Acceptance

_KEEP = 0.995  # of a count, with each step: a table of its own for each row has few of them
_EQUAL = 1.5  # see `greedy`: rows that are nearly alike had better be treated alike than as few counts say
_FIRST = 32  # steps in which all rows are, if there is a root for each: there are hardly any counts

Miss = Callable[[int, int], float]
"""The share of outcomes at a row that are none of its first F candidates."""


def greedy(ends: Sequence[float], miss: Miss, budget: int, most: int, equal: float = 1.0) -> list[int]:
    """Roots of each row: one after another where it catches most.

    ends   the share of verifications that end at each row
    most   roots of a row
    equal  times what it is expected to catch, a root counts for that an equal share would give its row as well

    >>> ends = [0.2, 0.16, 0.128, 0.1024, 0.4096]
    >>> greedy(ends, lambda row, count: count**-0.5 if count else 2.0, 20, most=8)
    [4, 3, 3, 3, 7]
    >>> [greedy([0.45, 0.2], lambda row, count: 0.5**count, 2, most=2, equal=times) for times in (1.0, 1.5)]
    [[2, 0], [1, 1]]
    """
    found, shares = [0] * len(ends), uniform(len(ends), budget)

    def gain(row: int) -> float:
        caught = ends[row] * (miss(row, found[row]) - miss(row, found[row] + 1))
        return caught * equal if found[row] < shares[row] else caught

    gains = [gain(row) for row in range(len(ends))]
    for _ in range(min(budget, most * len(ends))):
        row = max((row for row in range(len(ends)) if found[row] < most), key=gains.__getitem__)
        found[row] += 1
        gains[row] = gain(row)
    return found


def geometric(acceptance: float, exponent: float, length: int, budget: float) -> list[float]:
    """Theorem 12: the same in closed form, for an acceptance rate and misses that go as F to the power −exponent.

    >>> [round(count, 2) for count in geometric(0.8, 0.5, 4, 20)]
    [4.12, 3.55, 3.06, 2.64, 6.64]
    """
    ratio = acceptance ** (1 / (1 + exponent))
    last = (1 - acceptance) ** (-1 / (1 + exponent))
    first = budget / (sum(ratio**row for row in range(length)) + ratio**length * last)
    return [*(first * ratio**row for row in range(length)), first * ratio**length * last]


def uniform(rows: int, budget: int) -> list[int]:
    """The same number for each row; the first get what is left over.

    >>> uniform(4, 10)
    [3, 3, 2, 2]
    """
    return [budget // rows + (row < budget % rows) for row in range(rows)]


class Fan:
    """Counts, and the fan-out that follows from them. The last row, where nothing was rejected, is a case of its own.

    >>> fan = Fan("geometric")
    >>> for _ in range(100):
    ...     fan.saw(length=2, accepted=0, rank=0)
    >>> fan.of(rows=3, budget=6, most=8)[0] > 2
    True
    """

    def __init__(self, kind: FanOut) -> None:
        self._kind = kind
        self._acceptance = Acceptance(keep=_KEEP)
        self._rejected, self._held = Ranks(_KEEP), Ranks(_KEEP)
        self._steps = 0

    def saw(self, length: int, accepted: int, rank: int | None, named: int = 8) -> None:
        """A verification of `length` proposals ended; its outcome was the candidate of this rank at its row, from 0 on,
        of so many named; None: it was none of them."""
        self._steps += 1
        self._acceptance.saw(length, accepted)
        (self._held if accepted == length else self._rejected).saw(rank, named)

    def of(self, rows: int, budget: int, most: int) -> tuple[int, ...] | None:
        """Roots of each row, and no more than `most` of one; None: by their scores."""
        if self._kind == "score":
            return None
        if self._kind == "uniform" or (self._steps < _FIRST and budget >= rows):
            return tuple(min(most, count) for count in uniform(rows, budget))
        alive = [1.0, *self._acceptance.alive(rows - 1), 0.0]
        ends = [alive[row] - alive[row + 1] for row in range(rows)]
        return tuple(greedy(ends, lambda row, count: 1 - self._ranks(row, rows).hits(count), budget, most, _EQUAL))

    def _ranks(self, row: int, rows: int) -> Ranks:
        return self._held if row == rows - 1 else self._rejected
