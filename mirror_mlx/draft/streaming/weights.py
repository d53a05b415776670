"""Streaming drafts on disk: mlx-lm's folder format.

With one track `model.safetensors` holds exactly the dense model's weights under mlx-lm's names, so that mlx-lm loads
the folder as an ordinary model, the main stream; what is ours lies beside it in `streams.safetensors`. With more
tracks there is no such model, and everything is in `model.safetensors`.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.utils import dequantize_model, load_model

from mirror_mlx.draft.streaming.config import KEY, TYPES, StreamingConfig
from mirror_mlx.draft.streaming.model import StreamingModel
from mirror_mlx.errors import DraftError

MAIN, OWN = "model.safetensors", "streams.safetensors"
_DENSE = "tracks.0."


def is_streaming(folder: Path) -> bool:
    """Whether the config.json in `folder` is that of a streaming draft."""
    try:
        return KEY in json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def load(folder: Path, group: mx.distributed.Group | None = None, *, lazy: bool = False) -> StreamingModel:
    """The streaming draft in `folder`; with `group` only this process's track; `lazy`: each weight is read when it is
    used. Raises DraftError."""
    try:
        config = StreamingConfig.of(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise DraftError(f"{folder}: config.json cannot be read: {error}") from None
    weights = arrays(folder)
    if not weights:
        raise DraftError(f"{folder} has no {MAIN}: the weights are missing")
    model = _made(config, weights, folder, group)
    if not lazy:
        mx.eval(model.parameters())
    return model


def arrays(folder: Path) -> dict[str, mx.array]:
    """All weights in `folder` by name; each is read from disk when it is used. Raises DraftError."""
    weights: dict[str, mx.array] = {}
    for file in [*sorted(folder.glob("model*.safetensors")), *folder.glob(OWN)]:
        try:
            found = mx.load(str(file))
        except (OSError, ValueError, RuntimeError) as error:
            raise DraftError(f"{file} is damaged: {error}") from None
        assert isinstance(found, dict)
        weights |= found
    return weights


def _made(
    config: StreamingConfig, weights: dict[str, mx.array], where: Path, group: mx.distributed.Group | None
) -> StreamingModel:
    model = StreamingModel(config, group)
    if config.tracks == 1:
        weights = {name if name in _own_names(model) else _DENSE + name: value for name, value in weights.items()}
    if quantization := config.base.get("quantization"):
        nn.quantize(
            model, quantization["group_size"], quantization["bits"], mode=quantization.get("mode", "affine"),
            class_predicate=lambda path, module: hasattr(module, "to_quantized") and f"{path}.scales" in weights,
        )  # fmt: skip
    if group is not None:
        weights = _of_rank(weights, group.rank())
    try:
        model.load_weights(list(weights.items()), strict=True)
    except ValueError as error:
        raise DraftError(f"{where}: the weights do not fit config.json: {str(error).splitlines()[0]}") from None
    model.eval()
    return model


def save(model: StreamingModel, folder: Path) -> None:
    """Write the weights into `folder`; config.json is `model.config.to_json()`, which the caller writes."""
    for name, weights in files(model).items():
        mx.save_safetensors(str(folder / name), weights, metadata={"format": "mlx"})


def files(model: StreamingModel) -> dict[str, dict[str, mx.array]]:
    """The weights by file, as they lie in a folder."""
    weights = dict(tree_flatten(model.parameters()))
    if model.config.tracks > 1:
        return {MAIN: weights}
    own = {name: value for name, value in weights.items() if not name.startswith(_DENSE)}
    main = {name.removeprefix(_DENSE): value for name, value in weights.items() if name.startswith(_DENSE)}
    return {MAIN: main, OWN: own} if own else {MAIN: main}


def from_dense(folder: Path, *, boundary: int | None, streams: int, lazy: bool = False) -> StreamingModel:
    """A streaming draft whose main stream is the Qwen3 or Llama model in `folder`, cut at `boundary` (None: half).
    `lazy`: as of `load`.

    The streams are not trained yet; quantised weights are no longer. Raises DraftError for another kind of model.
    """
    dense, config = load_dense(folder, boundary=boundary, streams=streams, lazy=lazy)
    dense = dequantize_model(dense)
    base = {key: value for key, value in config.base.items() if key not in ("quantization", "quantization_config")}
    model = StreamingModel(replace(config, base=base))
    model.tracks[0].update(dense.parameters())
    return model


def load_dense(
    folder: Path, *, boundary: int | None, streams: int, lazy: bool = False
) -> tuple[nn.Module, StreamingConfig]:
    """The Qwen3 or Llama model in `folder` as mlx-lm loads it, and what a streaming draft made of it would be.

    Arguments as of `from_dense` and `load`. Raises DraftError for another kind of model.
    """
    try:
        dense, config = load_model(folder, lazy=lazy)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise DraftError(f"{folder} cannot be loaded: {error}") from None
    if config.get("model_type") not in TYPES:
        raise DraftError(f"{folder} is a {config.get('model_type')} model: a draft is made of {', '.join(TYPES)}")
    boundary = config["num_hidden_layers"] // 2 if boundary is None else boundary
    return dense, StreamingConfig.of(config | {KEY: {"boundary": boundary, "streams": streams}})


def _own_names(model: StreamingModel) -> set[str]:
    return {name for name, _ in tree_flatten(model.parameters()) if not name.startswith(_DENSE)}


def _of_rank(weights: dict[str, Any], rank: int) -> dict[str, Any]:
    """The weights of one track, which is the first and only one in its process."""
    kept = {}
    for name, value in weights.items():
        parts = name.split(".")
        place = next((i for i, part in enumerate(parts) if part.isdigit()), None)
        per_track = parts[0] in ("tracks", "align", "stream_embeddings") or parts[:2] in (
            ["head", "rows"],
            ["head", "down"],
        )
        if not per_track:
            kept[name] = value
        elif place is not None and int(parts[place]) == rank:
            parts[place] = "0"
            kept[".".join(parts)] = value
    return kept
