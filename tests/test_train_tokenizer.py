from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mirror_mlx.errors import DataError, UsageError
from mirror_mlx.train import tokenizer
from mirror_mlx.train.data import Example

CHAT: Example = [
    {"role": "user", "content": "Tom has 12 pears."},
    {"role": "assistant", "content": "So 12."},
    {"role": "user", "content": "And then?"},
    {"role": "assistant", "content": "Still 12."},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tokenizer")
    tokenizer.train([CHAT, "Tom sang 12 songs to 345 pears."] * 5, 300, 512, out)
    return out


@pytest.fixture(scope="module")
def words(folder: Path) -> tokenizer.TokenizerWrapper:
    return tokenizer.load(folder)


def test_digits_stay_apart_and_everything_comes_back(words: tokenizer.TokenizerWrapper) -> None:
    assert words.convert_ids_to_tokens(words.encode("12345")) == list("12345")
    text = "naïve  café\n\t“12,000” 🙂 <|im_start|>"
    assert words.decode(words.encode(text)) == text


def test_it_is_what_mlx_lm_needs(words: tokenizer.TokenizerWrapper) -> None:
    vocabulary = words.get_vocab()
    assert len(vocabulary) <= 300
    assert [vocabulary[token] for token in tokenizer.SPECIAL] == [0, 1, 2]
    assert words.eos_token == tokenizer.TURN_END
    rendered = words.apply_chat_template(CHAT[:1], add_generation_prompt=True, tokenize=False)
    assert rendered == "<|im_start|>user\nTom has 12 pears.<|im_end|>\n<|im_start|>assistant\n"


def test_training_it_again_gives_the_same(folder: Path, tmp_path: Path) -> None:
    tokenizer.train([CHAT, "Tom sang 12 songs to 345 pears."] * 5, 300, 512, tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


def test_only_the_assistants_words_count_in_full(words: tokenizer.TokenizerWrapper) -> None:
    (sample,) = tokenizer.encode(words, [CHAT], 512, 0.25)
    assert sample.ids.tolist() == words.apply_chat_template(CHAT)
    assert words.decode(sample.ids[sample.answer].tolist()) == "So 12.<|im_end|>\nStill 12.<|im_end|>\n"
    assert np.array_equal(sample.weights, np.where(sample.answer, 1, 0.25))


def test_text_is_cut_into_pieces_that_end_once(words: tokenizer.TokenizerWrapper) -> None:
    pieces = tokenizer.encode(words, ["Tom has 12 pears."], 5, 0.25)
    assert all(len(piece.ids) <= 5 and piece.weights.all() for piece in pieces)
    joined = np.concatenate([piece.ids for piece in pieces]).tolist()
    assert words.decode(joined) == "Tom has 12 pears.<|im_end|>"


def test_a_reused_tokenizer_is_the_same(folder: Path, words: tokenizer.TokenizerWrapper, tmp_path: Path) -> None:
    tokenizer.copy(folder, tmp_path / "copy")
    assert tokenizer.same(words, tokenizer.load(tmp_path / "copy"))
    with pytest.raises(UsageError, match="has no tokenizer"):
        tokenizer.copy(tmp_path, tmp_path / "other")


def test_too_small_a_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 259, not 100"):
        tokenizer.train(["a"], 100, 512, tmp_path)


def test_templates_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(UsageError, match="no chat template"):
        tokenizer.encode(SimpleNamespace(chat_template=None), [CHAT], 512, 0.25)

    def forgetful(messages: list[dict[str, str]], add_generation_prompt: bool = False) -> list[int]:
        return [len(messages), *range(len(messages))]

    fake = SimpleNamespace(chat_template="…", apply_chat_template=forgetful)
    with pytest.raises(DataError, match="changes earlier turns"):
        tokenizer.encode(fake, [CHAT], 512, 0.25)
