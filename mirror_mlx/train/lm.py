"""Training a causal language model: the loop, and what it is made of.

    settings = Settings(data=("chats.jsonl",), out="tiny", iters=100)
    result = lm.train(settings)              # tiny/ is a folder that mlx_lm.load reads
    result = lm.train(settings, resume=True) # if it was interrupted: goes on exactly where it stood

`train` prints nothing: it reports to an `Observer`, and asks `stop` after every step.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mlx.optimizers as optim

from mirror_mlx import blas
from mirror_mlx.errors import UsageError
from mirror_mlx.train import checkpoint
from mirror_mlx.train.checkpoint import Progress
from mirror_mlx.train.export import export
from mirror_mlx.train.metrics import Metrics, Observer, Silent, Window
from mirror_mlx.train.run import describe, facts, prepare
from mirror_mlx.train.settings import Settings
from mirror_mlx.train.step import evaluate, learning_rate, make_step, share_done


@dataclass(frozen=True)
class Result:
    """How a run ended: `finished` is False where `stop` ended it; losses in nats per token, None without validation."""

    finished: bool
    progress: Progress
    val_loss: float | None
    val_answer_loss: float | None


def train(
    settings: Settings,
    *,
    resume: bool = False,
    observer: Observer | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Run `settings`, or go on with it; leaves the model in `settings.out`.

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

    run = prepare(settings, out if resume else None)
    stored = settings.to_json()
    optimizer = optim.AdamW(settings.learning_rate, betas=[0.9, 0.98], weight_decay=settings.weight_decay,
                            bias_correction=True)  # fmt: skip
    optimizer.init(run.model.trainable_parameters())
    progress = Progress()
    if resume:
        progress, before = checkpoint.read(found[-1])
        if before["fingerprint"] != stored["fingerprint"]:
            raise UsageError(f"cannot resume {settings.out}: the data files have changed since it was begun")
        checkpoint.restore(found[-1], run.model, optimizer)
    metrics = Metrics(out / "metrics.jsonl", after=progress.step)
    observer.begin(settings, progress, facts(run))

    def save() -> None:
        checkpoint.save(out, run.model, optimizer, progress, stored)
        publish(None)

    def publish(val_loss: float | None) -> None:
        about = describe(run, progress, val_loss)
        export(run.model, run.config, out, dtype=settings.dtype, about=about, command=settings.command())

    def validate() -> tuple[float | None, float | None]:
        if not run.held:
            return None, None
        everything, answers = evaluate(run.model, run.held)
        line = {"step": progress.step, "val_loss": everything, "val_answer_loss": answers}
        metrics.write(line)
        observer.validated(progress, line)
        return everything, answers

    advance = make_step(run.model, run.teacher, optimizer, settings)
    begun = time.monotonic() - progress.seconds
    window = Window()
    for epoch, place, batch in run.batches.after(progress.epoch, progress.place):
        if share_done(settings, progress) >= 1:
            break
        rate = learning_rate(settings, progress)
        losses, norm = advance(batch, rate)
        progress.step += 1
        progress.epoch, progress.place = epoch, place
        progress.tokens += batch.tokens
        progress.seconds = time.monotonic() - begun
        window.add(losses, batch.tokens)
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
            return Result(False, progress, None, None)

    val_loss, val_answer_loss = validate()
    publish(val_loss)
    checkpoint.remove(out)
    return Result(True, progress, val_loss, val_answer_loss)
