"""What the engine's thread hands to the draft's: one ticket a step, and jobs about it."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from mirror_mlx.messages import Candidates, Outcome, Window
from mirror_mlx.rounds import Round
from mirror_mlx.sampling import Sampling
from mirror_mlx.trace import Trace, clock


class Pass(NamedTuple):
    """Over so many branches, of which it was the first for `fresh` and the second for `second`, and so many of the
    trunk's rows that no pass had carried; over these alone: glue. began: when the draft was free for it; ns: until it
    is free for the next. late: the outcome was known when it began."""

    branches: int
    fresh: int
    second: int
    rows: int
    began: int
    ns: int
    late: bool


@dataclass(slots=True)
class Ticket:
    """One step in the draft's hands."""

    step: int
    round: Round
    tokens: Sequence[int]
    count: int
    reply: "Future[Window]" = field(default_factory=Future)
    outcome: Outcome | None = None
    roots: int = 0  # outcomes prepared for when the real one was known
    cancelled: bool = False
    began: int = field(default_factory=clock)
    known: int = 0  # ns after that the outcome was
    passes: list[Pass] = field(default_factory=list)


# Jobs, in the order the engine's thread posts them.


@dataclass(frozen=True, slots=True)
class Begin:
    sampling: Sampling
    trace: Trace
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class Start:
    ticket: Ticket


@dataclass(frozen=True, slots=True)
class Tapped:
    ticket: Ticket
    candidates: Candidates
    posted: int


@dataclass(frozen=True, slots=True)
class Resolved:
    ticket: Ticket


@dataclass(frozen=True, slots=True)
class Wake:
    """Look at the flags."""


@dataclass(frozen=True, slots=True)
class Close:
    pass


@dataclass(frozen=True, slots=True)
class Use:
    """Between two steps: propose with so many streams, at their word or checked, for windows of this length; on this
    host."""

    streams: int
    exact: bool
    length: int | None
    host: str = ""


Job = Begin | Start | Tapped | Resolved | Use | Wake | Close
