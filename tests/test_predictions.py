"""Of a vocabulary in buckets: the best token, the normaliser and the noise are those of the whole vocabulary."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror_mlx.draft.streaming.predictions import Buckets, Full
from mirror_mlx.sampling import Sampler, Sampling


def dealt(logits, buckets, ids=None, vocab=None):
    """What a head in buckets says of logits [R, V']."""
    rows, count = logits.shape
    padded = np.concatenate([logits, np.full((rows, -count % buckets), -1e4, np.float32)], axis=1)
    grouped = padded.reshape(rows, -1, buckets)
    best = grouped.max(axis=1)
    places = grouped.argmax(axis=1) * buckets + np.arange(buckets)
    full = np.arange(count) if ids is None else np.asarray(ids)
    bucket = np.full(vocab or count, -1, np.int32)
    bucket[full] = np.arange(count) % buckets
    full = np.append(full, np.zeros(-count % buckets, full.dtype))
    return Buckets(full[places], best, np.exp(grouped - best[:, None]).sum(axis=1), bucket)


def random_logits(rows, count, seed, spread=4.0):
    return (spread * np.random.default_rng(seed).standard_normal((rows, count))).astype(np.float32)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 5), st.integers(1, 60), st.integers(1, 16), st.integers(0, 99))
def test_greedy_the_choice_is_that_of_the_whole_vocabulary(rows, count, buckets, seed):
    logits = random_logits(rows, count, seed)
    sampler, positions = Sampler(Sampling()), list(range(5, 5 + rows))
    whole = Full(mx.array(logits), None, count).choose(sampler, positions).tokens
    assert dealt(logits, buckets).choose(sampler, positions).tokens == whole


def test_with_a_bucket_for_every_token_nothing_is_lost():
    logits = random_logits(6, 40, 1)
    for sampling in (Sampling(temperature=1.0, seed=3), Sampling(temperature=0.7, top_p=0.8), Sampling(0.9, top_k=5)):
        sampler, positions = Sampler(sampling), [3, 3, 9, 40, 41, 7]
        full, ours = Full(mx.array(logits), None, 40), dealt(logits, 40)
        assert ours.choose(sampler, positions).tokens == full.choose(sampler, positions).tokens
        window = logits.argmax(-1)[:5].tolist()
        theirs = full.candidates(sampler, positions, window, 4)
        said = ours.candidates(sampler, positions, window, 4)
        for ours_, theirs_, probs in zip(said.tokens, theirs.tokens, theirs.probs, strict=True):
            possible = sum(p > 1e-6 for p in probs)
            assert ours_[:possible] == theirs_[:possible]
        np.testing.assert_allclose(said.probs, theirs.probs, atol=1e-5)
        np.testing.assert_allclose(said.own, theirs.own, atol=1e-5)


def test_sampled_from_fewer_buckets_it_is_mostly_the_same_token():
    logits = random_logits(400, 256, 5, spread=4.0)
    sampler, positions = Sampler(Sampling(temperature=1.0, seed=1)), list(range(400))
    full = Full(mx.array(logits), None, 256).choose(sampler, positions).tokens
    same = np.mean(np.array(dealt(logits, 64).choose(sampler, positions).tokens) == np.array(full))
    assert same > 0.8
    assert same < np.mean(np.array(dealt(logits, 128).choose(sampler, positions).tokens) == np.array(full))


def test_the_window_own_probability():
    logits = np.log(np.array([[0.5, 0.3, 0.15, 0.05]], np.float32))
    said = dealt(logits, 2)  # tokens 0 and 2 in one bucket, 1 and 3 in the other
    sampler = Sampler(Sampling())
    found = [said.candidates(sampler, [1], [token], 2) for token in range(4)]
    assert found[0].tokens == [[0, 1]]
    assert found[0].own[0] > found[1].own[0] > found[2].own[0] >= 0
    assert said.candidates(sampler, [1], [9], 2).own == [0.0]


def test_a_trimmed_head_speaks_in_full_ids():
    logits = random_logits(3, 10, 2)
    ids = [4, 7, 11, 12, 30, 31, 32, 40, 41, 49]
    said = dealt(logits, 4, ids, 50)
    assert said.choose(Sampler(Sampling()), [1, 2, 3]).tokens == [ids[i] for i in logits.argmax(-1)]
    assert said.candidates(Sampler(Sampling()), [1, 2, 3], [5, 7], 3).own[0] == 0.0


def test_the_noise_is_that_of_the_target():
    """A vocabulary's noise depends on its size: ids alone do not say it."""
    logits = np.zeros((1, 300), np.float32)
    for temperature in (0.5, 1.0):
        sampler = Sampler(Sampling(temperature=temperature, seed=8))
        whole = sampler.scores(mx.array(logits), [17])
        some = np.array([[3, 200, 299]])
        logprobs = np.full((1, 3), -np.log(300), np.float32)
        assert sampler.scores_of(some, logprobs, [17], 300) == pytest.approx(np.array(whole)[:, some[0]], abs=1e-5)


@given(
    st.builds(
        Sampling,
        temperature=st.sampled_from([0.3, 1.0]),
        top_p=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
        min_p=st.sampled_from([0.0, 0.05, 0.3]),
        min_tokens_to_keep=st.sampled_from([1, 3]),
        top_k=st.sampled_from([0, 1, 5, 40]),
        xtc_probability=st.sampled_from([0.0, 0.5, 1.0]),
        xtc_threshold=st.sampled_from([0.05, 0.1]),
        xtc_special_tokens=st.sampled_from([(), (3, 4, 5)]),
    ),
    st.integers(0, 1000),
)
def test_few_tokens_are_warped_as_all_are(sampling, seed):
    logits = random_logits(5, 40, seed)
    logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    sampler, positions = Sampler(sampling), range(14, 19)
    expected = np.array(sampler.warp(mx.array(logprobs), positions))
    ids = np.argsort(-logprobs, axis=-1)
    found = sampler.warp_few(ids, np.take_along_axis(logprobs, ids, -1), positions)
    assert found == pytest.approx(np.take_along_axis(expected, ids, -1), abs=1e-5)


@pytest.mark.parametrize("coupled", [True, False])
def test_mlx_has_one_default_device_for_all_threads_which_a_draft_of_its_own_leaves_alone(monkeypatch, coupled):
    """What the target builds meanwhile would go to the CPU, or stay there."""
    monkeypatch.setattr(mx, "stream", lambda *_: pytest.fail("it was changed"))
    said = dealt(random_logits(3, 60, 4), 20)
    sampler = Sampler(Sampling(temperature=1.0, top_p=0.9, min_p=0.01, top_k=9, xtc_probability=1.0, coupled=coupled))
    said.choose(sampler, [1, 2, 3])
    said.candidates(sampler, [1, 2, 3], [5, 7], 3)


def test_a_sharpened_row_is_that_power_of_its_distribution():
    logits = random_logits(4, 60, 9)
    sharp = np.array([1.0, 1.5, 2.0, 1.0], np.float32)
    for sampling in (Sampling(), Sampling(temperature=1.0, seed=2), Sampling(temperature=0.6, seed=2, top_k=10)):
        sampler, positions = Sampler(sampling), [2, 3, 4, 5]
        expected = Full(mx.array(logits * sharp[:, None]), None, 60).choose(sampler, positions).tokens
        assert Full(mx.array(logits), None, 60).choose(sampler, positions, sharp).tokens == expected
        assert dealt(logits, 60).choose(sampler, positions, sharp).tokens == expected
