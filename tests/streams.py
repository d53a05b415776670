"""Tiny streaming drafts with random weights."""

from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten
from models import CONFIG

from mirror_mlx.draft.streaming import StreamingConfig, StreamingModel
from mirror_mlx.draft.streaming.config import KEY

BASE = CONFIG | {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
SHAPES: dict[str, dict[str, Any]] = {
    "dense": {},
    "two tracks": {"tracks": 2},
    "low rank": {"head_rank": 8},
    "trimmed": {"head_size": 100},
    "all of it": {"head_rank": 8, "head_size": 50, "tracks": 2, "streams": 2, "boundary": 1},
}
"""Keys of the `mirror` part."""


def tiny(own: dict[str, Any] | None = None, *, seed: int = 0, **base: Any) -> StreamingModel:
    """A model of `BASE` with random weights; `own` are keys of the `mirror` part."""
    config = {**BASE, **base, KEY: {"boundary": 2, "streams": 3, **(own or {})}}
    return randomise(StreamingModel(StreamingConfig.of(config)), seed)


def randomise(model: StreamingModel, seed: int = 0) -> StreamingModel:
    weights = tree_flatten(model.parameters())
    keys = mx.random.split(mx.random.key(seed), len(weights))
    fresh = [
        (name, value if "norm" in name or value.dtype == mx.uint32 else 0.3 * mx.random.normal(value.shape, key=key))
        for (name, value), key in zip(weights, keys, strict=True)
    ]
    if model.config.head_size:
        ids = mx.sort(mx.random.permutation(model.config.base["vocab_size"], key=mx.random.key(seed)))
        fresh = [(n, ids[: v.size].astype(mx.uint32) if n == "head_ids" else v) for n, v in fresh]
    model.update(tree_unflatten(fresh))
    mx.eval(model.parameters())
    return model


def agreeing(vocab_size: int) -> StreamingModel:
    """A model that often agrees with itself: streams that have learnt nothing are never right."""
    model = tiny(vocab_size=vocab_size)
    model.stream_embeddings = [0.02 * rows for rows in model.stream_embeddings]
    for layer in model.tracks[0].model.layers[2:]:
        layer.self_attn.o_proj.weight = 0.1 * layer.self_attn.o_proj.weight
    mx.eval(model.parameters())
    return model
