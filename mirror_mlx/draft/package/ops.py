"""What each MIL op computes, in MLX."""

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from mirror_mlx.draft.package import program_exponentials as exponentials
from mirror_mlx.draft.package.program_moves import MOVES, held
from mirror_mlx.draft.package.program_rules import MX_TYPES, Call, Rule, Run


def _conv(call: Call) -> Run:
    """A convolution over single points: W [groups, O/groups, C/groups] @ x [N, groups, C/groups, H·W]."""
    outputs, inputs, *kernel = call.shape("weight")
    groups = call.param("groups", 1)
    if any(size != 1 for size in kernel):
        raise call.refuse(f"a kernel of {' x '.join(map(str, kernel))}")
    if any(step != 1 for step in call.param("strides", [1])) or any(call.param("pad", [0])):
        raise call.refuse("a stride or a padding")
    count, _, *points = call.shape("x")
    shape = (groups, outputs // groups, inputs)
    columns = (count, groups, inputs, math.prod(points))
    if "weight" in call.known:
        call.known["weight"] = call.known["weight"].reshape(shape)
    if call.known.get("bias") is not None:
        call.known["bias"] = call.known["bias"].reshape(*shape[:2], 1)
    result = call.result()

    def run(x: mx.array, weight: mx.array, bias: mx.array | None) -> mx.array:
        y = weight.reshape(shape) @ x.reshape(columns)
        if bias is not None:
            y = y + bias.reshape(*shape[:2], 1)
        return y.reshape(result)

    return run


def _linear(call: Call) -> Run:
    def run(x: mx.array, weight: mx.array, bias: mx.array | None) -> mx.array:
        y = x @ weight.T
        return y if bias is None else y + bias

    return run


def _matmul(call: Call) -> Run:
    flip_x, flip_y = call.param("transpose_x", False), call.param("transpose_y", False)

    def run(x: mx.array, y: mx.array) -> mx.array:
        return (x.swapaxes(-1, -2) if flip_x else x) @ (y.swapaxes(-1, -2) if flip_y else y)

    return run


def _layer_norm(call: Call) -> Run:
    rank, epsilon = len(call.shapes["x"]), call.param("epsilon", 1e-5)
    axes = tuple(sorted(axis % rank for axis in call.axes() or range(rank)))
    if axes == (rank - 1,):
        return lambda x, gamma, beta: mx.fast.layer_norm(x, gamma, beta, epsilon)
    shape = tuple(size if axis in axes else 1 for axis, size in enumerate(call.shape("x")))

    def run(x: mx.array, gamma: mx.array | None, beta: mx.array | None) -> mx.array:
        x = x - x.mean(axes, keepdims=True)
        x = x * mx.rsqrt(x.square().mean(axes, keepdims=True) + epsilon)
        x = x if gamma is None else x * gamma.reshape(shape)
        return x if beta is None else x + beta.reshape(shape)

    return run


def _attention(call: Call) -> Run:
    scale, softmax = 1 / math.sqrt(call.shape("query")[-1]), exponentials.softmax(-1)

    def run(query: mx.array, key: mx.array, value: mx.array, mask: mx.array | None) -> mx.array:
        scores = (query * scale) @ key.swapaxes(-1, -2)
        if mask is not None:
            scores = mx.where(mask, scores, -mx.inf) if mask.dtype == mx.bool_ else scores + mask
        return softmax(scores) @ value

    return run


def _softmax(call: Call) -> Run:
    return exponentials.softmax(call.param("axis", -1))


def _gelu(call: Call) -> Run:
    mode = call.param("mode", "EXACT")
    if mode == "EXACT":
        return lambda x: 0.5 * x * (1 + mx.erf(x * math.sqrt(0.5)))
    if mode == "SIGMOID_APPROXIMATION":
        sigmoid = exponentials.sigmoid()
        return lambda x: x * sigmoid(1.702 * x)
    tanh = exponentials.tanh()
    return lambda x: 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _topk(call: Call) -> Run:
    axis = call.param("axis", -1)
    sign = 1 if call.param("ascending", False) else -1
    first = [slice(None)] * len(call.shapes["x"])
    first[axis] = slice(call.param("k", 1))
    chosen = tuple(first)

    kind = MX_TYPES[call.results[-1].dtype]

    def run(x: mx.array) -> list[mx.array]:
        indices = mx.argsort(sign * x, axis=axis)[chosen]
        return [mx.take_along_axis(x, indices, axis), indices.astype(kind)]

    return (lambda x: run(x)[0]) if len(call.results) == 1 else run


def _reduce(name: str) -> Callable[[Call], Run]:
    def build(call: Call) -> Run:
        function, axes, keep = getattr(call.xp, name), call.axes(), call.param("keep_dims", False)
        return lambda x: function(x, axis=axes, keepdims=keep)

    return build


def _reduce_arg(name: str) -> Callable[[Call], Run]:
    def build(call: Call) -> Run:
        axis, keep = call.param("axis", -1), call.param("keep_dims", True)
        function, kind = getattr(mx, name), held(call)
        return lambda x: function(x, axis=axis, keepdims=keep).astype(kind)

    return build


def _pair(name: str) -> Callable[[Call], Run]:
    return lambda call: getattr(call.xp, name)


def _single(function: Run) -> Callable[[Call], Run]:
    return lambda call: function


def _with_epsilon(function: Run, default: float) -> Callable[[Call], Run]:
    def build(call: Call) -> Run:
        epsilon = call.param("epsilon", default)
        return lambda x: function(x + epsilon)

    return build


def _divide(call: Call) -> Run:
    if call.results[0].dtype not in ("fp16", "fp32"):
        raise call.refuse("a division of integers")
    return mx.divide


def _clip(call: Call) -> Run:
    low, high = call.param("alpha"), call.param("beta")
    return lambda x: mx.clip(x, low, high)


_PAIRS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "pow": "power", "mod": "remainder",
    "floor_div": "floor_divide", "greater": "greater", "greater_equal": "greater_equal", "less": "less",
    "less_equal": "less_equal", "equal": "equal", "not_equal": "not_equal", "logical_and": "logical_and",
    "logical_or": "logical_or",
}  # fmt: skip
_SINGLES: dict[str, Any] = {
    "abs": mx.abs, "ceil": mx.ceil, "cos": mx.cos, "floor": mx.floor, "relu": lambda x: mx.maximum(x, 0),
    "sin": mx.sin, "sqrt": mx.sqrt, "square": mx.square,
    "logical_not": mx.logical_not,
}  # fmt: skip
_REDUCTIONS = {"reduce_mean": "mean", "reduce_sum": "sum", "reduce_prod": "prod"}

OPS: dict[str, Rule] = {
    **MOVES,
    **{kind: Rule(("x", "y"), _pair(name), host=True) for kind, name in _PAIRS.items()},
    **{kind: Rule(("x", "y"), _pair(kind), exact=True, host=True) for kind in ("maximum", "minimum")},
    **{kind: Rule(("x",), _single(function)) for kind, function in _SINGLES.items()},
    **{kind: Rule(("x",), _reduce(name), host=True) for kind, name in _REDUCTIONS.items()},
    "reduce_max": Rule(("x",), _reduce("max"), exact=True, host=True),
    "reduce_min": Rule(("x",), _reduce("min"), exact=True, host=True),
    "reduce_argmax": Rule(("x",), _reduce_arg("argmax")),
    "reduce_argmin": Rule(("x",), _reduce_arg("argmin")),
    "real_div": Rule(("x", "y"), _divide),
    "exp": Rule(("x",), lambda call: exponentials.exp()),
    "sigmoid": Rule(("x",), lambda call: exponentials.sigmoid()),
    "silu": Rule(("x",), lambda call: exponentials.silu()),
    "tanh": Rule(("x",), lambda call: exponentials.tanh()),
    "rsqrt": Rule(("x",), _with_epsilon(mx.rsqrt, 1e-12)),
    "log": Rule(("x",), _with_epsilon(mx.log, 1e-45)),
    "inverse": Rule(("x",), _with_epsilon(mx.reciprocal, 1e-4)),
    "clip": Rule(("x",), _clip),
    "gelu": Rule(("x",), _gelu),
    "softmax": Rule(("x",), _softmax),
    "topk": Rule(("x",), _topk, exact=True),
    "conv": Rule(("x", "weight", "bias"), _conv),
    "linear": Rule(("x", "weight", "bias"), _linear),
    "matmul": Rule(("x", "y"), _matmul),
    "layer_norm": Rule(("x", "gamma", "beta"), _layer_norm),
    "scaled_dot_product_attention": Rule(("query", "key", "value", "attn_mask"), _attention),
}
"""By MIL's name. State is no op of these: `program` renames values instead."""
