"""Who names the outcomes in a hybrid: draft and tap, or one of them alone where that is measured to be faster. Pure.

A tap costs the target some time in each step, and a draft's own roots keep passes busy. Which of them is worth it
depends on how often one foresees what the other does not and on what a miss costs: all of it is in how long steps take.
"""

from math import inf, sqrt

from mirror_mlx.messages import PREDICTORS, Predictor

_KEEP = 0.98  # of what was measured, with each newer step
_FIRST = 8  # steps of each before one is preferred,
_LEAST, _HOPELESS = 3, 1.2  # or so few of one whose steps are so many times as long
_AGAIN = 4  # steps of another, now and then
_NEAR, _FAR = 64, 512  # steps between two such tries: of one that is nearly as good, and of another
_CLOSE = 0.02  # as a share of a step: nearly as good
_BETTER = 0.02  # so much better is worth a change
_MORE = 0.1  # share of outcomes: who foresees so many more may be better by as much as the steps' times leave open
_NEW = 0.1  # of what is known of a hybrid's hits, with each of them
_USELESS = 0.02  # share of outcomes: who foresees no more is of no use
_CAP = 2.0  # times the mean: what a step may take


class _Mean:
    """Of a step: what is long past weighs less. cap: times the mean, what a step counts for at most."""

    def __init__(self, cap: float = inf) -> None:
        self._cap = cap
        self.steps = 0
        self._weight = self._sum = self._squares = 0.0

    @property
    def value(self) -> float:
        return self._sum / self._weight if self._weight else 0.0

    @property
    def variance(self) -> float:
        """Of the mean."""
        return max(0.0, self._squares / self._weight - self.value**2) / self._weight if self._weight else 0.0

    def saw(self, value: float) -> None:
        if self._cap < inf and self.steps >= _FIRST // 2:  # an interruption says nothing about who was asked
            value = min(value, self._cap * self.value)
        self.steps += 1
        self._weight = _KEEP * self._weight + 1
        self._sum = _KEEP * self._sum + value
        self._squares = _KEEP * self._squares + value**2


class Worth:
    """What each predictor's steps take, over all requests of an engine; and whose turn it is.

    A hybrid's hits say which part is worth trying by itself first, and, where the other one foresees next to nothing
    more, that both are not worth it together: what that costs may be too little to be seen in a few steps.

    >>> worth = Worth()
    >>> for _ in range(200):
    ...     asked = worth.predictor
    ...     worth.saw(asked, tokens=4, ms=10.0 if asked == "draft" else 11.0, own=True)
    >>> worth.predictor
    'draft'
    """

    def __init__(self) -> None:
        self._means: dict[Predictor, _Mean] = {one: _Mean(_CAP) for one in ("hybrid", "draft", "tap")}
        self._tokens = _Mean()
        self._hits = {one: _Mean() for one in self._means}  # share of steps whose outcome it named
        self._named = {True: 0.5, False: 0.5}  # share of a hybrid's steps whose outcome the draft named, or the tap
        self.preferred: Predictor = "hybrid"
        self._trying: Predictor | None = None
        self._left = 0  # steps of a try still to come
        self._waited: dict[Predictor, int] = dict.fromkeys(PREDICTORS, 0)

    @property
    def predictor(self) -> Predictor:
        return self._trying or self.preferred

    def saw(self, asked: Predictor, tokens: int, ms: float, empty: bool = False, own: bool | None = None) -> None:
        """A step of so many tokens is over. empty: it left nothing to verify, so that the next one brings one token;
        own: whether the draft itself named the outcome; None: nothing was prepared for it."""
        self._tokens.saw(tokens)
        lost = 1 - 1 / max(self._tokens.value, 1.0) if empty else 0.0
        self._means[asked].saw(ms * (1 + lost))
        self._hits[asked].saw(float(own is not None))
        if asked == "hybrid":
            for one, share in self._named.items():
                self._named[one] += max(_NEW, 1 / self._means[asked].steps) * ((own is one) - share)
        self._next(asked)

    @property
    def _parts(self) -> list[Predictor]:
        """Those that a hybrid has, the likelier one first."""
        return ["draft", "tap"] if self._named[True] >= self._named[False] else ["tap", "draft"]

    @property
    def _useful(self) -> bool:
        """Whether each part of a hybrid foresees what the other does not."""
        return min(self._named.values()) > _USELESS

    def _next(self, asked: Predictor) -> None:
        for one in self._waited:
            self._waited[one] = 0 if one == asked else self._waited[one] + 1
        self._left -= asked == self._trying
        if self._trying is not None and self._left > 0 and not (self._known(asked) and self._hopeless(asked)):
            return
        self._trying, means = None, self._means
        if means["hybrid"].steps >= _FIRST and not self._useful and self.preferred == "hybrid":
            self.preferred = self._parts[0]
        if means[self.preferred].steps < _FIRST:
            return
        parts = self._parts
        # Who foresees nothing that the other does not had better not be tried by itself.
        others = [one for one in (*parts[: 1 + self._useful], "hybrid") if one != self.preferred]
        for one in others:
            if self._known(one) and (one != "hybrid" or self._useful) and self._within(one, 1 - _BETTER):
                self.preferred = one
                return
        due = [one for one in others if self._waited[one] >= self._pause(one)]
        if due:
            self._trying = due[0]
            self._left = _AGAIN if self._known(due[0]) else _FIRST

    def _within(self, one: Predictor, share: float) -> bool:
        """Whether its steps take at most so many times what the preferred one's do. Steps are few and differ: what
        their times leave open is decided by who foresees more, since that makes them short."""
        other, best = self._means[one], self._means[self.preferred]
        more = self._hits[one].value - self._hits[self.preferred].value
        unsure = sqrt(other.variance + best.variance) * min(max(more / _MORE, -1.0), 1.0)
        return other.value < share * best.value + unsure

    def _hopeless(self, one: Predictor) -> bool:
        return self._means[one].value > _HOPELESS * self._means[self.preferred].value

    def _known(self, one: Predictor) -> bool:
        steps = self._means[one].steps
        return steps >= _FIRST or (steps >= _LEAST and one != self.preferred and self._hopeless(one))

    def _pause(self, one: Predictor) -> int:
        if not self._known(one):
            return 0
        return _NEAR if self._within(one, 1 + _CLOSE) else _FAR
