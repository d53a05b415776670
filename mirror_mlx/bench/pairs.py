"""A pair for one measurement: its models, how many passes a window takes, and where its tap can be."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.nn as nn

from mirror_mlx import loading
from mirror_mlx.bench.inflate import inflate, widened
from mirror_mlx.draft import Draft
from mirror_mlx.draft.protocol import streaming
from mirror_mlx.errors import DraftError, ModelError
from mirror_mlx.messages import Outcome
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.target import TapAdapter, Target


@dataclass(slots=True)
class Pair:
    """adapter: the trained tap; None: the plain lens"""

    model: nn.Module
    tokenizer: Any
    draft: Draft
    adapter: TapAdapter | None

    def inflate(self, params: int) -> int:
        """See `bench.inflate.inflate`."""
        found = inflate(self.model, params)
        self.adapter = widened(self.adapter, self.model)
        return found


def load(model: str, draft_model: str | None = None) -> Pair:
    """A pair, found as `mirror_mlx.load` finds it. Raises ModelError and DraftError for what is missing."""
    with loading.load(model, mode="ar") as engine:
        target, tokenizer = engine.target.model, engine.tokenizer
    if tokenizer is None:
        raise ModelError(f"{model} has no tokenizer: it is needed for the prompts")
    source: str | Path | None = draft_model
    if source is None:
        source = "demo" if model == "demo" else Path(model) / "draft"
        if source != "demo" and not source.is_dir():
            raise DraftError(f"{model} comes with no draft: give one with --draft-model")
    folder = loading.DEMO if model == "demo" else Path(model)
    adapter = loading.load_tap(folder) if folder.is_dir() else None
    return Pair(target, tokenizer, loading.load_draft(source, target, tokenizer), adapter)


def passes(draft: Draft, length: int, streams: int | None = None) -> int:
    """Passes of a rollout: each brings a token of the main stream and, from a streaming draft, one of each other
    stream, of so many (None: of all)."""
    found = streaming(draft)
    trained = 0 if found is None else found.trained_streams or 0
    return -(-length // (1 + (trained if streams is None else streams)))


def deepest_exit(pair: Pair, length: int, pass_ms: float, streams: int | None = None) -> int:
    """The deepest exit after which a rollout of `length` and the pass under way still fit beside the suffix; at most
    half, and one that the tap was trained for, if any of those is."""
    rows, times = [0] * length, []
    target = Target(pair.model)
    target.prefill([0] * 64, Sampler(Sampling()))
    for _ in range(4):
        began = time.perf_counter()
        target.begin(0, rows, [0] * 65, tap=False)
        target.finish()
        target.commit(Outcome(0, 0))
        times.append(1e3 * (time.perf_counter() - began))
    target.close()
    needed = (passes(pair.draft, length, streams) + 1) * pass_ms
    deepest = max(1, min(target.num_layers // 2, int(target.num_layers * (1 - needed / min(times)))))
    trained = [] if pair.adapter is None else [layer for layer in pair.adapter.layers if layer <= deepest]
    return max(trained, default=deepest)
