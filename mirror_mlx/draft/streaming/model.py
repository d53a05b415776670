"""The streaming draft: a decoder in two segments whose second one carries lookahead streams and, optionally, tracks.

    x_g = E_g[ids]                      track g holds 1/G of the width, of the heads and of the MLP
    segment 1: x_g ← layers 1 … b       mains only; nothing crosses tracks
    exchange:  x_g ← x_g + (R·x)_g      x = concat(x_1 … x_G), R learnt; nothing for G = 1
    streams:   s_j = x + P_j            P_j learnt, j = 1 … s
    segment 2: x_g ← layers b+1 … N     mains and streams
    exchange:  logits = Σ_g W_g·norm(x_g)

With one track and no streams it is the dense mlx-lm model, weight for weight. Tracks follow Mirror-SD (arXiv
2510.13161, 3.3 and F.2); a track is an mlx-lm model of its own, of 1/G of the width.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.utils import _get_classes

from mirror_mlx.draft.streaming.attention import with_streams
from mirror_mlx.draft.streaming.config import StreamingConfig

Rows = list[mx.array]
"""Activations of the tracks that live in this process, each [B, R, C/G]."""


class Head(nn.Module):
    """A smaller head than the model's own: factored to `rank`, or trimmed to some tokens, or both.

    `ids` [V'] are the full ids of its rows, or None. Factored, each track has `down` [rank, C/G]; their sum goes
    through `up` [V', rank].
    """

    def __init__(self, config: StreamingConfig, tracks: int) -> None:
        super().__init__()
        rows = config.head_size or config.base["vocab_size"]
        width = config.hidden_size // config.tracks
        if config.head_rank is None:
            self.rows = [mx.zeros((rows, width)) for _ in range(tracks)]
        else:
            self.down = [mx.zeros((config.head_rank, width)) for _ in range(tracks)]
            self.up = mx.zeros((rows, config.head_rank))

    def partial(self, track: int, x: mx.array) -> mx.array:
        """What a track contributes: [..., V'] or [..., rank]."""
        return x @ (self.down if "down" in self else self.rows)[track].T

    def finish(self, total: mx.array) -> mx.array:
        """The sum over tracks → logits [..., V']."""
        return total @ self.up.T if "up" in self else total


class StreamingModel(nn.Module):
    """See the module.

    group  a distributed group with one process for each track; None: all tracks live here
    """

    def __init__(self, config: StreamingConfig, group: mx.distributed.Group | None = None) -> None:
        super().__init__()
        if group is not None and group.size() != config.tracks:
            raise ValueError(f"the draft has {config.tracks} tracks and the group {group.size()} processes")
        self.config, self.model_type = config, config.track["model_type"]
        self._group = group
        self.here = range(config.tracks) if group is None else range(group.rank(), group.rank() + 1)
        model_class, args_class = _get_classes(config.track)
        self.tracks = [model_class(args_class.from_dict(config.track)) for _ in self.here]
        width = config.hidden_size // config.tracks
        if config.streams:
            self.stream_embeddings = [mx.zeros((config.streams, width)) for _ in self.here]
        if config.tracks > 1:
            self.align = [mx.zeros((width, config.hidden_size)) for _ in self.here]
        if config.head_rank or config.head_size:
            self.head = Head(config, len(self.here))
        if config.head_size:
            self.head_ids = mx.arange(config.head_size, dtype=mx.uint32)
            self.freeze(keys=["head_ids"], recurse=False)

    # The stages, on the rows of the tracks that live here.

    def embed(self, ids: mx.array) -> Rows:
        """ids [B, R] → the input of the first segment."""
        return [track.model.embed_tokens(ids) for track in self.tracks]

    def layers(self, segment: int) -> list[list[Any]]:
        """The blocks of segment 1 or 2, for each track that lives here."""
        cut = slice(self.config.boundary) if segment == 1 else slice(self.config.boundary, None)
        return [track.model.layers[cut] for track in self.tracks]

    def exchange(self, xs: Rows) -> Rows:
        """The first exchange: every track sees all of them."""
        if self.config.tracks == 1:
            return xs
        whole = self._gathered(xs)
        return [x + whole @ align.T for x, align in zip(xs, self.align, strict=True)]

    def logits(self, xs: Rows) -> mx.array:
        """The second exchange: final norm and head, summed over tracks: → [B, R, V']; the tokens are `token_ids`."""
        normed = [track.model.norm(x) for track, x in zip(self.tracks, xs, strict=True)]
        if "head" in self:
            parts = [self.head.partial(i, x) for i, x in enumerate(normed)]
            return self.head.finish(self._summed(parts))
        return self._summed([self._own_head(track, x) for track, x in zip(self.tracks, normed, strict=True)])

    @property
    def token_ids(self) -> mx.array | None:
        """The full ids of a trimmed head's rows [V'], or None."""
        return self.head_ids if self.config.head_size else None

    # A whole text at once, as in training.

    def hidden(self, ids: mx.array, streams: int) -> tuple[Rows, list[Rows]]:
        """ids [B, T] → the last layer's mains, and the rows of each of the first `streams` streams, before the norm."""
        xs = self.embed(ids)
        for i, layers in enumerate(self.layers(1)):
            for layer in layers:
                xs[i], _ = with_streams(layer, layer.self_attn.scale, xs[i], [])
        xs = self.exchange(xs)
        found: list[list[mx.array]] = []
        for i, layers in enumerate(self.layers(2)):
            added = [xs[i] + self.stream_embeddings[i][j] for j in range(streams)]
            for layer in layers:
                xs[i], added = with_streams(layer, layer.self_attn.scale, xs[i], added)
            found.append(added)
        return xs, [[rows[j] for rows in found] for j in range(streams)]

    def __call__(self, ids: mx.array, streams: int = 0) -> Any:
        """Logits of a text, ids [B, T]: mains [B, T, V'], which predict the next token; with `streams` also those of
        streams 1 … s [s, B, T, V'], of which stream j predicts the token j further on."""
        mains, ahead = self.hidden(ids, streams)
        if not streams:
            return self.logits(mains)
        return self.logits(mains), mx.stack([self.logits(xs) for xs in ahead])

    def _own_head(self, track: Any, x: mx.array) -> mx.array:
        return track.lm_head(x) if "lm_head" in track else track.model.embed_tokens.as_linear(x)

    def _gathered(self, xs: Rows) -> mx.array:
        """The tracks side by side: [B, R, C]."""
        if self._group is None:
            return mx.concatenate(xs, axis=-1)
        every = mx.distributed.all_gather(xs[0][None], group=self._group)
        return mx.concatenate(list(every), axis=-1)

    def _summed(self, parts: Sequence[mx.array]) -> mx.array:
        if self._group is not None:
            return mx.distributed.all_sum(parts[0], group=self._group)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total


def whole(logits: mx.array, ids: mx.array | None, vocab_size: int) -> mx.array:
    """Logits [R, V'] of a trimmed head over the whole vocabulary [R, V]: what it lacks is impossible.

    `ids` [V'] are the full ids of its rows; None: nothing is trimmed.
    """
    if ids is None:
        return logits
    spread = mx.full((logits.shape[0], vocab_size), -mx.inf)
    spread[:, ids] = logits.astype(mx.float32)
    return spread
