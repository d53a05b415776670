"""What of a converted draft stays on the host: embeddings, stream embeddings, the ids of a trimmed head."""

from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np

from mirror_mlx.draft.package.manifest import Shapes
from mirror_mlx.draft.streaming.weights import arrays
from mirror_mlx.errors import DraftError


@dataclass(frozen=True)
class Parts:
    """embeddings [G][V, c] and stream_embeddings [G][s, c] by track, fp16; head_ids [V'] or None; whether the head is
    factored."""

    embeddings: list[np.ndarray]
    stream_embeddings: list[np.ndarray]
    head_ids: np.ndarray | None
    factored: bool


def read(folder: Path, shapes: Shapes) -> Parts:
    """From the draft's own folder; nothing else of its weights is brought into memory. Raises DraftError."""
    weights = arrays(folder)
    prefixes = [""] if shapes.tracks == 1 else [f"tracks.{track}." for track in range(shapes.tracks)]
    width = shapes.hidden_size // shapes.tracks
    try:
        tables = [_table(weights, f"{prefix}model.embed_tokens", width) for prefix in prefixes]
        none = np.zeros((0, width), np.float16)
        streams = [
            _half(weights[f"stream_embeddings.{track}"]) if shapes.streams else none for track in range(shapes.tracks)
        ]
    except KeyError as missing:
        raise DraftError(f"{folder} has no weight {missing}: it is not the draft that was converted") from None
    ids = weights.get("head_ids")
    return Parts(tables, streams, None if ids is None else np.array(ids), "head.up" in weights)


def _table(weights: dict[str, mx.array], name: str, width: int) -> np.ndarray:
    table = weights[f"{name}.weight"]
    if f"{name}.scales" in weights:  # as mlx-lm quantises: so many 32-bit words hold the row
        scales, biases = weights[f"{name}.scales"], weights.get(f"{name}.biases")
        group, bits = width // scales.shape[-1], 32 * table.shape[-1] // width
        table = mx.dequantize(table, scales, biases, group_size=group, bits=bits)
    return _half(table)


def _half(array: mx.array) -> np.ndarray:
    return np.asarray(array.astype(mx.float16))  # the same memory
