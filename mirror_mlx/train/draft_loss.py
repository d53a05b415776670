"""How far a streaming draft is from its target: the main stream, and each other against the positions it foresees."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from mirror_mlx.draft.streaming import StreamingModel
from mirror_mlx.train import loss

LARGE = 1 << 14
"""From this vocabulary on a head's logits are computed again for the gradient, rather than kept for every stream."""


@dataclass(frozen=True)
class Judged:
    """What is known of tokens 1 … T of rows [B, T + 1].

    tokens           [B, T]
    forward, reverse [B, T]       weights of the forward divergence and of the reverse one (None: of that nothing)
    best, logprobs   [B, T, top]  the target's opinion
    """

    tokens: mx.array
    forward: mx.array
    reverse: mx.array | None
    best: mx.array
    logprobs: mx.array

    def after(self, j: int) -> "Judged":
        """Of tokens 1 + j … T: what stream j is about."""
        reverse = None if self.reverse is None else self.reverse[:, j:]
        return Judged(self.tokens[:, j:], self.forward[:, j:], reverse, self.best[:, j:], self.logprobs[:, j:])


class DraftLoss:
    """kind: "lk", "kl" or "ce" (see `loss.divergence`); the streams' part counts `stream_weight` each."""

    def __init__(
        self, model: StreamingModel, target_vocab: int, *, kind: str, streams: int, stream_weight: float
    ) -> None:
        self.places = places(model, target_vocab)
        self._model, self._kind, self._streams, self._stream_weight = model, kind, streams, stream_weight
        # One function of plain arrays, so that its gradient can be had by doing it again.
        self._part: Callable[..., mx.array] = self._distance
        if model.config.base["vocab_size"] >= LARGE:
            self._part = nn.utils.checkpoint(model, self._distance)

    def __call__(self, ids: mx.array, judged: Judged) -> tuple[mx.array, mx.array]:
        """ids [B, T + 1] → what is minimised, and the main stream's part of it."""
        mains, ahead = self._model.hidden(ids[:, :-1], self._streams)
        plain = self._part(mains, *_arrays(judged))
        total = plain
        for j, rows in enumerate(ahead, start=1):
            later = judged.after(j)
            total = total + self._stream_weight * self._part([x[:, :-j] for x in rows], *_arrays(later))
        return total, plain

    def _distance(
        self, xs: list[mx.array], tokens: mx.array, forward: mx.array, best: mx.array, logprobs: mx.array,
        reverse: mx.array | None = None,
    ) -> mx.array:  # fmt: skip
        logits = self._model.logits(xs)
        tokens, best = mx.stop_gradient(tokens), mx.stop_gradient(best)  # indices; a checkpoint asks for all gradients
        if self._kind == "ce":
            columns = tokens if self.places is None else self.places[tokens]
            kept = forward if self.places is None else mx.where(columns >= 0, forward, 0.0)
            return loss.cross_entropy(logits, mx.maximum(columns, 0), kept)
        known = loss.known(logits, best, logprobs, self.places)
        values = forward * loss.divergence(self._kind, *known)
        if reverse is None:
            return values.sum() / mx.maximum(forward.sum(), 1e-9)
        values = values + reverse * loss.divergence("reverse", *known)
        return values.sum() / mx.maximum((forward + reverse).sum(), 1e-9)


def _arrays(judged: Judged) -> Sequence[mx.array]:
    some = (judged.tokens, judged.forward, judged.best, judged.logprobs)
    return some if judged.reverse is None else (*some, judged.reverse)


def places(made: StreamingModel, vocab: int) -> mx.array | None:
    """The draft's column for each of the target's ids [vocab], -1 for what it lacks; None where it has them all."""
    if made.token_ids is None and made.config.base["vocab_size"] >= vocab:
        return None
    kept = np.arange(made.config.base["vocab_size"]) if made.token_ids is None else np.array(made.token_ids)
    found = np.full(vocab, -1, np.int32)
    found[kept[kept < vocab]] = np.flatnonzero(kept < vocab)
    return mx.array(found)
