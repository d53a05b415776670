"""The target's key-value cache, as mlx-lm's flags of the same names."""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models.cache import make_prompt_cache

from mirror_mlx.errors import UsageError


@dataclass(frozen=True)
class KVOptions:
    """How long the cache is, and from which length on it is quantised."""

    max_kv_size: int | None = None
    kv_bits: int | None = None
    kv_group_size: int = 64
    quantized_kv_start: int = 5000
    prefill_step_size: int = 2048

    def quantise(self, cache: list[Any]) -> None:
        """Quantise what has reached the length for it, in place."""
        maybe_quantize_kv_cache(cache, self.quantized_kv_start, self.kv_group_size, self.kv_bits)

    def check(self, model: nn.Module) -> None:
        """Raise UsageError where this model's cache cannot be quantised so."""
        if self.kv_bits is None:
            return
        cache = make_prompt_cache(model)
        try:
            model(mx.array([[0, 1]]), cache=cache)
            maybe_quantize_kv_cache(cache, 0, self.kv_group_size, self.kv_bits)
            mx.eval(model(mx.array([[0]]), cache=cache))
        except Exception as error:
            raise UsageError(
                f"kv_bits {self.kv_bits} with kv_group_size {self.kv_group_size} cannot be used with this model: "
                f"{str(error) or type(error).__name__}"
            ) from error
