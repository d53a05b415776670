"""What SpecBench asks: questions of one or several turns, by category, and their way to token ids and back.

The format is Spec-Bench's `question.jsonl` (github.com/hemingkx/Spec-Bench): question_id, category, turns.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mirror_mlx.bench.prompts import Prompt, lines, made, parsed, prompt_of
from mirror_mlx.errors import DataError
from mirror_mlx.prompts import encode

FLAG = "--questions"
MT_BENCH = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
"""The categories that Spec-Bench's speed.py counts as one task, where a file has them all."""


@dataclass(frozen=True, slots=True)
class Question:
    """One dialogue. Each turn waits for the answer to the one before.

    category  as the file has it; task: what it is counted under, as in Spec-Bench's speed.py
    """

    id: str
    category: str
    turns: tuple[Prompt, ...]
    task: str


def read(path: str | None, limit: int, seed: int = 0, held_out: float = 0.0) -> list[Question]:
    """The first `limit` questions of each category, in the file's order; 0: all of them. held_out: see `prompts.lines`.

    A line of a .jsonl file has `turns`, all of them asked in a row, or what `prompts.read` takes as one prompt; its
    category is its own or "all", its id `question_id` or its place among the questions. Of any other file each line
    is a question. No file: so many made problems, 10 for 0. Raises DataError for a file that cannot be used.
    """
    if path is None:
        texts = enumerate(made(seed, limit or 10), start=1)
        return [Question(str(number), "problems", (text,), "problems") for number, text in texts]
    found: list[Question] = []
    json_lines = Path(path).suffix == ".jsonl"
    for where, line in lines(path, FLAG, held_out):
        fields = parsed(line, where) if json_lines else {"prompt": line.strip()}
        category, name = fields.get("category", "all"), fields.get("question_id", len(found) + 1)
        if not isinstance(category, str) or not isinstance(name, str | int):
            raise DataError(f"{where}: category must be a word, and question_id a number or a word")
        found.append(Question(str(name), category, _turns(fields, where), category))
    if not found:
        raise DataError(f"{path} has no question in it")
    _check_ids(path, found)
    return _limited(_with_tasks(found), limit)


def _turns(fields: Mapping[str, Any], where: str) -> tuple[Prompt, ...]:
    turns = fields.get("turns")
    if turns is None:
        return (prompt_of(fields, where),)
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise DataError(f"{where}: turns must be a list of texts")
    return tuple(turns)


def _check_ids(path: str, found: Sequence[Question]) -> None:
    seen: set[str] = set()
    for question in found:
        if question.id in seen:
            raise DataError(f"{path} has question_id {question.id} twice: results could not be told apart")
        seen.add(question.id)


def _with_tasks(found: Sequence[Question]) -> list[Question]:
    if not {question.category for question in found}.issuperset(MT_BENCH):
        return list(found)
    return [Question(q.id, q.category, q.turns, "mt_bench" if q.category in MT_BENCH else q.category) for q in found]


def _limited(found: Sequence[Question], limit: int) -> list[Question]:
    taken: dict[str, int] = {}
    kept = []
    for question in found:
        taken[question.category] = taken.get(question.category, 0) + 1
        if not limit or taken[question.category] <= limit:
            kept.append(question)
    return kept


class Texts(Protocol):
    """Between a dialogue and token ids, the same way for every method."""

    stops: Collection[int]
    """Tokens that end an answer; they count as part of it."""

    def prompt(self, question: Question, answers: Sequence[str]) -> list[int]:
        """Token ids of the turn after these answers, up to where its answer begins."""

    def text(self, tokens: Sequence[int]) -> str:
        """An answer as it is read, and as the next turn quotes it."""

    def recount(self, text: str) -> int:
        """How many tokens Spec-Bench's speed.py finds in plain decoding's answer: it encodes its text anew, and takes
        one away for the token at the beginning, whether the tokenizer puts one there or not."""


class ModelTexts:
    """`Texts` of a model: its chat template, or blank lines between the turns where it has none."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.stops = frozenset(tokenizer.eos_token_ids)

    def prompt(self, question: Question, answers: Sequence[str]) -> list[int]:
        messages: list[dict[str, Any]] = []
        for i, turn in enumerate(question.turns[: len(answers) + 1]):
            messages += [{"role": "user", "content": turn}] if isinstance(turn, str) else map(dict, turn)
            messages += [{"role": "assistant", "content": answers[i]}] if i < len(answers) else []
        if self._tokenizer.has_chat_template:
            return encode(self._tokenizer, messages)
        return encode(self._tokenizer, "\n\n".join(message["content"] for message in messages))

    def text(self, tokens: Sequence[int]) -> str:
        said = tokens[:-1] if tokens and tokens[-1] in self.stops else tokens
        return str(self._tokenizer.decode(list(said), skip_special_tokens=True)).strip()

    def recount(self, text: str) -> int:
        return len(self._tokenizer.encode(text)) - 1


def fits(question: Question, texts: Texts, max_tokens: int, context: int | None) -> bool:
    """Whether all turns have room for their prompts, the longest answers before the last, and a token of that one."""
    if context is None:
        return True
    earlier = len(question.turns) - 1
    return len(texts.prompt(question, [""] * earlier)) + earlier * max_tokens < context
