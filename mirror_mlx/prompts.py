"""From what a person gives to token ids, and back to text."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlx_lm.tokenizer_utils import TokenizerWrapper

from mirror_mlx.errors import PromptError, UsageError

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
    if not tokenizer.has_chat_template:
        raise UsageError("this model has no chat template: give the prompt as text (--ignore-chat-template)")
    return _checked(tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False))


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
