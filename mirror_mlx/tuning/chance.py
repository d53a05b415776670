"""What of a text and a draft is known beforehand, where nothing is learnt: for plans. Pure."""

from collections.abc import Callable, Sequence
from math import inf

from mirror_mlx.tuning.ranks import Ranks
from mirror_mlx.tuning.running import alive
from mirror_mlx.tuning.stopping import Kinds


class Chance:
    """A `throughput.Belief` without a doubt: a draft without a backup.

    rates  how often a proposal holds, by place, given that those before it did; those beyond are as the last
    hits   the share of outcomes among the first so many roots
    guess  see `throughput.Belief.guessed`
    """

    tried = 0

    def __init__(
        self, rates: Sequence[float], hits: Callable[[float], float] = lambda count: 0.0, guess: float = 1.0
    ) -> None:
        self._rates, self.hits, self._guess = rates, hits, guess

    def guessed(self) -> float:
        return self._guess

    def alive(self, count: int) -> Sequence[float]:
        return alive(self._rates, count)

    def windows(self, count: int) -> Kinds:
        return [self.alive(count)]

    def filled(self) -> float:
        return 1.0

    def backup(self, count: int) -> float:
        return 0.0

    def answer(self) -> float:
        return inf


class Expected(Chance):
    """Proposals hold with one probability, and hits go with roots as they do anywhere (see `Ranks`).

    hits  of 64 roots
    """

    def __init__(self, acceptance: float, hits: float) -> None:
        usual = Ranks().hits
        factor = hits / usual(64)
        super().__init__([acceptance], lambda count: min(1.0, factor * usual(count)))
