"""How a draft is converted: what a user may choose, checked before anything is read or written."""

from dataclasses import dataclass

from mirror_mlx.draft.package.manifest import PRECISIONS, WRITES, Precision, Write
from mirror_mlx.draft.streaming import StreamingConfig
from mirror_mlx.errors import DraftError, UsageError

MAX_SIZE = 16_384
"""The Neural Engine's largest size of one axis."""
MAX_GROUPS = 2_048
"""Rows of a bucket: whole numbers up to here are exact in float16."""
MAX_BUCKETS = MAX_SIZE // 2
"""So that a part of the head, which has a row of each, stays below that size."""
_COLUMNS = 32


@dataclass(frozen=True)
class Build:
    """See the module.

    first, second, prefill  columns of a rollout pass before and after the boundary, and of a prefill pass
    context                 key-value slots
    num_draft_tokens        γ it is sized for
    write                   rows get into the slots by "slice" (slice_update) or "blend" (one-hot matmul)
    stateful                the slots are Core ML state; else inputs and outputs
    buckets                 K, as asked for; `buckets_for` says what it becomes
    max_bytes               weights of one package
    boundary                where an ordinary model is cut; None: half
    """

    first: int = 32
    second: int = 64
    prefill: int = 64
    context: int = 1024
    num_draft_tokens: int = 7
    precision: Precision = "float16"
    write: Write = "slice"
    stateful: bool = True
    buckets: int = 256
    max_bytes: float = 1.0e9
    boundary: int | None = None

    def check(self) -> None:
        """Raise UsageError for what cannot be chosen."""
        for name in ("first", "second", "prefill", "context"):
            value = getattr(self, name)
            if value < _COLUMNS or value % _COLUMNS or value > MAX_SIZE:
                raise UsageError(
                    f"{name} is {value}: it must be a multiple of {_COLUMNS}, from {_COLUMNS} to {MAX_SIZE}"
                )
        if self.second < self.first:
            raise UsageError(
                f"second is {self.second} and first {self.first}: the second segment has all columns of the first"
            )
        if self.num_draft_tokens < 1:
            raise UsageError(f"num_draft_tokens is {self.num_draft_tokens}: it must be 1 or more")
        # A window's rows and one pass stay; the pass after them writes all its columns.
        least = max(self.num_draft_tokens + 1 + self.first + self.second, self.prefill)
        if self.context < least:
            raise UsageError(
                f"context is {self.context}: a window of {self.num_draft_tokens} and passes of {self.first} and "
                f"{self.second} columns need {least} slots, and the text comes on top"
            )
        for name, value, allowed in (("precision", self.precision, PRECISIONS), ("write", self.write, WRITES)):
            if value not in allowed:
                raise UsageError(f"{name} is {value!r}: choose from {', '.join(allowed)}")
        if not 1 <= self.buckets <= MAX_BUCKETS:
            raise UsageError(f"buckets is {self.buckets}: it must be in 1 … {MAX_BUCKETS}")
        if self.max_bytes <= 0:
            raise UsageError(f"max_bytes is {self.max_bytes}: it must be more than 0")

    def check_draft(self, config: StreamingConfig) -> None:
        """Raise DraftError for a draft whose sizes the Neural Engine or its packages cannot have."""
        base, tracks = config.base, config.tracks
        if config.head_dim % 32:
            raise DraftError(
                f"head_dim is {config.head_dim}: Core ML state is only right for a multiple of 32 "
                "(github.com/apple/coremltools/issues/2631): this draft runs with --draft-host mlx"
            )
        if base.get("rope_traditional"):
            raise DraftError("rope_traditional is set: packages rotate halves, not pairs")
        window = base.get("sliding_window")
        if window and base.get("use_sliding_window", True) and window < self.context:
            raise DraftError(
                f"sliding_window is {window}, below the context {self.context}: packages have full attention"
            )
        for name in ("hidden_size", "intermediate_size"):
            if base[name] // tracks > MAX_SIZE:
                raise DraftError(f"{name} is {base[name]}: a track of a package has at most {MAX_SIZE}")

    def buckets_for(self, rows: int) -> int:
        """K for a head of so many rows: at most the rows, and at least enough for `MAX_GROUPS` rows in each.

        >>> Build().buckets_for(151_936), Build().buckets_for(100), Build(buckets=8).buckets_for(32_000)
        (256, 64, 16)
        """
        count = self.buckets
        while count > rows:
            count = 1 << (rows.bit_length() - 1)
        while -(-rows // count) > MAX_GROUPS and count * 2 <= MAX_BUCKETS:
            count *= 2
        return count
