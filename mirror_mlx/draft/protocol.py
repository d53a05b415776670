"""What a draft is to the runtime.

All calls come from one thread, the draft's own. The draft keeps a *trunk*, the tokens of the text so far, and in each
step *branches* that leave it: a branch for root (r, v) continues the trunk up to glued row r with the token v.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from mirror_mlx.messages import Candidates, Key, Root
from mirror_mlx.sampling import Sampling


@runtime_checkable
class Draft(Protocol):
    """One step, as the runtime calls it: glue, expand and advance any number of times, commit.

    Anything may be raised; the request then goes on as plain decoding. Proposals are never emitted unverified, so a
    wrong one costs speed, not correctness.
    """

    max_roots: int | None
    """More branches than this are not worth their time; None: no opinion."""

    def begin(self, sampling: Sampling) -> None:
        """A request begins. Proposals that use the same position-keyed noise agree with the target more often."""

    def prefill(self, tokens: Sequence[int]) -> None:
        """Append tokens to the trunk. Between steps only."""

    def glue(self, tokens: Sequence[int], candidates: int) -> Candidates | None:
        """Append the rows `[pending, *window]` to the trunk, provisionally.

        Returns up to `candidates` likely next tokens of each row, or None if 0 are asked for or it has none.
        """

    def expand(self, roots: Sequence[Root]) -> None:
        """Open a branch for each root. Roots it cannot continue may be left out."""

    def advance(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[int]]:
        """One pass over the branches of these roots: the next token or tokens of each."""

    def commit(self, rows: int) -> None:
        """The step is over: the first `rows` glued rows stay in the trunk, all branches go."""

    def rewind(self, length: int) -> None:
        """Cut the trunk back to its first `length` tokens. Between steps only."""

    def close(self) -> None:
        """Release everything. Idempotent."""


@runtime_checkable
class Streaming(Protocol):
    """What a draft with lookahead streams can be told besides: see `streaming`."""

    @property
    def trained_streams(self) -> int | None:
        """How many it has; None: it has none after all, like an instrument around another draft."""

    def use(self, streams: int | None, *, exact: bool = False, length: int | None = None) -> None:
        """How many streams to propose with (None: all), whether each pass checks those of the pass before, and how long
        a window is (None: any length)."""


@runtime_checkable
class Confident(Protocol):
    """What a draft says besides that knows how sure it is of what it proposes."""

    @property
    def confidences(self) -> Mapping[Key, Sequence[float]]:
        """How likely it finds each token of the last `advance`, as it samples: in [0, 1]."""


@runtime_checkable
class Lawful(Protocol):
    """What a draft says besides whose proposals can be accepted by rejection sampling: see `mirror_mlx.rejection`."""

    @property
    def laws(self) -> Mapping[Key, Sequence[Any]]:
        """What each token of the last `advance` was drawn from; none where it was not drawn."""


@runtime_checkable
class Guessing(Protocol):
    """What a draft says besides that has an idea of what follows its proposals."""

    @property
    def guesses(self) -> Mapping[Key, Sequence[int]]:
        """Of the last `advance` or `join`: tokens after those, which are no proposals yet."""


Joined = tuple[Candidates | None, Mapping[Key, Sequence[int]]]
"""What a `glue` says, and the `advance` that was made with it."""


@runtime_checkable
class Joining(Protocol):
    """What a draft can do besides where a pass over the rows of a window takes a branch for nothing."""

    def joins(self, rows: int) -> bool:
        """Whether one pass takes so many rows, and a branch."""

    def join(self, tokens: Sequence[int], candidates: int, root: Root, after: Sequence[int] = ()) -> Joined:
        """`glue`, `expand` of this root and `advance` over its branch, in one pass. after: what it is taken to begin
        with; proposals need not keep to that."""


@runtime_checkable
class Movable(Protocol):
    """What a draft says besides that can run on several hosts."""

    hosts: Sequence[str]
    """Their names, where it belongs first."""

    place: str
    """Where it is."""

    def move(self, host: str) -> None:
        """From now on there, with an unknown trunk: `begin`, `rewind` and `prefill` come next. Between steps only."""


@runtime_checkable
class Narrow(Protocol):
    """What a draft says besides whose passes may not take every branch."""

    @property
    def width(self) -> int | None:
        """How many branches one pass takes; None: all."""


def streaming(draft: Draft) -> Streaming | None:
    """The draft, if it has lookahead streams."""
    return draft if isinstance(draft, Streaming) and draft.trained_streams is not None else None


def joining(draft: Draft, rows: int) -> Joining | None:
    """The draft, if it takes so many rows and a branch in one pass."""
    return draft if isinstance(draft, Joining) and draft.joins(rows) else None


def width_of(draft: Draft) -> int | None:
    """How many branches one of its passes takes; None: all."""
    return draft.width if isinstance(draft, Narrow) else None
