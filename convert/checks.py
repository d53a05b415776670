"""What can be said of a saved package without the device: rules of the Neural Engine, and that its state is right.

On the operations as they are in the file. Whether each really runs on the Neural Engine, only a Mac can tell.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirror_mlx.convert.options import MAX_SIZE
from mirror_mlx.convert.toolkit import ct, quiet
from mirror_mlx.errors import DraftError

OPERATIONS = {
    "add", "cast", "concat", "const", "constexpr_blockwise_shift_scale", "constexpr_lut_to_dense", "conv", "exp",
    "greater_equal", "layer_norm", "matmul", "mul", "read_state", "reduce_argmax", "reduce_max", "reduce_min",
    "reduce_sum", "reshape", "select", "silu", "slice_by_index", "slice_update", "softmax", "split", "sub", "transpose",
    "write_state",
}  # fmt: skip
"""What `mirror_mlx.convert.graph` makes programs of; others know it to run on the Neural Engine."""
_STATE_MULTIPLE = 32


@dataclass(frozen=True)
class Operation:
    """One operation: what it takes by parameter, as names of values, and what it gives, as name → shape.

    A dimension that is not fixed is None.
    """

    type: str
    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, tuple[int | None, ...]]


def check(package: Path, *, stateful: bool, max_bytes: float) -> None:
    """Raise DraftError for the first rule that a saved package breaks; `stateful`: it must have one state."""
    with quiet():
        spec = ct.utils.load_spec(str(package))
    for name, function in spec.mlProgram.functions.items():
        where = f"{package.name}, function {name}"
        inputs = {one.name: one.type for one in function.inputs}
        shapes = {n: _shape(kind) for n, kind in inputs.items() if kind.WhichOneof("type") == "tensorType"}
        states = {n: _shape(kind.stateType.wrappedType) for n, kind in inputs.items() if n not in shapes}
        operations = [_operation(one) for one in _block(function).operations]
        check_shapes(operations, shapes, where)
        check_states(operations, states, stateful, where)
    size = sum(file.stat().st_size for file in package.rglob("*") if file.is_file() and file.suffix == ".bin")
    if size > max_bytes * 1.05:
        raise DraftError(
            f"{package.name} has {size / 1e6:.0f} MB of weights: a package has at most {max_bytes / 1e6:.0f}"
        )


def head_parts(package: Path) -> list[int]:
    """Rows of each convolution that the head of a saved package is made of, in order."""
    with quiet():
        spec = ct.utils.load_spec(str(package))
    operations = [_operation(one) for one in _block(spec.mlProgram.functions["rollout"]).operations]
    made = {name: operation for operation in operations for name in operation.outputs}
    tops = [one for one in operations if one.type == "reduce_argmax"]
    parts = [made[made[one.inputs["x"][0]].inputs["x"][0]] for one in tops]  # behind a reshape to buckets
    return [next(iter(part.outputs.values()))[1] or 0 for part in parts]


def check_shapes(operations: Sequence[Operation], inputs: dict[str, tuple[int | None, ...]], where: str) -> None:
    """Static shapes, known operations, four axes where it counts, no axis that is too long."""
    shapes = dict(inputs)
    for operation in operations:
        kind = operation.type
        if kind not in OPERATIONS:
            raise DraftError(f"{where}: operation {kind} is not known to run on the Neural Engine")
        for name, shape in operation.outputs.items():
            shapes[name] = shape
            if None in shape:
                raise DraftError(f"{where}: {name} has no fixed shape")
        if kind not in ("conv", "matmul"):
            continue
        taken = ("x", "weight") if kind == "conv" else ("x", "y")
        for parameter in taken:
            shape = shapes.get(operation.inputs[parameter][0], ())
            if len(shape) != 4:
                raise DraftError(f"{where}: {kind} has a {parameter} of {len(shape)} axes, not 4")
        if kind == "conv" and (shapes[operation.inputs["x"][0]][0], shapes[operation.inputs["x"][0]][2]) != (1, 1):
            raise DraftError(f"{where}: conv has an input that is not (1, C, 1, S)")
        for name, shape in operation.outputs.items():
            if max(size or 0 for size in shape) > MAX_SIZE:
                raise DraftError(f"{where}: {name} of {kind} has the shape {shape}: an axis has at most {MAX_SIZE}")


def check_states(
    operations: Sequence[Operation], states: dict[str, tuple[int | None, ...]], stateful: bool, where: str
) -> None:
    """One state of the right width; read once, and every write made from what the one before left.

    coremltools puts a read behind each write, which gives what was written. A second read of the same contents is what
    it would merge with the first, and a write or an attention that starts from an older reading has lost a write.
    """
    layers = any(operation.type == "layer_norm" for operation in operations) and any(
        operation.type == "softmax" for operation in operations
    )
    if len(states) != (1 if stateful and layers else 0):
        raise DraftError(f"{where}: {len(states)} states: a package has one, or none where it is stateless or the head")
    for name, shape in states.items():
        if (shape[-1] or 1) % _STATE_MULTIPLE:
            raise DraftError(f"{where}: state {name} is {shape[-1]} wide: Core ML is only right for multiples of 32")
    for name in states:
        _check_order(operations, name, where)


def _check_order(operations: Sequence[Operation], state: str, where: str) -> None:
    writes, read_at = 0, set()
    version: dict[str, int] = {}  # value → how many writes it has seen, of values that are state
    for operation in operations:
        taken = operation.inputs
        if operation.type == "read_state" and taken["input"] == (state,):
            if writes in read_at:
                raise DraftError(f"{where}: state {state} is read twice: later writes would undo earlier ones")
            read_at.add(writes)
            version |= dict.fromkeys(operation.outputs, writes)
        elif operation.type == "write_state" and taken["input"] == (state,):
            seen = version.get(taken["data"][0])
            # Made without slice_update, it must be all of the state, and so the only write.
            if (seen is None and writes) or (seen is not None and seen != writes):
                raise DraftError(f"{where}: a write of state {state} starts from what was there before another write")
            writes += 1
            version[taken["data"][0]] = writes
        elif operation.type in ("slice_update", "slice_by_index") and taken["x"][0] in version:
            seen = version[taken["x"][0]]
            if seen != writes:
                raise DraftError(f"{where}: state {state} is used as it was before a write")
            if operation.type == "slice_update":
                version |= dict.fromkeys(operation.outputs, seen)
    if not writes:
        raise DraftError(f"{where}: state {state} is never written")


def _operation(one: Any) -> Operation:
    inputs = {name: tuple(b.name for b in argument.arguments) for name, argument in one.inputs.items()}
    return Operation(one.type, inputs, {out.name: _shape(out.type) for out in one.outputs})


def _shape(kind: Any) -> tuple[int | None, ...]:
    """Of a value type: none for a scalar."""
    return tuple(_sizes(kind.tensorType.dimensions)) if kind.WhichOneof("type") == "tensorType" else ()


def _sizes(dimensions: Any) -> Iterator[int | None]:
    for dimension in dimensions:
        fixed = dimension.WhichOneof("dimension") == "constant"
        yield int(dimension.constant.size) if fixed else None


def _block(function: Any) -> Any:
    (block,) = function.block_specializations.values()
    return block
