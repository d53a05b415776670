"""Training a causal language model from chats or text.

result = lm.train(LmSettings(data=("chats.jsonl",), out="tiny", iters=100))   # tiny/ is what mlx_lm.load reads
"""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mirror_mlx.errors import UsageError
from mirror_mlx.train import data, loop, loss, model, tokenizer
from mirror_mlx.train.architecture import ARCHITECTURE
from mirror_mlx.train.batches import Batch, Batches, held_out
from mirror_mlx.train.checkpoint import Progress
from mirror_mlx.train.export import export, weights_of
from mirror_mlx.train.settings import Settings, flag, read_json
from mirror_mlx.train.task import Arrays, sample_facts


@dataclass(frozen=True)
class LmSettings(Settings):
    """A run of `train lm`. `shape` holds what differs from `ARCHITECTURE` (or from `config`), by the names of
    config.json."""

    init: str | None = None
    teacher: str | None = None
    tokenizer: str | None = None
    config: str | None = None
    shape: dict[str, int] = field(default_factory=dict)
    vocab_size: int = 4096
    distill_weight: float = 0.7

    KIND = "lm"
    FILES = ("data", "out", "init", "teacher", "tokenizer", "config")

    def check(self) -> None:
        super().check()
        self._positive("vocab_size")
        self._share("distill_weight")
        if self.init and (self.config or self.shape):
            raise UsageError("--init brings its own architecture: leave out --config and the flags of the shape")
        for name, value in self.shape.items():
            if value < 1:
                raise UsageError(f"{flag(name)} must be greater than 0, not {value}")


def train(settings: LmSettings, **how: Any) -> loop.Result:
    """Run `settings`; arguments and errors as `loop.train`."""
    return loop.train(settings, LmTask, **how)


class LmTask:
    """Next-token prediction, with or without a teacher's opinion. See `task.Task`."""

    def __init__(self, settings: LmSettings, resumed: Path | None) -> None:
        """Read data and models. The tokenizer is put into the out folder last, when all else has gone well."""
        self.settings = settings
        train_examples, held_examples = data.read(settings.data, settings.held_out)
        given = model.from_folder(settings.init, "--init") if settings.init else None
        taught = model.from_folder(settings.teacher, "--teacher", teaches=True) if settings.teacher else None
        self.teacher = taught[0] if taught else None
        self.config = given[1] if given else _config(settings)
        with tempfile.TemporaryDirectory() as scratch:
            folder = resumed or Path(scratch)
            if resumed is None:
                _make_tokenizer(settings, self.config, train_examples, folder)
            words = tokenizer.load(folder)
            entries = len(words.get_vocab())
            if settings.teacher and not tokenizer.same(words, tokenizer.load(Path(settings.teacher))):
                raise UsageError(f"--teacher {settings.teacher} has another tokenizer: give it as --tokenizer too")
            if not given:
                self.config["vocab_size"] = max(entries, self.config.get("vocab_size", 0))
            _check_fit(settings, self.config, entries)
            train_samples, held_samples = (
                tokenizer.encode(words, examples, settings.max_seq_length, settings.prompt_weight)
                for examples in (train_examples, held_examples)
            )
            self.batches = Batches(train_samples, settings.batch_size, settings.max_seq_length, settings.seed)
            self.held = held_out(held_samples, settings.batch_size * 2, settings.max_seq_length, settings.val_batches)
            self.model: nn.Module = given[0] if given else model.build(self.config, settings.seed)
            if resumed is None:
                shutil.copytree(folder, settings.out, dirs_exist_ok=True)
        self.losses = {"taught" if self.teacher else "alone": self._loss}

    def inputs(self, batch: Batch, progress: Progress, done: float) -> tuple[str, Arrays]:
        ids, weights = mx.array(batch.ids), mx.array(batch.weights)
        if self.teacher is None:
            return "alone", (ids, weights)
        return "taught", (ids, weights, self.teacher(ids[:, :-1]))

    def _loss(
        self, ids: mx.array, weights: mx.array, teacher_logits: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        logits = self.model(ids[:, :-1])
        plain = loss.cross_entropy(logits, ids[:, 1:], weights)
        if teacher_logits is None:
            return plain, plain
        share = self.settings.distill_weight
        return share * loss.distillation(logits, teacher_logits, weights) + (1 - share) * plain, plain

    def validate(self) -> dict[str, float]:
        """Mean loss over all held-out tokens, and over the assistant's alone, in nats per token."""
        return evaluate(self.model, self.held) if self.held else {}

    def publish(self, progress: Progress, figures: dict[str, float]) -> None:
        s = self.settings
        about = describe(self.model, self.config.get("model_type", "language"), progress, figures)
        export(weights_of(self.model), self.config, Path(s.out), dtype=s.dtype, about=about, command=s.command())

    def facts(self) -> dict[str, Any]:
        return sample_facts(self, self.held, self.settings.max_seq_length, model.count(self.model))


def evaluate(student: Any, held: list[Batch]) -> dict[str, float]:
    """Mean loss of `student(ids)` over held-out tokens, and over the assistant's alone, in nats per token."""
    sums, counts = mx.zeros(2), mx.zeros(2)
    for batch in held:
        ids, answer = mx.array(batch.ids), mx.array(batch.answer)
        losses = nn.losses.cross_entropy(student(ids[:, :-1]).astype(mx.float32), ids[:, 1:], reduction="none")
        sums = sums + mx.stack([losses.sum(), (losses * answer).sum()])
        counts = counts + mx.stack([mx.array(float(losses.size)), answer.sum().astype(mx.float32)])
        mx.eval(sums, counts)
    means = (sums / mx.maximum(counts, 1)).tolist()
    return {"val_loss": means[0], "val_answer_loss": means[1]}


def describe(module: nn.Module, kind: str, progress: Progress, figures: dict[str, float]) -> str:
    """The paragraph of the README."""
    size, seen = model.count(module) / 1e6, progress.tokens / 1e6
    said = f"A {kind} model of {size:.1f} M parameters, trained with mirror-mlx on {seen:.1f} M tokens"
    return said + (f"; validation loss {figures['val_loss']:.3f} nats per token." if "val_loss" in figures else ".")


def _config(settings: LmSettings) -> dict[str, Any]:
    given = read_json(Path(settings.config), "a model configuration") if settings.config else ARCHITECTURE
    return {**given, **settings.shape}


def _make_tokenizer(settings: LmSettings, config: dict[str, Any], examples: list[data.Example], folder: Path) -> None:
    source = settings.tokenizer or settings.init or settings.teacher
    if source:
        tokenizer.copy(Path(source), folder)
    else:
        length = config.get("max_position_embeddings", settings.max_seq_length)
        tokenizer.train(examples, settings.vocab_size, length, folder)


def _check_fit(settings: LmSettings, config: dict[str, Any], entries: int) -> None:
    limit = config.get("max_position_embeddings", settings.max_seq_length)
    if settings.max_seq_length > limit:
        raise UsageError(f"--max-seq-length {settings.max_seq_length} is longer than the model's context of {limit}")
    if entries > config.get("vocab_size", entries):
        raise UsageError(f"the tokenizer has {entries} entries, the model only {config['vocab_size']}")
