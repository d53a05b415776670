"""What a device takes against what it was expected to: all of it, and by how much there is to do. Pure."""

from math import sqrt

from mirror_mlx.tuning.curve import Curve


class Ratio:
    """What something takes against what was predicted. One value that is far off is an interruption, and moves it a
    little; two in a row are a load that came or went, and are believed. The mean of several that is far below is
    believed at once: nothing is interrupted into being faster.

    new   by which share of what it is off one value moves it
    most  values that a mean counts for, at most: what is measured at one time is disturbed as one

    >>> ratio = Ratio()
    >>> ratio.saw(10.0)
    >>> before = ratio.value
    >>> ratio.saw(10.0)
    >>> before < 1.5, ratio.value
    (True, 10.0)
    >>> ratio.saw(5.0, count=6)
    >>> ratio.value
    5.0
    """

    _FAR = 1.5

    def __init__(self, value: float = 1.0, new: float = 0.25, most: int = 4) -> None:
        self.value = self._last = value
        self._new, self._most = new, most

    def saw(self, ratio: float, count: int = 1) -> None:
        """count: of how many of them this is the mean."""
        low, high = sorted((ratio, self._last))
        high = ratio if count > 1 else high
        self._last = ratio
        if low > self.value * self._FAR:
            self.value = low
        elif high < self.value / self._FAR:
            self.value = high
        else:
            bounded = min(max(ratio, self.value / self._FAR), self.value * self._FAR)
            self.value += (1 - (1 - self._new) ** min(count, self._most)) * (bounded - self.value)


class Excess:
    """By how much longer something takes than it should, from a running mean of what was seen of it, and from what is
    usual where little was.

    >>> seen = Excess()
    >>> for _ in range(200):
    ...     seen.saw(1.2)
    >>> round(seen.value(1.0), 2), round(Excess().value(1.1), 2)
    (1.18, 1.1)
    """

    _KEEP = 0.97
    _WEIGHT = 4.0  # of what is usual
    _FAR = 1.5

    def __init__(self) -> None:
        self._mean, self._count = 1.0, 0.0

    def saw(self, ratio: float) -> None:
        """One of them took so many times as long as it should. What is far off counts for no more than half as much
        again as before."""
        before = self.value(1.0)
        bounded = min(max(ratio, before / self._FAR), before * self._FAR)
        self._count = self._KEEP * self._count + 1
        self._mean += (bounded - self._mean) / self._count

    def faded(self, left: float) -> None:
        """What was seen is longer past: so much of it is left."""
        self._count *= left

    def value(self, usual: float) -> float:
        return (self._count * self._mean + self._WEIGHT * usual) / (self._count + self._WEIGHT)


class Spread:
    """By how much something differs from what it usually is, each time: a standard deviation.

    first  before much was seen of it

    >>> seen = Spread(0.1)
    >>> for off in [0.03, -0.03] * 100:
    ...     seen.saw(off)
    >>> round(seen.value, 2), Spread(0.1).value
    (0.05, 0.1)
    """

    _KEEP = 0.97
    _WEIGHT = 8.0  # of what was there first
    _FAR = 0.5
    """What is further off was interrupted, and counts for no more than that."""

    def __init__(self, first: float) -> None:
        self._first, self._squares, self._count = first, 0.0, 0.0

    def saw(self, off: float) -> None:
        self._squares = self._KEEP * self._squares + min(abs(off), self._FAR) ** 2
        self._count = self._KEEP * self._count + 1

    @property
    def value(self) -> float:
        return sqrt((self._squares + self._WEIGHT * self._first**2) / (self._count + self._WEIGHT))


class Often:
    """How often something happens ÷ how often it was said to, from running counts.

    >>> seen = Often()
    >>> for happens in [True, True, False, True] * 50:
    ...     seen.saw(happens, said=0.9)
    >>> round(seen.value, 2), Often().value
    (0.86, 1.0)
    """

    _KEEP = 0.97
    _WEIGHT = 6.0  # of its happening as often as was said

    def __init__(self) -> None:
        self._happened = self._said = 0.0

    def saw(self, happened: bool, said: float) -> None:
        self._happened = self._KEEP * self._happened + happened
        self._said = self._KEEP * self._said + said

    def faded(self, left: float) -> None:
        """What was seen is longer past: so much of it is left."""
        self._happened, self._said = left * self._happened, left * self._said

    @property
    def value(self) -> float:
        return (self._happened + self._WEIGHT) / (self._said + self._WEIGHT)


class Shape:
    """A calibrated curve, and how it turns out to be bent: what is seen at some count counts for the measured points
    on both sides of it.

    >>> shape = Shape(Curve.of({1: 100.0, 8: 110.0, 16: 150.0}))
    >>> for _ in range(100):
    ...     shape.saw(8, 100.0 / shape.curve.at(8))
    >>> [round(shape.curve.at(count)) for count in (1, 8, 12, 16)]
    [100, 100, 125, 150]
    """

    _NEW = 0.1
    _FAR = 1.3
    """What is further off may be an interruption, and counts for no more than that."""
    _MOST = 2.0

    def __init__(self, curve: Curve) -> None:
        self.curve = self._base = curve
        self._factors = [1.0] * len(curve.points)
        self._seen = [1.0] * len(curve.points)  # how often; the first times count for more

    def saw(self, count: float, ratio: float, weight: float = 1.0) -> None:
        """So many took so many times what this curve says. weight: how much of that may be its fault."""
        ratio = min(max(ratio, 1 / self._FAR), self._FAR)
        counts = [at for at, _ in self._base.points]
        after = next((place for place, at in enumerate(counts) if at >= count), len(counts) - 1)
        before = max(0, after - 1)
        width = counts[after] - counts[before]
        near = min(1.0, max(0.0, (count - counts[before]) / width)) if width else 1.0
        for place, share in ((before, 1 - near), (after, near)):
            bent = self._factors[place] * ratio ** (weight * share * max(self._NEW, 1 / (1 + self._seen[place])))
            self._seen[place] += share
            self._factors[place] = min(self._MOST, max(1 / self._MOST, bent))
        points = zip(self._base.points, self._factors, strict=True)
        self.curve = Curve.through([(at, ms * by) for (at, ms), by in points], self._base.level)
