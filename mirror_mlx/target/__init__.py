"""The model whose output counts: any mlx-lm model, unmodified, with a tap and exact rollback."""

from mirror_mlx.target.tap import TapAdapter
from mirror_mlx.target.target import Target

__all__ = ["TapAdapter", "Target"]
