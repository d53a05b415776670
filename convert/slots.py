"""The key-value slots of a package, in its graph: state or input, written by slices or by blending.

`kv` (2·L, KV, T, D) holds the keys of layers 0 … L−1, then their values.
"""

from typing import Any, Protocol

import numpy as np

from mirror_mlx.convert.toolkit import mb


class Slots(Protocol):
    def write(self, keys: Any, values: Any) -> tuple[Any, Any]:
        """The next layer's fresh rows (1, KV, S, D); returns what it attends to, (1, KV, T, D) each."""

    def finish(self) -> dict[str, Any]:
        """After the last layer: outputs of the package, by name."""


class StateBySlices:
    """State, and each layer's rows sliced into it.

    The state is read once, and every update works on what the one before gave. Reading it again before each update
    would be merged into one read by coremltools, and the later updates would undo the earlier ones.
    """

    def __init__(self, kv: Any, pos: Any, columns: int) -> None:
        self._state, self._full = kv, mb.read_state(input=kv)
        self._begin, self._end = pos, mb.add(x=pos, y=np.array([columns], np.int32))
        self._layer, self._layers = 0, self._full.shape[0] // 2

    def write(self, keys: Any, values: Any) -> tuple[Any, Any]:
        places = (self._layer, self._layers + self._layer)
        self._layer += 1
        for place, rows in zip(places, (keys, values), strict=True):
            begin = mb.concat(values=[np.array([place, 0], np.int32), self._begin, np.zeros(1, np.int32)], axis=0)
            last = np.array([place + 1, rows.shape[1]], np.int32), np.array([rows.shape[3]], np.int32)
            end = mb.concat(values=[last[0], self._end, last[1]], axis=0)
            updated = mb.slice_update(x=self._full, update=rows, begin=begin, end=end)
            self._full = mb.coreml_update_state(state=self._state, value=updated)
        return _slot(self._full, places[0]), _slot(self._full, places[1])

    def finish(self) -> dict[str, Any]:
        return {}


class InputBySlices:
    """An input: the fresh rows are sliced into what this pass sees, and handed out for the host to keep."""

    def __init__(self, kv: Any, pos: Any, columns: int) -> None:
        _, kv_heads, _, width = kv.shape
        end = mb.add(x=pos, y=np.array([columns], np.int32))
        zeros, last = np.zeros(2, np.int32), np.array([1, kv_heads], np.int32)
        self._begin = mb.concat(values=[zeros, pos, zeros[:1]], axis=0)
        self._end = mb.concat(values=[last, end, np.array([width], np.int32)], axis=0)
        self._kv = kv
        self._fresh: list[tuple[Any, Any]] = []

    def write(self, keys: Any, values: Any) -> tuple[Any, Any]:
        layer = len(self._fresh)
        self._fresh.append((keys, values))
        return self._put(layer, keys), self._put(self._kv.shape[0] // 2 + layer, values)

    def finish(self) -> dict[str, Any]:
        return _rows(self._fresh)

    def _put(self, place: int, rows: Any) -> Any:
        return mb.slice_update(x=_slot(self._kv, place), update=rows, begin=self._begin, end=self._end)


class ByBlending:
    """Rows blended in: kv·(1 − Σ_s write) + writeᵀ·new, with write (1, 1, S, T) one-hot.

    As state it is read once, and written once, after the last layer.
    """

    def __init__(self, kv: Any, write: Any, *, stateful: bool) -> None:
        self._state = kv if stateful else None
        self._full = mb.read_state(input=kv) if stateful else kv
        self._write = write
        taken = mb.reduce_sum(x=mb.transpose(x=write, perm=[0, 1, 3, 2]), axes=[-1], keep_dims=True)
        self._kept = mb.sub(x=np.float16(1), y=taken)
        self._fresh: list[tuple[Any, Any]] = []
        self._blended: list[tuple[Any, Any]] = []

    def write(self, keys: Any, values: Any) -> tuple[Any, Any]:
        layer = len(self._fresh)
        self._fresh.append((keys, values))
        blended = self._blend(layer, keys), self._blend(self._full.shape[0] // 2 + layer, values)
        self._blended.append(blended)
        return blended

    def finish(self) -> dict[str, Any]:
        if self._state is None:
            return _rows(self._fresh)
        keys, values = zip(*self._blended, strict=True)
        mb.coreml_update_state(state=self._state, value=mb.concat(values=[*keys, *values], axis=0))
        return {}

    def _blend(self, place: int, rows: Any) -> Any:
        new = mb.matmul(x=self._write, y=rows, transpose_x=True)
        return mb.add(x=mb.mul(x=_slot(self._full, place), y=self._kept), y=new)


def _slot(kv: Any, place: int) -> Any:
    """One layer's keys or values (1, KV, T, D)."""
    return mb.slice_by_index(x=kv, begin=[place, 0, 0, 0], end=[place + 1, *kv.shape[1:]])


def _rows(fresh: list[tuple[Any, Any]]) -> dict[str, Any]:
    keys, values = zip(*fresh, strict=True)
    return {"k": _joined(keys), "v": _joined(values)}


def _joined(parts: tuple[Any, ...]) -> Any:
    return parts[0] if len(parts) == 1 else mb.concat(values=list(parts), axis=0)
