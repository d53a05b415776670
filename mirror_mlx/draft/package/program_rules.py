"""How an op of a program becomes a function: what its rule is told at load, and what it answers.

A rule is asked once for each op of a program and answers with the function that runs it. All fp16 and fp32 tensors
are float32 arrays of MLX. Integers that are known before any arithmetic on tensors, such as the slot a pass writes to,
are *host values*, numpy arrays: bounds of slices come from them without waiting for the device.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from mirror_mlx.errors import DraftError

Run = Callable[..., Any]
"""Operands, in the order of `Rule.operands`, → the result, or a list of several."""


MX_TYPES = {
    "fp16": mx.float32, "fp32": mx.float32, "bool": mx.bool_, "int8": mx.int8, "uint8": mx.uint8,
    "int16": mx.int16, "uint16": mx.uint16, "int32": mx.int32, "uint32": mx.uint32,
}  # fmt: skip
"""MIL's dtypes → what holds them; fp16 values are computed with in float32."""
NP_TYPES = {
    "fp16": np.float32, "fp32": np.float32, "bool": np.bool_, "int8": np.int8, "uint8": np.uint8,
    "int16": np.int16, "uint16": np.uint16, "int32": np.int32, "uint32": np.uint32,
}  # fmt: skip


class Tensor(NamedTuple):
    """What a value is: its shape, None where only a run tells, and its MIL dtype, "fp16", "int32", …"""

    shape: tuple[int, ...] | None
    dtype: str


@dataclass
class Call:
    """One op of a program, as far as it is known at load.

    where    package, function, op: the beginning of an error
    known    argument → numpy array, number or string, where it is a constant; absent or None: not given
    shapes   argument → shape, where it is a tensor; None for sizes that only a run tells
    results  what each result is
    xp       what to compute with: mlx.core, or numpy where all operands are host values
    """

    where: str
    known: dict[str, Any]
    shapes: Mapping[str, tuple[int | None, ...]]
    results: list[Tensor]
    xp: ModuleType

    def refuse(self, what: str) -> DraftError:
        return DraftError(f"{self.where}: {what} is not supported: convert the draft again")

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an argument, fixed."""
        shape = self.shapes[name]
        if None in shape:
            raise self.refuse(f"'{name}' of any shape")
        return shape

    def result(self) -> tuple[int, ...]:
        """The shape of the first result, fixed."""
        shape = self.results[0].shape
        if shape is None:
            raise self.refuse("a result of any shape")
        return shape

    def param(self, name: str, default: Any = None) -> Any:
        """An argument that must be a constant: a number, string or bool, a list of numbers, or `default`."""
        if name in self.shapes and name not in self.known:
            raise self.refuse(f"'{name}' computed in the program")
        value = self.known.get(name)
        if value is None:
            return default
        return np.asarray(value).tolist()

    def axes(self, name: str = "axes") -> tuple[int, ...] | None:
        """A list of axes as a tuple, or None if it is not given."""
        value = self.param(name)
        return None if value is None else tuple(value if isinstance(value, list) else [value])


class Rule(NamedTuple):
    """How one kind of op is done.

    operands  arguments handed to the function, in this order; a list of tensors is spread out; None if not given
    build     answers with the function; raises DraftError for what it cannot do
    exact     results are values of operands, so that nothing is rounded
    host      also computes with numpy
    indices   operands that are wanted as host values
    """

    operands: tuple[str, ...]
    build: Callable[[Call], Run]
    exact: bool = False
    host: bool = False
    indices: tuple[str, ...] = ()
