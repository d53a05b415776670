"""When a draft's passes end beside a verification: what latency law and throughput model are both made of. Pure.

Times are ms from the beginning of a step. A pass that has begun is finished, whatever becomes known meanwhile.
"""

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class Rollout:
    """Passes that follow one another.

    starts  when the first one begins
    one     what each takes
    passes  how many there are
    lead    what the first ones take; the others take `one`

    >>> own = Rollout(starts=10, one=10, passes=3)
    >>> own.ends, own.done(25), own.free(25)
    (40, 1, 30)
    >>> own.waits(25, enough=2, late=4), own.waits(25, enough=3, late=4), own.waits(90, enough=3, late=4)
    (5.0, 9, 0.0)
    """

    starts: float
    one: float
    passes: float
    lead: tuple[float, ...] = ()

    @property
    def ends(self) -> float:
        return self._end(self.passes)

    def _end(self, count: float) -> float:
        """When so many passes have ended."""
        first = self.lead[: ceil(count)]
        return self.starts + sum(first) + (count - len(first)) * self.one

    def done(self, at: float) -> float:
        """Passes that have ended by then."""
        ended, count = self.starts, 0
        for takes in self.lead:
            if count >= self.passes:
                break
            if ended + takes > at:
                return count
            ended, count = ended + takes, count + 1
        left = self.passes - count
        if self.one <= 0 or left <= 0:
            return self.passes
        return count + min(left, max(0, int((at - ended) / self.one)))

    def free(self, at: float) -> float:
        """When the draft can do something else that is asked of it then."""
        if at <= self.starts or at >= self.ends:
            return max(at, self.starts)
        ended = self._end(self.done(at))
        return at if ended == at else self._end(self.done(at) + 1)

    def waits(self, at: float, enough: float, late: float) -> float:
        """From then until so many passes have ended, where each that begins then takes `late`: the outcome is known,
        and nothing else is prepared for any more. One that is under way is waited for, unless all have ended."""
        done = self.done(at)
        if done >= self.passes:
            return 0.0
        free = self.free(at)
        under_way = free > at > self.starts
        return free - at + max(0.0, min(enough, self.passes) - done - under_way) * late

    def joined(self, at: float, passes: float, one: float | None = None, lead: tuple[float, ...] = ()) -> "Rollout":
        """Another one that is asked for then, and goes on together with this one. one: as this one's."""
        return Rollout(self.free(at), self.one if one is None else one, passes, lead)
