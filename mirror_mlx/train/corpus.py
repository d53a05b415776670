"""The text a pair's parts are trained on: the data, with the target's own answers in place of those given."""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import mlx.core as mx
import mlx.nn as nn

from mirror_mlx.errors import UsageError
from mirror_mlx.train import answers, data, loop, model, tokenizer
from mirror_mlx.train.batches import FixedBatches
from mirror_mlx.train.settings import Settings, flag
from mirror_mlx.train.task import Task, sample_facts
from mirror_mlx.train.tokenizer import Sample

Report = Callable[[str, int, int], None]
"""(what is being done, how much of it is done, of how much)"""


@dataclass(frozen=True)
class CorpusSettings(Settings):
    """A run that is about a target.

    answers       "target": the assistant's turns are written anew by the target; "given": they stay
    answer_temps  conversations take turns with these temperatures
    cache         where answers are kept; runs with the same data and target share them. None: only for this run
    """

    prompt_weight: float = 0.1
    target: str = ""
    answers: str = "target"
    answer_temps: tuple[float, ...] = (0.0, 1.0)
    max_answer_tokens: int = 256
    cache: str | None = None

    FILES = ("data", "out", "target", "cache")

    def check(self) -> None:
        super().check()
        if not self.target:
            raise UsageError("--target is missing: name the folder of the model this is for")
        self._positive("max_answer_tokens")
        self._one_of("answers", ("target", "given"))
        self._temperatures("answer_temps")

    def _one_of(self, name: str, allowed: tuple[str, ...]) -> None:
        if getattr(self, name) not in allowed:
            raise UsageError(f"{flag(name)} is {getattr(self, name)!r}: choose from {', '.join(allowed)}")

    def _temperatures(self, name: str) -> None:
        if not getattr(self, name) or min(getattr(self, name)) < 0:
            raise UsageError(f"{flag(name)} must be one or more temperatures, each 0 or more")

    @property
    def own_cache(self) -> Path:
        """Where answers lie while the run lasts, so that it can be resumed, if no --cache is given."""
        out = Path(self.out)
        return out.with_name(out.name + ".cache")

    @property
    def kept(self) -> Path:
        """The folder of what is kept for this data, target and way of answering."""
        digest = hashlib.sha256(self.to_json()["fingerprint"].encode())
        for path in sorted(Path(self.target).glob("*")):
            if path.suffix in (".safetensors", ".json"):
                digest.update(f"{path.name} {path.stat().st_size}".encode())
                with path.open("rb") as file:
                    digest.update(file.read(1 << 20))
        digest.update(
            repr((self.answers, self.answer_temps, self.max_answer_tokens, self.held_out, self.seed)).encode()
        )
        return (Path(self.cache) if self.cache else self.own_cache) / digest.hexdigest()[:16]


AnySettings = TypeVar("AnySettings", bound=CorpusSettings)


def samples(
    settings: CorpusSettings, target: nn.Module, words: Any, report: Report
) -> tuple[list[Sample], list[Sample]]:
    """What to train on and what is held out, as tokens. Answers that are kept already are not made again."""
    s = settings
    train, held = data.read(s.data, s.held_out)
    if s.answers == "target":
        train, held = (
            answers.answer(
                part, target, words, s.kept / f"answers-{name}.jsonl", max_tokens=s.max_answer_tokens,
                temperatures=s.answer_temps, seed=s.seed,
                progress=lambda done, total: report("the target answers", done, total),
            )
            for name, part in (("train", train), ("held-out", held))
        )  # fmt: skip
    encoded = [tokenizer.encode(words, part, s.max_seq_length, s.prompt_weight) for part in (train, held)]
    vocab = int(target(mx.array([[0]])).shape[-1])
    largest = max(int(sample.ids.max()) for part in encoded for sample in part)
    if largest >= vocab:
        raise UsageError(
            f"--target {s.target} has no logits for token {largest} of its tokenizer, only for {vocab}: "
            "the two do not belong together"
        )
    return encoded[0], encoded[1]


def held_rows(samples: Sequence[Sample], settings: CorpusSettings) -> FixedBatches | None:
    """What was held out as rows of at most 256 tokens, one to a batch; None where it does not fill one."""
    length = min(settings.max_seq_length, 256)
    if sum(len(sample.ids) for sample in samples) <= length:
        return None
    return FixedBatches(samples, 1, length, settings.seed)


def facts(task: Task, held: FixedBatches | None, settings: CorpusSettings) -> dict[str, Any]:
    """The usual facts of a run."""
    rows = [] if held is None else held.rows
    found = sample_facts(task, [], settings.max_seq_length, model.count(task.model))
    return found | {"held_out_tokens": sum(len(row.ids) for row in rows)}


def train(settings: AnySettings, make: Callable[[AnySettings, Path | None], Task], **how: Any) -> loop.Result:
    """`loop.train`; what was kept for this run alone goes when it is finished."""
    result = loop.train(settings, make, **how)
    if result.finished and settings.cache is None:
        shutil.rmtree(settings.own_cache, ignore_errors=True)
    return result
