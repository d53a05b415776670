"""A cost that depends on how much is asked for, from a few measured points. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Curve:
    """Milliseconds by count, or a factor on them: linear between measured points.

    points  (count, ms), by count; at least one
    level   beyond them, as at the last one; else along the last two

    >>> verify = Curve.of({1: 10.0, 8: 17.0})
    >>> verify.at(1), verify.at(4), verify.at(15)
    (10.0, 13.0, 24.0)
    >>> Curve.through({1: 1.3, 8: 1.1}, level=True).at(15)
    1.1
    """

    points: tuple[tuple[float, float], ...]
    level: bool = False

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("a curve needs a point")

    @classmethod
    def of(cls, found: "dict[int, float] | Iterable[tuple[float, float]]") -> "Curve":
        """More of something is never taken to cost less: where two points say so both were disturbed, and each gets
        the mean (pool adjacent violators).

        >>> Curve.of({1: 10.0, 2: 14.0, 4: 12.0, 8: 20.0}).points
        ((1.0, 10.0), (2.0, 13.0), (4.0, 13.0), (8.0, 20.0))
        """
        pools: list[tuple[float, list[float]]] = []
        for count, ms in sorted(found.items() if isinstance(found, dict) else found):
            counts = [float(count)]
            while pools and pools[-1][0] > ms:
                before, others = pools.pop()
                ms = (before * len(others) + ms * len(counts)) / (len(others) + len(counts))
                counts = others + counts
            pools.append((ms, counts))
        return cls(tuple((count, ms) for ms, counts in pools for count in counts))

    @classmethod
    def through(cls, found: "dict[int, float] | Iterable[tuple[float, float]]", level: bool = False) -> "Curve":
        """As it was measured: five rows may well cost more than eight, where there are kernels for eight."""
        points = sorted(found.items() if isinstance(found, dict) else found)
        return cls(tuple((float(count), ms) for count, ms in points), level)

    @classmethod
    def mean(cls, curves: "Sequence[Curve]") -> "Curve":
        """
        >>> Curve.mean([Curve.of({1: 10.0, 8: 17.0}), Curve.of({1: 12.0, 4: 18.0})]).points
        ((1.0, 11.0), (4.0, 15.5), (8.0, 21.5))
        """
        counts = sorted({count for curve in curves for count, _ in curve.points})
        means = ((count, fmean(curve.at(count) for curve in curves)) for count in counts)
        return cls.through(means, level=all(curve.level for curve in curves))

    def at(self, count: float) -> float:
        points = self.points
        if count <= points[0][0] or len(points) == 1:
            return points[0][1]
        if self.level and count >= points[-1][0]:
            return points[-1][1]
        after = min(bisect_left(points, (count,)), len(points) - 1)
        (x0, y0), (x1, y1) = points[after - 1 : after + 1]
        return y0 + (y1 - y0) * (count - x0) / (x1 - x0)

    def scaled(self, factor: float) -> "Curve":
        return replace(self, points=tuple((count, ms * factor) for count, ms in self.points))
