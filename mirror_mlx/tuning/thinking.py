"""When it is thought of what has been told, and for how long, where the target is slowed by that. Pure."""

from collections.abc import Sequence
from math import inf

from mirror_mlx.tuning.policy import Stepped
from mirror_mlx.tuning.tally import Plained

JUDGE = 4
"""Steps between two judgements of whether speculation is worth it."""
NEW = 8
"""Steps of which each is judged, where something has just been decided; short ones together, where thinking slows the
target."""
_TOGETHER = 800.0  # ms of steps that are thought of together, not more of them than between two judgements;
_AT_FIRST = 100.0  # but of so many where something has just been decided;
_SETTLED = 24  # twice as many steps, so long after that;
_HURRIES, _THINKS = 0.03, 0.01  # and what share of their time may go into looking for others, until then and since
_PLAIN = 0.0025  # the same of plain decoding's


class Thinking:
    """slows: whether the target is slowed. Then short steps are thought of together: each by itself would find this out
    of the caches, and after each of them the target, which then takes a third longer for one of 10 ms."""

    def __init__(self, slows: bool) -> None:
        self.slows = slows
        self._facts: list[Stepped] = []  # of which nothing was made yet
        self._alike, self._turn = False, 0  # whether the last one is as decided, and how often one of such was chosen
        self._owed = 0.0  # ms more than that share

    def told(self, fact: Stepped, since: int, alike: bool) -> bool:
        """Whether it is thought of now. since: steps since something was decided; alike: it is as decided, and there
        may be more such steps before anything is made of it."""
        self._facts.append(fact)
        self._alike = alike
        most = JUDGE if since < _SETTLED else 2 * JUDGE
        later = alike and len(self._facts) < most
        together = _AT_FIRST if since < NEW else _TOGETHER
        return not (self.slows and later and sum(one.whole for one in self._facts) < together)

    def plained(self, fact: Plained) -> None:
        """A stretch of plain decoding, or a part of it, is over."""
        self._owed = max(0.0, self._owed + fact.thought - _PLAIN * fact.whole)

    @property
    def may_look(self) -> bool:
        """Whether it may be looked for something better than plain decoding."""
        return not self.slows or self._owed <= 0

    def facts(self) -> Sequence[Stepped]:
        """All that has been told by now."""
        facts, self._facts = self._facts, []
        return facts

    def closely(self, facts: Sequence[Stepped]) -> Stepped:
        """Of all that has been told, the one to be looked at closely: the one that is not as decided, or each time at
        another place among those that are, as steps may take longer and less long by turns."""
        if not self._alike:
            return facts[-1]
        self._turn += 1
        return facts[self._turn % len(facts)]

    def budget(self, facts: Sequence[Stepped], since: int) -> float:
        """How long it may be looked for something better after these, ms (as in `choice.further`)."""
        share = _THINKS if since > _SETTLED else _HURRIES
        return share * sum(fact.whole for fact in facts) if self.slows else inf
