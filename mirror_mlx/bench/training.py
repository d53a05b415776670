"""What training costs: tokens a second and peak memory of each kind of run, over rows a step and their length."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx

from mirror_mlx import blas, loading
from mirror_mlx.errors import DataError
from mirror_mlx.problems import conversations
from mirror_mlx.train.batches import Batch
from mirror_mlx.train.checkpoint import Progress
from mirror_mlx.train.draft import DraftSettings, DraftTask
from mirror_mlx.train.lm import LmSettings, LmTask
from mirror_mlx.train.settings import Settings
from mirror_mlx.train.step import make_optimizer, make_step
from mirror_mlx.train.tap import TapSettings, TapTask

Report = Callable[[int, str], None]
KINDS = ("lm", "draft", "on policy", "tap")


@dataclass(frozen=True)
class Plan:
    """What to measure: every kind × batch size × length, `steps` steps of each after two that warm up.

    target  the model that drafts and taps are trained for, and that `lm` trains a copy of
    """

    target: str = "demo"
    kinds: tuple[str, ...] = KINDS
    batch_sizes: tuple[int, ...] = (2, 8)
    lengths: tuple[int, ...] = (128, 512)
    steps: int = 3
    long: bool = False


def measure(plan: Plan, report: Report = lambda done, what: None) -> list[dict[str, Any]]:
    """One row of figures for each combination; `peak_mb` counts what MLX allocated, models included."""
    blas.set_threads(os.cpu_count() or 1)
    target = str(loading.DEMO / "target") if plan.target == "demo" else plan.target
    rows = []
    combinations = [(kind, size, length) for kind in plan.kinds for length in plan.lengths for size in plan.batch_sizes]
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "problems.jsonl"
        tokens = max(plan.batch_sizes) * max(plan.lengths) * (plan.steps + 3)
        talks = conversations(1, max(64, tokens // 40))
        data.write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks), encoding="utf-8")
        for number, (kind, size, length) in enumerate(combinations):
            report(number, f"{kind}, {size} x {length}")
            with _prepared(kind, target, data, Path(scratch), size, length, plan) as (task, settings):
                rows.append({"kind": kind, "batch_size": size, "length": length} | _timed(task, settings, plan.steps))
    report(len(combinations), "done")
    return rows


def _timed(task: Any, settings: Settings, steps: int) -> dict[str, float]:
    advance = make_step(task, make_optimizer(task.model, settings), settings)
    batches: Iterator[Batch] = (batch for _, _, batch in task.batches.after(0, 0))
    mx.reset_peak_memory()
    seconds = []
    for number in range(2 + steps):
        batch = [next(batches)]
        began = time.perf_counter()
        advance(batch, settings.learning_rate, Progress(step=number))
        seconds.append(time.perf_counter() - began)
    return {
        "step_s": median(seconds[2:]),
        "tokens_per_second": batch[0].tokens / median(seconds[2:]),
        "peak_mb": mx.get_peak_memory() / 1e6,
    }


@contextmanager
def _prepared(
    kind: str, target: str, data: Path, scratch: Path, size: int, length: int, plan: Plan
) -> Iterator[tuple[Any, Settings]]:
    """A task of this kind and its settings. `iters` decides whether steps are compiled."""
    out = scratch / "out"
    iters = 1000 if plan.long else 10
    common: dict[str, Any] = {
        "data": (str(data),), "out": str(out), "batch_size": size, "max_seq_length": length, "iters": iters,
    }  # fmt: skip
    task: Any
    settings: Settings
    if kind == "lm":
        settings = LmSettings(**common, init=target)
        task = LmTask(settings, None)
    elif kind == "tap":
        settings = TapSettings(**common, target=target, answers="given", cache=str(scratch / "cache"))
        task = TapTask(settings, None, _quiet)
    else:
        share = 1.0 if kind == "on policy" else 0.0
        settings = DraftSettings(
            **common, target=target, answers="given", cache=str(scratch / "cache"), on_policy=share, trial_prompts=0
        )
        task = DraftTask(settings, None, _quiet)
    try:
        yield task, settings
    except StopIteration:
        raise DataError(f"too few rows of {length} tokens") from None
    finally:
        if isinstance(task, TapTask):
            task.stages.close()
        shutil.rmtree(out, ignore_errors=True)
        del task
        mx.clear_cache()


def _quiet(what: str, done: int, total: int) -> None:
    pass


def table(rows: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Rows of a printed table: kind, rows × length, tokens/s, a step, peak memory."""
    return [
        (
            row["kind"], f"{row['batch_size']} × {row['length']}", f"{row['tokens_per_second']:.0f}",
            f"{row['step_s']:.2f}", f"{row['peak_mb']:.0f}",
        )
        for row in rows
    ]  # fmt: skip
