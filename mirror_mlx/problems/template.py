"""What a template of word problems is, and how it is filled in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from mirror_mlx.problems.arithmetic import LARGEST, Sum, UnsuitableError

_SLOT = re.compile(r"\{(\w+)(?::(\w+))?\}")
_SUM = re.compile(r"\[(\$?)(\w+): ([^]]+)\]")
_SENTENCE = re.compile(r"(?:^|(?<=[.?!] ))[a-z]")
_PARTS = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth"}
_TIMES = {2: "twice", 3: "three times", 4: "four times", 5: "five times"}


@dataclass(frozen=True)
class Template:
    """A kind of word problem.

    numbers  `"a 2-9, b 10-90/10, c = a*b"`: what each number is drawn from; `/10` makes it a multiple of ten
    asks     wordings of the question: `{a}` a number (`{f:part}` half, a third; `{k:times}` twice, three times), any
             other slot a word of `problems.words`
    steps    wordings of the answer, a step a line. `[c: a*b]` is written `3*12 = 36` and makes c known to what
             follows; `[$c: a*b]` puts a $ before the result. The last result is the answer.
    again    a number, and a follow-up question in which it is another: `("a", "And with {a} boxes?")`
    """

    numbers: str
    asks: tuple[str, ...]
    steps: tuple[str, ...]
    again: tuple[str, str] | None = None


@dataclass(frozen=True)
class Problem:
    """One filled-in problem: the question, its worked answer without the closing sentence, the result."""

    question: str
    steps: str
    result: int
    money: bool

    @property
    def answer(self) -> str:
        return f"{self.steps}\n{closing(self.result, self.money)}"


def closing(result: int, money: bool = False) -> str:
    """The sentence a worked answer ends with, as `train.data.worked_answer` writes it."""
    return f"The answer is {'$' if money else ''}{result}."


def draw(template: Template, random: Random, known: Mapping[str, int] | None = None, new: str = "") -> dict[str, int]:
    """Numbers for a template; with `known` ones, only that called `new` is drawn again."""
    values: dict[str, int] = {}
    for spec in template.numbers.split(", "):
        name, span = spec.split(" ", 1)
        if span.startswith("= "):
            values[name] = Sum.parse(span[2:], values).result
        elif known and name != new:
            values[name] = known[name]
        else:
            span, _, step = span.partition("/")
            low, high = map(int, span.split("-"))
            values[name] = random.randrange(low, high + 1, int(step or 1))
    return values


def solve(steps: str, numbers: Mapping[str, int], words: Mapping[str, str]) -> tuple[str, int, bool]:
    """The steps with their sums, the last result, and whether it is money.

    Raises UnsuitableError where a result is not a whole number from 2 to 9,999.
    """
    values = dict(numbers)
    money = False

    def write(match: re.Match[str]) -> str:
        nonlocal money
        mark, name, text = match.groups()
        sum_ = Sum.parse(text, values)
        values[name] = sum_.result
        if not 2 <= sum_.result <= LARGEST:
            raise UnsuitableError
        money = bool(mark)
        return sum_.written(mark)

    lines = []
    for line in steps.split("\n"):
        written = _SUM.sub(write, line)
        lines.append(fill(written, values, words))
    return "\n".join(line[0].upper() + line[1:] for line in lines), values[_SUM.findall(steps)[-1][1]], money


def fill(text: str, values: Mapping[str, int], words: Mapping[str, str]) -> str:
    """Text with its slots filled and its sentences begun with a capital."""

    def word(match: re.Match[str]) -> str:
        name, form = match.groups()
        if name not in values:
            return words[name]
        if form == "part":
            return _PARTS[values[name]]
        return _TIMES[values[name]] if form == "times" else str(values[name])

    filled = _SLOT.sub(word, text)
    return _SENTENCE.sub(lambda match: match.group().upper(), filled)
