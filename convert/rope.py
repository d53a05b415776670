"""How far a position turns each pair of a head: the model's rotary embedding as D/2 numbers."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models.rope_utils import Llama3RoPE

from mirror_mlx.errors import DraftError

_POSITIONS = (0, 1, 7, 100, 1000)


def frequencies(rope: Any, head_dim: int) -> tuple[float, ...]:
    """[D/2] radians a position, of mlx-lm's module. Raises DraftError for a kind that packages cannot turn."""
    if isinstance(rope, Llama3RoPE):
        found = 1.0 / np.array(rope._freqs.astype(mx.float32), dtype=np.float64)
        fits = rope.dims == head_dim and not rope.traditional
    elif isinstance(rope, nn.RoPE):
        found = rope.scale * float(rope.base) ** (-np.arange(0, rope.dims, 2, dtype=np.float64) / rope.dims)
        fits = rope.dims == head_dim and not rope.traditional
    else:
        raise DraftError(f"the draft's rotary embedding is {type(rope).__name__}: packages take none, linear or llama3")
    if not fits or not _agrees(rope, found):
        raise DraftError("the draft's rotary embedding turns pairs or a part of a head: packages rotate whole halves")
    return tuple(found.tolist())


def _agrees(rope: Any, found: np.ndarray) -> bool:
    """Whether turning by these numbers is what the module does."""
    x = np.random.default_rng(0).standard_normal((1, 1, 1, 2 * len(found))).astype(np.float32)
    half = np.concatenate([-x[..., len(found) :], x[..., : len(found)]], axis=-1)
    for position in _POSITIONS:
        angles = np.concatenate([position * found] * 2)
        expected = np.array(rope(mx.array(x), offset=position))
        if np.abs(x * np.cos(angles) + half * np.sin(angles) - expected).max() > 2e-3:
            return False
    return True
