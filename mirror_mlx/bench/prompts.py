"""What the measurements ask: prompts from a file, or problems made on the spot."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mirror_mlx.bench import files
from mirror_mlx.errors import DataError, PromptError, UsageError
from mirror_mlx.problems import exam
from mirror_mlx.prompts import encode

Prompt = str | Sequence[Mapping[str, Any]]
"""What a person says, or a conversation that ends with it."""

GSM8K = "gsm8k_train.jsonl"
"""The training file of GSM8K (github.com/openai/grade-school-math)."""
HELD_OUT = 0.05
"""The last share of that file, which no model of the bundled pair was trained on (`train lm --held-out`)."""
DATA = "MIRROR_MLX_DATA"
"""The environment variable that names the folder it is in."""

_TEXTS = ("prompt", "question", "text")


def made(seed: int, count: int) -> list[Prompt]:
    """Word problems of the kind the bundled pair knows; none of them is ever trained on."""
    return [turn.question for turn in exam(seed, count)]


def gsm8k() -> str | None:
    """GSM8K's training file, where it lies in the folder that `DATA` names, or in this one."""
    file = Path(os.environ.get(DATA, "")).expanduser() / GSM8K
    return str(file) if file.is_file() else None


def read(path: str, limit: int, held_out: float = 0.0) -> list[Prompt]:
    """The first `limit` prompts of a file, or of its last share, what training with the same `held_out` keeps aside.

    A line of a .jsonl file is a string or an object with `messages` (up to the last of the user's), `prompt`,
    `question`, `text`, or `turns` (the first of them: SpecBench). Of any other file each line that is not empty is a
    prompt. Raises DataError for a file that cannot be read, has no prompt, or has a malformed line (named by number).
    """
    json_lines = Path(path).suffix == ".jsonl"
    found: list[Prompt] = []
    for where, line in lines(path, held_out=held_out):
        if len(found) < limit:
            found.append(prompt_of(parsed(line, where), where) if json_lines else line.strip())
    if not found:
        raise DataError(f"{path} has no prompt in it")
    return found


def asked(path: str | None, limit: int, held_out: float = 0.0, seed: int = 0) -> list[Prompt]:
    """Those of a file, or as many made ones. See `read`, `made`."""
    return made(seed, limit) if path is None else read(path, limit, held_out)


def lines(path: str, flag: str = "--prompts", held_out: float = 0.0) -> list[tuple[str, str]]:
    """The lines of a file that are not empty, each with what to call it. Raises DataError.

    flag      what named the file
    held_out  not all of them but this share from the end, at least one; 0: all
    """
    check_share(held_out)
    text = files.read_text(path, f"check {flag}")
    found = [(f"{path}, line {i}", line) for i, line in enumerate(text.split("\n"), start=1) if line.strip()]
    return found[-max(1, int(len(found) * held_out)) :] if held_out else found


def check_share(held_out: float) -> None:
    """Raises UsageError."""
    if not 0 <= held_out <= 1:
        raise UsageError(f"held_out is {held_out:g}: it must be between 0 and 1")


def parsed(line: str, where: str) -> dict[str, Any]:
    """The object on a line; what is no object is its `prompt`. Raises DataError."""
    try:
        given = json.loads(line)
    except ValueError:
        raise DataError(f"{where}: it is not JSON") from None
    return given if isinstance(given, dict) else {"prompt": given}


def prompt_of(fields: Mapping[str, Any], where: str) -> Prompt:
    """The prompt in a line's object, under any of its names. Raises DataError."""
    for name in _TEXTS:
        if isinstance(fields.get(name), str) and fields[name].strip():
            return str(fields[name])
    turns = fields.get("turns")
    if isinstance(turns, list) and turns and isinstance(turns[0], str):
        return turns[0]
    messages = fields.get("messages")
    if isinstance(messages, list) and all(isinstance(message, dict) for message in messages):
        last = max((i for i, message in enumerate(messages) if message.get("role") == "user"), default=-1)
        if last >= 0 and all(isinstance(message.get("content"), str) for message in messages[: last + 1]):
            return messages[: last + 1]
    raise DataError(f"{where}: expected a prompt, a question, a text, turns, or messages with one of the user's")


def tokens(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Token ids of a prompt: through the chat template, or as it is where there is none. Raises PromptError."""
    if isinstance(prompt, str) and not tokenizer.has_chat_template:
        return encode(tokenizer, prompt)
    return encode(tokenizer, [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt))


def fitting(prompt: Sequence[int], context: int | None, number: int) -> int:
    """How many tokens may follow a prompt. Raises PromptError where it leaves no room for any."""
    room = (context or 1 << 62) - len(prompt)
    if room < 1:
        raise PromptError(f"prompt {number} has {len(prompt)} tokens and the model's context is {context}: shorten it")
    return room
