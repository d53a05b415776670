"""School maths problems with worked answers, by the thousand: what the bundled pair is trained on and judged by.

    conversations(seed=1, count=100_000)                 # to train on
    exam(seed=1, count=200)                              # to ask: never among the former, whatever the seeds
    is_right(answer, turn)                               # does the answer come to the right number?

A question belongs to the exam if its text's checksum says so, so that no seed can mix the two up.
"""

import re
import zlib
from collections.abc import Iterator
from random import Random

from mirror_mlx.problems.dialogues import Message, Turn, conversation, problem

__all__ = ["Message", "Turn", "conversations", "exam", "is_right"]

_CLOSING = re.compile(r"The answer is \$?(-?[\d,]*\.?\d+)")
_SHARE = 20
"""One question in so many belongs to the exam."""


def conversations(seed: int, count: int) -> Iterator[list[Message]]:
    """`count` conversations, none of whose questions belongs to the exam."""
    random = Random(seed)
    while count:
        made = conversation(random)
        if not any(message["role"] == "user" and _reserved(message["content"]) for message in made):
            count -= 1
            yield made


def exam(seed: int, count: int) -> Iterator[Turn]:
    """`count` single problems to be judged by."""
    random = Random(seed)
    while count:
        turn = problem(random).turn
        if _reserved(turn.question):
            count -= 1
            yield turn


def is_right(answer: str, turn: Turn) -> bool:
    """Whether the last closing sentence of an answer names the result."""
    found = _CLOSING.findall(answer)
    return bool(found) and float(found[-1].replace(",", "")) == turn.result


def _reserved(question: str) -> bool:
    return zlib.crc32(question.encode()) % _SHARE == 0
