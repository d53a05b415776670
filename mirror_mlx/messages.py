"""The plain data that passes between target, draft and engine. Integers and floats on the host, nothing of ours.

Rows: the verify input of one step is `[pending, *window]`, γ+1 rows. Row r holds the token at position n-1+r, where n
counts the committed tokens, pending included, and predicts position n+r.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Predictor = Literal["tap", "draft", "hybrid"]
Fallback = Literal["jit", "empty", "lookup", "recycle", "lookahead", "retrieve"]
Mode = Literal["auto", "mirror", "sd", "ar"]
FanOut = Literal["score", "geometric", "uniform"]
Source = Literal["hit", "partial", "jit", "rest", "lookup", "empty", "none"]

PREDICTORS: tuple[Predictor, ...] = ("tap", "draft", "hybrid")
FALLBACKS: tuple[Fallback, ...] = ("jit", "empty", "lookup", "recycle", "lookahead", "retrieve")
MODES: tuple[Mode, ...] = ("auto", "mirror", "sd", "ar")
HITS: tuple[Source, ...] = ("hit", "partial")
"""Sources of windows whose outcome was prepared for."""
FAN_OUTS: tuple[FanOut, ...] = ("score", "geometric", "uniform")
DRAFT_HOSTS = ("auto", "coreml", "coremltools", "reference", "mlx")

Key = tuple[int, int]
"""An outcome as a dictionary key: (accepted proposals, the target's own next token)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one verification ended: `accepted` proposals held, then the target's own `token` (correction or bonus)."""

    accepted: int
    token: int

    @property
    def key(self) -> Key:
        return self.accepted, self.token


@dataclass(frozen=True, slots=True)
class Root:
    """A predicted outcome; `score` is the estimated probability that it is the one."""

    row: int
    token: int
    score: float = 0.0

    @property
    def key(self) -> Key:
        return self.row, self.token


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a predictor knows of each of the γ+1 rows.

    tokens  [γ+1][m]  likely next tokens, best first
    probs   [γ+1][m]  their probabilities
    own     [γ]       the probability of the window's own token of that row
    """

    tokens: Sequence[Sequence[int]]
    probs: Sequence[Sequence[float]]
    own: Sequence[float]


def first_pass(length: int, each: int) -> int:
    """How many proposals of a window a draft's first pass makes, whose others make `each`: what those leave over. If
    that is all but one it makes that too: what is then known beyond the window is the outcome to prepare for first.

    >>> [first_pass(length, 3) for length in (1, 2, 3, 4, 7, 8)]
    [1, 3, 3, 1, 1, 3]
    """
    left = 1 + (length - 1) % each
    return left + spare(length, each)


def spare(length: int, each: int) -> int:
    """How many proposals such passes make beyond the window: 0 or 1."""
    return int(each > 1 and length % each == each - 1)


@dataclass(frozen=True, slots=True)
class Window:
    """The proposals for the next verification.

    source  "hit"      the outcome was a root and its rollout was finished
            "partial"  it was a root whose rollout was still under way
            "jit"      it was none: drafted after the outcome was known
            "rest"     drafted after a shorter text, which has gone on as proposed: what is left of it
            "lookup"   it was none, or there is no draft: proposed from what was seen before (`mirror_mlx.lookup`)
            "empty"    it was none, and nothing was drafted
            "none"     no draft took part
    confidences  how likely the draft finds each of them, in [0, 1], and then those that were cut off; empty: it does
                 not say
    laws         what each was drawn from, where proposals are accepted by rejection sampling; empty: they were given
    beyond       what the draft takes to follow it, if all of it holds, as far as it has an idea
    checked      passes after the first, which have proposals of streams to check, and how many of these held
    """

    tokens: tuple[int, ...] = ()
    source: Source = "none"
    confidences: tuple[float, ...] = ()
    laws: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    beyond: tuple[int, ...] = field(default=(), compare=False, repr=False)
    checked: tuple[int, int] = field(default=(0, 0), compare=False, repr=False)

    def cut(self, length: int) -> "Window":
        """Its first `length` proposals.

        >>> shorter = Window((5, 6, 7), "hit").cut(2)
        >>> shorter, shorter.beyond
        (Window(tokens=(5, 6), source='hit', confidences=()), (7,))
        """
        beyond = self.tokens[length:] + self.beyond
        return replace(self, tokens=self.tokens[:length], laws=self.laws[:length], beyond=beyond)

    def after(self, tokens: Sequence[int]) -> "Window | None":
        """What is left of it where the text has gone on so; None: it has gone on otherwise, or nothing is left.

        >>> Window((5, 6, 7), "jit").after([5]), Window((5, 6, 7), "jit").after([6])
        (Window(tokens=(6, 7), source='rest', confidences=()), None)
        """
        done = len(tokens)
        if self.tokens[:done] != tuple(tokens) or len(self.tokens) <= done:
            return None
        return Window(self.tokens[done:], "rest", self.confidences[done:], self.laws[done:], self.beyond)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the draft no longer takes part. kind: "died" (it raised), "late" (a deadline passed), "nonsense"."""

    kind: Literal["died", "late", "nonsense"]
    detail: str

    def __str__(self) -> str:
        return f"draft {self.kind}: {self.detail}"
