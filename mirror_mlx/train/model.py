"""The model to train: a new one of any architecture mlx-lm has, or one from a folder."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map, tree_unflatten
from mlx_lm.utils import _get_classes, load_model

from mirror_mlx.errors import ModelError, UsageError


def build(config: dict[str, Any], seed: int) -> nn.Module:
    """A new model of `config` (the keys of config.json) with random float32 weights, the same for the same `seed`.

    Raises UsageError where mlx-lm does not know the architecture or a key is missing or impossible.
    """
    try:
        model_class, args_class = _get_classes(config)
        mx.random.seed(seed)
        model = model_class(args_class.from_dict(config))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"no model can be made of this configuration: {error}") from None
    initialise(model, config.get("num_hidden_layers", 1))
    mx.eval(model.parameters())
    return model


def from_folder(folder: str, flag: str, *, teaches: bool = False) -> tuple[nn.Module, dict[str, Any]]:
    """The model in a local mlx-lm folder and its config, in float32 for training.

    One that `teaches` is frozen, may be quantised, and on Metal keeps its own type, which takes half the memory.

    Raises ModelError naming `flag` where it is missing, unreadable, or quantised and to be trained.
    """
    path = Path(folder)
    if not (path / "config.json").is_file():
        raise ModelError(f"{flag} {folder} is not a model folder: it has no config.json")
    try:
        model, config = load_model(path)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise ModelError(f"{flag} {folder} cannot be loaded: {error}") from None
    if "quantization" in config and not teaches:
        raise ModelError(f"{flag} {folder} is quantised: give the model it was made from")
    if teaches:
        model.freeze()
    if not (teaches and mx.metal.is_available()):
        model.update(tree_map(_to_float32, model.parameters()))
    mx.eval(model.parameters())
    return model, config


def count(model: nn.Module) -> int:
    """How many parameters the model has."""
    return sum(value.size for _, value in tree_flatten(model.parameters()))


def initialise(model: nn.Module, layers: int) -> None:
    """Normal weights: 0.02 for embeddings, 1/√inputs for products, less where a layer adds to the residual stream."""
    fresh = []
    for name, value in tree_flatten(model.parameters()):
        if value.ndim == 2:
            # An exchange between tracks starts as none.
            scale = 0.02 if "embed" in name else 0.0 if "align" in name else value.shape[1] ** -0.5
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                scale /= (2 * layers) ** 0.5
            value = mx.random.normal(value.shape, scale=scale)
        fresh.append((name, _to_float32(value)))
    model.update(tree_unflatten(fresh))


def _to_float32(value: mx.array) -> mx.array:
    return value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value
