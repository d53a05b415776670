"""The two segments as something that can be called: the seam between the draft and the device it runs on."""

from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from mirror_mlx.draft.pieces import Pieces
from mirror_mlx.draft.streaming.attention import block, rotated
from mirror_mlx.draft.streaming.layout import Columns, Layout
from mirror_mlx.draft.streaming.model import StreamingModel
from mirror_mlx.draft.streaming.predictions import Full, Predictions

_STEP = 256  # slots by which a buffer grows
_CPU_ROWS = 96  # a core's passes are no faster with fewer rows, and soon slower with more


class Segments(Protocol):
    """A streaming draft on some device, with its key-value slots."""

    vocab_size: int
    streams: int
    context_length: int | None
    columns: tuple[int, int] | None
    """How many rows of the first segment and of the second one pass takes; None: any number."""
    rows: int | None
    """Rows of the second segment beyond which a pass takes longer in proportion; None: that is not so, or not known."""

    @property
    def used(self) -> int:
        """Slots in use; the next main gets this one."""

    @property
    def full(self) -> bool:
        """No slots are left for another pass."""

    def prefill(self, tokens: Sequence[int]) -> None:
        """Append tokens to the trunk; there must be no branches."""

    def run(self, layout: Layout, wanted: Sequence[int]) -> Predictions:
        """One pass. Says what follows these rows of the second segment; the mains keep their slots."""

    def cut(self, length: int) -> None:
        """Forget all slots from `length` on."""

    def close(self) -> None:
        """Release everything. Idempotent."""


class MlxSegments:
    """The MLX module itself, on the stream of whoever calls."""

    def __init__(self, model: StreamingModel) -> None:
        config = model.config
        self.vocab_size: int = config.base["vocab_size"]
        self.streams = config.streams
        self.context_length = config.context_length
        self.columns = None
        self.rows = _CPU_ROWS if mx.default_device() == mx.Device(mx.cpu) else None
        self.full = False
        self.model = model
        self._layers = [model.layers(1), model.layers(2)]
        self._pieces = Pieces([layer for segment in self._layers for track in segment for layer in track])
        self._buffers = [[[_Slots() for _ in track] for track in segment] for segment in self._layers]
        self._used = 0

    @property
    def used(self) -> int:
        return self._used

    def prefill(self, tokens: Sequence[int], step: int = 2048) -> None:
        for start in range(0, len(tokens), step):
            chunk = list(tokens[start : start + step])
            count = len(chunk)
            positions = np.arange(self._used, self._used + count, dtype=np.int32)
            mask = np.arange(self._used + count)[None] <= positions[:, None]
            columns = Columns(positions, mask)
            self.run(Layout(self._used, chunk, columns, columns, np.arange(count), np.zeros(count, np.int32)), [])

    def run(self, layout: Layout, wanted: Sequence[int]) -> Full:
        model = self.model
        with self._pieces:
            xs = self._segment(0, model.embed(mx.array([layout.tokens])), layout.first, layout)
            xs = model.exchange(xs)
            if len(layout.stream) > len(layout.tokens):
                xs = [self._with_streams(i, x, layout) for i, x in enumerate(xs)]
            xs = self._segment(1, xs, layout.second, layout)
            self._used = layout.used + len(layout.tokens)
            if not wanted:
                mx.eval(xs, self._states())
                return Full(mx.zeros((0, self.vocab_size)), None, self.vocab_size)
            rows = mx.array(list(wanted))
            logits = model.logits([x[:, rows] for x in xs])[0]
            mx.eval(logits, self._states())
        return Full(logits, model.token_ids, self.vocab_size)

    def cut(self, length: int) -> None:
        self._used = min(self._used, length)

    def close(self) -> None:
        self._pieces.close()
        self._buffers = []

    def _with_streams(self, track: int, x: mx.array, layout: Layout) -> mx.array:
        embeddings = self.model.stream_embeddings[track]
        count = len(layout.tokens)
        added = embeddings[mx.array(layout.stream[count:] - 1)]
        return mx.concatenate([x, x[:, mx.array(layout.source[count:])] + added], axis=1)

    def _segment(self, number: int, xs: list[mx.array], columns: Columns, layout: Layout) -> list[mx.array]:
        positions, mask = mx.array(columns.positions), mx.array(columns.mask)
        out = []
        for x, layers, buffers in zip(xs, self._layers[number], self._buffers[number], strict=True):
            for layer, buffer in zip(layers, buffers, strict=True):
                attend = _attend(buffer, layout.used, mask, layer.self_attn.scale)
                x = block(layer, x, lambda rope, heads: rotated(rope, heads, positions), attend)
            out.append(x)
        return out

    def _states(self) -> list[mx.array]:
        return [state for segment in self._buffers for track in segment for slots in track for state in slots.arrays]


class _Slots:
    """Keys and values of one block, [1, K, slots, D] each."""

    def __init__(self) -> None:
        self.arrays: list[mx.array] = []

    def write(self, at: int, fresh: tuple[mx.array, mx.array]) -> list[mx.array]:
        """Write rows at slot `at`; returns keys and values of all slots up to their end."""
        end = at + fresh[0].shape[2]
        if not self.arrays or end > self.arrays[0].shape[2]:
            room = -(-end // _STEP) * _STEP
            old = self.arrays
            self.arrays = [mx.zeros((*new.shape[:2], room, new.shape[3]), new.dtype) for new in fresh]
            for buffer, kept in zip(self.arrays, old, strict=False):
                buffer[..., :at, :] = kept[..., :at, :]
        for buffer, new in zip(self.arrays, fresh, strict=True):
            buffer[..., at:end, :] = new
        return [buffer[..., :end, :] for buffer in self.arrays]


def _attend(slots: _Slots, at: int, mask: mx.array, scale: float) -> Any:
    def attend(queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
        seen, told = slots.write(at, (keys, values))
        return mx.fast.scaled_dot_product_attention(queries, seen, told, scale=scale, mask=mask)

    return attend
