"""What the loop asks of a kind of training: what is trained, on what, how wrong it is, and what it ends in."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn

from mirror_mlx.train.batches import Batch, Batches
from mirror_mlx.train.checkpoint import Progress

Arrays = tuple[mx.array, ...]
Loss = Callable[..., tuple[mx.array, mx.array]]
"""(*arrays) → what is minimised, and the loss that is reported. It reads the model's own parameters."""


class Task(Protocol):
    """One run of some kind, prepared.

    model    the module whose trainable parameters are trained
    batches  the order of the data
    losses   the losses of its stages, by name
    """

    model: nn.Module
    batches: Batches
    losses: dict[str, Loss]

    def inputs(self, batch: Batch, progress: Progress, done: float) -> tuple[str, Arrays]:
        """The stage of this step, and what its loss is computed from. `done` is the share of the run behind it, from
        0 to 1. No gradient goes through; anything random depends on the seed and `progress` alone."""

    def validate(self) -> dict[str, float]:
        """Figures on what was held out, "val_loss" among them; none where nothing was."""

    def publish(self, progress: Progress, figures: dict[str, float]) -> None:
        """Write what has been trained so far to the out folder, as it would be used."""

    def facts(self) -> dict[str, Any]:
        """What a reader wants to know before the first step."""


def sample_facts(task: Task, held: Sequence[Batch], max_seq_length: int, parameters: int) -> dict[str, Any]:
    """The usual facts."""
    samples = task.batches.samples
    return {
        "parameters": parameters,
        "samples": len(samples),
        "tokens_per_epoch": sum(len(sample.ids) for sample in samples),
        "held_out_tokens": sum(batch.tokens for batch in held),
        "longest": max(len(sample.ids) for sample in samples),
        "cut": sum(len(sample.ids) > max_seq_length for sample in samples),
    }
