"""A draft's weights as numpy, one part at a time: each is read from disk when it is asked for, and then let go."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.utils import load_model

from mirror_mlx.convert.options import Build
from mirror_mlx.convert.precision import Stored, stored
from mirror_mlx.convert.rope import frequencies
from mirror_mlx.draft.package.manifest import Precision
from mirror_mlx.draft.streaming import StreamingConfig, StreamingModel, is_streaming
from mirror_mlx.draft.streaming.config import KEY, TYPES
from mirror_mlx.errors import DraftError

_OWN = ("head", "head_ids", "align", "stream_embeddings")


@dataclass(frozen=True)
class Linear:
    """weight of shape (out, in), bias [out] float16 or None."""

    weight: Stored
    bias: np.ndarray | None = None


@dataclass(frozen=True)
class Norm:
    """RMSNorm: gain [n] float16."""

    gain: np.ndarray
    eps: float


@dataclass(frozen=True)
class Block:
    """One layer of one track."""

    heads: int
    kv_heads: int
    scale: float
    input_norm: Norm
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    q_norm: Norm | None
    k_norm: Norm | None
    post_norm: Norm
    gate: Linear
    up: Linear
    down: Linear


class Draft:
    """The draft in `folder`, streaming or an ordinary mlx-lm model (no streams, cut at `build.boundary`).

    Nothing is read until it is asked for, and a part can be asked for once. Raises DraftError for what is no draft,
    is damaged, or cannot be converted.
    """

    def __init__(self, folder: Path, build: Build) -> None:
        self._precision: Precision = build.precision
        self._model, self.config = _streaming(folder) if is_streaming(folder) else _ordinary(folder, build.boundary)
        self._tracks = self._model.tracks if isinstance(self._model, StreamingModel) else [self._model]
        build.check_draft(self.config)
        attention = self._tracks[0].model.layers[0].self_attn
        self.kv_heads = int(attention.n_kv_heads)
        self.frequencies = frequencies(attention.rope, self.config.head_dim)

    @property
    def head_size(self) -> int:
        """V', rows of the head."""
        return int(self.config.head_size or self.config.base["vocab_size"])

    @property
    def head_width(self) -> int:
        """What the head's rows are multiplied with: C, or the rank of a factored head."""
        return int(self.config.head_rank or self.config.hidden_size)

    def block(self, track: int, layer: int) -> Block:
        layers = self._tracks[track].model.layers
        module, layers[layer] = layers[layer], None
        a, mlp = module.self_attn, module.mlp
        where = f"layer {layer}"
        return Block(
            a.n_heads, a.n_kv_heads, float(a.scale), _norm(module.input_layernorm),
            self._linear(a.q_proj, where), self._linear(a.k_proj, where), self._linear(a.v_proj, where),
            self._linear(a.o_proj, where), _norm(a.get("q_norm")), _norm(a.get("k_norm")),
            _norm(module.post_attention_layernorm), self._linear(mlp.gate_proj, where),
            self._linear(mlp.up_proj, where), self._linear(mlp.down_proj, where),
        )  # fmt: skip

    def align(self, track: int) -> Linear | None:
        """What a track takes of all of them at the boundary, (c, C); None for one track."""
        if self.config.tracks == 1:
            return None
        return Linear(stored(_half(self._model.align[track], "align"), self._precision))

    def norm(self, track: int) -> Norm:
        """The final norm."""
        found = _norm(self._tracks[track].model.norm)
        assert found is not None
        return found

    def head_down(self, track: int) -> Linear | None:
        """A factored head's part before the sum over tracks, (rank, c); None where the head is not factored."""
        if not self.config.head_rank:
            return None
        return Linear(stored(_half(self._model.head.down[track], "the head"), self._precision))

    def head_rows(self, size: int, padded: int) -> Sequence[Linear]:
        """The head [V', C or rank] in parts of `size` rows, the last one padded so that there are `padded` in all.

        Rows of padding have the bias −1e4.
        """
        parts = self._head_parts()
        made = []
        for start in range(0, padded, size):
            stop = min(start + size, padded)
            rows = np.concatenate([_rows(part, start, stop) for part in parts], axis=1)
            bias = None
            if missing := stop - start - len(rows):
                bias = np.zeros(stop - start, np.float16)
                bias[len(rows) :] = -1e4
                rows = np.pad(rows, ((0, missing), (0, 0)))
            made.append(Linear(stored(rows, self._precision), bias))
        return made

    def _head_parts(self) -> list[Any]:
        """Of each track, what multiplies its rows: modules or arrays, taken out of the model."""
        if "head" in self._model:
            head = self._model.pop("head")
            return [head.up] if "up" in head else list(head.rows)
        return [
            track.pop("lm_head") if "lm_head" in track else track.model.pop("embed_tokens") for track in self._tracks
        ]

    def _linear(self, module: Any, where: str) -> Linear:
        bias = _half(module.bias, where) if "bias" in module else None
        return Linear(stored(_half(_weight(module), where), self._precision), bias)


def _streaming(folder: Path) -> tuple[Any, StreamingConfig]:
    try:
        config = StreamingConfig.of(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise DraftError(f"{folder}: config.json cannot be read: {error}") from None
    weights: dict[str, Any] = {}
    for file in [*sorted(folder.glob("model*.safetensors")), *folder.glob("streams.safetensors")]:
        try:
            weights |= mx.load(str(file))
        except (OSError, ValueError, RuntimeError) as error:
            raise DraftError(f"{file} is damaged: {error}") from None
    model = StreamingModel(config)
    if config.tracks == 1:
        weights = {n if n.split(".")[0] in _OWN else f"tracks.0.{n}": value for n, value in weights.items()}
    if quantization := config.base.get("quantization"):
        nn.quantize(
            model, quantization["group_size"], quantization["bits"], mode=quantization.get("mode", "affine"),
            class_predicate=lambda path, module: hasattr(module, "to_quantized") and f"{path}.scales" in weights,
        )  # fmt: skip
    try:
        model.load_weights(list(weights.items()), strict=True)
    except ValueError as error:
        raise DraftError(f"{folder}: the weights do not fit config.json: {str(error).splitlines()[0]}") from None
    return model, config


def _ordinary(folder: Path, boundary: int | None) -> tuple[Any, StreamingConfig]:
    try:
        model, config = load_model(folder, lazy=True)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise DraftError(f"{folder} cannot be loaded: {error}") from None
    if config.get("model_type") not in TYPES:
        raise DraftError(f"{folder} is a {config.get('model_type')} model: a draft is made of {', '.join(TYPES)}")
    boundary = config["num_hidden_layers"] // 2 if boundary is None else boundary
    return model, StreamingConfig.of(config | {KEY: {"boundary": boundary, "streams": 0}})


def _norm(module: Any) -> Norm | None:
    return None if module is None else Norm(_half(module.weight, "a norm"), float(module.eps))


def _weight(module: Any) -> Any:
    """The matrix [out, in] of a linear layer or an embedding, quantised or not."""
    if "scales" not in module:
        return module.weight
    return mx.dequantize(
        module.weight, module.scales, module.get("biases"), group_size=module.group_size, bits=module.bits,
        mode=module.mode,
    )  # fmt: skip


def _rows(part: Any, start: int, stop: int) -> np.ndarray:
    """Some rows of the head, as many as there are."""
    if isinstance(part, mx.array):
        return _half(part[start:stop], "the head")
    if "scales" not in part:
        return _half(part.weight[start:stop], "the head")
    biases = part.get("biases")
    cut = mx.dequantize(
        part.weight[start:stop], part.scales[start:stop], None if biases is None else biases[start:stop],
        group_size=part.group_size, bits=part.bits, mode=part.mode,
    )  # fmt: skip
    return _half(cut, "the head")


def _half(array: mx.array, where: str) -> np.ndarray:
    """As float16. Raises DraftError for what is too large for it, or no number."""
    found = np.array(array.astype(mx.float16))
    mx.clear_cache()
    if not np.isfinite(found).all():
        raise DraftError(f"a weight of {where} is too large for float16, or no number: the draft cannot be converted")
    return found
