"""What a streaming draft is made of: the keys of its config.json."""

from dataclasses import dataclass, field
from typing import Any

from mirror_mlx.errors import DraftError

TYPES = ("qwen3", "llama", "qwen2", "mistral")
"""The `model_type`s of mlx-lm whose blocks a streaming draft may be built of."""
TRACKS = (1, 2, 4, 8)
KEY = "mirror"


@dataclass(frozen=True)
class StreamingConfig:
    """A decoder cut into two segments, with lookahead streams in the second.

    base       the model's own keys, as mlx-lm knows them, at full width
    boundary   how many layers the first segment has
    streams    lookahead streams the model is trained with; a pass proposes 1 + streams tokens
    tracks     G parallel tracks of 1/G of the width, with one exchange after each segment; 1: a dense model
    head_rank  rank of a factored head, None: the model's own
    head_size  rows of a head trimmed to the most frequent tokens, None: all; which ones is part of the weights
    """

    base: dict[str, Any] = field(repr=False)
    boundary: int
    streams: int
    tracks: int = 1
    head_rank: int | None = None
    head_size: int | None = None

    @classmethod
    def of(cls, config: dict[str, Any]) -> "StreamingConfig":
        """From the contents of config.json, checked. Raises DraftError."""
        own = config.get(KEY)
        if not isinstance(own, dict):
            raise DraftError(f"config.json has no '{KEY}' part: this is no streaming draft")
        known = {"boundary", "streams", "tracks", "head_rank", "head_size"}
        if unknown := own.keys() - known:
            raise DraftError(f"config.json: '{KEY}' has unknown keys: {', '.join(sorted(unknown))}")
        base = {key: value for key, value in config.items() if key != KEY}
        try:
            made = cls(base, **own)
        except TypeError:
            raise DraftError(f"config.json: '{KEY}' needs boundary and streams") from None
        made.check()
        return made

    def to_json(self) -> dict[str, Any]:
        """The contents of config.json."""
        own = {"boundary": self.boundary, "streams": self.streams, "tracks": self.tracks,
               "head_rank": self.head_rank, "head_size": self.head_size}  # fmt: skip
        return self.base | {KEY: {name: value for name, value in own.items() if value is not None}}

    def check(self) -> None:
        """Raise DraftError where the keys cannot be, or contradict each other."""
        kind, layers = self.base.get("model_type"), self.base.get("num_hidden_layers", 0)
        if kind not in TYPES:
            raise DraftError(f"model_type is {kind!r}: a streaming draft is built of {', '.join(TYPES)}")
        if any("sliding" in kind for kind in self.base.get("layer_types") or ()):
            raise DraftError("a streaming draft cannot have sliding-window layers")
        if not _is_count(self.boundary) or not 1 <= self.boundary < layers:
            raise DraftError(
                f"the segment boundary is {self.boundary}: with {layers} layers it must be in 1 … {layers - 1}"
            )
        if not isinstance(self.streams, int) or not 0 <= self.streams <= 15:
            raise DraftError(f"streams is {self.streams}: it must be in 0 … 15")
        if self.tracks not in TRACKS:
            raise DraftError(f"tracks is {self.tracks}: choose from {', '.join(map(str, TRACKS))}")
        for name in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"):
            if self.base.get(name, 0) % self.tracks:
                raise DraftError(f"{name} is {self.base[name]}: {self.tracks} tracks cannot share it equally")
        for name in ("head_rank", "head_size"):
            value = getattr(self, name)
            if value is not None and not _is_count(value):
                raise DraftError(f"{name} is {value}: it must be 1 or more")
        if self.head_size is not None and self.head_size > self.base["vocab_size"]:
            raise DraftError(f"head_size is {self.head_size}: the vocabulary has {self.base['vocab_size']}")

    @property
    def track(self) -> dict[str, Any]:
        """The configuration of one track, as mlx-lm reads it."""
        shared = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
        heads = {"head_dim": self.head_dim, "num_key_value_heads": self.base.get("num_attention_heads")}
        base = heads | self.base
        return base | {name: base[name] // self.tracks for name in shared}

    @property
    def head_dim(self) -> int:
        return int(self.base.get("head_dim") or self.base["hidden_size"] // self.base["num_attention_heads"])

    @property
    def hidden_size(self) -> int:
        return int(self.base["hidden_size"])

    @property
    def context_length(self) -> int | None:
        return self.base.get("max_position_embeddings")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
