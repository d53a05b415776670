"""The trained tap: what it does to a hidden state, its gradients, its file, and the models it cannot be used with."""

import time

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import models
import numpy as np
import pytest
import zoo

from mirror_mlx import Engine
from mirror_mlx.draft import AutoregressiveDraft
from mirror_mlx.errors import ModelError
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.target import TapAdapter, Target, tap
from mirror_mlx.target.submission import LayerByLayer, Whole
from mirror_mlx.verify import verify

TEXT = [(i * 37 + 5) % zoo.VOCAB for i in range(18)]
HIDDEN = 64


def pair(hidden=HIDDEN, **how):
    return models.random_residual(hidden, **{"scale": 0.2} | how)


def begun(model, window, sampling=Sampling(), **options):
    """A target with `window` under verification, and its tap."""
    target = Target(model, **options)
    target.prefill(TEXT[:-1], Sampler(sampling))
    return target, target.begin(TEXT[-1], window, TEXT)


def test_it_is_a_residual_of_low_rank():
    down, up = pair()
    hidden = mx.random.normal((1, 5, HIDDEN), key=mx.random.key(1))
    expected = np.array(hidden) + np.array(hidden) @ np.array(down).T @ np.array(up).T
    adapter = TapAdapter({2: (down, up)})
    assert np.allclose(adapter.apply(2, hidden), expected, atol=1e-4)
    assert adapter.apply(3, hidden) is hidden
    half = adapter.apply(2, hidden.astype(mx.bfloat16))
    assert half.dtype == mx.bfloat16, "a wider type would widen the whole head's product"


@pytest.mark.parametrize("submission", [LayerByLayer, Whole])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_begin_reads_the_adapted_tap_and_any_other_can_be_had(temperature, submission):
    model, window, sampling = zoo.tiny("qwen3"), [3, 4, 5], Sampling(temperature=temperature, seed=3)
    adapter = TapAdapter({1: pair(seed=1), 2: pair(seed=2)})
    trained, read = begun(model, window, sampling, exit_layer=2, kappa=4, tap=adapter, submission=submission())
    before, heard = time.perf_counter(), read.heard()
    trained.proceed()
    trained.finish()
    assert before <= heard() <= time.perf_counter()
    assert read.read() == trained.candidates(2, 9, adapter).read()
    everything = {n: (trained.candidates(n, 9).read(), trained.candidates(n, 9, adapter).read()) for n in (1, 2, 3)}
    trained.close()
    for layer, (plain, adapted) in everything.items():
        target, read = begun(model, window, sampling, exit_layer=layer, kappa=4)
        assert read.read().tokens == plain.tokens
        target.close()
        assert (plain == adapted) == (layer == 3)


def test_candidates_after_the_last_layer_are_the_targets_own():
    target, _ = begun(zoo.tiny("gemma2"), [3, 4], Sampling(temperature=1.0))
    chosen = target.finish()
    assert [row[0] for row in target.candidates(target.num_layers, 1).read().tokens] == chosen
    target.close()


def test_candidates_of_a_replaying_target_are_those_of_the_verified_rows():
    """A recurrent model verifies what was accepted once more before the new window."""
    model = zoo.tiny("qwen3_next")
    target, _ = begun(model, [3, 4, 5])
    first = target.finish()
    outcome = verify([3, 4, 5], first)
    assert outcome.accepted < 3
    target.commit(outcome)
    text = [*TEXT, *[3, 4, 5][: outcome.accepted], outcome.token]
    target.begin(text[-1], [7], text)
    target.finish()
    replayed = target.candidates(2, 5).read()
    target.close()
    fresh = Target(model)
    fresh.prefill(text[:-1], Sampler(Sampling()))
    fresh.begin(text[-1], [7], text)
    fresh.finish()
    alone = fresh.candidates(2, 5).read()
    fresh.close()
    assert replayed.tokens == alone.tokens
    assert np.allclose(replayed.own, alone.own, atol=1e-4)


def test_it_never_changes_a_token():
    model, prompt = zoo.tiny("qwen3"), TEXT
    with Engine(model, mode="ar") as engine:
        expected = [r.token for r in engine.stream(prompt, max_tokens=20)]
    wild = TapAdapter({2: pair(scale=50.0)})
    with Engine(model, None, AutoregressiveDraft(zoo.tiny("qwen3", seed=1)), tap=wild, predictor="tap") as engine:
        assert [r.token for r in engine.stream(prompt, max_tokens=20)] == expected
        assert engine.stats.reason == ""


def lens_loss(target, outputs, inputs, layer):
    """KL of the tap to the target's own law, as a function of an adapter."""
    goal = mx.softmax(target._stages.lens(outputs[-1], inputs), axis=-1)

    def loss(adapter):
        logits = target._stages.lens(adapter.apply(layer, outputs[layer - 1]), inputs)
        return -(goal * nn.log_softmax(logits)).sum(-1).mean()

    return loss


@pytest.mark.parametrize("kind", ["qwen3", "gemma2", "mamba2"])
def test_it_can_be_trained_through_the_models_own_head(kind):
    target = Target(zoo.tiny(kind))
    inputs = mx.array([TEXT, TEXT[::-1]])  # a batch
    with target._stages.recording() as outputs:
        target.model(inputs)
    loss = lens_loss(target, outputs, inputs, 1)
    adapter = TapAdapter({1: pair(scale=0.05)})
    value, grads = nn.value_and_grad(adapter, loss)(adapter)
    down, up = adapter.layers[1]
    slope = grads["residuals"][0]
    for place, wrt, by in ((0, "down", down), (1, "up", up)):
        direction = mx.random.normal(by.shape, key=mx.random.key(place))
        ends = []
        for step in (1e-3, -1e-3):
            moved = [down, up]
            moved[place] = by + step * direction
            ends.append(loss(TapAdapter({1: tuple(moved)})).item())
        assert (ends[0] - ends[1]) / 2e-3 == pytest.approx((slope[wrt] * direction).sum().item(), rel=0.05, abs=2e-3)
    optimizer = optim.Adam(1e-2)
    for _ in range(30):
        optimizer.update(adapter, nn.value_and_grad(adapter, loss)(adapter)[1])
        mx.eval(adapter.parameters(), optimizer.state)
    assert loss(adapter).item() < value.item() - 0.05
    target.close()


def test_a_file_gives_back_what_was_saved(tmp_path):
    assert tap.load(tmp_path) is None
    adapter = TapAdapter({6: pair(seed=1), 3: pair(seed=2, rank=5)})
    tap.save(adapter, tmp_path)
    assert sorted(mx.load(str(tmp_path / "tap.safetensors"))) == [
        "layers.3.down",
        "layers.3.up",
        "layers.6.down",
        "layers.6.up",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["tap.safetensors"]
    found = tap.load(tmp_path)
    for layer, (down, up) in adapter.layers.items():
        assert mx.array_equal(found.layers[layer][0], down)
        assert mx.array_equal(found.layers[layer][1], up)


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ({}, "has no layers"),
        ({"layers.1.down": (3, 64)}, "layers.1.up is missing"),
        ({"layers.1.up": (64, 3)}, "layers.1.down is missing"),
        ({"layers.1.down": (3, 64), "layers.1.up": (3, 64)}, r"layer 1 has down \(3, 64\) and up \(3, 64\)"),
        ({"layers.1.down": (64,), "layers.1.up": (64,)}, r"\[rank, hidden\] and \[hidden, rank\] are expected"),
        ({"model.norm.weight": (64,)}, "'model.norm.weight' is none of its names"),
        (
            {"layers.1.down": (3, 64), "layers.1.up": (64, 3), "layers.2.down": (3, 32), "layers.2.up": (32, 3)},
            r"different hidden sizes, \[32, 64\]",
        ),
    ],
)
def test_a_file_that_is_no_adapter_is_named(tmp_path, weights, says):
    file = tmp_path / "tap.safetensors"
    mx.save_safetensors(str(file), {name: mx.zeros(shape) for name, shape in weights.items()})
    with pytest.raises(ModelError, match=says) as caught:
        tap.load(tmp_path)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_integers_are_no_adapter():
    with pytest.raises(ModelError, match="not of floating-point numbers"):
        TapAdapter({1: (mx.zeros((2, 8), dtype=mx.int32), mx.zeros((8, 2)))})


@pytest.mark.parametrize("kept", [0, 5, 60, -100])
def test_a_truncated_file_is_named(tmp_path, kept):
    tap.save(TapAdapter({1: pair()}), tmp_path)
    file = tmp_path / "tap.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ModelError, match=r"tap\.safetensors is damaged") as caught:
        tap.load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("layers", [[0], [4], [2, 9]])
def test_layers_that_are_no_exits_are_another_models(layers):
    model = zoo.tiny("qwen3")
    classes = [type(layer) for layer in model.layers]
    with pytest.raises(ModelError, match=f"made for layers {', '.join(map(str, layers))}, and this model has 4"):
        Target(model, tap=TapAdapter({layer: pair() for layer in layers}))
    assert [type(layer) for layer in model.layers] == classes


def test_another_hidden_size_is_another_models():
    with pytest.raises(ModelError, match="a hidden size of 32, and this model has 64"):
        Target(zoo.tiny("qwen3"), tap=TapAdapter({2: pair(hidden=32)}))


@pytest.mark.parametrize("kind", ["gemma4", "gemma3n"])
def test_layers_that_return_more_than_a_hidden_state_keep_the_plain_tap_and_say_why(kind):
    model = zoo.tiny(kind)
    adapter = TapAdapter({1: pair()})
    with Engine(model, None, AutoregressiveDraft(zoo.tiny("qwen3")), tap=adapter, exit_layer=1) as engine:
        assert engine.target.adapter is None
        assert engine.target.adapter_refusal == "the model's layer 1 does not return one hidden state"
        list(engine.stream(TEXT, max_tokens=6))
        assert engine.stats.mode == "mirror"
        assert engine.stats.reason == f"untrained tap: {engine.target.adapter_refusal}"
