"""The target's own answers: every assistant's turn of the data is written anew by the model that will be deployed.

A draft learns what it will have to guess. Answers go to a file as they are made, so that an interrupted run goes on
with those it has.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import BatchGenerator
from mlx_lm.sample_utils import make_sampler

from mirror_mlx.train import metrics
from mirror_mlx.train.data import Example, Message
from mirror_mlx.train.export import end_tokens

CHUNK = 64
"""Conversations answered and written together: what a crash may lose."""


def answer(
    examples: Sequence[Example],
    target: nn.Module,
    tokenizer: Any,
    file: Path,
    *,
    max_tokens: int,
    temperatures: Sequence[float],
    seed: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Example]:
    """`examples` with the assistant's turns by `target`, each seeing its own earlier ones; running text stays.

    temperatures  conversations take turns with them
    file          where the answers are kept; those already there, of the same call, are not made again
    progress      told (conversations done, of how many)
    """
    found: list[Example] = metrics.read(file)[: len(examples)] if file.is_file() else []
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(example) + "\n" for example in found), encoding="utf-8")
    while len(found) < len(examples):
        progress(len(found), len(examples))
        chunk = examples[len(found) : len(found) + CHUNK]
        mx.random.seed(seed + len(found))
        made = _chunk(chunk, target, tokenizer, max_tokens, [temperatures[i % len(temperatures)] for i in range(CHUNK)])
        with file.open("a", encoding="utf-8") as out:
            out.write("".join(json.dumps(example) + "\n" for example in made))
        found += made
    progress(len(found), len(examples))
    return found


def _chunk(
    chunk: Sequence[Example], target: nn.Module, tokenizer: Any, max_tokens: int, temperatures: Sequence[float]
) -> list[Example]:
    """All first answers together, then all second ones, and so on."""
    made: list[Example] = [example if isinstance(example, str) else [] for example in chunk]
    turns: list[list[Message]] = [[] if isinstance(example, str) else list(example) for example in chunk]
    ends = set(end_tokens(tokenizer))
    while any(turns):
        for into, rest in zip(made, turns, strict=True):
            while rest and rest[0]["role"] != "assistant":
                assert isinstance(into, list)
                into.append(rest.pop(0))
        waiting = [i for i, rest in enumerate(turns) if rest]
        prompts = [list(tokenizer.apply_chat_template(made[i], add_generation_prompt=True)) for i in waiting]
        for i, tokens in zip(
            waiting, _generate(target, prompts, ends, max_tokens, [temperatures[i] for i in waiting]), strict=True
        ):
            into = made[i]
            assert isinstance(into, list)
            into.append({"role": "assistant", "content": tokenizer.decode(tokens)})
            turns[i].pop(0)
    return made


def _generate(
    target: nn.Module, prompts: list[list[int]], ends: set[int], max_tokens: int, temperatures: Sequence[float]
) -> list[list[int]]:
    if not prompts:
        return []
    generator = BatchGenerator(
        target, max_tokens=max_tokens, stop_tokens=[[token] for token in ends], completion_batch_size=CHUNK
    )
    try:
        samplers = [make_sampler(temperature) for temperature in temperatures]
        places = {uid: place for place, uid in enumerate(generator.insert(prompts, samplers=samplers))}
        tokens: list[list[int]] = [[] for _ in prompts]
        while responses := generator.next_generated():
            for response in responses:
                if response.finish_reason != "stop":
                    tokens[places[response.uid]].append(response.token)
    finally:
        generator.close()
    return tokens
