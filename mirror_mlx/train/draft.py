"""Training a draft for a target: a streaming one, or with no streams an ordinary autoregressive one.

    result = draft.train(DraftSettings(data=("chats.jsonl",), out="draft", target="Qwen3-8B"))

1. The target writes the assistant's turns anew (`answers`), and its opinion of every position is kept (`teacher`).
2. The main stream learns the target's distribution, stream j the one j positions further on (eq. 5 of arXiv
   2402.11131, with the target's distribution for the next token).
3. In the last share of the run half of the loss is on the draft's own proposals (`policy`).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from mirror_mlx.draft.streaming import StreamingModel, weights
from mirror_mlx.errors import UsageError
from mirror_mlx.train import corpus, draft_model, loop, loss, model, policy, teacher, tokenizer, trial
from mirror_mlx.train.batches import Batch, FixedBatches
from mirror_mlx.train.checkpoint import Progress
from mirror_mlx.train.corpus import CorpusSettings, Report
from mirror_mlx.train.draft_loss import DraftLoss, Judged
from mirror_mlx.train.export import export, weights_of
from mirror_mlx.train.lm import describe
from mirror_mlx.train.settings import flag
from mirror_mlx.train.task import Arrays

LOSSES = ("lk", "kl", "ce")
LOGITS = 1 << 27
"""So many of the target's logits at once, 0.5 GB, when its opinion is asked."""


@dataclass(frozen=True)
class DraftSettings(CorpusSettings):
    """A run of `train draft`. `shape` holds what differs from half the target's layers at half its width."""

    max_seq_length: int = 512
    batch_size: int = 8
    learning_rate: float = 1e-3
    init: str | None = None
    shape: dict[str, int] = field(default_factory=dict)
    boundary: int | None = None
    streams: int = 3
    tracks: int = 1
    head_rank: int | None = None
    head_size: int | None = None
    loss: str = "lk"
    stream_weight: float = 0.1
    on_policy: float = 0.25
    policy_temps: tuple[float, ...] = (0.0, 1.0)
    num_draft_tokens: int = 7
    trial_prompts: int = 8
    trial_tokens: int = 64

    KIND = "draft"
    FILES = ("data", "out", "target", "init", "cache")

    def check(self) -> None:
        super().check()
        if self.init and (self.shape or self.tracks > 1):
            raise UsageError("--init brings its own architecture: leave out --tracks and the flags of the shape")
        for name, value in self.shape.items():
            if value < 1:
                raise UsageError(f"{flag(name)} must be greater than 0, not {value}")
        self._positive("num_draft_tokens", "boundary", "head_rank", "head_size")
        self._share("stream_weight", "on_policy")
        self._one_of("loss", LOSSES)
        self._temperatures("policy_temps")
        if self.max_seq_length < 2 * (self.num_draft_tokens + self.streams):
            raise UsageError(f"--max-seq-length {self.max_seq_length} leaves no room for windows")


def train(settings: DraftSettings, *, report: Report = lambda what, done, total: None, **how: Any) -> loop.Result:
    """Run `settings`; `report` hears of the work before the first step. Other arguments and errors as `loop.train`."""
    return corpus.train(settings, lambda given, resumed: DraftTask(given, resumed, report), **how)


class DraftTask:
    """See `task.Task`."""

    def __init__(self, settings: DraftSettings, resumed: Path | None, report: Report) -> None:
        self.settings = s = settings
        self.target, self.target_config = model.from_folder(s.target, "--target", teaches=True)
        words = tokenizer.load(Path(s.target))
        self.model = self._new_model(len(words.get_vocab()))
        samples, held = corpus.samples(s, self.target, words, report)
        self.batches = FixedBatches(samples, s.batch_size, s.max_seq_length, s.seed)
        self.held = corpus.held_rows(held, s)
        rows = np.stack([row.ids for row in self.batches.rows])
        vocab = int(self.target(mx.array([[0]])).shape[-1])
        at_once = max(1, min(s.batch_size, LOGITS // (vocab * s.max_seq_length)))
        self.opinions = teacher.opinions(
            rows, self.target, s.kept / f"rows-{s.max_seq_length}-{s.seed}", batch_size=at_once,
            progress=lambda done, total: report("the target reads", done, total),
        )  # fmt: skip
        self.prompts = trial.prompts(held, s.trial_prompts, s.trial_tokens)
        entries = self.model.config.base["vocab_size"]
        counts = np.bincount(rows.ravel(), minlength=entries)[:entries]
        self.model = draft_model.with_head(self.model, counts, s.head_rank, s.head_size)
        self.loss = DraftLoss(self.model, vocab, kind=s.loss, streams=s.streams, stream_weight=s.stream_weight)
        self.losses = {"taught": self._taught, "on policy": self._on_policy}
        if resumed is None:
            tokenizer.copy(Path(s.target), Path(s.out))

    def _new_model(self, entries: int) -> StreamingModel:
        s = self.settings
        own = {"boundary": s.boundary, "streams": s.streams, "tracks": s.tracks}
        if s.init:
            made = draft_model.continued(Path(s.init), s.boundary, own, s.seed)
            if not tokenizer.same(tokenizer.load(Path(s.init)), tokenizer.load(Path(s.target))):
                raise UsageError(
                    f"--init {s.init} has another tokenizer than the target: its draft would be a stranger"
                )
            return made
        base = draft_model.scratch_config(self.target_config, s.shape)
        base["vocab_size"] = max(base["vocab_size"], entries)
        own["boundary"] = s.boundary or base["num_hidden_layers"] // 2
        return draft_model.build(base, own, s.seed)

    # Steps.

    def inputs(self, batch: Batch, progress: Progress, done: float) -> tuple[str, Arrays]:
        assert batch.numbers is not None
        ids, counted = mx.array(batch.ids), mx.array(batch.weights)
        best, logprobs = self.opinions.of(batch.numbers)
        if self.settings.on_policy and done >= 1 - self.settings.on_policy:
            return "on policy", self._judged(ids, counted, best, logprobs, progress)
        return "taught", (ids, counted, best, logprobs)

    def _judged(
        self, ids: mx.array, counted: mx.array, best: mx.array, logprobs: mx.array, progress: Progress
    ) -> Arrays:
        """The batch cut at some place and continued by the draft; the continuation weighs as much as the text."""
        s = self.settings
        rows, length = ids.shape[0], ids.shape[1] - 1
        random = np.random.default_rng([s.seed, progress.step])
        start = int(random.integers(max(length // 4, 1), length - s.num_draft_tokens + 1))
        found = policy.propose(
            self.model, self.target, ids[:, :start], policy.samplers(s.seed, progress.step, rows, s.policy_temps),
            s.num_draft_tokens, best.shape[-1],
        )  # fmt: skip
        forward, reverse = policy.weights(found.accepted, s.num_draft_tokens)
        scale = float(counted[:, : start - 1].sum().item()) / max(float((forward + reverse).sum()), 1e-6)
        before, nothing = counted[:, : start - 1], mx.zeros((rows, start - 1))
        return (
            mx.concatenate([ids[:, :start], found.windows], axis=1),
            mx.concatenate([before, mx.array(forward * scale)], axis=1),
            mx.concatenate([nothing, mx.array(reverse * scale)], axis=1),
            mx.concatenate([best[:, : start - 1], found.ids[:, :-1].astype(mx.int32)], axis=1),
            mx.concatenate([logprobs[:, : start - 1], found.logprobs[:, :-1]], axis=1),
        )

    def _taught(
        self, ids: mx.array, counted: mx.array, best: mx.array, logprobs: mx.array
    ) -> tuple[mx.array, mx.array]:
        return self.loss(ids, Judged(ids[:, 1:], counted, None, best, logprobs))

    def _on_policy(
        self, ids: mx.array, forward: mx.array, reverse: mx.array, best: mx.array, logprobs: mx.array
    ) -> tuple[mx.array, mx.array]:
        return self.loss(ids, Judged(ids[:, 1:], forward, reverse, best, logprobs))

    # Figures.

    def validate(self) -> dict[str, float]:
        """The distance to the target on held-out rows, the acceptance rate Σ min(p, q) of the main stream and of each
        other, and a trial in the real engine: tokens a step and hit rate."""
        figures: dict[str, float] = {}
        if self.held is not None:
            figures = self._measured()
        if self.prompts:
            figures |= trial.run(self.target, self.model, self.prompts, self.settings.trial_tokens,
                                 self.settings.num_draft_tokens)  # fmt: skip
        return figures

    def _measured(self) -> dict[str, float]:
        assert self.held is not None
        count, sums = self.settings.streams, np.zeros(2 + self.settings.streams)
        total = np.zeros_like(sums)
        for number in range(min(len(self.held.rows), self.settings.val_batches)):
            batch = self.held.of(np.array([number]))
            ids = mx.array(batch.ids)
            best, logprobs = teacher.best_of(self.target(ids[:, :-1]), teacher.TOP)
            main, ahead = self.model(ids[:, :-1], count) if count else (self.model(ids[:, :-1]), [])
            for j, logits in enumerate([main, *ahead]):
                known = loss.known(logits[:, : logits.shape[1] - j], best[:, j:], logprobs[:, j:], self.loss.places)
                answer = batch.answer[:, j:]
                sums[1 + j] += float((loss.acceptance(known[0], known[2]) * mx.array(answer)).sum())
                total[1 + j] += answer.sum()
                if j == 0:
                    sums[0] += float(loss.divergence("kl", *known).sum())
                    total[0] += answer.size
        means = sums / np.maximum(total, 1)
        named = {f"stream_{j}_acceptance": float(means[1 + j]) for j in range(1, count + 1)}
        return {"val_loss": float(means[0]), "acceptance": float(means[1])} | named

    def publish(self, progress: Progress, figures: dict[str, float]) -> None:
        s, config = self.settings, self.model.config
        plain = not s.streams and s.tracks == 1 and s.head_rank is None and s.head_size is None
        files = weights_of(self.model.tracks[0]) if plain else weights.files(self.model)
        about = describe(self.model, "draft", progress, figures)
        if "tokens_per_step" in figures:
            about += f" In the engine {figures['tokens_per_step']:.2f} tokens a step at {s.num_draft_tokens} proposals."
        settings = config.base if plain else config.to_json()
        export(files, settings, Path(s.out), dtype=s.dtype, about=about, command=s.command())

    def facts(self) -> dict[str, Any]:
        return corpus.facts(self, self.held, self.settings)
