"""The inflated target: what a model of 100-300 M parameters costs, computing what a small one computes.

It becomes wider, not deeper: the residual stream gets dimensions that stay zero, and the MLPs, in proportion, columns
that add nothing. So it keeps the shape of a real model, whose time goes into its matrices. (More MLP columns alone
would leave it narrow: per weight read it then evaluates several times as many activations as any real model does, and
a window of eight rows seems to cost half as much again as one row.)
"""

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mirror_mlx.errors import UsageError
from mirror_mlx.target import TapAdapter

_ROUND = 64  # a width is a multiple of it
_COLUMNS = 8  # so many more columns at a time
_READS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
_WRITES = ("self_attn.o_proj", "mlp.down_proj")
_NORMS = ("input_layernorm", "post_attention_layernorm")
_UNTOUCHED = ("self_attn.q_norm", "self_attn.k_norm")  # of a head: no part of the residual stream


def count_parameters(model: nn.Module) -> int:
    """How many numbers a forward reads."""
    return sum(array.size for _, array in tree_flatten(model.parameters()))


def inflate(model: nn.Module, params: int, seed: int = 0) -> int:
    """Make a model wider until it has at least `params` parameters, without changing what it computes.

    What is added to the projections that read the residual stream is random, to those that write to it zero; its norms
    are scaled by what they now average over. Every hidden state is what it was, followed by zeros; logits and the plain
    lens are what they were (for a trained tap see `widened`). Returns the number of parameters. A model that has them
    already is left as it is; one with other layers than Llama's, Qwen2's and Qwen3's, or a quantised one, raises
    UsageError.

    >>> inflate(model, 131_000_000)                                              # doctest: +SKIP
    131004736
    """
    have = count_parameters(model)
    if have >= params:
        return have
    _check(model)
    old_width, old_columns = _shape(model)
    width, columns = _chosen(model, have, params)
    noise = _Noise(seed)
    _put(model.model.embed_tokens, "weight", _wider(model.model.embed_tokens.weight, width))
    if "lm_head" in model:
        _put(model.lm_head, "weight", _wider(model.lm_head.weight, width, noise))
    scale = (old_width / width) ** 0.5
    for norm in [model.model.norm, *(layer[name] for layer in model.layers for name in _NORMS)]:
        _put(norm, "weight", _wider(norm.weight * scale, width))
        norm.eps *= old_width / width
    for layer in model.layers:
        for name in (*_READS, *_WRITES):
            linear = _named(layer, name)
            inside, outside = linear.weight.shape[1], linear.weight.shape[0]
            if name in _READS:
                inside, outside = width, columns if outside == old_columns and "mlp" in name else outside
                weight = _wider(linear.weight, inside, noise)
                _put(linear, "weight", _taller(weight, outside, noise))
            else:
                inside, outside = columns if "mlp" in name else inside, width
                _put(linear, "weight", _taller(_wider(linear.weight, inside), outside))
            if "bias" in linear:
                _put(linear, "bias", _wider(linear.bias, outside))
        mx.eval(layer.parameters())
    mx.eval(model.parameters())
    model.args.hidden_size, model.args.intermediate_size = width, columns
    return count_parameters(model)


def widened(adapter: TapAdapter | None, model: nn.Module) -> TapAdapter | None:
    """A trained tap for its model inflated: it sees what it saw, and adds nothing to the dimensions that are zero."""
    if adapter is None or not _is_gated(model):
        return adapter
    width, _ = _shape(model)
    return TapAdapter({
        layer: (_wider(down, width), _taller(up, width)) for layer, (down, up) in adapter.layers.items()
    })  # fmt: skip


def _shape(model: nn.Module) -> tuple[int, int]:
    """Width of the residual stream, and columns of an MLP."""
    columns, width = model.layers[0].mlp.gate_proj.weight.shape
    return int(width), int(columns)


def _chosen(model: nn.Module, have: int, params: int) -> tuple[int, int]:
    """The greatest width that, with MLPs in proportion, has not too many parameters; then the columns for the rest."""
    layers, (old_width, old_columns) = len(model.layers), _shape(model)
    mlps = 3 * old_width * old_columns * layers
    per_width = (have - mlps) / old_width  # everything else grows with the width alone

    def total(width: int, columns: int) -> float:
        return per_width * width + 3 * width * columns * layers

    width = old_width
    while total(width + _ROUND, round(old_columns * (width + _ROUND) / old_width)) <= params:
        width += _ROUND
    columns = max(old_columns, old_columns * width // old_width // _COLUMNS * _COLUMNS)
    while total(width, columns) < params + 2 * width:  # what is rounded here, and heads' norms, are less than that
        columns += _COLUMNS
    return width, columns


def _check(model: nn.Module) -> None:
    """Raises UsageError unless every parameter is of a kind that is dealt with here."""
    known = {"model.embed_tokens", "model.norm", "lm_head"}
    for i in range(len(model.layers)):
        known |= {f"model.layers.{i}.{name}" for name in (*_READS, *_WRITES, *_NORMS, *_UNTOUCHED)}
    others = {name.rpartition(".")[0] for name, _ in tree_flatten(model.parameters())} - known
    plain = all(type(module) in (nn.Linear, nn.Embedding, nn.RMSNorm) for module in _holders(model))
    if others or not plain or not _is_gated(model):
        raise UsageError("this target cannot be inflated: choose an unquantised llama, qwen2 or qwen3")


def _holders(model: nn.Module) -> list[nn.Module]:
    """The modules that have parameters of their own. (A name with an underscore is none: tables of a rotation.)"""
    return [
        module for _, module in model.named_modules()
        if any(isinstance(value, mx.array) and not name.startswith("_") for name, value in module.items())
    ]  # fmt: skip


def _is_gated(model: nn.Module) -> bool:
    return all(
        type(getattr(getattr(layer, "mlp", None), name, None)) is nn.Linear
        for layer in model.layers for name in ("gate_proj", "up_proj", "down_proj")
    )  # fmt: skip


def _named(module: nn.Module, path: str) -> nn.Linear:
    for name in path.split("."):
        module = module[name]
    return module  # type: ignore[return-value]


def _put(module: nn.Module, name: str, array: mx.array) -> None:
    module[name] = array.astype(module[name].dtype)


class _Noise:
    """Rows and columns of random numbers, the same every time; MLX's own state is left alone."""

    def __init__(self, seed: int) -> None:
        self._key = mx.random.key(seed)

    def __call__(self, rows: int, columns: int, width: int) -> mx.array:
        self._key, key = mx.random.split(self._key)
        return mx.random.normal((rows, columns), scale=width**-0.5, key=key)


def _wider(array: mx.array, width: int, noise: _Noise | None = None) -> mx.array:
    """More numbers in the last dimension."""
    more = width - array.shape[-1]
    if noise is None or array.ndim < 2:
        return mx.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, more)])
    return mx.concatenate([array, noise(array.shape[0], more, width)], axis=1)


def _taller(array: mx.array, height: int, noise: _Noise | None = None) -> mx.array:
    """More rows."""
    more = height - array.shape[0]
    if noise is None:
        return mx.pad(array, [(0, more), (0, 0)])
    return mx.concatenate([array, noise(more, array.shape[1], array.shape[1])], axis=0)
