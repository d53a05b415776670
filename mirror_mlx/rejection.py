"""Proposals drawn from a known law, and the rule that accepts them without changing the target's: rejection sampling
(Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318).

The law of the text is the target's; which text it is, is not plain decoding's, as it depends on what was proposed. The
draft draws with noise of its own: neither the coins nor the residual's noise may know of it. And it draws anew in every
step: what was proposed before and not come to decides what is prepared for, and how long the next window is, but must
not say what the next window holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mirror_mlx.sampling import Sampler

_TAIL = 128  # tokens a draft chooses among where its probabilities have to be known


@dataclass(frozen=True, slots=True)
class Law:
    """What a token was drawn from: ids [K] and their probabilities [K], which sum to 1."""

    ids: np.ndarray
    probs: np.ndarray


@dataclass(frozen=True, slots=True)
class Proposals:
    """Of R rows: a token each, how likely the row finds it, and what it was drawn from where that has to be known."""

    tokens: list[int]
    confidences: list[float]
    laws: list[Law] | None = None


def propose(sampler: Sampler, logits: mx.array, positions: Sequence[int], after: int = 0) -> Proposals:
    """What a draft proposes for each row of logits [R, V]. after: how many tokens the text has; see `Sampler.draws`."""
    s = sampler.sampling
    if s.coupled or s.greedy:
        scores = sampler.scores(logits, positions)
        tokens = mx.argmax(scores, axis=-1)
        sure = mx.exp(mx.max(scores, axis=-1) - mx.logsumexp(scores, axis=-1))
        mx.eval(tokens, sure)
        return Proposals(tokens.tolist(), sure.tolist())  # type: ignore[arg-type]
    warped = sampler.warped(logits, positions)
    count = min(_TAIL, warped.shape[-1])
    ids = mx.argpartition(-warped, kth=count - 1, axis=-1)[:, :count]
    best = mx.take_along_axis(warped, ids, axis=-1)
    return _drawn(sampler, np.array(ids), np.array(best), positions, after)


def propose_of(
    sampler: Sampler,
    ids: np.ndarray,
    logprobs: np.ndarray,
    positions: Sequence[int],
    vocab_size: int,
    after: int = 0,
) -> Proposals:
    """The same where only some tokens of each row are known: ids and their log-probabilities [R, K]."""
    s = sampler.sampling
    if not (s.coupled or s.greedy):
        return _drawn(sampler, ids, sampler.warp_few(ids, logprobs, positions), positions, after)
    scores = sampler.scores_of(ids, logprobs, positions, vocab_size)
    best = scores.argmax(axis=-1)
    sure = 1.0 / np.exp(scores - scores.max(axis=-1, keepdims=True)).sum(axis=-1)
    return Proposals([int(row[place]) for row, place in zip(ids, best, strict=True)], sure.tolist())


def judge(
    sampler: Sampler,
    logits: mx.array,
    positions: Sequence[int],
    tokens: Sequence[int],
    window: Sequence[int],
    laws: Sequence[Law | None],
) -> mx.array:
    """Logits [γ+1, V] → for each row its proposal where that is accepted, else a token of the residual law [γ+1]; the
    last row's token is the target's own.

    tokens  the text with the proposals, for logits processors
    laws    what each proposal was drawn from; None: it was given, whatever chose it
    """
    p = mx.softmax(sampler.warped(logits, positions, tokens), axis=-1)
    noise = sampler.noise(positions, p.shape[-1])
    if not window:
        return mx.argmax(mx.log(p) + noise, axis=-1)
    told = np.zeros((len(window), p.shape[-1]), np.float32)
    for row, (token, law) in enumerate(zip(window, laws, strict=True)):
        told[row, token if law is None else law.ids] = 1.0 if law is None else law.probs
    q, proposals, rows = mx.array(told), mx.array(list(window)), mx.arange(len(window))
    accepted = sampler.coins(positions[: len(window)]) * q[rows, proposals] < p[rows, proposals]
    left = mx.concatenate([mx.maximum(p[:-1] - q, 0.0), p[-1:]])
    drawn = mx.argmax(mx.log(left) + noise, axis=-1)
    return mx.concatenate([mx.where(accepted, proposals, drawn[:-1]), drawn[-1:]])


def _drawn(sampler: Sampler, ids: np.ndarray, warped: np.ndarray, positions: Sequence[int], after: int) -> Proposals:
    """Drawn with noise of the draft's own, from exactly the law that is told."""
    laws = np.exp(warped - warped.max(axis=-1, keepdims=True))
    laws /= laws.sum(axis=-1, keepdims=True)
    if sampler.sampling.downweight is not None:
        laws = _downweighted(laws, *sampler.sampling.downweight)
    with np.errstate(divide="ignore"):
        best = (np.log(laws) + sampler.draws(ids, positions, after)).argmax(axis=-1)
    tokens = [int(row[place]) for row, place in zip(ids, best, strict=True)]
    sure = np.take_along_axis(laws, best[:, None], -1)[:, 0].tolist()
    return Proposals(tokens, sure, [Law(*row) for row in zip(ids, laws, strict=True)])


def _downweighted(laws: np.ndarray, first: int, factor: float) -> np.ndarray:
    """Saguaro sampling (SSD, arXiv 2603.03251, definition 14): the `first` likeliest tokens of each row get `factor`
    times their probability, so that what is rejected ends at one of them more often: at one that was prepared for.

    >>> _downweighted(np.array([[0.5, 0.3, 0.2]]), 1, 0.5).round(2).tolist()
    [[0.33, 0.4, 0.27]]
    """
    count = min(first, laws.shape[-1])
    likeliest = np.argpartition(-laws, count - 1, axis=-1)[:, :count]
    found = laws.copy()
    np.put_along_axis(found, likeliest, np.take_along_axis(laws, likeliest, -1) * factor, -1)
    total = found.sum(axis=-1, keepdims=True)
    return np.where(total > 0, found / np.maximum(total, 1e-30), laws)
