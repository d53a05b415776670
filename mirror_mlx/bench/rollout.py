"""When a draft's passes end beside a verification, whatever that is worth: what the latency law is made of. Pure.

Times are ms from the beginning of a step. A pass that has begun is finished, whatever becomes known meanwhile.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rollout:
    """Passes that follow one another.

    starts  when the first one begins
    one     what each takes
    passes  how many there are

    >>> own = Rollout(starts=10, one=10, passes=3)
    >>> own.ends, own.done(25), own.free(25)
    (40, 1, 30)
    >>> own.waits(25, enough=2, late=4), own.waits(25, enough=3, late=4), own.waits(90, enough=3, late=4)
    (5.0, 9, 0.0)
    """

    starts: float
    one: float
    passes: float

    @property
    def ends(self) -> float:
        return self.starts + self.passes * self.one

    def done(self, at: float) -> float:
        """Passes that have ended by then."""
        if self.one <= 0:
            return self.passes
        return min(self.passes, max(0, int((at - self.starts) / self.one)))

    def free(self, at: float) -> float:
        """When the draft can do something else that is asked of it then."""
        if at <= self.starts or at >= self.ends:
            return max(at, self.starts)
        done = self.done(at)
        return at if self.starts + done * self.one == at else self.starts + (done + 1) * self.one

    def waits(self, at: float, enough: float, late: float) -> float:
        """From then until so many passes have ended, where each that begins then takes `late`: the outcome is known,
        and nothing else is prepared for any more. One that is under way is waited for, unless all have ended."""
        done = self.done(at)
        if done >= self.passes:
            return 0.0
        free = self.free(at)
        under_way = free > at > self.starts
        return free - at + max(0.0, min(enough, self.passes) - done - under_way) * late

    def joined(self, at: float, passes: float) -> "Rollout":
        """Another one that is asked for then, and goes on together with this one."""
        return Rollout(self.free(at), self.one, passes)
