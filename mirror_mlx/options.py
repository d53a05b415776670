"""What an engine can be told, checked once."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from mirror_mlx.errors import UsageError
from mirror_mlx.messages import FALLBACKS, FAN_OUTS, MODES, PREDICTORS, Fallback, FanOut, Mode, Predictor

_LONGEST_WAIT = 86_400  # seconds: a day, and none that overflows where it is counted in nanoseconds


@dataclass(frozen=True, slots=True)
class Options:
    """Options of `mirror_mlx.Engine`.

    mode              mirror: the draft prepares windows while the target verifies; sd: the same draft, serially;
                      ar: plain decoding; auto: what is fastest here, found out by measuring
    predictor         who picks the outcomes to prepare for: tap (the target's middle layer), draft, or hybrid: both,
                      or one of them while that is measured to be faster
    num_draft_tokens  γ, proposals in a window; in mode auto at most so many; None: 7, and in mode auto up to 15
    kappa             κ, outcomes prepared for each row and predictor
    max_roots         all outcomes of a step together
    exit_layer        after how many layers the tap reads; None: half of them
    fallback          on a miss: jit drafts a window while the target waits, empty verifies one plain token; lookup,
                      recycle, lookahead and retrieve propose what followed before (`mirror_mlx.lookup`), at no cost
    datastore         the file that retrieve looks in: see `mirror-mlx datastore`
    adaptive          windows grow by two after one that held, and shrink by one after another, up to num_draft_tokens
                      (as assisted generation in transformers)
    accept            match: a proposal holds if it equals the target's own token, greedy or sampled; reject: where
                      tokens are sampled, by rejection sampling, which keeps the target's law, not its text
    fan_out           of the draft's own outcomes, how many of each row: by their score; geometric, from how often each
                      place held one (SSD, theorem 12); or uniform
    downweight        with accept reject: by how much a draft avoids what outcomes are prepared for (SSD, definition
                      14), in (0, 1]; 1: not at all
    draft_timeout     seconds until a silent draft is given up for the request
    streams           lookahead streams of a streaming draft; None: as many as it was trained with; 0: none
    stream_mode       trust: a streaming draft's streams are proposals as they are; exact: its next pass checks them
    trace             a file to which each run's timeline is written (`engine.trace` has the last one in any case)
    max_kv_size, kv_bits, kv_group_size, quantized_kv_start, prefill_step_size   as in mlx-lm
    """

    mode: Mode = "mirror"
    predictor: Predictor = "hybrid"
    num_draft_tokens: int | None = None
    kappa: int = 8
    max_roots: int = 64
    exit_layer: int | None = None
    fallback: Fallback = "jit"
    datastore: str | Path | None = None
    adaptive: bool = False
    accept: Literal["match", "reject"] = "match"
    fan_out: FanOut = "score"
    downweight: float = 1.0
    draft_timeout: float = 2.0
    streams: int | None = None
    stream_mode: Literal["trust", "exact"] = "trust"
    trace: str | Path | None = None
    max_kv_size: int | None = None
    kv_bits: int | None = None
    kv_group_size: int = 64
    quantized_kv_start: int = 5000
    prefill_step_size: int = 2048

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Options":
        """Options from keyword arguments. Raises UsageError for one that is unknown or out of range."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise UsageError(f"there is no option '{name}': choose from {', '.join(known)}")
        return cls(**given)

    @property
    def length(self) -> int:
        """Proposals in a window where its length is not chosen."""
        return 7 if self.num_draft_tokens is None else self.num_draft_tokens

    def __post_init__(self) -> None:
        _one_of("mode", self.mode, MODES)
        _one_of("predictor", self.predictor, PREDICTORS)
        _one_of("fallback", self.fallback, FALLBACKS)
        _one_of("accept", self.accept, ("match", "reject"))
        _one_of("fan_out", self.fan_out, FAN_OUTS)
        if not 0 < self.downweight <= 1:
            raise UsageError(f"downweight is {self.downweight}: it must be in (0, 1]")
        if self.downweight < 1 and self.accept == "match":
            raise UsageError("downweight needs accept='reject': where tokens must match it only loses proposals")
        _at_least_one("num_draft_tokens", self.length)
        for name in ("kappa", "max_roots", "prefill_step_size", "kv_group_size"):
            _at_least_one(name, getattr(self, name))
        if self.length > 128:
            raise UsageError(f"num_draft_tokens is {self.num_draft_tokens}: it must be in 1 … 128")
        for name in ("max_kv_size", "kv_bits"):
            if getattr(self, name) is not None:
                _at_least_one(name, getattr(self, name))
        if self.max_kv_size is not None and self.max_kv_size < 8:
            raise UsageError(
                f"max_kv_size is {self.max_kv_size}: it must be 8 or more, since the first 4 are always kept"
            )
        if self.kv_bits is not None and self.max_kv_size is not None:
            raise UsageError("kv_bits and max_kv_size exclude each other: mlx-lm cannot quantise a rotating cache")
        _one_of("stream_mode", self.stream_mode, ("trust", "exact"))
        if self.streams is not None and self.streams < 0:
            raise UsageError(f"streams is {self.streams}: it must be 0 or more")
        if not 0 < self.draft_timeout <= _LONGEST_WAIT:
            raise UsageError(
                f"draft_timeout is {self.draft_timeout}: it must be more than 0 and at most {_LONGEST_WAIT} seconds"
            )


def _one_of(name: str, given: object, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise UsageError(f"{name} is {given!r}: choose from {', '.join(allowed)}")


def _at_least_one(name: str, given: object) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        hint = ", or use mode='ar' for plain decoding" if name == "num_draft_tokens" else ""
        raise UsageError(f"{name} is {given}: it must be 1 or more{hint}")
