"""A saved package as MIL: coremltools' own reader, and its compressed weights expanded."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mirror_mlx import memory
from mirror_mlx.draft.package.quiet import quiet
from mirror_mlx.errors import DraftError

_one_reader = threading.Lock()  # coremltools builds programs on one global stack


def read(package: Path) -> Iterator[tuple[str, Any]]:
    """Name and `coremltools…mil.Function` of each function, one in memory at a time.

    Raises DraftError for no coremltools, no package, and one that cannot be read.
    """
    with _one_reader:
        loader, utils = _coremltools(package)
        if not package.is_dir():
            raise DraftError(f"{package} is no .mlpackage: convert the draft again")
        with _readable(package):
            model = utils.load_spec(str(package))
            weights = utils._try_get_weights_dir_path(str(package))
            names = sorted(model.mlProgram.functions)
            if not names:
                raise ValueError("it holds no program")
    for name in names:
        with _one_reader, _readable(package), quiet():
            one = type(model)()
            one.CopyFrom(model)
            for other in names:
                if other != name:
                    del one.mlProgram.functions[other]
            program = loader.load(one, one.specificationVersion, weights or "")
        yield name, program.functions[name]
        del program, one
        memory.release()  # programs are cycles that hold all their weights


@contextlib.contextmanager
def _readable(package: Path) -> Iterator[None]:
    try:
        yield
    except Exception as reason:  # coremltools raises whatever it runs into
        said = " ".join(str(reason).split())[:120]
        raise DraftError(f"{package} cannot be read ({said}): convert the draft again") from reason


def _coremltools(package: Path) -> tuple[Any, Any]:
    try:
        with quiet():
            from coremltools.converters.mil.frontend.milproto import load
            from coremltools.models import utils
    except ImportError:
        raise DraftError(f"{package} needs coremltools to be read: pip install 'mirror-mlx[coreml]'") from None
    return load, utils


def described(var: Any) -> tuple[tuple[int | None, ...], str]:
    """Shape, None for sizes that are not fixed, and dtype of a `Var`; of a state, those of its tensor."""
    from coremltools.converters.mil.mil import types

    kind = var.sym_type.wrapped_type() if types.is_state(var.sym_type) else var.sym_type
    if not types.is_tensor(kind):
        return (), types.builtin_to_string(kind)
    shape = tuple(int(size) if isinstance(size, int | np.integer) else None for size in kind.get_shape())
    return shape, types.builtin_to_string(kind.get_primitive())


def constant(value: Any) -> np.ndarray | str:
    """The value of a constant `Var` as an array; or a string."""
    return value if isinstance(value, str) else np.asarray(value)


def expanded(op: Any) -> list[np.ndarray]:
    """The results of an op on constants whose weights are stored in fewer bits (constexpr_…)."""
    arguments = {name: _argument(var) for name, var in op.inputs.items() if var is not None}
    if op.op_type == "constexpr_blockwise_shift_scale":
        return [_shifted(arguments["data"], arguments["scale"], arguments.get("offset"))]
    if op.op_type == "constexpr_lut_to_dense" and arguments["lut"].ndim == arguments["indices"].ndim + 2:
        return [_looked_up(arguments["indices"], arguments["lut"], arguments.get("vector_axis"))]
    value = op.materialized_val_inference()
    return list(value) if isinstance(value, tuple) else [value]


def _argument(var: Any) -> Any:
    if var.val is None and var.op is not None and var.op.op_type.startswith("constexpr_"):
        return expanded(var.op)[var.op.outputs.index(var)]
    return constant(var.val)


def _shifted(data: np.ndarray, scale: np.ndarray, offset: np.ndarray | None) -> np.ndarray:
    """scale · (data − offset), of which each entry is for a block of `data`; rounded as scale is."""
    result = _blocks(data.astype(scale.dtype), scale.shape)
    if offset is not None:
        result = result - _spread(offset)
    return (result * _spread(scale)).reshape(data.shape)


def _blocks(data: np.ndarray, counts: tuple[int, ...]) -> np.ndarray:
    """[n₀, n₁, …] cut into c₀ × c₁ × … blocks: [c₀, n₀/c₀, c₁, n₁/c₁, …]."""
    sizes = [side for count, size in zip(counts, data.shape, strict=True) for side in (count, size // count)]
    return data.reshape(sizes)


def _spread(values: np.ndarray) -> np.ndarray:
    """[c₀, c₁, …] → [c₀, 1, c₁, 1, …], to go with `_blocks`."""
    return values.reshape([side for count in values.shape for side in (count, 1)])


def _looked_up(indices: np.ndarray, lut: np.ndarray, axis: Any) -> np.ndarray:
    """Entries of palettes `lut` [c₀, c₁, …, P, V], each for a block of `indices` [n₀, n₁, …]; V values an entry.

    coremltools' own way takes P times the memory of the result.
    """
    *counts, palette, width = lut.shape
    which = np.arange(np.prod(counts), dtype=np.int64).reshape(counts) * palette
    rows = (_blocks(indices.astype(np.int64), tuple(counts)) + _spread(which)).reshape(indices.shape)
    found = lut.reshape(-1, width)[rows]
    if width == 1:
        return found[..., 0]
    axis = int(axis) % indices.ndim
    shape = [size * width if i == axis else size for i, size in enumerate(indices.shape)]
    return np.moveaxis(found, -1, axis + 1).reshape(shape)
