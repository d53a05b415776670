"""A converted package, executed op by op with MLX: what its graph means, on any machine."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx
import numpy as np

from mirror_mlx.draft.package import program_read
from mirror_mlx.draft.package.program_plan import Plan, Step, rounded
from mirror_mlx.draft.package.program_rules import MX_TYPES, NP_TYPES, Tensor
from mirror_mlx.errors import DraftError

PIECE = 100
"""Ops submitted at a time on the CPU. MLX allows ten tasks in flight there over all streams together, of ten
dispatches each: who queues a whole program makes every other stream wait to submit."""
Precision = Literal["float32", "float16"]
LARGE = 1 << 14
"""Entries of a weight from which on it stays in float16 in a lean program."""


class Program:
    """A saved .mlpackage, executed by MLX ops on the CPU or GPU: the reference of what its graph means.

    float32  fp16 tensors and weights are computed with in float32: what the graph means
    float16  every op's result is rounded to fp16, as hardware does; between roundings it is float32, since fp16 is
             slow on a CPU

        program = Program(Path("segment-1.mlpackage"))
        state = program.state()
        h = program.run("rollout", inputs, state)["h"]

    lean     large weights stay in float16, and are widened whenever they are used: half the memory, some of the speed

    A program may have both precisions: `run` takes the first unless it is told. Weights that several functions share
    are held once. Runs may come from any thread, one at a time for each state.
    Raises DraftError where coremltools is missing, the package is damaged, or an op is not known.
    """

    def __init__(
        self, package: Path, *, precision: Precision | Sequence[Precision] = "float32", lean: bool = False
    ) -> None:
        self.package = package
        self._piece, self._lean = (8 if lean else PIECE), lean  # widened weights of one piece are in memory together
        self._precisions: Sequence[Precision] = (precision,) if isinstance(precision, str) else precision
        self._constants: dict[bytes, mx.array] = {}
        self._states: dict[str, Tensor] = {}
        self._plans: dict[tuple[str, Precision], Plan] = {}
        for name, function in program_read.read(package):
            for one in self._precisions:
                plan = Plan(f"{package}: function {name}", function, self._constant, one == "float16")
                self._plans[name, one] = plan
                self._states |= plan.states
            del function  # its weights, before those of the next one are read
        self.functions: tuple[str, ...] = tuple(dict.fromkeys(name for name, _ in self._plans))

    def inputs(self, function: str) -> dict[str, tuple[tuple[int, ...], str]]:
        """Name → shape and dtype ("fp16", "int32", …) of what `run` takes, besides state."""
        return {name: (kind.shape, kind.dtype) for name, kind in self._planned(function).inputs.items()}

    def outputs(self, function: str) -> dict[str, tuple[tuple[int, ...], str]]:
        """Name → shape and dtype of what `run` gives."""
        return {name: (kind.shape, kind.dtype) for name, kind in self._planned(function).outputs.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of all constants, those that functions share counted once."""
        return sum(value.nbytes for value in self._constants.values())

    def state(self) -> dict[str, mx.array]:
        """All state of the package, fresh zeros; it is shared by the functions. fp16 state is held in float32."""
        return {name: mx.array(np.zeros(kind.shape, NP_TYPES[kind.dtype])) for name, kind in self._states.items()}

    def run(
        self, function: str, inputs: Mapping[str, np.ndarray | mx.array], state: dict[str, mx.array],
        precision: Precision | None = None,
    ) -> dict[str, mx.array]:  # fmt: skip
        """One prediction: its outputs, evaluated. `state` is given the new arrays; the old ones stay as they were.

        fp16 outputs are float16 in precision float16, and float32 otherwise. Raises DraftError for inputs of other
        names or shapes.
        """
        plan = self._planned(function, precision)
        if inputs.keys() != plan.inputs.keys():
            wrong = ", ".join(sorted(inputs.keys() ^ plan.inputs.keys()))
            raise DraftError(f"{plan.where} takes {', '.join(plan.inputs)}: missing or unknown: {wrong}")
        values = list(plan.values)
        for name, slot in plan.input_slots.items():
            values[slot] = self._received(plan, name, inputs[name])
        for name, slot in plan.state_slots.items():
            values[slot] = state[name]
        run = _widened if self._lean else _plain
        _execute(plan.steps, values, run, self._piece if mx.default_device() == mx.Device(mx.cpu) else 0)
        outputs = {name: _sent(values[slot], plan, name) for name, slot in plan.output_slots.items()}
        fresh = {name: values[slot] for name, slot in plan.new_states.items()}
        mx.eval(outputs, fresh)
        state.update(fresh)
        return outputs

    def _planned(self, function: str, precision: Precision | None = None) -> Plan:
        if function not in self.functions:
            raise DraftError(f"{self.package} has no function {function}, but {', '.join(self.functions)}")
        return self._plans[function, precision or self._precisions[0]]

    def _constant(self, value: np.ndarray) -> mx.array:
        """A constant on the device; one array for the same contents."""
        half = self._lean and value.dtype == np.float16 and value.size >= LARGE
        value = np.asarray(value, np.float32 if value.dtype.kind == "f" and not half else value.dtype, order="C")
        name = f"{value.dtype}{value.shape}".encode() + hashlib.blake2b(value.reshape(-1).view(np.uint8)).digest()
        if name not in self._constants:
            self._constants[name] = mx.array(value)
        return self._constants[name]

    def _received(self, plan: Plan, name: str, value: Any) -> Any:
        kind = plan.inputs[name]
        if tuple(value.shape) != kind.shape:
            raise DraftError(f"{plan.where}: {name} has shape {tuple(value.shape)}, not {kind.shape}")
        if plan.input_slots[name] in plan.host:
            return np.array(value, NP_TYPES[kind.dtype])
        if isinstance(value, np.ndarray):
            value = mx.array(value.astype(NP_TYPES[kind.dtype], copy=False))
        value = value.astype(MX_TYPES[kind.dtype])
        return rounded(value) if plan.rounds and kind.dtype == "fp16" else value


def _sent(value: mx.array, plan: Plan, name: str) -> mx.array:
    return value.astype(mx.float16) if plan.rounds and plan.outputs[name].dtype == "fp16" else value


def _plain(step: Step, given: list[Any]) -> Any:
    return step.run(*given)


def _widened(step: Step, given: list[Any]) -> Any:
    """Only weights are ever in float16."""
    wide = [v.astype(mx.float32) if isinstance(v, mx.array) and v.dtype == mx.float16 else v for v in given]
    return step.run(*wide)


def _execute(
    steps: Iterable[Step], values: list[Any], run: Callable[[Step, list[Any]], Any], piece: int
) -> None:  # fmt: skip
    """Run steps over `values`; evaluates after each `piece` of them, or nothing at all for 0."""
    fresh: list[int] = []
    for step in steps:
        result = run(step, [values[slot] for slot in step.inputs])
        if len(step.outputs) == 1:
            values[step.outputs[0]] = result
        else:
            for slot, one in zip(step.outputs, result, strict=True):
                values[slot] = one
        del result
        for slot in step.last:
            values[slot] = None
        if piece:
            fresh += step.outputs
            if len(fresh) >= piece:
                mx.eval([values[slot] for slot in fresh if isinstance(values[slot], mx.array)])
                fresh.clear()
