"""Training files: chats as JSONL, or plain text; read, checked and split.

A line of JSONL is one of

    {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}
    {"prompt": "…", "completion": "…"}
    {"question": "…", "answer": "…"}      GSM8K: calculator marks are removed, `#### 18` becomes a sentence
    {"text": "…"}

Any other file is text.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mirror_mlx.errors import DataError

Message = dict[str, str]
Example = list[Message] | str
"""A conversation, or a piece of running text."""

_MARKS = re.compile(r"<<.*?>>")


def read(paths: Sequence[str], held_out: float) -> tuple[list[Example], list[Example]]:
    """Read `paths`; returns what to train on and what to keep aside, the last `held_out` of each file.

    Held out are whole lines from the end, at least one where the fraction is not 0, so that the split stays the
    same in every run and can be repeated outside it.

    Raises:
        DataError: a file is missing or empty, a line is malformed (named by its number), or too few lines remain.
    """
    train: list[Example] = []
    held: list[Example] = []
    for path in map(Path, paths):
        examples = _read_jsonl(path) if path.suffix == ".jsonl" else _read_text(path)
        count = max(1, int(len(examples) * held_out)) if held_out else 0
        if len(examples) <= count:
            raise DataError(
                f"{path} has {len(examples)} line(s), too few to hold {count} out: add data or --held-out 0"
            )
        parts = examples[: len(examples) - count], examples[len(examples) - count :]
        for part, into in zip(parts, (train, held), strict=True):
            into.extend(part if path.suffix == ".jsonl" else ["".join(map(str, part))] if part else [])
    return train, held


def _read_text(path: Path) -> list[Example]:
    lines: list[Example] = list(_contents(path).splitlines(keepends=True))
    return lines


def _read_jsonl(path: Path) -> list[Example]:
    examples = []
    for number, line in enumerate(_contents(path).split("\n"), start=1):
        if line.strip():
            try:
                examples.append(parse(json.loads(line)))
            except ValueError as error:
                reason = "is not JSON" if isinstance(error, json.JSONDecodeError) else str(error)
                raise DataError(f"{path}, line {number}: {reason}") from None
    return examples


def _contents(path: Path) -> str:
    try:
        contents = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"{path} not found: expected chats (.jsonl) or text") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder: name the file in it") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    if not contents.strip():
        raise DataError(f"{path} is empty: expected chats (.jsonl) or text")
    return contents


def parse(line: Any) -> Example:
    """One decoded line as an example. Raises ValueError saying what is wrong with it.

    >>> parse({"prompt": "2+2?", "completion": "4"})
    [{'role': 'user', 'content': '2+2?'}, {'role': 'assistant', 'content': '4'}]
    """
    if not isinstance(line, dict):
        raise ValueError(f"expected a JSON object, found {type(line).__name__}")
    if "messages" in line:
        return _conversation(line["messages"])
    if "prompt" in line and "completion" in line:
        return _turn(_string(line, "prompt"), _string(line, "completion"))
    if "question" in line and "answer" in line:
        return _turn(_string(line, "question").strip(), worked_answer(_string(line, "answer")))
    if "text" in line:
        return _string(line, "text")
    found = ", ".join(sorted(map(str, line))) or "none"
    raise ValueError(f"expected messages, prompt and completion, question and answer, or text; found fields: {found}")


def worked_answer(answer: str) -> str:
    """A GSM8K answer as one would write it in a chat.

    >>> worked_answer("He has 2+3=<<2+3=5>>5 cats.\\n#### 5")
    'He has 2+3=5 cats.\\nThe answer is 5.'
    """
    steps, mark, number = _MARKS.sub("", answer).rpartition("####")
    return f"{steps.strip()}\nThe answer is {number.strip()}." if mark else number.strip()


def _conversation(messages: Any) -> list[Message]:
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a list with at least one message")
    for place, message in enumerate(messages, start=1):
        if not isinstance(message, dict) or not {"role", "content"} <= message.keys():
            raise ValueError(f"message {place} must have a role and a content")
        if not isinstance(message["role"], str) or not isinstance(message["content"], str):
            raise ValueError(f"message {place}: role and content must be strings")
    if not any(message["role"] == "assistant" for message in messages):
        raise ValueError("no message is the assistant's, so there is nothing to learn")
    return [{"role": message["role"], "content": message["content"]} for message in messages]


def _turn(question: str, answer: str) -> list[Message]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _string(line: dict[str, Any], name: str) -> str:
    value = line[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, found {type(value).__name__}")
    return value
