"""The MIL program of one package, whose functions share its weights.

Names and shapes are those of `mirror_mlx.draft.package`.

The input of a package's layers is `x` and their output `h`: in a program one name cannot be both.
"""

from dataclasses import dataclass
from typing import Any

from mirror_mlx.convert.blocks import block, linear, rms_norm
from mirror_mlx.convert.head import bucketed
from mirror_mlx.convert.options import Build
from mirror_mlx.convert.plan import Part
from mirror_mlx.convert.slots import ByBlending, InputBySlices, Slots, StateBySlices
from mirror_mlx.convert.toolkit import Function, Program, ct, mb, types
from mirror_mlx.convert.weights import Block, Linear, Norm


@dataclass(frozen=True)
class Contents:
    """The weights of one package.

    width, whole, head_dim  c, C and D
    align                   what a track takes of all tracks at the boundary
    norm, down              of the track's last package; `down` where the head is factored
    head                    its rows in parts, of the package that heads
    """

    width: int
    whole: int
    head_dim: int
    kv_heads: int
    buckets: int
    blocks: tuple[Block, ...] = ()
    align: Linear | None = None
    norm: Norm | None = None
    down: Linear | None = None
    head: tuple[Linear, ...] = ()
    head_width: int = 0


def program(part: Part, contents: Contents, build: Build) -> Any:
    """The program of all functions of the package."""
    made = Program()
    for name in part.functions:
        made.add_function(name, _function(part, contents, name, build))
    made.default_function_name = part.functions[0]
    made.export_as_multifunction = True
    return made


def _function(part: Part, contents: Contents, name: str, build: Build) -> Any:
    specs = inputs(part, contents, name, build)
    placeholders = {kind: _placeholder(*spec, state=build.stateful and kind == "kv") for kind, spec in specs.items()}
    with Function(placeholders, opset_version=ct.target.iOS18) as made:
        outputs = (
            _head_alone(made.inputs, contents)
            if not contents.blocks
            else _layers(made.inputs, part, contents, name, build)
        )
        for output, x in outputs.items():
            x.set_name(output)
        made.set_outputs(list(outputs.values()))
    return made


def inputs(part: Part, contents: Contents, function: str, build: Build) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Name → shape and type of what a function takes, its state included."""
    if not contents.blocks:
        return {"y": ((1, contents.head_width, 1, build.second), types.fp16)}
    into, columns = widths(part, function, build)
    width = contents.whole if contents.align else contents.width
    slots, found = build.context, {"x": ((1, width, 1, into), types.fp16)}
    if part.expands and function == "rollout":
        found["sel"] = ((1, 1, into, columns), types.fp16)
        found["stream_add"] = ((1, contents.width, 1, columns), types.fp16)
    found |= dict.fromkeys(("cos", "sin"), ((1, 1, columns, contents.head_dim), types.fp16))
    found["mask"] = ((1, 1, columns, slots), types.fp16)
    if build.write == "slice":
        found["pos"] = ((1,), types.int32)
    else:
        found["write"] = ((1, 1, columns, slots), types.fp16)
    found["kv"] = (state(contents, build), types.fp16)
    return found


def state(contents: Contents, build: Build) -> tuple[int, int, int, int]:
    """The shape of `kv`."""
    return 2 * len(contents.blocks), contents.kv_heads, build.context, contents.head_dim


def widths(part: Part, function: str, build: Build) -> tuple[int, int]:
    """The columns a package takes, and those its layers have."""
    if function == "prefill":
        return build.prefill, build.prefill
    if part.expands:
        return build.first, build.second
    return (build.second, build.second) if part.second else (build.first, build.first)


def _placeholder(shape: tuple[int, ...], dtype: Any, *, state: bool) -> Any:
    return mb.state_tensor_placeholder(shape, dtype) if state else mb.placeholder(shape, dtype)


def _layers(given: Any, part: Part, contents: Contents, function: str, build: Build) -> dict[str, Any]:
    x = _expanded(given, part, contents, function)
    slots = _slots(given, x.shape[-1], build)
    for layer in contents.blocks:
        x = block(x, layer, given["cos"], given["sin"], given["mask"], slots.write)
    outputs = slots.finish()
    if function == "prefill" or contents.norm is None:
        return {"h": x} | outputs
    y = rms_norm(x, contents.norm)
    if contents.down is not None:
        y = linear(y, contents.down)
    return (bucketed(y, contents.head, contents.buckets) if part.heads else {"y": y}) | outputs


def _head_alone(given: Any, contents: Contents) -> dict[str, Any]:
    return bucketed(given["y"], contents.head, contents.buckets)


def _expanded(given: Any, part: Part, contents: Contents, function: str) -> Any:
    """What the first layer takes: the exchange between tracks, then each stream's copy of its main."""
    x, width = given["x"], contents.width
    if contents.align is not None:
        own = part.track * width
        mine = mb.slice_by_index(x=x, begin=[0, own, 0, 0], end=[1, own + width, 1, x.shape[-1]])
        x = mb.add(x=mine, y=linear(x, contents.align))
    if not part.expands or function == "prefill":
        return x
    columns = mb.reshape(x=x, shape=[1, 1, width, x.shape[-1]])
    chosen = mb.matmul(x=columns, y=given["sel"])
    return mb.add(x=mb.reshape(x=chosen, shape=[1, width, 1, chosen.shape[-1]]), y=given["stream_add"])


def _slots(given: Any, columns: int, build: Build) -> Slots:
    if build.write == "blend":
        return ByBlending(given["kv"], given["write"], stateful=build.stateful)
    kind = StateBySlices if build.stateful else InputBySlices
    return kind(given["kv"], given["pos"], columns)
