"""Word problems: the sums are right, the exam is never in the training text, the same seed gives the same text."""

import hashlib
import json
import re
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.problems import conversations, exam, is_right
from mirror_mlx.problems.arithmetic import Sum, UnsuitableError
from mirror_mlx.problems.dialogues import TEMPLATES, another, bare_sum, of_result, problem

CHAIN = re.compile(r"[\d+*/\- $]*\d(?: = [\d+*/\- $]*\d)+")


def value(text: str) -> float:
    assert re.fullmatch(r"[\d+*/\- ]+", text), text
    return eval(text)


def check_sums(text: str) -> int:
    """Every `x = y = z` in a text holds; returns how many there were."""
    chains = CHAIN.findall(text)
    for chain in chains:
        assert len({value(part.replace("$", "").lstrip("- ")) for part in chain.split(" = ")}) == 1, chain
    return len(chains)


@pytest.mark.parametrize("place", range(len(TEMPLATES)))
def test_every_template_in_every_wording_comes_out_right(place):
    template, random, seen = TEMPLATES[place], Random(place), set()
    for _ in range(60):
        made = problem(random, template)
        turn = made.turn
        assert check_sums(turn.answer)
        assert is_right(turn.answer, turn)
        assert not re.search(r"[{}\[\]_]", turn.question + turn.answer)
        assert turn.question[0].isupper() or turn.question[0].isdigit()
        seen.add(made.steps)
        again = another(random, made)
        if again is not None:
            assert is_right(again.turn.answer, again.turn)
            assert check_sums(again.turn.answer)
    assert seen == set(template.steps)


@given(st.integers())
def test_bare_sums_and_follow_ups_come_out_right(seed):
    random = Random(seed)
    turn = bare_sum(random)
    assert check_sums(turn.answer)
    assert is_right(turn.answer, turn)
    following = of_result(random, turn)
    if following is not None:
        assert is_right(following.answer, following)
        assert check_sums(following.answer)


@given(st.integers(0, 9999), st.sampled_from("+-*/"), st.integers(0, 9999))
def test_working_leads_to_the_result(a, sign, b):
    sum_ = Sum.parse(f"a {sign} b", {"a": a, "b": b})
    exact = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else -1.0}[sign]
    if exact == int(exact) and 0 <= exact <= 9999:
        assert sum_.result == exact
        check_sums(sum_.written())
    else:
        with pytest.raises(UnsuitableError):
            sum_.written()


def test_the_exam_is_in_no_training_text():
    questions = {message["content"] for talk in conversations(1, 4000) for message in talk if message["role"] == "user"}
    asked = [turn.question for seed in (1, 2) for turn in exam(seed, 200)]
    assert not questions & set(asked)
    assert len(set(asked)) > 390


def test_the_same_seed_gives_the_same_text():
    text = json.dumps(list(conversations(1, 300)))
    assert text == json.dumps(list(conversations(1, 300)))
    assert text != json.dumps(list(conversations(2, 300)))
    # The bundled pair was trained on this text: a change here is a change of its recipe.
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "8c6ba009572a4f6c"


def test_conversations_take_turns():
    for talk in islice(conversations(3, 300), 300):
        assert [message["role"] for message in talk] == ["user", "assistant"] * (len(talk) // 2)
    assert max(len(talk) for talk in conversations(3, 300)) >= 6


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("The answer is 12.", True),
        ("The answer is $12.", True),
        ("The answer is 13. The answer is 12.", True),
        ("The answer is 12. The answer is 13.", False),
        ("12", False),
    ],
)
def test_an_answer_is_right_if_its_last_closing_sentence_says_so(answer, right):
    turn = next(exam(1, 1))
    assert is_right(answer.replace("12", str(turn.result)), turn) is right
