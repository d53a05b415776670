"""A run on the terminal: a progress bar with loss, speed and time left, and a line for every validation."""

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from mirror_mlx.train import plot
from mirror_mlx.train.checkpoint import Progress
from mirror_mlx.train.settings import Settings

_WORDS = {"val_loss": "validation loss", "val_answer_loss": "of answers alone"}


class Display:
    """An `Observer` that draws on `console`; a context manager, since the terminal has to be put right again."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("loss {task.fields[loss]}  {task.fields[speed]} tok/s"),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._settings: Settings | None = None
        self._before: dict[str, TaskID] = {}

    def __enter__(self) -> "Display":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._settings is not None or self._before:
            self._bar.stop()

    def begin(self, settings: Settings, progress: Progress, facts: dict[str, Any]) -> None:
        """Say what is trained on what, and start the bar where the run stands."""
        self._settings = settings
        self._console.print(
            f"{facts['parameters'] / 1e6:.1f} M parameters, {facts['samples']} samples, "
            f"{facts['tokens_per_epoch']} tokens a pass, {facts['held_out_tokens']} held out",
            highlight=False,
        )
        if without := plot.missing():
            self._console.print(without, highlight=False)
        if facts["cut"]:
            self._console.print(
                f"{facts['cut']} samples are longer than --max-seq-length {settings.max_seq_length} "
                f"(up to {facts['longest']} tokens) and will be cut",
                highlight=False,
            )
        total = settings.iters if settings.iters is not None else 60 * (settings.minutes or 0)
        self._task = self._bar.add_task("training", total=total, loss="–", speed="–")
        self._move(progress)
        self._bar.start()

    def report(self, what: str, done: int, total: int) -> None:
        """Show the work before the first step, one bar for each kind of it."""
        if what not in self._before:
            self._before[what] = self._bar.add_task(what, total=total, loss="–", speed="–")
            self._bar.start()
        self._bar.update(self._before[what], completed=done, total=total)

    def step(self, progress: Progress, metrics: dict[str, Any]) -> None:
        """Move the bar."""
        self._bar.update(self._task, loss=f"{metrics['loss']:.3f}", speed=f"{metrics['tokens_per_second']:.0f}")
        self._move(progress)

    def validated(self, progress: Progress, metrics: dict[str, Any]) -> None:
        """Print the figures on what was held out."""
        self._console.print(f"step {progress.step}: {', '.join(told(metrics))}", highlight=False)

    def _move(self, progress: Progress) -> None:
        by_steps = self._settings is not None and self._settings.iters is not None
        self._bar.update(
            self._task,
            completed=progress.step if by_steps else progress.seconds,
            description=f"step {progress.step}",
        )


def told(figures: dict[str, float]) -> list[str]:
    """Figures in words.

    >>> told({"val_loss": 2.5, "hit_rate": 0.875})
    ['validation loss 2.500', 'hit rate 0.875']
    """
    return [f"{_WORDS.get(name, name.replace('_', ' '))} {value:.3f}" for name, value in figures.items()]
