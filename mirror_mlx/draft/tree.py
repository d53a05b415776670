"""Many branches in one forward of an unmodified mlx-lm model.

All branches of a step are rows of one input [1, R]. They share one key-value buffer: the trunk, then one slot for each
row ever computed in the step. A row sees the trunk up to where its branch leaves it and its own branch's slots, by
mask, and is rotated to its own position, so no prefix is copied. Between steps only the trunk's slots are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from mirror_mlx.interpose import interpose, release


@dataclass(slots=True)
class Row:
    """One row of a forward: its token, its position, how many trunk slots it sees, and its branch's slots."""

    token: int
    position: int
    trunk: int
    slots: list[int] = field(default_factory=list)


class TreeCache(KVCache):
    """One layer's keys and values for all branches. Where the rows go and what they see is said by `place`."""

    def __init__(self, window: int | None = None) -> None:
        self.window = window
        self.positions: mx.array | None = None
        self.used = 0
        self._mask: np.ndarray | None = None
        self._distance: np.ndarray | None = None
        super().__init__()

    @property  # type: ignore[override]
    def offset(self) -> Any:
        return self.used if self.positions is None else self.positions

    @offset.setter
    def offset(self, value: int) -> None:
        self.used = value

    def place(self, positions: mx.array | None, mask: np.ndarray | None, distance: np.ndarray | None) -> None:
        """positions [R]; mask [R, used+R]: which slots a row sees; distance: how far back each slot's position is."""
        self.positions, self._mask, self._distance = positions, mask, distance

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        end = self.used + keys.shape[2]
        if self.keys is None or end > self.keys.shape[2]:
            room = -(-end // self.step) * self.step - self.used
            self.keys = self._grown(self.keys, keys, room)
            self.values = self._grown(self.values, values, room)
        self.keys[..., self.used : end, :] = keys
        self.values[..., self.used : end, :] = values
        self.used = end
        return self.keys[..., :end, :], self.values[..., :end, :]

    def _grown(self, buffer: mx.array | None, like: mx.array, room: int) -> mx.array:
        fresh = mx.zeros((*like.shape[:2], room, like.shape[3]), like.dtype)
        return fresh if buffer is None else mx.concatenate([buffer[..., : self.used, :], fresh], axis=2)

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None) -> Any:  # noqa: N803
        window = window_size or self.window
        if self._mask is None:
            if window is not None and self.used + N > window:
                rows = np.arange(self.used, self.used + N)[:, None] - np.arange(self.used + N)[None]
                return mx.array((rows >= 0) & (rows < window))
            return super().make_mask(N, return_array=return_array, window_size=None)
        if window is None:
            return mx.array(self._mask)
        return mx.array(self._mask & (self._distance < window))


class Tree:
    """A draft model with its trunk and branches. Raises ValueError for a model whose state is not keys and values."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._cache = [_tree_cache(entry) for entry in make_prompt_cache(model)]
        self._positions = np.zeros(0, np.int32)  # of each slot
        self._ropes = [module for name, module in model.named_modules() if _is_rope(name, module)]
        for rope in self._ropes:
            interpose(rope, _rotate_rows)

    def close(self) -> None:
        for rope in self._ropes:
            release(rope, _rotate_rows)
        self._ropes, self._cache = [], []

    @property
    def used(self) -> int:
        """Slots in use; the next row gets this one."""
        return len(self._positions)

    def prefill(self, tokens: Sequence[int], step: int = 2048) -> None:
        """Append tokens to the trunk; there must be no branches."""
        for start in range(0, len(tokens), step):
            chunk = list(tokens[start : start + step])
            self._model(mx.array([chunk]), cache=self._cache)
            mx.eval([(entry.keys, entry.values) for entry in self._cache])
            self._positions = np.append(self._positions, np.arange(self.used, self.used + len(chunk), dtype=np.int32))

    def forward(self, rows: Sequence[Row]) -> mx.array:
        """Logits [R, V] of rows. Row i is written to slot `used + i`; `slots` may name rows of the same forward."""
        used, count = self.used, len(rows)
        positions = np.array([row.position for row in rows], np.int32)
        mask = np.arange(used + count)[None] < np.array([row.trunk for row in rows])[:, None]
        for i, row in enumerate(rows):
            mask[i, row.slots] = True
            mask[i, used + i] = True
        slots = np.append(self._positions, positions)
        distance = positions[:, None] - slots[None]
        placed = mx.array(positions)
        for entry in self._cache:
            entry.place(placed, mask, distance)
        try:
            logits = self._model(mx.array([[row.token for row in rows]]), cache=self._cache)
        finally:
            for entry in self._cache:
                entry.place(None, None, None)
        self._positions = slots
        return logits[0]

    def cut(self, length: int) -> None:
        """Forget all slots from `length` on."""
        for entry in self._cache:
            entry.used = min(entry.used, length)
        self._positions = self._positions[:length]


def _tree_cache(entry: Any) -> TreeCache:
    if type(entry) is KVCache:
        return TreeCache()
    if type(entry) is RotatingKVCache and entry.keep == 0:
        return TreeCache(window=entry.max_size)
    raise ValueError(f"{type(entry).__name__} is not a plain key-value cache")


def _is_rope(name: str, module: nn.Module) -> bool:
    leaf = name.rsplit(".", 1)[-1].lower()
    return isinstance(module, nn.RoPE) or "rope" in leaf or "rotary" in leaf


def _rotate_rows(module: nn.Module, call: Any, x: mx.array, *args: Any, **kwargs: Any) -> mx.array:
    """Rotate x [1, H, R, D] to the R positions of a `TreeCache`: as a batch of R rows, each with its own offset."""
    offset = kwargs.get("offset", args[0] if args else 0)
    if not isinstance(offset, mx.array) or offset.ndim != 1 or x.shape[0] != 1:
        return call(x, *args, **kwargs)
    return call(x.swapaxes(0, 2), *args, **kwargs).swapaxes(0, 2)
