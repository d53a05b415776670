"""Tokenizers: trained on the data or taken from another model, and from examples to samples."""

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.tokenizer_utils import load as load_tokenizer

from mirror_mlx.errors import DataError, UsageError
from mirror_mlx.train.data import Example, Message

END_OF_TEXT, TURN_START, TURN_END = SPECIAL = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

# Qwen's rule for where tokens may not join: words with their space, every digit alone, runs of punctuation.
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
)


@dataclass(frozen=True)
class Sample:
    """One example as tokens.

    `ids`: (length,) int32. `weights`: (length,) float32, how much the prediction *of* each token counts: 1 in the
    assistant's words and in running text, `prompt_weight` elsewhere. `answer`: (length,) bool, the former places.
    """

    ids: np.ndarray
    weights: np.ndarray
    answer: np.ndarray


def train(examples: Sequence[Example], vocab_size: int, max_length: int, out: Path) -> None:
    """Train a byte-level BPE of `vocab_size` entries on `examples`; writes its files, with a ChatML template, to `out`.

    Digits never join, so that a number is spelled the same wherever it stands. Roles count as text, which makes
    each of the usual ones a single token.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if vocab_size < len(alphabet) + len(SPECIAL):
        raise UsageError(f"--vocab-size must be at least {len(alphabet) + len(SPECIAL)}, not {vocab_size}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_texts(examples), trainer)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    config = {
        "bos_token": None,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": TURN_END,
        "model_max_length": max_length,
        "pad_token": END_OF_TEXT,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def copy(source: Path, out: Path) -> None:
    """Copy the tokenizer of the model folder `source` to `out`. Raises UsageError where it has none."""
    if not any((source / name).is_file() for name in ("tokenizer.json", "tokenizer.model")):
        raise UsageError(f"{source} has no tokenizer: expected a model folder with a tokenizer.json")
    out.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)


def load(folder: Path) -> TokenizerWrapper:
    """The tokenizer in `folder`, as mlx-lm loads it."""
    return load_tokenizer(folder)


def same(one: TokenizerWrapper, other: TokenizerWrapper) -> bool:
    """Whether both give every token the same id, which a teacher and its student need."""
    return bool(one.get_vocab() == other.get_vocab())


def encode(tokenizer: Any, examples: Iterable[Example], max_length: int, prompt_weight: float) -> list[Sample]:
    """Examples as samples. Text longer than `max_length` is cut into pieces; a conversation stays whole.

    Raises:
        UsageError: there are conversations and the tokenizer has no chat template.
        DataError: the template changes earlier turns when later ones follow.
    """
    samples: list[Sample] = []
    for example in examples:
        if isinstance(example, str):
            samples.extend(_encode_text(tokenizer, example, max_length))
        else:
            samples.append(_encode_chat(tokenizer, example, prompt_weight))
    return samples


def _encode_text(tokenizer: Any, text: str, max_length: int) -> Iterator[Sample]:
    ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    for start in range(0, len(ids), max_length):
        piece = np.array(ids[start : start + max_length], np.int32)
        yield Sample(piece, np.ones(len(piece), np.float32), np.ones(len(piece), bool))


def _encode_chat(tokenizer: Any, messages: list[Message], prompt_weight: float) -> Sample:
    if not tokenizer.chat_template:
        raise UsageError("the tokenizer has no chat template, which conversations need: choose another --tokenizer")
    ids = _render(tokenizer, messages)
    answer: np.ndarray = np.zeros(len(ids), bool)
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = _render(tokenizer, messages[:place], add_generation_prompt=True)
        through = _render(tokenizer, messages[: place + 1])
        if ids[: len(before)] != before or ids[: len(through)] != through:
            raise DataError(
                "the chat template changes earlier turns once later ones follow: train on single-turn conversations"
            )
        answer[len(before) : len(through)] = True
    weights = np.where(answer, np.float32(1), np.float32(prompt_weight))
    return Sample(np.array(ids, np.int32), weights, answer)


def _render(tokenizer: Any, messages: list[Message], *, add_generation_prompt: bool = False) -> list[int]:
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=add_generation_prompt))


def _texts(examples: Iterable[Example]) -> Iterator[str]:
    for example in examples:
        if isinstance(example, str):
            yield example
        else:
            yield from (message["role"] + "\n" + message["content"] for message in example)
