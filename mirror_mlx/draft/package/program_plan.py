"""A function of a program, planned once: which ops run in which order, on which numbered values."""

from collections.abc import Callable
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from mirror_mlx.draft.package import program_read
from mirror_mlx.draft.package.ops import OPS
from mirror_mlx.draft.package.program_rules import MX_TYPES, NP_TYPES, Call, Rule, Tensor
from mirror_mlx.errors import DraftError

_HOST_SIZE = 16  # entries of an integer input up to which it is a host value (`program_rules`)


class Step(NamedTuple):
    """One op at work: values[inputs] → values[outputs], after which nobody needs values[last]."""

    run: Callable[..., Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    last: tuple[int, ...]


class Plan:
    """One function as a list of steps over numbered values ("slots").

    State is no step: a value that is written to it is what the next read gives, so reads and writes only rename.

    rounds        results of its ops are rounded to fp16
    values        what each run starts from: the constants, each at its number
    host          numbers of host values
    input_slots, state_slots, output_slots
                  name → number of its value
    new_states    name of state that the function changes → number of its last value
    """

    def __init__(self, where: str, function: Any, constant: Callable[[np.ndarray], mx.array], rounds: bool) -> None:
        self.where = where
        self._constant = constant
        self.rounds = rounds
        self._slots: dict[Any, int] = {}  # Var → number
        self._converted: dict[tuple[Any, bool], int] = {}  # Var, as a host value? → number of its other form
        self._known: dict[Any, Any] = {}  # Var → constant
        self._shared: dict[int, int] = {}  # id of a constant → number
        self._current: dict[str, int] = {}  # state → number of what was written last
        self.values: list[Any] = []
        self.host: set[int] = set()
        self.steps: list[Step] = []
        self.inputs: dict[str, Tensor] = {}
        self.states: dict[str, Tensor] = {}
        self.input_slots: dict[str, int] = {}
        self.new_states: dict[str, int] = {}
        self._begin(function)
        for op in function.operations:
            self._add(op)
        self.outputs = {var.name: self._tensor(var) for var in function.outputs}
        self.output_slots = {var.name: self._slot(var, host=False) for var in function.outputs}
        self._drop_what_nobody_needs()
        del self._slots, self._converted, self._known, self._shared, self._current

    def _begin(self, function: Any) -> None:
        for name, var in function.inputs.items():
            slot = self._slots[var] = self._new()
            if hasattr(var.sym_type, "wrapped_type"):
                self.states[name] = self._tensor(var)
                self._current[name] = slot
                continue
            kind = self.inputs[name] = self._tensor(var)
            self.input_slots[name] = slot
            if kind.dtype not in ("fp16", "fp32") and len(kind.shape) < 2 and np.prod(kind.shape) <= _HOST_SIZE:
                self.host.add(slot)
        self.state_slots = dict(self._current)

    def _add(self, op: Any) -> None:
        kind = op.op_type
        if kind.startswith("constexpr_"):
            self._known |= zip(op.outputs, program_read.expanded(op), strict=True)
        elif op.outputs and all(var.val is not None for var in op.outputs):
            self._known |= {var: program_read.constant(var.val) for var in op.outputs}
        elif kind == "read_state":
            self._slots[op.outputs[0]] = self._current[op.inputs["input"].name]
        elif kind == "coreml_update_state":
            state = op.inputs["state"].name
            slot = self._slot(op.inputs["value"], host=False)
            self._current[state] = self.new_states[state] = self._slots[op.outputs[0]] = slot
        elif kind in OPS:
            self._plan(op, OPS[kind])
        else:
            raise DraftError(f"{self.where}: op {kind} is not known here: convert the draft again")

    def _plan(self, op: Any, rule: Rule) -> None:
        results = [self._tensor(var, fixed=False) for var in op.outputs]
        given = {name: var for name, var in op.inputs.items() if var is not None}
        known = {name: self._known[var] for name, var in given.items() if not _many(var) and var in self._known}
        shapes = {name: program_read.described(var)[0] for name, var in given.items() if not _many(var)}
        operands = [(name, v) for name in rule.operands for v in _all(given.get(name))]
        integers = all(kind.dtype not in ("fp16", "fp32") for kind in results)
        host = rule.host and integers and all(v is None or self._is_host(v) for _, v in operands)
        call = Call(f"{self.where}: {op.op_type} {op.name}", known, shapes, results, np if host else mx)
        run = rule.build(call)
        slots = tuple(
            self._fixed(call.known[name], host=host or name in rule.indices)
            if name in call.known
            else self._slot(v, host=host or name in rule.indices)
            for name, v in operands
        )
        outputs = tuple(self._new() for _ in results)
        self._slots |= zip(op.outputs, outputs, strict=True)
        rounds = [self.rounds and not rule.exact and kind.dtype == "fp16" for kind in results]
        self.steps.append(Step(_finished(run, results, rounds, host), slots, outputs, ()))
        if host:
            self.host.update(outputs)

    def _is_host(self, var: Any) -> bool:
        return var in self._known or self._slots.get(var) in self.host

    def _slot(self, var: Any, *, host: bool) -> int:
        """The number of a value, as a host value or as an array."""
        if var is None or var in self._known:
            return self._fixed(self._known.get(var), host=host)
        slot = self._slots[var]
        if host == (slot in self.host):
            return slot
        if (var, host) not in self._converted:
            fresh = self._converted[var, host] = self._new()
            self.steps.append(Step(np.array if host else mx.array, (slot,), (fresh,), ()))
            if host:
                self.host.add(fresh)
        return self._converted[var, host]

    def _fixed(self, value: Any, *, host: bool) -> int:
        """The number of a constant."""
        value = value if host or value is None else self._constant(value)
        if id(value) not in self._shared:
            self._shared[id(value)] = self._new(value)
        return self._shared[id(value)]

    def _new(self, value: Any = None) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _tensor(self, var: Any, *, fixed: bool = True) -> Tensor:
        shape, dtype = program_read.described(var)
        if dtype not in MX_TYPES or (fixed and None in shape):
            kind = f"{dtype} of any shape" if None in shape else dtype
            raise DraftError(f"{self.where}: {var.name}, which is {kind}, is not supported: convert the draft again")
        return Tensor(None if None in shape else shape, dtype)

    def _drop_what_nobody_needs(self) -> None:
        """Leave out steps without effect, and say at each step which values it is the last to use."""
        wanted = {*self.output_slots.values(), *self.new_states.values()}
        kept: list[Step] = []
        constants = {slot for slot, value in enumerate(self.values) if value is not None}
        for step in reversed(self.steps):
            if not wanted.intersection(step.outputs):
                continue
            last = {*step.inputs, *step.outputs} - wanted - constants
            wanted.update(step.inputs)
            kept.append(step._replace(last=tuple(sorted(last))))
        self.steps = kept[::-1]


def _many(var: Any) -> bool:
    return isinstance(var, list | tuple)


def _all(var: Any) -> list[Any]:
    return list(var) if _many(var) else [var]


def _finished(run: Callable[..., Any], results: list[Tensor], rounds: list[bool], host: bool) -> Callable[..., Any]:
    """`run` with its results in the form that the plan expects of them."""
    if host:
        kinds = [NP_TYPES[kind.dtype] for kind in results]
        if len(kinds) == 1:
            return lambda *operands: run(*operands).astype(kinds[0])
        return lambda *operands: [one.astype(kind) for one, kind in zip(run(*operands), kinds, strict=True)]
    if len(results) == 1:
        return (lambda *operands: rounded(run(*operands))) if rounds[0] else run
    if not any(rounds):
        return run
    return lambda *operands: [rounded(v) if r else v for v, r in zip(run(*operands), rounds, strict=True)]


def rounded(value: mx.array) -> mx.array:
    """Values of fp16, still held in float32."""
    return value.astype(mx.float16).astype(mx.float32)
