"""What a loaded model says of itself: vocabulary and context."""

from typing import Any

import mlx.nn as nn


def context_length(model: nn.Module) -> int | None:
    """How many positions the model is made for, or None where it does not say."""
    args = _args(model)
    longest = args.get("max_position_embeddings")
    if not isinstance(longest, int) or longest <= 0:
        return None
    scaling = args.get("rope_scaling") or args.get("rope_parameters") or {}
    if isinstance(scaling, dict) and scaling.get("original_max_position_embeddings") == longest:
        # The length before scaling; dynamic kinds give no factor and have no fixed end.
        factor = scaling.get("factor")
        return int(longest * factor) if isinstance(factor, int | float) and factor >= 1 else None
    return longest


def _args(model: nn.Module) -> dict[str, Any]:
    """The model's arguments, with those of its text part on top where it has one."""
    found: dict[str, Any] = dict(vars(getattr(model, "args", None) or object()) if hasattr(model, "args") else {})
    text = found.get("text_config")
    if isinstance(text, dict):
        found |= text
    inner = getattr(getattr(model, "language_model", None), "args", None)
    if inner is not None:
        found |= vars(inner)
    return found
