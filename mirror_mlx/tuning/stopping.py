"""When a window that the target waits for is long enough: once it is too unlikely to hold as a whole for another pass
of the draft to be worth its time (SpecDec++, arXiv 2405.19715, stops where a rejection is likely enough). Pure.

In turns, where the target waits for all of a window. Beside the target most passes cost nothing, and it does not pay.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from mirror_mlx.tuning.costs import Costs, DraftCosts

Kinds = Sequence[Sequence[float]]
"""Of windows, equally many of each: the probability that at least 1, 2, … proposals hold."""


@dataclass(frozen=True, slots=True)
class Stop:
    """worth: how often proposals hold of which the draft is so sure; least: see `least`.

    >>> stop = Stop(lambda sure: sure, [0.0, 0.3, 0.3, 0.6])
    >>> [stop.at(sure) for sure in ([], [0.9, 0.8], [0.9, 0.8, 0.9], [0.2])]
    [False, False, False, True]
    >>> stop.at([0.9, 0.8, 0.7])
    True
    """

    worth: Callable[[float], float]
    least: Sequence[float]

    def at(self, confidences: Sequence[float]) -> bool:
        """Whether these proposals are enough, of each of which the draft is so sure."""
        count = len(confidences)
        return count < len(self.least) and prod(map(self.worth, confidences)) < self.least[count]


def least(costs: Costs, draft: DraftCosts, length: int, alive: Sequence[float]) -> list[float]:
    """How likely none, one, two, … proposals of a window of this length have to be to hold, all of them, for another
    pass to be worth what it takes, and what verifying takes that it brings. (A whole one needs no other.)

    alive  the probability that at least 1, 2, … proposals hold: what the next pass brings if those before hold
    """
    found, each = [0.0], max(1, round(draft.tokens))
    for count in range(1, length):
        more = min(length, count + each)
        brings = sum(alive[count:more]) / max(alive[count - 1], 1e-9)
        takes = draft.one.at(1) + max(0.0, costs.verify.at(more + 1) - costs.verify.at(count + 1))
        found.append(takes / max(costs.token * brings, 1e-9))
    return [*found, 0.0]


class End(NamedTuple):
    """A window when the target takes it: its passes, its length, how many of its proposals hold on average."""

    passes: float
    length: int
    held: float


def ends(
    costs: Costs, draft: DraftCosts, length: int, alive: Sequence[float], windows: Callable[[int], Kinds]
) -> list[End]:
    """What windows of at most this length come to that the target waits for, by kind (windows: see
    `throughput.Belief`); where nobody weighs that (see `Costs.token`) they are whole."""
    enough = draft.passes(length)
    if not costs.token:
        return [End(enough, length, sum(alive[:length]))]
    need = least(costs, draft, length, alive)

    def end(alive: Sequence[float]) -> End:
        made, count = 0.0, 0
        while made < enough and (not count or alive[count - 1] >= need[count]):
            made = min(enough, made + 1)
            count = draft.brought(made, length)
        return End(made, count, sum(alive[:count]))

    return [end(kind) for kind in windows(length)]
