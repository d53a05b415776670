"""One step as the draft sees it: a state machine of facts in, actions out. No threads, models or clocks.

                 glued          tapped          drafted         resolved
    FRESH        → ROLLING      keep for later  –               keep for later
    ROLLING      –              open roots      grow windows    → SETTLING
    SETTLING     –              ignored         grow the one    –
    SETTLED      –              ignored         –               –

`joined` is `glued`, and a first pass over the branch of the outcome that the draft expects.
`next()` says what to do now; the caller does it and reports back by calling the event of the same name. Facts may
arrive at any time and in any order: the tap and the outcome come from the other device.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from mirror_mlx.messages import Candidates, Fallback, Key, Outcome, Predictor, Root, Source, Window
from mirror_mlx.outcomes import allocate, rank, roots
from mirror_mlx.pooling import Pooled, Pooling
from mirror_mlx.speculation import SpeculationCache
from mirror_mlx.tuning.due import Due
from mirror_mlx.tuning.stopping import Stop


class State(Enum):
    FRESH = auto()
    ROLLING = auto()
    SETTLING = auto()
    SETTLED = auto()


@dataclass(frozen=True, slots=True)
class Glue:
    """Write trunk rows for the pending token and the first `rows - 1` proposals; name so many candidates of each.

    root   opened and served by the same pass, `after` being what its window is taken to begin with; None: nothing is
    """

    rows: int
    candidates: int
    root: Root | None = None
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Expand:
    """Open a branch for each root."""

    roots: tuple[Root, ...]


@dataclass(frozen=True, slots=True)
class Advance:
    """One draft pass over the branches of these roots."""

    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until the tap or the outcome arrives."""


@dataclass(frozen=True, slots=True)
class Settle:
    """The step is over: keep `accepted + 1` of the glued rows and hand over the window."""

    accepted: int
    window: Window


Action = Glue | Expand | Advance | Wait | Settle


@dataclass(frozen=True, slots=True)
class Plan:
    """What one step may do.

    window      the proposals now under verification
    beyond      what the draft takes to follow them, if all hold
    length      how many tokens the next window may have
    fan_out     so many of the draft's own roots of each row; None: by their scores
    late        so many are enough once the outcome is known; None: all of them
    stop        says whether fewer are, by how sure the draft is of them; None: they are not
    predictor   who picks the roots; None drafts only after the outcome is known (serial speculation)
    kappa       roots of each row and predictor
    max_roots   all roots of a step together
    tap         whether a tap will come
    stops       tokens that end the text: nothing is prepared for what would follow them
    due         when the outcome is expected, and what passes take: none is begun that is not worth it; None: all are
    pooling     how much the draft's opinion counts beside the tap's; None: as much as at first
    """

    window: tuple[int, ...]
    length: int
    vocab_size: int
    predictor: Predictor | None
    fallback: Fallback = "jit"
    kappa: int = 8
    max_roots: int = 64
    tap: bool = True
    late: int | None = None
    stop: Stop | None = None
    fan_out: tuple[int, ...] | None = None
    stops: Collection[int] = ()
    due: Due | None = None
    pooling: Pooling | None = None
    beyond: tuple[int, ...] = ()


class _Joined(NamedTuple):
    """The first root, and what the pass over the window's rows brought for it."""

    root: Root
    proposed: Mapping[Key, Sequence[int]]
    besides: tuple[Mapping[Key, Sequence[Any]], ...]


class Round:
    """The state machine of one step. See the module's table."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.state = State.FRESH
        self.cache = SpeculationCache(plan.length, plan.vocab_size, plan.stops)
        self._outcome: Outcome | None = None
        self._tap: Candidates | None = None
        self._draft: Candidates | None = None
        self._pooling = plan.pooling or Pooling()
        self._pooled: Pooled | None = None
        self._own: frozenset[Key] = frozenset()
        self._unopened: list[Root] = []
        self._joined: _Joined | None = None
        self._source: Source | None = None
        self._missed = False
        from_tap = plan.predictor in ("tap", "hybrid") and plan.tap
        from_draft = plan.predictor in ("draft", "hybrid") or (plan.predictor == "tap" and not plan.tap)
        self._awaits_tap = from_tap
        self._draft_budget = 0
        if from_draft:
            self._draft_budget = plan.max_roots // 2 if from_tap else plan.max_roots

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do until a fact arrives."""
        rolled = self.state is State.ROLLING and not self._unopened and not self.cache.unfinished
        return self._outcome is None and rolled

    @property
    def awaits_outcome(self) -> bool:
        return self._outcome is None

    def foreseen(self, key: Key) -> Predictor | None:
        """Who named this outcome first, "draft" or "tap"; None: nobody has."""
        return "draft" if key in self._own else "tap" if key in self.cache else None

    def place(self, outcome: Key) -> int | None:
        """Which of the roots that were opened before it was known the outcome is, from 0 on; None: none of them."""
        return None if self._missed else self.cache.place(outcome)

    @property
    def own(self) -> int:
        """How many roots the draft itself has named."""
        return len(self._own)

    def rank(self, outcome: Outcome) -> int | None:
        """The outcome's place among the draft's candidates, see `outcomes.rank`; None too where it named none."""
        return None if self._draft is None else rank(self._draft, self.plan.window, outcome)

    def learn(self) -> None:
        """When it is over: what draft and tap have said together is compared with how verification ended."""
        if self._pooled is not None and self._outcome is not None:
            self._pooling.saw(self._pooled, self.plan.window, self._outcome)

    # Facts.

    def glued(self, candidates: Candidates | None) -> None:
        """The trunk rows are written; `candidates` are the draft's own, if it has any."""
        if self._outcome is not None:
            self._settle()
            return
        if candidates is not None and self._draft_budget:
            self._draft = candidates
            self._queue(candidates, self._draft_budget, self.plan.fan_out)
        if self._joined is not None and self._joined.root.key not in self._queued:
            self._unopened = [*self._unopened[: self._draft_budget - 1], self._joined.root]
        self._own = frozenset(self._queued)
        if self._tap is not None:
            self._queue(self._both(self._tap), self.plan.max_roots - len(self._unopened))
        # Last: to who looks on from another thread it is idle if it rolls and has nothing to do.
        self.state = State.ROLLING

    def joined(
        self,
        candidates: Candidates | None,
        root: Root,
        proposed: Mapping[Key, Sequence[int]],
        *besides: Mapping[Key, Sequence[Any]],
    ) -> None:
        """The same, with a pass over the first root's branch. besides: as of `advanced`."""
        self._joined = _Joined(root, proposed, besides)
        self.glued(candidates)

    def tapped(self, candidates: Candidates) -> None:
        """The tap has fired."""
        if not self._awaits_tap:
            return
        if self.state is State.FRESH:
            self._tap = candidates
        elif self.state is State.ROLLING:
            self._queue(self._both(candidates), self.plan.max_roots - len(self.cache) - len(self._unopened))
        self._awaits_tap = False

    def expanded(self, opened: Sequence[Root]) -> None:
        """Branches are open for these roots."""
        for root in self._unopened or opened:
            if self._joined is not None and root.key == self._joined.root.key:
                self._open_joined()
            else:
                self.cache.open(root.key)
        self._unopened = []

    def advanced(
        self,
        asked: Sequence[Key],
        proposed: Mapping[Key, Sequence[int]],
        confidences: Mapping[Key, Sequence[float]] = {},
        laws: Mapping[Key, Sequence[Any]] = {},
        guesses: Mapping[Key, Sequence[int]] = {},
    ) -> None:
        """One pass was made over `asked`; a branch that got nothing is closed."""
        for key in asked:
            self.cache.extend(
                key, proposed.get(key, ()), confidences.get(key, ()), laws.get(key, ()), guesses.get(key, ())
            )

    def resolved(self, outcome: Outcome) -> None:
        """Verification has ended."""
        self._outcome = outcome
        if self.state is State.ROLLING:
            self._settle()

    # Decision.

    def next(self, at: float = 0.0, width: int | None = None, joins: bool = False) -> Action:
        """at: ms since the step began; width: how many branches a pass takes, the first being served to their end;
        None: all of them; joins: whether a pass takes the window's rows and a branch."""
        if self.state is State.FRESH:
            if self._outcome is not None:
                return Glue(1 + self._outcome.accepted, 0)
            if self.plan.predictor is None:
                return Wait()
            root = self._first if joins else None
            return Glue(1 + len(self.plan.window), self._wanted, root, self.plan.beyond[1:] if root else ())
        if self._outcome is not None:
            return self._next_settling(self._outcome)
        if self._unopened:
            joined = None if self._joined is None else self._joined.root.key
            return Expand(tuple(root for root in self._unopened if root.key != joined))
        keys = self.cache.unfinished[:width]
        if keys and self.plan.due is not None:
            keys = keys[: self.plan.due.branches(at, keys, self.cache)]
        return Advance(keys) if keys else Wait()

    def _next_settling(self, outcome: Outcome) -> Action:
        key = outcome.key
        waits = self._drafts_late
        if key not in self.cache and waits and self.state is State.SETTLING:
            return Expand((Root(*key),))
        found = self.cache.window(key, self._source or "empty")
        if key in self.cache.unfinished and waits and not self._enough(found):
            return Advance((key,))
        self.state = State.SETTLED
        return Settle(outcome.accepted, found)

    def _enough(self, window: Window) -> bool:
        """Whether nobody waits for more of it."""
        late, stop = self.plan.late, self.plan.stop
        return (late is not None and len(window.tokens) >= late) or (stop is not None and stop.at(window.confidences))

    def _settle(self) -> None:
        assert self._outcome is not None
        self.state = State.SETTLING
        self._unopened = []
        self._open_joined()
        key = self._outcome.key
        self._missed = key not in self.cache
        if self.cache.finished(key):
            self._source = "hit"
        elif self.cache.passes(key):
            self._source = "partial"
        else:
            self._source = "jit" if self._drafts_late else "empty"

    def _open_joined(self) -> None:
        """The first root has had a pass before it could be compared with the others."""
        if self._joined is not None:
            (root, proposed, besides), self._joined = self._joined, None
            self.cache.open(root.key)
            self.advanced([root.key], proposed, *besides)

    @property
    def _queued(self) -> list[Key]:
        return [root.key for root in self._unopened]

    @property
    def _drafts_late(self) -> bool:
        """Whether proposals are still wanted once the outcome is known."""
        if self._outcome is not None and self._ends(self._outcome.key):
            return False
        return self.plan.fallback == "jit" and self.plan.length > 0 and self.plan.late != 0

    @property
    def _first(self) -> Root | None:
        """The outcome that the draft itself expects, before it has seen the window's rows; None: it has no idea, or is
        not asked."""
        plan = self.plan
        if not plan.beyond or not self._draft_budget or plan.length < 1:
            return None
        root = Root(len(plan.window), plan.beyond[0], 1.0)
        return None if self._ends(root.key) or not 0 <= root.token < plan.vocab_size else root

    @property
    def _wanted(self) -> int:
        """How many candidates of each row the draft is to name: one may be the window's own token, and what the tap
        makes of the draft's opinion needs more of it."""
        if not self._draft_budget:
            return 0
        return (2 if self.plan.predictor == "hybrid" and self.plan.tap else 1) * self.plan.kappa + 1

    def _both(self, tap: Candidates) -> Candidates:
        """The tap's opinion, with the draft's where it has one."""
        if self._draft is None:
            return tap
        self._pooled = self._pooling.pool(self._draft, tap)
        return self._pooled.candidates

    def _queue(self, candidates: Candidates, budget: int, fan_out: Sequence[int] | None = None) -> None:
        taken = {*self.cache.keys, *self._queued}
        found = roots(candidates, self.plan.window, self.plan.kappa, taken)
        self._unopened += allocate([root for root in found if not self._ends(root.key)], budget, fan_out)

    def _ends(self, outcome: Key) -> bool:
        """Whether the text ends with this outcome, or before it."""
        row, token = outcome
        return token in self.plan.stops or any(proposed in self.plan.stops for proposed in self.plan.window[:row])
