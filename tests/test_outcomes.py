import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.messages import Candidates
from mirror_mlx.outcomes import allocate, reach, roots

probability = st.floats(0, 1)


@given(st.lists(probability, max_size=12))
def test_reach_is_a_distribution_over_rows(own):
    ends = reach(own)
    assert len(ends) == len(own) + 1
    assert sum(ends) == pytest.approx(1)


@st.composite
def predictions(draw):
    gamma = draw(st.integers(0, 5))
    window = draw(st.lists(st.integers(0, 9), min_size=gamma, max_size=gamma))
    rows = [draw(st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True)) for _ in range(gamma + 1)]
    probs = [sorted((draw(probability) for _ in row), reverse=True) for row in rows]
    own = draw(st.lists(probability, min_size=gamma, max_size=gamma))
    return Candidates(rows, probs, own), window


@given(predictions(), st.integers(1, 8))
def test_the_windows_own_token_is_left_out_but_for_the_last_row(prediction, kappa):
    candidates, window = prediction
    found = roots(candidates, window, kappa)
    for row in range(len(window) + 1):
        tokens = [root.token for root in found if root.row == row]
        expected = [t for t in candidates.tokens[row] if row == len(window) or t != window[row]]
        assert tokens == expected[:kappa]


@given(predictions(), st.integers(0, 20))
def test_allocation_keeps_the_best_and_never_more_than_the_budget(prediction, budget):
    candidates, window = prediction
    found = roots(candidates, window, 8)
    kept = allocate(found, budget)
    assert len(kept) == min(budget, len(found))
    left = [root for root in found if root not in kept]
    assert not kept or not left or min(r.score for r in kept) >= max(r.score for r in left)


def test_what_is_taken_is_not_given_again():
    candidates = Candidates(tokens=[[7, 8, 6]], probs=[[0.6, 0.3, 0.1]], own=[])
    assert [root.key for root in roots(candidates, [], kappa=2, taken={(0, 7)})] == [(0, 8), (0, 6)]


def test_a_score_is_reach_times_the_renormalised_probability():
    candidates = Candidates(tokens=[[7, 8], [9, 4]], probs=[[0.6, 0.3], [0.9, 0.1]], own=[0.6])
    scores = {root.key: root.score for root in roots(candidates, [7], kappa=2)}
    assert scores[(0, 8)] == pytest.approx(0.4 * 0.3 / 0.4)
    assert scores[(1, 9)] == pytest.approx(0.6 * 0.9)


def test_what_somebody_else_has_named_does_not_count():
    candidates = Candidates(tokens=[[7, 8, 9], [5, 6, 4]], probs=[[0.5, 0.3, 0.1], [0.6, 0.2, 0.1]], own=[0.3])
    found = roots(candidates, [8], 1, {(0, 7), (1, 6)})
    assert [root.key for root in found] == [(0, 9), (1, 5)]
