"""The training loop of every kind of run.

    result = loop.train(settings, make)                # `make(settings, resumed)` prepares the task
    result = loop.train(settings, make, resume=True)   # if it was interrupted: goes on exactly where it stood

`train` prints nothing: it reports to an `Observer`, and asks `stop` after every step.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from mirror_mlx import blas
from mirror_mlx.errors import UsageError
from mirror_mlx.train import checkpoint, plot
from mirror_mlx.train.batches import Batch
from mirror_mlx.train.checkpoint import Progress
from mirror_mlx.train.metrics import Metrics, Observer, Silent, Window
from mirror_mlx.train.settings import Settings
from mirror_mlx.train.step import learning_rate, make_optimizer, make_step, share_done
from mirror_mlx.train.task import Task

Kind = TypeVar("Kind", bound=Settings)


@dataclass(frozen=True)
class Result:
    """How a run ended: `finished` is False where `stop` ended it; the last figures on what was held out."""

    finished: bool
    progress: Progress
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def val_loss(self) -> float | None:
        """In nats per token; None without validation."""
        return self.figures.get("val_loss")


def train(
    settings: Kind,
    make: Callable[[Kind, Path | None], Task],
    *,
    resume: bool = False,
    observer: Observer | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Run `settings`, or go on with it; leaves what was trained in `settings.out`.

    make  prepares the task; told the out folder where a run goes on, else None

    Raises UsageError, DataError or ModelError where settings, data or a given model cannot be used; nothing is
    written then.
    """
    settings.check()
    blas.set_threads(os.cpu_count() or 1)
    observer = observer or Silent()
    out = Path(settings.out)
    found = checkpoint.find(out)
    if out.is_file() or (not resume and out.is_dir() and any(out.iterdir())):
        hint = "--resume goes on with its run" if found else "remove it, or choose another --out"
        raise UsageError(f"{settings.out} exists already: {hint}")
    if resume and not found:
        raise UsageError(f"{settings.out} holds no unfinished run to resume: leave out --resume")

    progress, stored = Progress(), settings.to_json()
    if resume:
        progress, before = checkpoint.read(found[-1])
        if before["fingerprint"] != stored["fingerprint"]:
            raise UsageError(f"cannot resume {settings.out}: the data files have changed since it was begun")
    task = make(settings, out if resume else None)
    optimizer = make_optimizer(task.model, settings)
    if resume:
        checkpoint.restore(found[-1], task.model, optimizer)
    metrics = Metrics(out / "metrics.jsonl", after=progress.step)
    observer.begin(settings, progress, task.facts())

    def save() -> None:
        checkpoint.save(out, task.model, optimizer, progress, stored)
        task.publish(progress, {})

    def validate() -> dict[str, float]:
        figures = task.validate()
        if figures:
            metrics.write({"step": progress.step, **figures})
            observer.validated(progress, figures)
            plot.draw(out)
        return figures

    advance = make_step(task, optimizer, settings)
    begun = time.monotonic() - progress.seconds
    window = Window()
    for epoch, place, batches in _grouped(task.batches.after(progress.epoch, progress.place), settings.accumulate):
        if share_done(settings, progress) >= 1:
            break
        rate = learning_rate(settings, progress)
        loss, norm = advance(batches, rate, progress)
        progress.step += 1
        progress.epoch, progress.place = epoch, place
        progress.tokens += sum(batch.tokens for batch in batches)
        progress.seconds = time.monotonic() - begun
        window.add(loss, sum(batch.tokens for batch in batches))
        last = share_done(settings, progress) >= 1
        if last or progress.step % settings.steps_per_report == 0:
            line = {"step": progress.step, "epoch": epoch, "learning_rate": rate, "grad_norm": norm}
            line |= window.close() | {"tokens": progress.tokens, "seconds": round(progress.seconds, 3)}
            metrics.write(line)
            observer.step(progress, line)
        if last:
            break
        if progress.step % settings.eval_every == 0:
            validate()
        if progress.step % settings.save_every == 0:
            save()
        if stop():
            save()
            return Result(False, progress)

    figures = validate()
    task.publish(progress, figures)
    plot.draw(out)
    checkpoint.remove(out)
    return Result(True, progress, figures)


def _grouped(batches: Iterator[tuple[int, int, Batch]], count: int) -> Iterator[tuple[int, int, list[Batch]]]:
    """So many batches at a time, with the position after the last of them."""
    while True:
        group = [next(batches) for _ in range(count)]
        epoch, place, _ = group[-1]
        yield epoch, place, [batch for _, _, batch in group]
