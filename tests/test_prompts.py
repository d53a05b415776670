"""From prompts to tokens, and from tokens to text."""

import models
import pytest
from mlx_lm.tokenizer_utils import load

from mirror_mlx.errors import PromptError, UsageError
from mirror_mlx.prompts import TextStream, chat_tokens, encode, use_default_template, wrapped

ASK = [{"role": "user", "content": "6 times 7?"}]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return load(models.save_tiny(tmp_path_factory.mktemp("model")))


def test_a_string_is_taken_as_it_is(tokenizer):
    assert tokenizer.decode(encode(tokenizer, "Hi\n<|im_end|>")) == "Hi\n<|im_end|>"


def test_token_ids_stay(tokenizer):
    assert encode(tokenizer, [5, 6]) == encode(None, iter([5, 6])) == [5, 6]


def test_messages_go_through_the_template_as_mlx_lm_does(tokenizer):
    tokens = encode(tokenizer, ASK)
    assert tokens == tokenizer.apply_chat_template(ASK, add_generation_prompt=True)
    assert tokenizer.decode(tokens) == "<|im_start|>user\n6 times 7?<|im_end|>\n<|im_start|>assistant\n"


def test_an_answer_can_be_begun(tokenizer):
    tokens = chat_tokens(tokenizer, [*ASK, {"role": "assistant", "content": "It is"}], continued=True)
    assert tokenizer.decode(tokens).endswith("<|im_start|>assistant\nIt is")


def test_the_template_gets_its_variables(tmp_path):
    tokenizer = load(models.save_tiny(tmp_path, chat_template="{{ 'fast' if not enable_thinking else 'slow' }}"))
    assert tokenizer.decode(chat_tokens(tokenizer, ASK, enable_thinking=True)) == "slow"
    assert tokenizer.decode(chat_tokens(tokenizer, ASK, enable_thinking=False)) == "fast"


def test_a_model_without_a_template(tmp_path):
    tokenizer = load(models.save_tiny(tmp_path, chat_template=None))
    with pytest.raises(UsageError, match="no chat template"):
        encode(tokenizer, ASK)
    use_default_template(tokenizer)
    assert tokenizer.decode(encode(tokenizer, ASK)).startswith("<|im_start|>user\n6 times 7?<|im_end|>")


@pytest.mark.parametrize("messages", [[{"role": "user"}], [{"content": "x"}], [{"role": 3, "content": []}]])
def test_malformed_messages(tokenizer, messages):
    with pytest.raises(PromptError, match="refuses these messages"):
        encode(tokenizer, messages)


@pytest.mark.parametrize("prompt", ["", [], iter([])], ids=["text", "ids", "iterator"])
def test_empty_prompts(tokenizer, prompt):
    with pytest.raises(PromptError, match="the prompt is empty"):
        encode(tokenizer, prompt)


def test_text_needs_a_tokenizer():
    with pytest.raises(UsageError, match="no tokenizer"):
        encode(None, "Hi")


def test_a_bos_that_is_there_is_not_added_again(tokenizer):
    class Beginning:
        bos_token = "<s>"

        def encode(self, text, add_special_tokens):
            return [add_special_tokens]

    assert encode(Beginning(), "<s>Hi") == [False]
    assert encode(Beginning(), "Hi") == [True]


def test_wrapping(tokenizer):
    assert wrapped(None) is None
    assert wrapped(tokenizer) is tokenizer
    assert wrapped(tokenizer._tokenizer).eos_token_ids == {models.END}


def test_text_comes_whole_characters_at_a_time(tokenizer):
    stream = TextStream(tokenizer)
    pieces = [stream.add(token) for token in tokenizer.encode("é 🙂!")]
    assert "".join([*pieces, stream.end()]) == "é 🙂!"
    assert not any("\ufffd" in piece for piece in pieces)


def test_half_a_character_at_the_end(tokenizer):
    stream = TextStream(tokenizer)
    stream.add(tokenizer.encode("é")[0])
    assert stream.end() == "\ufffd"


def test_no_tokenizer_no_text():
    stream = TextStream(None)
    assert stream.add(5) + stream.end() == ""
