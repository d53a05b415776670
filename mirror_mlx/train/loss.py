"""How wrong a model is: about the next token, and about a teacher's opinion of it."""

import mlx.core as mx
import mlx.nn as nn


def cross_entropy(logits: mx.array, targets: mx.array, weights: mx.array) -> mx.array:
    """Weighted mean of −log p(target), in nats.

    `logits`: (rows, L, vocab); `targets`: (rows, L) token ids; `weights`: (rows, L). A scalar, 0 if all weights are.
    """
    losses = nn.losses.cross_entropy(logits.astype(mx.float32), targets, reduction="none")
    return weighted_mean(losses, weights)


def distillation(logits: mx.array, teacher_logits: mx.array, weights: mx.array) -> mx.array:
    """Weighted mean of KL(teacher ‖ student), in nats; shapes as in `cross_entropy`.

    Its gradient is that of Hinton et al. (2015) at temperature 1. What is matched is the distribution that
    verification will compare with, so the acceptance rate Σ min(p, q) rises as this falls (Pinsker's inequality).
    Where one vocabulary is padded further than the other, the entries only it has are left out.
    """
    entries = min(logits.shape[-1], teacher_logits.shape[-1])
    logits, teacher_logits = logits[..., :entries], teacher_logits[..., :entries]
    wanted = nn.log_softmax(teacher_logits.astype(mx.float32))
    given = nn.log_softmax(logits.astype(mx.float32))
    return weighted_mean((mx.exp(wanted) * (wanted - given)).sum(axis=-1), weights)


def known(logits: mx.array, ids: mx.array, logprobs: mx.array, places: mx.array | None = None) -> tuple[mx.array, ...]:
    """Two distributions over the teacher's best tokens and one entry for all others.

    `logits`: (..., V') of the student; `ids`, `logprobs`: (..., top) of the teacher. `places`: (V,) where the student
    has only some tokens: the column of each full id, or -1; what it lacks counts as others.
    Returns p, log p, q, log q, each (..., top + 1).
    """
    given = nn.log_softmax(logits.astype(mx.float32))
    chances = mx.exp(logprobs)
    if places is not None:
        ids = places[ids]
        chances = mx.where(ids >= 0, chances, 0.0)
        ids = mx.maximum(ids, 0)
    own = mx.take_along_axis(given, ids, axis=-1)
    p = mx.concatenate([chances, _rest(chances)], axis=-1)
    shares = mx.exp(own) if places is None else mx.where(chances > 0, mx.exp(own), 0.0)
    rest = _rest(shares)
    q = mx.concatenate([shares, rest], axis=-1)
    return p, mx.log(mx.maximum(p, _LEAST)), q, mx.concatenate([own, mx.log(rest)], axis=-1)


def divergence(kind: str, p: mx.array, log_p: mx.array, q: mx.array, log_q: mx.array) -> mx.array:
    """How far the student's q is from the teacher's p, (..., n) → (...).

    kl       KL(p ‖ q)
    reverse  KL(q ‖ p)
    lk       λ·KL(p ‖ q) + (1 − λ)·TV with λ = exp(−3·α), α = Σ min(p, q) the acceptance rate, without a gradient
             of its own: KL where the two are far apart, TV, which is 1 − α, where they are close (arXiv 2602.23881)
    """
    if kind == "reverse":
        return (q * (log_q - log_p)).sum(axis=-1)
    forward = (p * (log_p - log_q)).sum(axis=-1)
    if kind == "kl":
        return forward
    rate = acceptance(p, q)
    share = mx.exp(-3.0 * mx.stop_gradient(rate))
    return share * forward + (1 - share) * (1 - rate)


def acceptance(p: mx.array, q: mx.array) -> mx.array:
    """Σ min(p, q) (...): how often a proposal drawn from q is accepted by p."""
    return mx.minimum(p, q).sum(axis=-1)


_LEAST = 1e-8


def _rest(chances: mx.array) -> mx.array:
    return mx.maximum(1 - chances.sum(axis=-1, keepdims=True), _LEAST)


def weighted_mean(values: mx.array, weights: mx.array) -> mx.array:
    """Σ values·weights / Σ weights, and 0 where the weights are all 0."""
    return (values * weights).sum() / mx.maximum(weights.sum(), 1e-9)
