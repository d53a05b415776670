"""The speculative-streaming draft: several tokens a pass from one model in two segments."""

from mirror_mlx.draft.streaming.config import StreamingConfig
from mirror_mlx.draft.streaming.draft import StreamingDraft
from mirror_mlx.draft.streaming.model import StreamingModel
from mirror_mlx.draft.streaming.segments import MlxSegments, Segments
from mirror_mlx.draft.streaming.weights import from_dense, is_streaming, load, save

__all__ = [
    "MlxSegments", "Segments", "StreamingConfig", "StreamingDraft", "StreamingModel",
    "from_dense", "is_streaming", "load", "save",
]  # fmt: skip
