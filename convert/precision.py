"""How a weight is kept in a package: float16, int8 with a scale per row, or indices into palettes of 64 or 16 values.

The forms are those that coremltools.optimize gives a package for macOS 15. They are made here because each weight is
then compressed once for all functions, and because a palette over a row's at most 65,536 distinct float16 values
needs no general k-means.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirror_mlx.convert.toolkit import mb, types
from mirror_mlx.draft.package.manifest import Precision

_BITS = {"float16": 16, "int8": 8, "lut6": 6, "lut4": 4}
_LEAST = 2048  # weights; smaller ones are not worth a decoder
_ROWS = 16  # of a palette
_ROUNDS = 60
_KNOTS = 513


@dataclass(frozen=True)
class Stored:
    """A matrix [rows, columns] as the convolution weight (rows, columns, 1, 1) of a package."""

    shape: tuple[int, int]
    operation: str
    arguments: dict[str, np.ndarray]

    def constant(self) -> Any:
        """The weight in the program that is being built."""
        given = {name: constant(value) for name, value in self.arguments.items()}
        return given["val"] if self.operation == "const" else getattr(mb, self.operation)(**given)

    def dense(self) -> np.ndarray:
        """float32 [rows, columns], as the device decodes it."""
        found = {name: value.astype(np.float32) for name, value in self.arguments.items()}
        if self.operation == "const":
            return found["val"].reshape(self.shape)
        if self.operation == "constexpr_blockwise_shift_scale":
            return (found["data"] * found["scale"]).astype(np.float16).astype(np.float32).reshape(self.shape)
        indices, lut = self.arguments["indices"], found["lut"]
        grouped = indices.astype(np.int64).reshape(lut.shape[0], -1)
        return np.take_along_axis(lut.reshape(lut.shape[0], -1), grouped, axis=1).reshape(self.shape)


def constant(value: np.ndarray) -> Any:
    """An array in the program that is being built. Where it is given to several functions, the file has it once."""
    made = mb.const(val=value)
    made.op.weight_id = str(id(value))  # which is its own: the program keeps the array
    return made


def stored(weight: np.ndarray, precision: Precision) -> Stored:
    """weight [rows, columns] float16."""
    rows, columns = weight.shape
    if precision == "float16" or weight.size < _LEAST:
        return Stored((rows, columns), "const", {"val": np.ascontiguousarray(weight)[:, :, None, None]})
    if precision == "int8":
        # In the scale's own float16, so that a decoded weight is at most half a step off.
        largest = np.abs(weight).max(axis=1, keepdims=True).astype(np.float32)
        scale = np.maximum((largest / 127).astype(np.float16), np.finfo(np.float16).smallest_subnormal)
        data = np.clip(np.rint(weight / scale.astype(np.float32)), -127, 127).astype(np.int8)
        arguments = {"data": data[:, :, None, None], "scale": scale[:, :, None, None]}
        return Stored((rows, columns), "constexpr_blockwise_shift_scale", arguments)
    return Stored((rows, columns), "constexpr_lut_to_dense", _palettes(weight, _BITS[precision]))


def weighed(rows: int, columns: int, precision: Precision) -> int:
    """Bytes of a matrix in a package, to a few per cent."""
    return rows * columns * (_BITS[precision] if rows * columns >= _LEAST else 16) // 8


def _palettes(weight: np.ndarray, bits: int) -> dict[str, np.ndarray]:
    rows, columns = weight.shape
    together = math.gcd(rows, _ROWS)
    groups = 1 if together * columns < _LEAST else rows // together
    grouped = weight.reshape(groups, -1).astype(np.float32)
    palettes = np.empty((groups, 1 << bits), np.float16)
    indices = np.empty(grouped.shape, np.uint8)
    for place, values in enumerate(grouped):
        palettes[place] = palette(values, 1 << bits)
        indices[place] = _nearest(values, palettes[place].astype(np.float32))
    dtype = types.nptype_from_builtin(types.string_to_builtin(f"uint{bits}"))
    return {
        "indices": indices.reshape(rows, columns, 1, 1).astype(dtype),
        "lut": palettes.reshape(groups, 1, 1, 1, 1 << bits, 1),
    }


def palette(values: np.ndarray, count: int) -> np.ndarray:
    """`count` values, ascending, that are near all of values [n]: Lloyd's algorithm, on sorted values and their sums.

    It begins where the best palette is for a fine one: as dense as the cube root of the values' density.
    """
    ordered = np.sort(values)
    sums = np.concatenate([[0.0], np.cumsum(ordered, dtype=np.float64)])
    # Between quantiles the density is 1/width, and density^(1/3)·width the share of the palette.
    knots = ordered[np.linspace(0, len(ordered) - 1, min(_KNOTS, len(ordered))).astype(np.intp)].astype(np.float64)
    share = np.concatenate([[0.0], np.cumsum(np.diff(knots) ** (2 / 3))])
    centres = np.interp((np.arange(count) + 0.5) / count * share[-1], share, knots)
    for _ in range(_ROUNDS):
        cuts = np.searchsorted(ordered, (centres[1:] + centres[:-1]) / 2)
        edges = np.concatenate([[0], cuts, [len(ordered)]])
        sizes = np.diff(edges)
        moved = np.where(sizes > 0, np.diff(sums[edges]) / np.maximum(sizes, 1), centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return np.sort(centres)


def _nearest(values: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return np.searchsorted((centres[1:] + centres[:-1]) / 2, values)
