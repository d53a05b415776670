"""One update of the weights, the rate it is done at, and the loss on what was held out."""

import math
import shutil
from collections.abc import Callable
from functools import partial

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

from mirror_mlx.train import loss
from mirror_mlx.train.batches import Batch
from mirror_mlx.train.checkpoint import Progress
from mirror_mlx.train.settings import Settings

LOWEST = 0.02
"""The learning rate ends at this share of its peak."""


def make_step(
    student: nn.Module, teacher: nn.Module | None, optimizer: optim.Optimizer, settings: Settings
) -> Callable[[Batch, float], tuple[float, float]]:
    """A function of (batch, learning rate) that does one update and returns (cross-entropy, gradient norm)."""

    def objective(ids: mx.array, weights: mx.array, teacher_logits: mx.array | None) -> tuple[mx.array, mx.array]:
        logits = student(ids[:, :-1])
        plain = loss.cross_entropy(logits, ids[:, 1:], weights)
        if teacher_logits is None:
            return plain, plain
        share = settings.distill_weight
        return share * loss.distillation(logits, teacher_logits, weights) + (1 - share) * plain, plain

    gradient = nn.value_and_grad(student, objective)
    state = [student.state, optimizer.state]

    def update(ids: mx.array, weights: mx.array, teacher_logits: mx.array | None) -> tuple[mx.array, mx.array]:
        (_, plain), gradients = gradient(ids, weights, teacher_logits)
        gradients, norm = optim.clip_grad_norm(gradients, settings.grad_clip)
        optimizer.update(student, gradients)
        return plain, norm

    if pays_to_compile(settings):
        update = partial(mx.compile, inputs=state, outputs=state)(update)

    def advance(batch: Batch, rate: float) -> tuple[float, float]:
        optimizer.learning_rate = rate
        ids = mx.array(batch.ids)
        teacher_logits = teacher(ids[:, :-1]) if teacher else None
        plain, norm = update(ids, mx.array(batch.weights), teacher_logits)
        mx.eval(state, plain, norm)
        return float(plain), float(norm)

    return advance


def pays_to_compile(settings: Settings) -> bool:
    """On Metal always. On the CPU it saves about a fifth of a step, after 15 s in a C++ compiler that has to exist."""
    if mx.metal.is_available():
        return True
    long = settings.minutes >= 5 if settings.minutes is not None else (settings.iters or 0) >= 200
    return long and shutil.which("g++") is not None


def evaluate(student: nn.Module, held: list[Batch]) -> tuple[float, float]:
    """Mean loss over all held-out tokens, and over the assistant's alone, in nats per token."""
    sums = mx.zeros(2)
    counts = mx.zeros(2)
    for batch in held:
        ids, answer = mx.array(batch.ids), mx.array(batch.answer)
        losses = nn.losses.cross_entropy(student(ids[:, :-1]).astype(mx.float32), ids[:, 1:], reduction="none")
        sums = sums + mx.stack([losses.sum(), (losses * answer).sum()])
        counts = counts + mx.stack([mx.array(float(losses.size)), answer.sum().astype(mx.float32)])
        mx.eval(sums, counts)
    means = sums / mx.maximum(counts, 1)
    return float(means[0]), float(means[1])


def share_done(settings: Settings, progress: Progress) -> float:
    """How much of the run is behind it, from 0 to 1 and beyond."""
    if settings.iters is not None:
        return progress.step / settings.iters
    return progress.seconds / (60 * (settings.minutes or 1))


def learning_rate(settings: Settings, progress: Progress) -> float:
    """Linear warm-up over `warmup` steps, times half a cosine of the share done: time may be what bounds the run."""
    warm = min(1.0, (progress.step + 1) / settings.warmup) if settings.warmup else 1.0
    fall = 0.5 * (1 + math.cos(math.pi * min(1.0, share_done(settings, progress))))
    return settings.learning_rate * warm * (LOWEST + (1 - LOWEST) * fall)
