"""Training the tap: for each exit layer a low-rank residual that lets the head read a middle layer's hidden state.

    result = tap.train(TapSettings(data=("chats.jsonl",), out="tap", target="Qwen3-8B"))   # tap/tap.safetensors

The target is frozen. What falls is KL(final ‖ tap), over the whole vocabulary, averaged over the exit layers.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from mirror_mlx.errors import UsageError
from mirror_mlx.target.stages import Stages, arrays
from mirror_mlx.target.tap import TapAdapter, save
from mirror_mlx.train import corpus, loop, loss, model, tokenizer
from mirror_mlx.train.batches import Batch, FixedBatches
from mirror_mlx.train.checkpoint import Progress
from mirror_mlx.train.corpus import CorpusSettings, Report
from mirror_mlx.train.export import write_readme
from mirror_mlx.train.task import Arrays

AMONG = 8
"""Held-out figures say how often the target's token is among so many of the tap's best."""


@dataclass(frozen=True)
class TapSettings(CorpusSettings):
    """A run of `train tap`. `exit_layers`: after how many layers a tap may read; none: 1/4, 1/2, 3/4 of the depth."""

    max_seq_length: int = 512
    batch_size: int = 8
    learning_rate: float = 2e-3
    weight_decay: float = 0.0
    rank: int = 8
    exit_layers: tuple[int, ...] = ()

    KIND = "tap"

    def check(self) -> None:
        super().check()
        self._positive("rank")


def train(settings: TapSettings, *, report: Report = lambda what, done, total: None, **how: Any) -> loop.Result:
    """Run `settings`; `report` hears of the work before the first step. Other arguments and errors as `loop.train`."""
    tasks: list[TapTask] = []

    def make(given: TapSettings, resumed: Path | None) -> TapTask:
        tasks.append(TapTask(given, resumed, report))
        return tasks[0]

    try:
        return corpus.train(settings, make, **how)
    finally:
        for task in tasks:
            task.stages.close()


class TapTask:
    """See `task.Task`."""

    def __init__(self, settings: TapSettings, resumed: Path | None, report: Report) -> None:
        self.settings = s = settings
        self.target, _ = model.from_folder(s.target, "--target", teaches=True)
        self.stages = Stages(self.target)
        self.exits, widths = self._exits()
        samples, held = corpus.samples(s, self.target, tokenizer.load(Path(s.target)), report)
        self.batches = FixedBatches(samples, s.batch_size, s.max_seq_length, s.seed)
        self.held = corpus.held_rows(held, s)
        mx.random.seed(s.seed)
        self.model = TapAdapter({
            layer: (mx.random.normal((s.rank, width), scale=width**-0.5), mx.zeros((width, s.rank)))
            for layer, width in zip(self.exits, widths, strict=True)
        })  # fmt: skip
        mx.eval(self.model.parameters())
        self.losses = {"taught": self._loss}
        Path(s.out).mkdir(parents=True, exist_ok=True)

    def _exits(self) -> tuple[tuple[int, ...], list[int]]:
        """The exit layers and their widths. Raises UsageError for layers that are not there or cannot be read."""
        with self.stages.recording() as outputs:
            mx.eval(self.target(mx.array([[0]])))
        depth = len(outputs)
        usual = tuple(sorted({max(1, round(depth * part)) for part in (0.25, 0.5, 0.75)} - {depth}))
        exits = tuple(sorted(set(self.settings.exit_layers))) or usual
        if not exits or exits[0] < 1 or exits[-1] >= depth:
            raise UsageError(f"--exit-layers: this target has {depth} layers, so each must be in 1 … {depth - 1}")
        for layer in exits:
            if not isinstance(outputs[layer - 1], mx.array):
                raise UsageError(
                    f"layer {layer} of this target does not return one hidden state: no tap can be trained"
                )
        return exits, [int(arrays(outputs[layer - 1])[0].shape[-1]) for layer in exits]

    def inputs(self, batch: Batch, progress: Progress, done: float) -> tuple[str, Arrays]:
        ids = mx.array(batch.ids[:, :-1])
        hidden, final = self._forward(ids)
        return "taught", (ids, mx.array(batch.weights), final, *hidden)

    def _forward(self, ids: mx.array) -> tuple[list[mx.array], mx.array]:
        """The hidden states at the exits, and the final logits."""
        with self.stages.recording() as outputs:
            final = self.target(ids)
        return [outputs[layer - 1] for layer in self.exits], final

    def _loss(self, ids: mx.array, weights: mx.array, final: mx.array, *hidden: mx.array) -> tuple[mx.array, mx.array]:
        total = mx.array(0.0)
        for layer, state in zip(self.exits, hidden, strict=True):
            logits = self.stages.lens(self.model.apply(layer, state), ids)
            total = total + loss.distillation(logits, final, weights)
        mean = total / len(self.exits)
        return mean, mean

    def validate(self) -> dict[str, float]:
        """For each exit, trained and as a plain lens: KL(final ‖ tap) and how often the target's token is among the
        tap's best `AMONG`, on the assistant's words. `val_loss` is the mean of the trained ones' KL."""
        if self.held is None:
            return {}
        sums: dict[str, float] = {}
        count = 0
        for number in range(min(len(self.held.rows), self.settings.val_batches)):
            batch = self.held.of(np.array([number]))
            ids, answer = mx.array(batch.ids[:, :-1]), mx.array(batch.answer.astype(np.float32))
            hidden, final = self._forward(ids)
            said = mx.argmax(final, axis=-1)
            for layer, state in zip(self.exits, hidden, strict=True):
                for name, output in (("", self.model.apply(layer, state)), ("plain_", state)):
                    logits = self.stages.lens(output, ids)
                    best = mx.argpartition(-logits, kth=AMONG - 1, axis=-1)[..., :AMONG]
                    among = ((best == said[..., None]).any(axis=-1) * answer).sum()
                    kl = loss.distillation(logits, final, answer) * answer.sum()
                    for kind, value in ((f"exit_{layer}_{name}kl", kl), (f"exit_{layer}_{name}top{AMONG}", among)):
                        sums[kind] = sums.get(kind, 0.0) + float(value)
            count += int(batch.answer.sum())
        means = {name: value / max(count, 1) for name, value in sums.items()}
        return {"val_loss": sum(means[f"exit_{layer}_kl"] for layer in self.exits) / len(self.exits)} | means

    def publish(self, progress: Progress, figures: dict[str, float]) -> None:
        out = Path(self.settings.out)
        kind = getattr(mx, self.settings.dtype)
        cast = {layer: (down.astype(kind), up.astype(kind)) for layer, (down, up) in self.model.layers.items()}
        save(TapAdapter(cast), out)
        about = f"A tap of rank {self.settings.rank}, trained with mirror-mlx on {progress.tokens / 1e6:.1f} M tokens."
        if figures:
            about += f" How often the target's token is among its best {AMONG}, and that of a plain lens:"
            shares = (
                (layer, *(figures[f"exit_{layer}_{kind}top{AMONG}"] for kind in ("", "plain_"))) for layer in self.exits
            )
            about += ",".join(f" after layer {layer} {own:.1%}, {plain:.1%}" for layer, own, plain in shares) + "."
        write_readme(out, about, self.settings.command())

    def facts(self) -> dict[str, Any]:
        return corpus.facts(self, self.held, self.settings)
