"""One update of the weights, the rate it is done at, and the optimizers."""

import math
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_map

from mirror_mlx.train.batches import Batch
from mirror_mlx.train.checkpoint import Progress
from mirror_mlx.train.settings import Settings
from mirror_mlx.train.task import Arrays, Task

LOWEST = 0.02
"""The learning rate ends at this share of its peak."""
_ADAM_SHARE = 0.15
"""With Muon: AdamW's rate, for embeddings, norms and heads, as a share of the rate for the matrices."""

Step = Callable[[Sequence[Batch], float, Progress], tuple[float, float]]


class _Muon(optim.Muon):
    """MLX's Muon with decoupled weight decay: in the gradient it would be orthogonalised away."""

    def __init__(self, learning_rate: float, decay: float) -> None:
        super().__init__(learning_rate, weight_decay=0.0)
        self.decay = decay

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict[str, Any]) -> mx.array:
        return super().apply_single(gradient, parameter * (1 - self.learning_rate * self.decay), state)


class _AdamShare(optim.AdamW):
    """AdamW at a share of the rate it is set to."""

    def apply_gradients(self, gradients: dict[str, Any], parameters: dict[str, Any]) -> Any:
        rate = self.learning_rate
        self.learning_rate = rate * _ADAM_SHARE
        updated = super().apply_gradients(gradients, parameters)
        self.learning_rate = rate
        return updated


def make_optimizer(model: nn.Module, settings: Settings) -> optim.Optimizer:
    """AdamW, or Muon for the matrices of the layers with AdamW for everything else, ready for `model`."""
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "adamw":
        optimizer: optim.Optimizer = optim.AdamW(rate, betas=[0.9, 0.98], weight_decay=decay, bias_correction=True)
    else:
        rest = _AdamShare(rate, betas=[0.9, 0.98], weight_decay=0.0, bias_correction=True)
        optimizer = optim.MultiOptimizer([_Muon(rate, decay), rest], [_is_matrix_of_a_layer])
    optimizer.init(model.trainable_parameters())
    return optimizer


def _is_matrix_of_a_layer(name: str, value: mx.array) -> bool:
    return value.ndim == 2 and ".layers." in f".{name}"


def make_step(task: Task, optimizer: optim.Optimizer, settings: Settings) -> Step:
    """A function of (batches, learning rate, progress) that does one update over them and returns (loss, gradient
    norm before clipping)."""
    state = [task.model.state, optimizer.state]
    compiling = pays_to_compile(settings)

    def gradient_of(stage: str) -> Callable[..., Any]:
        gradient = nn.value_and_grad(task.model, task.losses[stage])
        return partial(mx.compile, inputs=state, outputs=state)(gradient) if compiling else gradient

    gradients = {stage: gradient_of(stage) for stage in task.losses}

    def apply(total: Any, scale: mx.array) -> mx.array:
        clipped, norm = optim.clip_grad_norm(tree_map(lambda leaf: leaf * scale, total), settings.grad_clip)
        optimizer.update(task.model, clipped)
        return norm

    if compiling:
        apply = partial(mx.compile, inputs=state, outputs=state)(apply)

    def advance(batches: Sequence[Batch], rate: float, progress: Progress) -> tuple[float, float]:
        optimizer.learning_rate = rate
        total, told = None, 0.0
        for batch in batches:
            stage, arrays = task.inputs(batch, progress, min(1.0, share_done(settings, progress)))
            _eval(arrays)
            (_, loss), found = gradients[stage](*arrays)
            total = found if total is None else tree_map(mx.add, total, found)
            mx.eval(total, loss)
            told += float(loss) / len(batches)
        norm = apply(total, mx.array(1 / len(batches)))
        mx.eval(state, norm)
        return told, float(norm)

    return advance


def _eval(arrays: Arrays) -> None:
    mx.eval(*arrays)


def pays_to_compile(settings: Settings) -> bool:
    """On Metal always. On the CPU it saves about a fifth of a step, after 15 s in a C++ compiler that has to exist."""
    if mx.metal.is_available():
        return True
    long = settings.minutes >= 5 if settings.minutes is not None else (settings.iters or 0) >= 200
    return long and shutil.which("g++") is not None


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
