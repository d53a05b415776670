"""The on-policy stage: windows the draft itself proposes, with the runtime's own noise, and the target's verdict.

Up to the first rejection the draft is where the target's text is: there it learns the target's distribution (forward
KL). After it the draft is on its own: there it is drawn back to what the target still finds likely (reverse KL), the
less the further on (Draft-OPD, arXiv 2605.29343).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from mirror_mlx.draft.streaming import StreamingModel
from mirror_mlx.draft.streaming.attention import block
from mirror_mlx.draft.streaming.model import whole
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.train.teacher import best_of

DECAY = 0.8
"""Weight of a position after a rejection, against the one before it."""


@dataclass(frozen=True)
class Verdict:
    """Windows [B, γ] of a batch, the target's opinion of each position and of the one after them, ids and
    log-probabilities [B, γ + 1, top], and how many proposals of each window it accepts [B]."""

    windows: mx.array
    ids: mx.array
    logprobs: mx.array
    accepted: np.ndarray


def propose(
    model: StreamingModel, target: nn.Module, prefix: mx.array, samplers: Sequence[Sampler], count: int, top: int
) -> Verdict:
    """Windows of `count` tokens after `prefix` [B, n], one row with each of B samplers, and the target's verdict."""
    start = prefix.shape[1]
    decoder, vocab = _Decoder(model), int(target(prefix[:1, :1]).shape[-1])
    tokens, windows = prefix, []
    for i in range(count):
        logits = whole(decoder(tokens), model.token_ids, model.config.base["vocab_size"])[:, :vocab]
        tokens = mx.stack([s.choose(logits[b : b + 1], [start + i])[0] for b, s in enumerate(samplers)])[:, None]
        mx.eval(tokens)
        windows.append(tokens)
    window = mx.concatenate(windows, axis=1).astype(mx.int32)
    logits = target(mx.concatenate([prefix, window], axis=1))[:, start - 1 :]
    positions = range(start, start + count + 1)
    chosen = mx.stack([sampler.choose(logits[b], positions) for b, sampler in enumerate(samplers)])
    ids, logprobs = best_of(logits, top)
    agreed = np.array(chosen[:, :count].astype(mx.int32) == window)
    mx.eval(ids, logprobs)
    return Verdict(window, ids, logprobs, np.cumprod(agreed, axis=1).sum(axis=1))


def weights(accepted: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the forward and of the reverse divergence [B, γ] of each window position.

    >>> forward, reverse = weights(np.array([1]), 3)
    >>> forward, reverse.round(2)
    (array([[1., 0., 0.]], dtype=float32), array([[0. , 1. , 0.8]], dtype=float32))
    """
    after = np.arange(count)[None] - accepted[:, None]
    forward = (after < 0).astype(np.float32)
    reverse = np.where(after >= 0, DECAY ** np.maximum(after, 0), 0).astype(np.float32)
    return forward, reverse


def samplers(seed: int, step: int, rows: int, temperatures: Sequence[float]) -> list[Sampler]:
    """One for each row, with noise of its own; the rows take turns with the temperatures."""
    kinds = [Sampling(temperature=temperatures[row % len(temperatures)], seed=seed) for row in range(rows)]
    return [Sampler(kind, request=step * rows + row) for row, kind in enumerate(kinds)]


class _Decoder:
    """The main stream of a batch, a few tokens at a time."""

    def __init__(self, model: StreamingModel) -> None:
        self._model = model
        self._length = 0
        self._kept: dict[int, tuple[mx.array, mx.array]] = {}

    def __call__(self, tokens: mx.array) -> mx.array:
        """tokens [B, S] → logits of the last one [B, V']."""
        xs = self._model.embed(tokens)
        for segment in (1, 2):
            for i, layers in enumerate(self._model.layers(segment)):
                for layer in layers:
                    xs[i] = block(layer, xs[i], self._rotate, self._attend(layer))
            if segment == 1:
                xs = self._model.exchange(xs)
        self._length += tokens.shape[1]
        return self._model.logits([x[:, -1:] for x in xs])[:, 0]

    def _rotate(self, rope: Any, heads: mx.array) -> mx.array:
        return rope(heads, offset=self._length)

    def _attend(self, layer: Any) -> Any:
        def attend(queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
            if before := self._kept.get(id(layer)):
                keys, values = (mx.concatenate(pair, axis=2) for pair in zip(before, (keys, values), strict=True))
            self._kept[id(layer)] = keys, values
            mask = "causal" if queries.shape[2] > 1 else None
            return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=layer.self_attn.scale, mask=mask)

        return attend
