"""When a draft's passes end beside a verification: what latency law and throughput model are both made of. Pure.

Times are ms from the beginning of a step. A pass that has begun is finished, whatever becomes known meanwhile.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Rollout:
    """Passes that follow one another.

    starts  when the first one begins
    one     what each takes
    passes  how many there are

    >>> own = Rollout(starts=10, one=10, passes=3)
    >>> own.ends, own.done(25), own.free(25), own.waits(25, enough=2), own.waits(25, enough=3), own.waits(90, enough=3)
    (40, 1, 30, 5, 15, 0.0)
    """

    starts: float
    one: float
    passes: int

    @property
    def ends(self) -> float:
        return self.starts + self.passes * self.one

    def done(self, at: float) -> int:
        """Passes that have ended by then."""
        if self.one <= 0:
            return self.passes
        return min(self.passes, int((at - self.starts) / self.one)) if at > self.starts else 0

    def free(self, at: float) -> float:
        """When the draft can do something else that is asked of it then."""
        if at <= self.starts or at >= self.ends or self.one <= 0:
            return max(at, self.starts)
        return at + (-(at - self.starts)) % self.one

    def waits(self, at: float, enough: int) -> float:
        """From then until so many passes have ended."""
        return max(0.0, self.starts + min(enough, self.passes) * self.one - at)

    def joined(self, at: float, passes: int) -> "Rollout":
        """Another one that is asked for then, and goes on together with this one."""
        return replace(self, starts=self.free(at), passes=passes)
