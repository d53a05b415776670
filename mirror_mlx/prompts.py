"""From what a person gives to token ids, and back to text."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlx_lm.tokenizer_utils import TokenizerWrapper

from mirror_mlx.errors import PromptError, UsageError

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]


def wrapped(tokenizer: Any) -> TokenizerWrapper | None:
    """mlx-lm's wrapper around a tokenizer that may have one already."""
    if tokenizer is None or isinstance(tokenizer, TokenizerWrapper):
        return tokenizer
    return TokenizerWrapper(tokenizer)


def encode(tokenizer: TokenizerWrapper | None, prompt: Prompt) -> list[int]:
    """Token ids of a string (as it is), a message list (through the chat template) or token ids.

    Raises PromptError where nothing is left, UsageError where a tokenizer is needed and there is none.
    """
    if not isinstance(prompt, str):
        prompt = list(prompt)  # type: ignore[assignment]
        if all(not isinstance(item, Mapping) for item in prompt):
            return _checked([int(token) for token in prompt])  # type: ignore[arg-type]
    if tokenizer is None:
        raise UsageError("this engine has no tokenizer: give it token ids, or build it with one")
    if isinstance(prompt, str):
        if not prompt:
            raise PromptError("the prompt is empty: give it at least one character")
        bos = tokenizer.bos_token
        return _checked(tokenizer.encode(prompt, add_special_tokens=bos is None or not prompt.startswith(bos)))
    return chat_tokens(tokenizer, prompt)


def chat_tokens(
    tokenizer: TokenizerWrapper, messages: Sequence[Mapping[str, Any]], *, continued: bool = False, **template: Any
) -> list[int]:
    """Token ids of a conversation through the model's chat template, up to where the answer begins.

    continued  the last message is the beginning of the answer
    template   further variables for the template, such as `enable_thinking`
    Raises UsageError where there is no template, PromptError where it refuses the messages.
    """
    if not tokenizer.has_chat_template:
        raise UsageError("this model has no chat template: give the prompt as text, or choose an instruction model")
    if continued:
        template["continue_final_message"] = True
    try:
        text = tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=not continued, **template
        )
    except Exception as reason:  # templates are programs: what one says of these messages is for the user
        detail = " ".join(str(reason).split()) or type(reason).__name__
        raise PromptError(f"the model's chat template refuses these messages: {detail}") from reason
    return _checked(tokenizer.encode(text, add_special_tokens=False))


def use_default_template(tokenizer: TokenizerWrapper) -> None:
    """Give a tokenizer that has no chat template the default one, ChatML."""
    if not tokenizer.has_chat_template:
        tokenizer.chat_template = CHATML
        tokenizer.has_chat_template = True


def _checked(tokens: Sequence[int]) -> list[int]:
    if not len(tokens):
        raise PromptError("the prompt is empty: give it at least one token")
    return list(tokens)


class TextStream:
    """Text out of tokens as they come. Without a tokenizer there is none."""

    def __init__(self, tokenizer: TokenizerWrapper | None) -> None:
        self._detokenizer = tokenizer.detokenizer if tokenizer else None
        if self._detokenizer is not None:
            self._detokenizer.reset()

    def add(self, token: int) -> str:
        if self._detokenizer is None:
            return ""
        self._detokenizer.add_token(token)
        return str(self._detokenizer.last_segment)

    def end(self) -> str:
        if self._detokenizer is None:
            return ""
        self._detokenizer.finalize()
        return str(self._detokenizer.last_segment)
