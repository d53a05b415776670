"""The inflated target: it costs more and computes what it did."""

import mlx.core as mx
import pytest
import zoo
from mlx.utils import tree_flatten

from mirror_mlx.bench.inflate import count_parameters, inflate, widened
from mirror_mlx.errors import UsageError
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.target import TapAdapter, Target

TEXT = [5, 9, 2, 7, 1, 3]
SIZE = 3_000_000


def everything(model, adapter=None):
    """Logits, and what the tap sees of each row."""
    target = Target(model, tap=adapter)
    target.prefill(TEXT[:-3], Sampler(Sampling()))
    tap = target.begin(TEXT[3], TEXT[4:], TEXT[:4]).read()
    target.finish()
    target.close()
    return model(mx.array([TEXT])), tap


def adapter_of(model, layer=2):
    width = model.layers[0].mlp.gate_proj.weight.shape[1]
    keys = mx.random.split(mx.random.key(4))
    return TapAdapter({layer: (mx.random.normal((4, width), key=keys[0]), mx.random.normal((width, 4), key=keys[1]))})


@pytest.mark.parametrize("trained", [False, True], ids=["plain lens", "trained tap"])
@pytest.mark.parametrize("model_type", ["qwen3", "llama", "qwen2"])
def test_an_inflated_target_computes_what_it_did(model_type, trained):
    model = zoo.tiny(model_type)
    layer = max(1, len(model.layers) // 2)
    adapter = adapter_of(model, layer) if trained else None
    logits, tap = everything(model, adapter)
    mx.eval(logits)
    size = inflate(model, SIZE)
    assert size == count_parameters(model)
    inflated, tap_after = everything(model, widened(adapter, model))
    assert mx.allclose(logits, inflated, rtol=1e-5, atol=1e-5)
    assert tap_after.tokens == tap.tokens
    assert tap_after.probs[0] == pytest.approx(tap.probs[0], abs=1e-5)


@pytest.mark.parametrize("params", [200_000, 1_000_000, 2_500_000, 10_000_000])
@pytest.mark.parametrize("model_type", ["qwen3", "llama", "qwen2"])
def test_it_has_as_many_parameters_as_asked_for(model_type, params):
    model = zoo.tiny(model_type)
    size = inflate(model, params)
    assert params <= size < 1.05 * params
    assert size == count_parameters(model)


def test_it_keeps_its_proportions():
    model = zoo.tiny("qwen3")
    columns, width = model.layers[0].mlp.gate_proj.weight.shape
    inflate(model, 20_000_000)
    after_columns, after_width = model.layers[0].mlp.gate_proj.weight.shape
    assert after_width > 3 * width
    assert after_columns / after_width == pytest.approx(columns / width, rel=0.25)


def test_what_is_added_costs_work_and_gives_nothing():
    model = zoo.tiny("qwen3")
    before = dict(tree_flatten(model.parameters()))
    inflate(model, SIZE)
    for name, after in tree_flatten(model.parameters()):
        old = before[name]
        if old.ndim < 2:
            continue
        more = mx.concatenate([after[old.shape[0] :].flatten(), after[: old.shape[0], old.shape[1] :].flatten()])
        assert mx.array_equal(after[: old.shape[0], : old.shape[1]], old)
        if "o_proj" in name or "down_proj" in name or "embed" in name:
            assert not more.any()
        else:
            assert mx.abs(more).mean().item() > 0


def test_inflation_is_the_same_every_time():
    twins = [zoo.tiny("qwen3") for _ in range(2)]
    state = [mx.array(a) for a in mx.random.state]
    for model in twins:
        inflate(model, SIZE)
    assert all(map(mx.array_equal, *(dict(tree_flatten(m.parameters())).values() for m in twins)))
    assert all(map(mx.array_equal, state, mx.random.state))


def test_a_model_that_is_large_enough_is_left_alone():
    model = zoo.tiny("qwen3")
    assert inflate(model, 1000) == count_parameters(model) == count_parameters(zoo.tiny("qwen3"))


@pytest.mark.parametrize("model_type", ["gpt2", "mamba", "olmoe", "gemma2", "stablelm"])
def test_a_model_of_another_shape_cannot_be_inflated(model_type):
    with pytest.raises(UsageError, match="cannot be inflated"):
        inflate(zoo.tiny(model_type), 10_000_000)


def test_a_quantised_model_cannot_be_inflated():
    import mlx.nn as nn

    model = zoo.tiny("qwen3")
    nn.quantize(model, group_size=32, bits=8)
    with pytest.raises(UsageError, match="unquantised"):
        inflate(model, 10_000_000)


def test_a_tap_for_a_model_that_is_not_inflated_is_left_alone():
    adapter = adapter_of(zoo.tiny("qwen3"))
    after = widened(adapter, zoo.tiny("qwen3"))
    assert all(mx.array_equal(a, b) for a, b in zip(after.layers[2], adapter.layers[2], strict=True))
    assert widened(None, zoo.tiny("qwen3")) is None
    assert widened(adapter, zoo.tiny("mamba")) is adapter
