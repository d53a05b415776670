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


def weighted_mean(values: mx.array, weights: mx.array) -> mx.array:
    """Σ values·weights / Σ weights, and 0 where the weights are all 0."""
    return (values * weights).sum() / mx.maximum(weights.sum(), 1e-9)
