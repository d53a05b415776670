"""The bundled pair: Mirror equals plain decoding token for token, over every combination of what can be set.

`make test` takes every combination's draft, predictor and temperature at least once; all 1,512 are `slow`:
`pytest -m slow tests/test_exactness.py -s` prints how many tokens were compared.
"""

import itertools
import random

import pytest

from mirror_mlx import Engine, Sampling
from mirror_mlx.draft import ScriptedDraft
from mirror_mlx.loading import DEMO, load, load_draft

PREDICTORS = ["tap", "draft", "hybrid"]
FALLBACKS = ["jit", "empty"]
GAMMAS = [1, 3, 7, 12]
KAPPAS = [1, 4, 8]
TEMPERATURES = [0.0, 0.7, 1.0]
DRAFTS = ["streaming", "exact", "autoregressive", "perfect", "random", "wrong", "out of vocabulary"]
COUNT = 24
QUESTIONS = [
    "A farmer has 14 cows and buys 9 more. Each cow gives 5 liters of milk. How many liters does he get?",
    "Lisa reads 12 pages a day. How many pages does she read in 3 weeks?",
    "A box holds 24 eggs. How many boxes are needed for 200 eggs?",
    "Sam has $50. He buys 3 books for $11 each. How much money is left?",
]


@pytest.fixture(scope="module")
def pair():
    """The loaded target, its tokenizer and its trained tap."""
    engine = load("demo", mode="mirror")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def plain(pair):
    """What plain decoding says to each question at each temperature."""
    with Engine(pair.target.model, pair.tokenizer, mode="ar") as engine:
        engine._eos = set()  # never stop, so that every run has its full length

        def decode(question, temperature):
            sampling = Sampling(temperature=temperature, seed=7)
            messages = [{"role": "user", "content": question}]
            return [r.token for r in engine.stream(messages, max_tokens=COUNT, sampling=sampling)]

        return {(q, t): decode(q, t) for q in QUESTIONS for t in TEMPERATURES}


def draft_of(kind, expected, length, vocab_size, rng):
    proposals = {
        "perfect": lambda place: expected[place],
        "random": lambda place: rng.randrange(vocab_size),
        "wrong": lambda place: (expected[place] + 1) % vocab_size,
        "out of vocabulary": lambda place: rng.choice([expected[place], vocab_size, vocab_size + 3, -1, 2**40]),
    }[kind]
    return ScriptedDraft(lambda context: proposals(min(max(len(context) - length, 0), COUNT - 1)))


def differences(pair, plain, predictor, fallback, gamma, kappa, temperature, kind):
    """Compare one combination; returns (tokens compared, tokens that differ)."""
    rng = random.Random(f"{predictor} {fallback} {gamma} {kappa} {temperature} {kind}")
    question = rng.choice(QUESTIONS)
    expected = plain[question, temperature]
    messages = [{"role": "user", "content": question}]
    length = len(pair.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))
    model = pair.target.model
    options = {"predictor": predictor, "fallback": fallback, "num_draft_tokens": gamma, "kappa": kappa}
    if kind in ("streaming", "exact"):
        made = load_draft(DEMO / "draft", model, pair.tokenizer)
        options["stream_mode"] = "exact" if kind == "exact" else "trust"
    elif kind == "autoregressive":
        made = load_draft(DEMO / "draft", model, pair.tokenizer, main_stream=True)
    else:
        made = draft_of(kind, expected, length, pair.target.vocab_size, rng)
    with Engine(model, pair.tokenizer, made, tap=pair.target.adapter, **options) as engine:
        engine._eos = set()
        sampling = Sampling(temperature=temperature, seed=7)
        tokens = [r.token for r in engine.stream(messages, max_tokens=COUNT, sampling=sampling)]
        assert engine.stats.reason == ""
    return len(tokens), sum(a != b for a, b in zip(tokens, expected, strict=True))


EVERYTHING = list(itertools.product(PREDICTORS, FALLBACKS, GAMMAS, KAPPAS, TEMPERATURES, DRAFTS))
SOME = [c for i, c in enumerate(random.Random(3).sample(EVERYTHING, len(EVERYTHING))) if i < 60]


@pytest.mark.parametrize("combination", SOME, ids=str)
def test_mirror_equals_plain_decoding(pair, plain, combination):
    assert differences(pair, plain, *combination)[1] == 0


def test_the_sample_covers_every_setting():
    for values, index in ((PREDICTORS, 0), (FALLBACKS, 1), (GAMMAS, 2), (KAPPAS, 3), (TEMPERATURES, 4), (DRAFTS, 5)):
        assert {combination[index] for combination in SOME} == set(values)


@pytest.mark.slow
def test_every_combination_equals_plain_decoding(pair, plain):
    compared = wrong = 0
    for combination in EVERYTHING:
        tokens, different = differences(pair, plain, *combination)
        compared, wrong = compared + tokens, wrong + different
        assert not different, combination
    print(f"\n{len(EVERYTHING)} combinations, {compared} tokens compared, {wrong} differences")
    assert compared >= 20_000
