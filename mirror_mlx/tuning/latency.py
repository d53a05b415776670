"""When a draft's passes end beside a verification: what latency law and throughput model are both made of. Pure.

Times are ms from the beginning of a step. A pass that has begun is finished, whatever becomes known meanwhile.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rollout:
    """Passes that follow one another.

    starts  when the first one begins
    one     what each takes
    passes  how many there are
    first   what the first one takes; None: as the others

    >>> own = Rollout(starts=10, one=10, passes=3)
    >>> own.ends, own.done(25), own.free(25)
    (40, 1, 30)
    >>> own.waits(25, enough=2, late=4), own.waits(25, enough=3, late=4), own.waits(90, enough=3, late=4)
    (5.0, 9, 0.0)
    """

    starts: float
    one: float
    passes: float
    first: float | None = None

    @property
    def ends(self) -> float:
        return self._grid + self.passes * self.one

    @property
    def _grid(self) -> float:
        """When the first one would have begun, had it been as the others."""
        return self.starts if self.first is None or not self.passes else self.starts + self.first - self.one

    def done(self, at: float) -> float:
        """Passes that have ended by then."""
        if self.one <= 0:
            return self.passes
        return min(self.passes, max(0, int((at - self._grid) / self.one))) if at > self.starts else 0

    def free(self, at: float) -> float:
        """When the draft can do something else that is asked of it then."""
        if at <= self.starts or at >= self.ends or self.one <= 0:
            return max(at, self.starts)
        if self.first is not None and at < self.starts + self.first:
            return self.starts + self.first
        return at + (-(at - self._grid)) % self.one

    def waits(self, at: float, enough: float, late: float) -> float:
        """From then until so many passes have ended, where each that begins then takes `late`: the outcome is known,
        and nothing else is prepared for any more. One that is under way is waited for, unless all have ended."""
        done = self.done(at)
        if done >= self.passes:
            return 0.0
        free = self.free(at)
        under_way = free > at > self.starts
        return free - at + max(0.0, min(enough, self.passes) - done - under_way) * late

    def joined(self, at: float, passes: float, one: float | None = None, first: float | None = None) -> "Rollout":
        """Another one that is asked for then, and goes on together with this one. one: as this one's."""
        return Rollout(self.free(at), self.one if one is None else one, passes, first)
