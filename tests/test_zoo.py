"""Every tiny model runs, remembers its context, and does not care how its tokens are divided among calls."""

import random

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache
from zoo import CHUNK_VARIANT, VOCAB, names, tiny

TOKENS = random.Random(0).choices(range(VOCAB - 2), k=23)


def logits(model, tokens, sizes):
    """The logits of all tokens, fed in calls of these sizes to a fresh cache."""
    cache = make_prompt_cache(model)
    parts = []
    for size in sizes:
        parts.append(model(mx.array([tokens[:size]]), cache=cache)[0])
        tokens = tokens[size:]
    return mx.concatenate(parts)


@pytest.mark.parametrize("model_type", names())
def test_one_call_and_many_give_the_same_logits(model_type):
    model = tiny(model_type)
    whole = logits(model, TOKENS, [23])
    parts = logits(model, TOKENS, [11, 9, 1, 1, 1])
    assert whole.shape == (23, VOCAB)
    assert whole.dtype == mx.float32
    assert mx.isfinite(whole).all().item()
    assert 0.5 < mx.std(whole, axis=-1).mean().item() < 4
    # Where this fails for a model of CHUNK_VARIANT, mlx-lm has been repaired and its entry can go.
    difference = mx.abs(whole - parts).max().item()
    assert (difference > 1e-3) == (model_type in CHUNK_VARIANT), difference


@pytest.mark.parametrize("model_type", names())
def test_the_context_matters(model_type):
    model = tiny(model_type)
    other = [(token + 50) % (VOCAB - 2) for token in TOKENS[:-1]] + TOKENS[-1:]
    one, two = logits(model, TOKENS, [23])[-1], logits(model, other, [23])[-1]
    assert mx.abs(one - two).mean().item() > 0.2 * mx.std(one).item()


def test_a_seed_decides_the_weights_and_leaves_the_generator_alone():
    mx.random.seed(7)
    expected = mx.random.uniform(shape=(4,)).tolist()
    mx.random.seed(7)
    one, same, other = tiny("qwen3_next"), tiny("qwen3_next"), tiny("qwen3_next", seed=1)
    assert mx.random.uniform(shape=(4,)).tolist() == expected
    for (_, a), (_, b) in zip(tree_flatten(one.parameters()), tree_flatten(same.parameters()), strict=True):
        assert mx.array_equal(a, b)
    assert not mx.array_equal(one.lm_head.weight, other.lm_head.weight)


def test_the_zoo_is_large():
    assert len(names()) == len(set(names())) >= 60
