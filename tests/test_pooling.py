"""Draft and tap, pooled: what they say together, and how much each of them comes to count."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.messages import Candidates, Outcome
from mirror_mlx.pooling import Pooling
from mirror_mlx.rounds import Plan, Round

probability = st.floats(0, 1)


@st.composite
def opinions(draw, gamma):
    """What a predictor says of γ+1 rows: distinct tokens, true probabilities."""
    tokens, probs = [], []
    for _ in range(gamma + 1):
        named = draw(st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True))
        shares = [draw(st.floats(0.01, 1)) for _ in named]
        tokens.append(named)
        probs.append(sorted((share / sum(shares) for share in shares), reverse=True))
    return Candidates(tokens, probs, [draw(probability) for _ in range(gamma)])


both = st.integers(0, 4).flatmap(lambda gamma: st.tuples(opinions(gamma), opinions(gamma)))


@given(both, st.floats(0, 2), st.floats(0, 2))
def test_pooled_opinions_name_what_either_names_best_first(said, one, other):
    draft, tap = said
    pooled = Pooling(one, other).pool(draft, tap).candidates
    for row, (tokens, probs) in enumerate(zip(pooled.tokens, pooled.probs, strict=True)):
        assert set(tokens) == {*draft.tokens[row], *tap.tokens[row]}
        assert len(tokens) == len(set(tokens))
        assert sum(probs) == pytest.approx(1)
        assert list(probs) == sorted(probs, reverse=True)
    assert len(pooled.own) == len(tap.own)
    assert all(0 <= p <= 1 for p in pooled.own)


@given(st.integers(0, 4).flatmap(opinions), st.floats(0, 1))
def test_two_who_agree_are_pooled_to_what_they_say(opinion, share):
    pooled = Pooling(share, 1 - share).pool(opinion, opinion).candidates
    for given_, found in zip(opinion.probs, pooled.probs, strict=True):
        assert found == pytest.approx(given_)


def test_what_both_find_likely_comes_before_what_one_alone_does():
    draft = Candidates([[1, 2, 3]], [[0.9, 0.05, 0.001]], [])
    tap = Candidates([[4, 2, 3]], [[0.6, 0.3, 0.001]], [])
    first = {
        weights: Pooling(*weights).pool(draft, tap).candidates.tokens[0][0] for weights in ((0.4, 0.6), (0, 1), (1, 0))
    }
    assert first == {(0.4, 0.6): 2, (0, 1): 4, (1, 0): 1}


@given(both, st.data())
def test_whatever_happens_the_weights_stay_within_bounds(said, data):
    pooling = Pooling()
    for _ in range(20):
        window = data.draw(st.lists(st.integers(0, 9), min_size=len(said[0].own), max_size=len(said[0].own)))
        outcome = Outcome(data.draw(st.integers(0, len(window))), data.draw(st.integers(0, 9)))
        pooling.saw(pooling.pool(*said), window, outcome)
    assert all(0 <= weight <= 2 for weight in pooling.weights)


def played(draft, tap, steps=300, seed=0):
    """A target that has one of eight tokens; whose opinion is worth so much: how likely that one is its favourite."""
    rng, pooling = random.Random(seed), Pooling()

    def opinion(token, worth):
        order = rng.sample(range(8), 8)
        if rng.random() < worth:
            order.remove(token)
            order.insert(0, token)
        return Candidates([order], [[0.5 / 2**place for place in range(8)]], [])

    for _ in range(steps):
        token = rng.randrange(8)
        pooling.saw(pooling.pool(opinion(token, draft), opinion(token, tap)), [], Outcome(0, token))
    return pooling.weights


@pytest.mark.parametrize(("draft", "tap"), [(0.8, 0.0), (0.0, 0.8), (0.9, 0.4), (0.4, 0.9)])
def test_who_is_right_more_often_comes_to_count_for_more(draft, tap):
    weights = played(draft, tap)
    assert (weights[0] > weights[1]) == (draft > tap)
    for weight, worth in zip(weights, (draft, tap), strict=True):
        assert weight < 0.15 if worth == 0 else weight > 0.3  # who guesses counts for next to nothing


def test_a_token_that_nobody_named_teaches_nothing():
    pooling = Pooling()
    before = pooling.weights
    opinion = Candidates([[1, 2]], [[0.6, 0.3]], [])
    pooling.saw(pooling.pool(opinion, opinion), [], Outcome(0, 9))
    assert pooling.weights == before


def hybrid(pooling):
    plan = Plan((5,), 2, 16, "hybrid", kappa=2, max_roots=4, pooling=pooling)
    draft = Candidates([[5, 1], [2, 3]], [[0.9, 0.05], [0.6, 0.3]], [0.9])
    tap = Candidates([[7, 5], [4, 6]], [[0.7, 0.2], [0.6, 0.3]], [0.2])
    return Round(plan), draft, tap


def test_a_round_learns_from_how_it_ended_and_only_then():
    pooling = Pooling()
    round_, draft, tap = hybrid(pooling)
    round_.glued(draft)
    round_.learn()  # the tap has not spoken
    round_.tapped(tap)
    before = pooling.weights
    round_.learn()  # nor has the target
    assert pooling.weights == before
    round_.resolved(Outcome(0, 7))
    round_.learn()
    assert pooling.weights[0] < before[0]
    assert pooling.weights[1] > before[1]


def test_what_was_learnt_says_which_of_the_taps_outcomes_are_prepared_for():
    tapped = {}
    for name, pooling in {"draft": Pooling(1.5, 0.0), "tap": Pooling(0.0, 1.5)}.items():
        round_, draft, tap = hybrid(pooling)
        round_.glued(draft)
        round_.expanded(round_.next().roots)
        round_.tapped(tap)
        tapped[name] = {root.key for root in round_.next().roots}
    assert (0, 7) in tapped["tap"]
    assert (0, 7) not in tapped["draft"]
