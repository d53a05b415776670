"""What a pass says of the tokens that follow its rows: all logits, or the best of each bucket of the vocabulary."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import mlx.core as mx
import numpy as np

from mirror_mlx.draft.streaming.model import whole
from mirror_mlx.messages import Candidates
from mirror_mlx.ranking import rank
from mirror_mlx.rejection import Proposals, propose, propose_of
from mirror_mlx.sampling import Sampler


class Predictions(Protocol):
    """Of R rows; `positions` [R] are those of the tokens predicted."""

    def part(self, rows: slice) -> "Predictions":
        """Of these rows alone."""

    def choose(
        self, sampler: Sampler, positions: Sequence[int], sharp: np.ndarray | None = None, after: int = 0
    ) -> Proposals:
        """What each row proposes [R], as full ids. `sharp` [R]: each row's distribution to this power; after: as of
        `rejection.propose`."""

    def candidates(self, sampler: Sampler, positions: Sequence[int], window: Sequence[int], count: int) -> Candidates:
        """Up to `count` likely tokens of each row, and the probability of `window` [R-1], the token after each row."""


@dataclass(frozen=True)
class Full:
    """logits [R, V'] of a head whose rows are `ids` [V'], or all `vocab_size` (None)."""

    logits: mx.array
    ids: mx.array | None
    vocab_size: int

    def part(self, rows: slice) -> "Full":
        return replace(self, logits=self.logits[rows])

    def choose(
        self, sampler: Sampler, positions: Sequence[int], sharp: np.ndarray | None = None, after: int = 0
    ) -> Proposals:
        logits = self.logits if sharp is None else self.logits * mx.array(sharp)[:, None]
        return propose(sampler, self._whole(logits), positions, after)

    def candidates(self, sampler: Sampler, positions: Sequence[int], window: Sequence[int], count: int) -> Candidates:
        return rank(sampler.opinion(self._whole(self.logits), positions), window, count).read()

    def _whole(self, logits: mx.array) -> mx.array:
        """Over the whole vocabulary, by whose ids the noise goes."""
        return whole(logits, self.ids, self.vocab_size)


@dataclass(frozen=True)
class Buckets:
    """The vocabulary dealt out into K buckets, and of each bucket its best token: what a device can say without handing
    over a vocabulary. The best token of all, and the normaliser, are exact; of two good tokens in one bucket the second
    is not seen.

    ids     [R, K]  the best token of each bucket, as a full id
    logits  [R, K]  its logit
    sums    [R, K]  Σ exp(logit − the best one) over the bucket, so at least 1
    bucket          which bucket each full id is in [V]; -1: the head lacks it
    """

    ids: np.ndarray
    logits: np.ndarray
    sums: np.ndarray
    bucket: np.ndarray

    def part(self, rows: slice) -> "Buckets":
        return Buckets(self.ids[rows], self.logits[rows], self.sums[rows], self.bucket)

    def choose(
        self, sampler: Sampler, positions: Sequence[int], sharp: np.ndarray | None = None, after: int = 0
    ) -> Proposals:
        return propose_of(sampler, self.ids, self._logprobs(sharp), positions, len(self.bucket), after)

    def candidates(self, sampler: Sampler, positions: Sequence[int], window: Sequence[int], count: int) -> Candidates:
        scores = sampler.opinion_of(self.ids, self._logprobs(), positions, len(self.bucket))
        probs = np.exp(scores - scores.max(axis=-1, keepdims=True))
        probs /= probs.sum(axis=-1, keepdims=True)
        order = np.argsort(-probs, axis=-1, kind="stable")[:, :count]
        return Candidates(
            tokens=np.take_along_axis(self.ids, order, -1).tolist(),
            probs=np.take_along_axis(probs, order, -1).tolist(),
            own=[self._own(row, token, probs[row]) for row, token in enumerate(window)],
        )

    def _own(self, row: int, token: int, probs: np.ndarray) -> float:
        """The probability of a token: exact for a best one, else what is left of its bucket, which it is at most."""
        place = int(self.bucket[token]) if token < len(self.bucket) else -1
        if place < 0:
            return 0.0
        if self.ids[row, place] == token:
            return float(probs[place])
        return float(min(1.0, probs[place] * (self.sums[row, place] - 1.0)))

    def _logprobs(self, sharp: np.ndarray | None = None) -> np.ndarray:
        """[R, K], over the whole vocabulary. Of a sharpened distribution the sums are not known: there the best tokens
        are taken for all of it."""
        logits, sums = self.logits, self.sums
        if sharp is not None:
            logits, sums = logits * sharp[:, None], np.where(sharp[:, None] == 1, sums, 1.0)
        best = logits.max(axis=-1, keepdims=True)
        normaliser = best + np.log((sums * np.exp(logits - best)).sum(axis=-1, keepdims=True))
        return np.asarray(logits - normaliser)
