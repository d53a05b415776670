"""Conversations around word problems: the problem as people put it, follow-ups to it, bare sums."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from mirror_mlx.problems.arithmetic import Sum, UnsuitableError
from mirror_mlx.problems.comparison import COMPARISON
from mirror_mlx.problems.money import MONEY
from mirror_mlx.problems.people import PEOPLE
from mirror_mlx.problems.template import Template, closing, draw, fill, solve
from mirror_mlx.problems.things import THINGS
from mirror_mlx.problems.words import words
from mirror_mlx.problems.work import TIME

Message = dict[str, str]
TEMPLATES: tuple[Template, ...] = (*THINGS, *PEOPLE, *TIME, *MONEY, *COMPARISON)

_BEFORE = ("Please help me: ", "Can you solve this? ", "Here is a problem. ", "Hi! ", "Another one: ", "Try this: ")
_AFTER = (" Show your work.", " Explain step by step.", " Please work it out.", " Thanks!")
_THANKS = ("Thanks!", "Thank you!", "thanks", "Thank you very much.", "Great, thanks.", "Good, thank you.")
_SURE = ("Are you sure?", "Is that right?", "Can you check that?", "Please check that.", "How did you get that?")
_SUMS = {
    "+": ("What is {a} + {b}?", "What is {a} plus {b}?", "{a} + {b}", "Add {a} and {b}.", "Calculate {a} + {b}."),
    "-": ("What is {a} - {b}?", "What is {a} minus {b}?", "{a} - {b}", "Take {b} from {a}.", "Calculate {a} - {b}."),
    "*": ("What is {a} times {b}?", "What is {a} * {b}?", "{a}*{b}", "Multiply {a} by {b}.", "How much is {a} x {b}?"),
    "/": ("What is {a} divided by {b}?", "What is {a} / {b}?", "{a}/{b}", "Divide {a} by {b}.", "How much is {a}/{b}?"),
}
_RESULT = (
    ("/", 2, 2, ("What is half of that?", "And half of that?", "Divide that by 2.")),
    ("*", 2, 2, ("What is twice that?", "And double that?", "Multiply that by 2.")),
    ("*", 3, 9, ("What is {b} times that?", "Multiply that by {b}.", "And {b} times as much?")),
    ("+", 2, 50, ("And {b} more?", "Add {b} to that.", "What if it were {b} more?", "What is that plus {b}?")),
    ("-", 2, 50, ("And {b} less?", "Take {b} from that.", "What if it were {b} less?", "What is that minus {b}?")),
)


@dataclass(frozen=True)
class Turn:
    """What is asked, what is answered, the number it comes to, and whether that is money."""

    question: str
    answer: str
    result: int
    money: bool


@dataclass(frozen=True)
class Problem:
    """A problem and what it is made of."""

    template: Template
    numbers: dict[str, int]
    words: dict[str, str]
    steps: str
    turn: Turn


def problem(random: Random, template: Template | None = None) -> Problem:
    """A problem of the given or of any template, with numbers that make it come out well."""
    template = template or random.choice(TEMPLATES)
    chosen = words(random)
    ask, steps = random.choice(template.asks), random.choice(template.steps)
    while True:
        numbers = _suitable(template, random)
        try:
            written, result, money = solve(steps, numbers, chosen)
        except UnsuitableError:
            continue
        turn = Turn(fill(ask, numbers, chosen), f"{written}\n{closing(result, money)}", result, money)
        return Problem(template, numbers, chosen, steps, turn)


def another(random: Random, made: Problem) -> Problem | None:
    """The same problem with another number, where its template has a question for that."""
    if made.template.again is None:
        return None
    name, ask = made.template.again
    for _ in range(20):
        try:
            numbers = draw(made.template, random, made.numbers, name)
            written, result, money = solve(made.steps, numbers, made.words)
        except UnsuitableError:
            continue
        if numbers != made.numbers:
            turn = Turn(fill(ask, numbers, made.words), f"{written}\n{closing(result, money)}", result, money)
            return Problem(made.template, numbers, made.words, made.steps, turn)
    return None


def bare_sum(random: Random) -> Turn:
    """A sum and nothing else."""
    sign = random.choice("++--**/")
    if sign in "+-":
        top = random.choice((20, 99, 99, 500))
        a, b = random.randint(2, top), random.randint(2, top)
        a, b = (max(a, b) + 2, min(a, b)) if sign == "-" else (a, b)
    elif sign == "*":
        a, b = random.randint(2, 12), random.choice((random.randint(2, 12), random.randint(2, 99)))
        a, b = random.choice(((a, b), (b, a)))
    else:
        b = random.randint(2, 12)
        a = b * random.randint(2, 25)
    return _sum(random, a, sign, b, random.choice(_SUMS[sign]), False)


def of_result(random: Random, turn: Turn) -> Turn | None:
    """A question about the number that a turn came to."""
    sign, low, high, asks = random.choice(_RESULT)
    try:
        return _sum(random, turn.result, sign, random.randint(low, high), random.choice(asks), turn.money)
    except UnsuitableError:
        return None


def conversation(random: Random) -> list[Message]:
    """One to four turns: a problem or a bare sum, and what people say next."""
    made = None if random.random() < 0.12 else problem(random)
    turns = [made.turn if made else bare_sum(random)]
    if made:
        before = random.choice(_BEFORE) if random.random() < 0.3 else ""
        after = random.choice(_AFTER) if random.random() < 0.3 else ""
        first = turns[0]
        turns = [Turn(before + first.question + after, first.answer, first.result, first.money)]
    while len(turns) < 4 and random.random() < 0.4:
        last, kind = turns[-1], random.random()
        if kind < 0.4:
            made = another(random, made) if made else None
            turns += [made.turn] if made else []
        elif kind < 0.65:
            turns += [turn] if (turn := of_result(random, last)) else []
            made = None
        elif kind < 0.85 and not last.answer.startswith("Step"):
            turns.append(Turn(random.choice(_SURE), f"Step by step:\n{last.answer}", last.result, last.money))
        else:
            turns.append(Turn(random.choice(_THANKS), "You are welcome! Do you have another problem for me?", 0, False))
            break
    return messages(turns)


def messages(turns: Sequence[Turn]) -> list[Message]:
    """Turns as a conversation."""
    pairs = [(("user", turn.question), ("assistant", turn.answer)) for turn in turns]
    return [{"role": role, "content": content} for pair in pairs for role, content in pair]


def _suitable(template: Template, random: Random) -> dict[str, int]:
    while True:
        try:
            return draw(template, random)
        except UnsuitableError:
            continue


def _sum(random: Random, a: int, sign: str, b: int, ask: str, money: bool) -> Turn:
    text = f"a {sign} b" if sign in "+-" else f"a{sign}b"
    sum_ = Sum.parse(text, {"a": a, "b": b})
    mark = "$" if money else ""
    answer = f"{sum_.written(mark)}.\n{closing(sum_.result, money)}"
    return Turn(fill(ask, {"a": a, "b": b}, {}), answer, sum_.result, money)
