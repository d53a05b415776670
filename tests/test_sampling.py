import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.sample_utils import make_sampler

from mirror_mlx.errors import UsageError
from mirror_mlx.sampling import Sampler, Sampling

V = 64


def logits(rows, seed=0):
    return mx.random.normal((rows, V), key=mx.random.key(seed)) * 2


samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 0.7, 1.0, 2.0]),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 0.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.3]),
    top_k=st.sampled_from([0, 1, 5, V, 10 * V]),
    xtc_probability=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 3),
)


@given(samplings, st.integers(0, 40), st.integers(1, 9))
def test_a_row_is_chosen_alike_alone_and_among_others(sampling, start, rows):
    x, positions = logits(rows), range(start, start + rows)
    together = Sampler(sampling).choose(x, positions).tolist()
    alone = [Sampler(sampling).choose(x[i : i + 1], [p]).item() for i, p in enumerate(positions)]
    assert together == alone


def test_noise_depends_on_seed_request_and_position_alone():
    x, hot = logits(1), Sampling(temperature=1.0, seed=3)
    rows = mx.repeat(x, 40, axis=0)
    once = Sampler(hot).choose(rows, range(40)).tolist()
    assert Sampler(hot).choose(rows[:20], range(20, 40)).tolist() == once[20:]
    assert Sampler(Sampling(temperature=1.0, seed=4)).choose(rows, range(40)).tolist() != once
    assert Sampler(hot, request=1).choose(rows, range(40)).tolist() != once


def test_sampling_follows_the_law():
    x = mx.array([[1.0, 0.0, -1.0, 0.5]])
    n = 8000
    drawn = Sampler(Sampling(temperature=0.8)).choose(mx.repeat(x, n, axis=0), range(n))
    counts = np.bincount(np.array(drawn), minlength=4)
    expected = np.array(mx.softmax(x[0] / 0.8)) * n
    assert ((counts - expected) ** 2 / expected).sum() < 16.3  # chi-squared, 3 degrees of freedom, p = 0.001


@pytest.mark.parametrize(
    "settings",
    [{"top_p": 0.7}, {"min_p": 0.1}, {"top_k": 3}, {"top_p": 0.8, "min_p": 0.02, "top_k": 9}, {"min_p": 0.2}],
)
def test_the_support_is_mlx_lms(settings):
    """The same warpers in the same order leave the same tokens possible."""
    x = logits(1, seed=7)
    mx.random.seed(0)
    theirs = make_sampler(temp=1.0, **settings)
    logprobs = x - mx.logsumexp(x, axis=-1, keepdims=True)
    possible = {theirs(logprobs).item() for _ in range(300)}
    scores = Sampler(Sampling(temperature=1.0, **settings)).scores(x, [0])
    assert possible <= {i for i in range(V) if scores[0, i].item() > -1e30}
    n = 400
    ours = Sampler(Sampling(temperature=1.0, **settings)).choose(mx.repeat(x, n, axis=0), range(n)).tolist()
    assert set(ours) == possible


def test_greedy_ties_go_to_the_lowest_id():
    assert Sampler(Sampling()).choose(mx.array([[0.0, 2.0, 2.0]]), [0]).item() == 1


def test_logits_processors_see_the_text_up_to_their_row():
    seen = []

    def ban_last(tokens, row):
        seen.append(tokens.tolist())
        row[:, tokens[-1]] = -1e9
        return row

    sampler = Sampler(Sampling(logits_processors=(ban_last,)))
    sampler.choose(logits(3), [2, 3, 4], [7, 8, 9, 10])
    assert seen == [[7, 8], [7, 8, 9], [7, 8, 9, 10]]


def test_extremes_are_harmless():
    x = logits(2)
    greedy = Sampler(Sampling()).choose(x, [0, 1]).tolist()
    assert Sampler(Sampling(temperature=1e-300)).choose(x, [0, 1]).tolist() == greedy
    assert Sampler(Sampling(temperature=1e-5)).choose(x, [0, 1]).tolist() == greedy
    wide = Sampling(temperature=1.0, min_p=0.5, min_tokens_to_keep=10 * V)
    assert Sampler(wide).scores(x, [0, 1]).max().item() < 1e6


@pytest.mark.parametrize(
    "bad", [{"temperature": -1}, {"top_p": 1.2}, {"min_p": -0.1}, {"top_k": -1}, {"seed": -1}, {"xtc_threshold": 0.7}]
)
def test_values_out_of_range_are_named(bad):
    with pytest.raises(UsageError, match=next(iter(bad))):
        Sampling(**bad)


def test_the_noise_of_a_token_does_not_depend_on_padding():
    small, large = (Sampler(Sampling(temperature=1.0, seed=3)) for _ in range(2))
    zeros = mx.zeros((2, 1000))
    few = small.scores(zeros, [5, 40]) + math.log(1000)
    more = large.scores(mx.zeros((2, 1020)), [5, 40]) + math.log(1020)
    assert mx.allclose(few, more[:, :1000], atol=1e-5)
