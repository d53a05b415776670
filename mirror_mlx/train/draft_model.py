"""The streaming draft to train: from scratch, or from a Qwen3 or Llama checkpoint; with a smaller head if wanted."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

from mirror_mlx.draft.streaming import StreamingConfig, StreamingModel
from mirror_mlx.draft.streaming.config import KEY
from mirror_mlx.draft.streaming.weights import from_dense
from mirror_mlx.errors import DraftError, UsageError
from mirror_mlx.train.architecture import ARCHITECTURE
from mirror_mlx.train.model import initialise


def scratch_config(target: dict[str, Any], shape: dict[str, int]) -> dict[str, Any]:
    """The config of a Qwen3 draft for a target: half its layers at half its width, but for what `shape` says."""
    text = target.get("text_config") or {}
    of = {**target, **text}
    heads = max(of.get("num_attention_heads", 8) // 2, 1)
    made = ARCHITECTURE | {
        "hidden_size": of["hidden_size"] // 2,
        "num_hidden_layers": max(of.get("num_hidden_layers", 4) // 2, 2),
        "num_attention_heads": heads,
        "num_key_value_heads": max(min(of.get("num_key_value_heads") or heads, heads) // 2, 1),
        "head_dim": of.get("head_dim") or of["hidden_size"] // (2 * heads),
        "intermediate_size": 3 * of["hidden_size"] // 2,
        "max_position_embeddings": of.get("max_position_embeddings", 2048),
        "vocab_size": of["vocab_size"],
    }
    for name in ("eos_token_id", "pad_token_id"):
        if name in of:
            made[name] = of[name]
    return made | shape


def build(base: dict[str, Any], own: dict[str, Any], seed: int) -> StreamingModel:
    """A new model with random weights. `own` are the keys of the config's `mirror` part. Raises UsageError."""
    try:
        mx.random.seed(seed)
        model = StreamingModel(StreamingConfig.of({**base, KEY: own}))
    except (DraftError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"no draft can be made of this configuration: {error}") from None
    initialise(model, base["num_hidden_layers"])
    mx.eval(model.parameters())
    return model


def continued(folder: Path, boundary: int | None, own: dict[str, Any], seed: int) -> StreamingModel:
    """The model in `folder`, in float32, with streams that are still to be trained."""
    dense = from_dense(folder, boundary=boundary, streams=own["streams"])
    mx.random.seed(seed)
    if own["streams"]:
        dense.stream_embeddings = [0.02 * mx.random.normal(rows.shape) for rows in dense.stream_embeddings]
    fresh = [
        (name, value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value)
        for name, value in tree_flatten(dense.parameters())
    ]
    dense.update(tree_unflatten(fresh))
    mx.eval(dense.parameters())
    return dense


def with_head(model: StreamingModel, counts: np.ndarray, rank: int | None, size: int | None) -> StreamingModel:
    """The same model with its head trimmed to the `size` tokens that `counts` [V] has most of, and factored to `rank`
    by singular values. None leaves either as it is."""
    if rank is None and size is None:
        return model
    config = model.config
    own = {"boundary": config.boundary, "streams": config.streams, "tracks": config.tracks,
           "head_rank": rank, "head_size": size}  # fmt: skip
    try:
        made = StreamingModel(StreamingConfig.of({**config.base, KEY: own}))
    except DraftError as error:
        raise UsageError(str(error)) from None
    made.update({name: value for name, value in model.parameters().items() if name != "head"})
    rows = [_head_rows(track) for track in model.tracks]
    if size is not None:
        kept = np.sort(np.argsort(-counts, kind="stable")[:size])
        made.head_ids = mx.array(kept.astype(np.uint32))
        rows = [matrix[made.head_ids] for matrix in rows]
    if rank is None:
        made.head.rows = rows
    else:
        left, values, right = np.linalg.svd(np.array(mx.concatenate(rows, axis=1)), full_matrices=False)
        root = np.sqrt(values[:rank])
        made.head.up = mx.array(left[:, :rank] * root)
        made.head.down = mx.split(mx.array(root[:, None] * right[:rank]), len(rows), axis=1)
    mx.eval(made.parameters())
    return made


def _head_rows(track: Any) -> mx.array:
    head: nn.Module = track.lm_head if "lm_head" in track else track.model.embed_tokens
    return head.weight.astype(mx.float32)
