"""Is what a model says right? Word problems it has never seen, and how its answers to anything else read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mirror_mlx.bench import prompts
from mirror_mlx.engine import Engine
from mirror_mlx.problems import Turn, exam, is_right
from mirror_mlx.sampling import Sampling

Report = Callable[[int, str], None]


@dataclass(frozen=True)
class Mark:
    """One answer.

    right    whether it comes to the right number; None where that is not known
    ends     whether it ended by itself
    repeats  whether a line of it comes three times: babble
    """

    question: str
    answer: str
    wanted: int | None
    right: bool | None
    ends: bool
    repeats: bool


def sit(engine: Engine, seed: int, count: int, max_tokens: int, sampling: Sampling, report: Report) -> list[Mark]:
    """The engine's answers to `count` problems of the exam."""
    return _asked(engine, [(turn.question, turn) for turn in exam(seed, count)], max_tokens, sampling, report)


def read(engine: Engine, file: str, count: int, max_tokens: int, sampling: Sampling, report: Report) -> list[Mark]:
    """The engine's answers to the prompts of a file. Raises DataError for a file that cannot be used."""
    return _asked(engine, [(prompt, None) for prompt in prompts.read(file, count)], max_tokens, sampling, report)


def _asked(
    engine: Engine, asked: Sequence[tuple[prompts.Prompt, Turn | None]], max_tokens: int, sampling: Sampling,
    report: Report,
) -> list[Mark]:  # fmt: skip
    marks = []
    for number, (prompt, turn) in enumerate(asked):
        report(number, "answering")
        tokens, answer, ends = prompts.tokens(engine.tokenizer, prompt), "", False
        room = prompts.fitting(tokens, engine.target.context_length, number + 1)
        for response in engine.stream(tokens, min(max_tokens, room), sampling):
            answer += response.text
            ends = response.finish_reason == "stop"
        question = prompt if isinstance(prompt, str) else str(prompt[-1]["content"])
        marks.append(mark(question, answer, turn, ends))
    report(len(asked), "answering")
    return marks


def mark(question: str, answer: str, turn: Turn | None, ends: bool) -> Mark:
    """
    >>> from mirror_mlx.problems import Turn
    >>> mark("2 + 3?", "2 + 3 = 5.\\nThe answer is 5.", Turn("2 + 3?", "", 5, False), True).right
    True
    """
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    repeats = any(lines.count(line) > 2 for line in set(lines))
    right = None if turn is None else is_right(answer, turn)
    return Mark(question, answer, None if turn is None else turn.result, right, ends, repeats)


def summary(marks: Sequence[Mark]) -> dict[str, Any]:
    """Counts and shares of a set of answers; `right` is None where no result is known."""
    known = [mark.right for mark in marks if mark.right is not None]
    return {
        "asked": len(marks),
        "right": sum(known) if known else None,
        "right_share": sum(known) / len(known) if known else None,
        "ended_share": sum(mark.ends for mark in marks) / max(len(marks), 1),
        "repeating_share": sum(mark.repeats for mark in marks) / max(len(marks), 1),
    }
