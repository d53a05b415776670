"""What a draft in training is worth where it will work: a few held-out prompts in the real engine."""

from collections.abc import Sequence
from typing import Any

import mlx.nn as nn
import numpy as np

from mirror_mlx.draft import StreamingDraft
from mirror_mlx.draft.streaming import MlxSegments, StreamingModel
from mirror_mlx.engine import Engine
from mirror_mlx.loading import own_stream
from mirror_mlx.train.tokenizer import Sample


def prompts(samples: Sequence[Sample], count: int, room: int) -> list[list[int]]:
    """What stands before the first answer of each sample, or half of a piece of running text."""
    found = []
    for sample in samples[:count]:
        answers = np.flatnonzero(sample.answer)
        before = int(answers[0]) if len(answers) and answers[0] else len(sample.ids) // 2
        if before >= 1:
            found.append(sample.ids[:before].tolist())
    return found


def run(
    target: nn.Module, draft: StreamingModel, texts: Sequence[list[int]], tokens: int, gamma: int, **options: Any
) -> dict[str, float]:
    """Greedy decoding after each of `texts`: tokens a step, and how often the next window was ready."""
    steps = said = hits = 0.0
    made = StreamingDraft(MlxSegments(draft))
    with Engine(target, None, made, draft_work=own_stream, num_draft_tokens=gamma, **options) as engine:
        for text in texts:
            for _ in engine.stream(text, tokens):
                pass
            stats = engine.stats
            steps, said = steps + stats.steps, said + stats.tokens
            hits += stats.hit_rate * stats.steps
    return {"tokens_per_step": said / max(steps, 1), "hit_rate": hits / max(steps, 1)}
