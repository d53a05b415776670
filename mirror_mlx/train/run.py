"""What a run needs before its first step: data, tokenizer and models, read and checked against each other."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.nn as nn

from mirror_mlx.errors import UsageError
from mirror_mlx.train import data, model, tokenizer
from mirror_mlx.train.batches import Batch, Batches, held_out
from mirror_mlx.train.checkpoint import Progress
from mirror_mlx.train.settings import ARCHITECTURE, Settings, read_json


@dataclass
class Run:
    """Everything the loop needs, ready to go."""

    settings: Settings
    config: dict[str, Any]
    model: nn.Module
    teacher: nn.Module | None
    batches: Batches
    held: list[Batch]


def prepare(settings: Settings, resumed: Path | None) -> Run:
    """Read data and models. The tokenizer is put into the out folder last, when all else has gone well.

    `resumed`: the folder to take the tokenizer from when a run goes on.
    """
    train_examples, held_examples = data.read(settings.data, settings.held_out)
    given = model.from_folder(settings.init, "--init") if settings.init else None
    taught = model.from_folder(settings.teacher, "--teacher", teaches=True) if settings.teacher else None
    config = given[1] if given else _config(settings)
    with tempfile.TemporaryDirectory() as scratch:
        folder = resumed or Path(scratch)
        if resumed is None:
            _make_tokenizer(settings, config, train_examples, folder)
        words = tokenizer.load(folder)
        entries = len(words.get_vocab())
        if settings.teacher and not tokenizer.same(words, tokenizer.load(Path(settings.teacher))):
            raise UsageError(f"--teacher {settings.teacher} has another tokenizer: give it as --tokenizer too")
        if not given:
            config["vocab_size"] = max(entries, config.get("vocab_size", 0))
        _check_fit(settings, config, entries)

        train_samples, held_samples = (
            tokenizer.encode(words, examples, settings.max_seq_length, settings.prompt_weight)
            for examples in (train_examples, held_examples)
        )
        batches = Batches(train_samples, settings.batch_size, settings.max_seq_length, settings.seed)
        held = held_out(held_samples, settings.batch_size * 2, settings.max_seq_length, settings.val_batches)
        student = given[0] if given else model.build(config, settings.seed)
        if resumed is None:
            shutil.copytree(folder, settings.out, dirs_exist_ok=True)
    return Run(settings, config, student, taught[0] if taught else None, batches, held)


def _config(settings: Settings) -> dict[str, Any]:
    given = read_json(Path(settings.config), "a model configuration") if settings.config else ARCHITECTURE
    return {**given, **settings.shape}


def _make_tokenizer(settings: Settings, config: dict[str, Any], examples: list[data.Example], folder: Path) -> None:
    source = settings.tokenizer or settings.init or settings.teacher
    if source:
        tokenizer.copy(Path(source), folder)
    else:
        length = config.get("max_position_embeddings", settings.max_seq_length)
        tokenizer.train(examples, settings.vocab_size, length, folder)


def _check_fit(settings: Settings, config: dict[str, Any], entries: int) -> None:
    limit = config.get("max_position_embeddings", settings.max_seq_length)
    if settings.max_seq_length > limit:
        raise UsageError(f"--max-seq-length {settings.max_seq_length} is longer than the model's context of {limit}")
    if entries > config.get("vocab_size", entries):
        raise UsageError(f"the tokenizer has {entries} entries, the model only {config['vocab_size']}")


def facts(run: Run) -> dict[str, Any]:
    """What a reader wants to know before the first step."""
    samples = run.batches.samples
    longest = max(len(sample.ids) for sample in samples)
    return {
        "parameters": model.count(run.model),
        "samples": len(samples),
        "tokens_per_epoch": sum(len(sample.ids) for sample in samples),
        "held_out_tokens": sum(batch.tokens for batch in run.held),
        "longest": longest,
        "cut": sum(len(sample.ids) > run.settings.max_seq_length for sample in samples),
    }


def describe(run: Run, progress: Progress, val_loss: float | None) -> str:
    """The paragraph of the model's README."""
    size = model.count(run.model) / 1e6
    kind = run.config.get("model_type", "language")
    said = f"A {kind} model of {size:.1f} M parameters, trained with mirror-mlx on {progress.tokens / 1e6:.1f} M tokens"
    return said + (f"; validation loss {val_loss:.3f} nats per token." if val_loss is not None else ".")
