"""A draft's weights as numpy, one part at a time: each is read from disk when it is asked for, and then let go."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from mirror_mlx.convert.options import Build
from mirror_mlx.convert.precision import Stored, stored
from mirror_mlx.convert.rope import frequencies
from mirror_mlx.draft.package.manifest import Precision
from mirror_mlx.draft.streaming.weights import is_streaming, load, load_dense
from mirror_mlx.errors import DraftError


@dataclass(frozen=True)
class Linear:
    """weight of shape (out, in), bias [out] float16 or None."""

    weight: Stored
    bias: np.ndarray | None = None


@dataclass(frozen=True)
class Norm:
    """RMSNorm: gain (1, 1, 1, n) float16."""

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
        self._model: Any
        if is_streaming(folder):
            self._model = load(folder, lazy=True)
            self.config, self._tracks = self._model.config, self._model.tracks
        else:
            self._model, self.config = load_dense(folder, boundary=build.boundary, streams=0, lazy=True)
            self._tracks = [self._model]
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

    def head_rows(self, size: int, padded: int) -> Iterator[Linear]:
        """The head [V', C or rank] in parts of `size` rows, the last one padded so that there are `padded` in all.

        Rows of padding have the bias −1e4.
        """
        parts = self._head_parts()
        for start in range(0, padded, size):
            stop = min(start + size, padded)
            rows = np.concatenate([_rows(part, start, stop) for part in parts], axis=1)
            bias = None
            if missing := stop - start - len(rows):
                bias = np.zeros(stop - start, np.float16)
                bias[len(rows) :] = -1e4
                rows = np.pad(rows, ((0, missing), (0, 0)))
            yield Linear(stored(rows, self._precision), bias)

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


def _norm(module: Any) -> Norm | None:
    return None if module is None else Norm(_half(module.weight, "a norm")[None, None, None, :], float(module.eps))


def _weight(module: Any, rows: slice = slice(None)) -> mx.array:
    """Some rows of the matrix [out, in] of a linear layer or an embedding, quantised or not."""
    if "scales" not in module:
        return module.weight[rows]
    biases = module.get("biases")
    return mx.dequantize(
        module.weight[rows], module.scales[rows], None if biases is None else biases[rows],
        group_size=module.group_size, bits=module.bits, mode=module.mode,
    )  # fmt: skip


def _rows(part: Any, start: int, stop: int) -> np.ndarray:
    """Some rows of the head, as many as there are."""
    rows = slice(start, stop)
    return _half(part[rows] if isinstance(part, mx.array) else _weight(part, rows), "the head")


def _half(array: mx.array, where: str) -> np.ndarray:
    """As float16. Raises DraftError for what is too large for it, or no number."""
    found = np.array(array.astype(mx.float16))
    mx.clear_cache()
    if not np.isfinite(found).all():
        raise DraftError(f"a weight of {where} is too large for float16, or no number: the draft cannot be converted")
    return found
