"""The target alone, against plain decoding, on one model of each kind of cache."""

import random

import mlx.core as mx
import numpy as np
import pytest
import zoo
from mlx_lm.models import qwen3

from mirror_mlx.errors import UsageError
from mirror_mlx.interpose import interpose
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.target import Target
from mirror_mlx.target.kv import KVOptions
from mirror_mlx.target.submission import LayerByLayer, Whole
from mirror_mlx.verify import verify

PROMPT = [(i * 37 + 5) % zoo.VOCAB for i in range(21)]
KINDS = ["qwen3", "gemma3_text", "qwen3_next", "mamba2", "llama4_text", "deepseek_v3"]


def plain(model, count, sampling, prompt=PROMPT, **options):
    """Decoding without any of ours: a forward of one token at a time through mlx-lm's own cache."""
    from mlx_lm.models.cache import make_prompt_cache

    cache, tokens, sampler = make_prompt_cache(model, options.get("max_kv_size")), list(prompt), Sampler(sampling)
    model(mx.array([tokens[:-1]]), cache=cache)
    for _ in range(count):
        logits = model(mx.array([tokens[-1:]]), cache=cache)[0]
        tokens.append(sampler.choose(logits, [len(tokens)]).item())
    return tokens[len(prompt) :]


def speculate(target, expected, sampling, propose, prompt=PROMPT):
    target.prefill(prompt[:-1], Sampler(sampling))
    tokens = list(prompt)
    while len(tokens) < len(prompt) + len(expected):
        window = propose(tokens[len(prompt) :])
        target.begin(tokens[-1], window, tokens)
        outcome = verify(window, target.finish())
        target.commit(outcome)
        tokens += [*window[: outcome.accepted], outcome.token]
    return tokens[len(prompt) : len(prompt) + len(expected)]


def partly_right(expected, seed, longest=7):
    rng = random.Random(seed)

    def propose(done):
        right = expected[len(done) : len(done) + rng.randint(0, longest)]
        return [t if rng.random() < 0.7 else rng.randrange(zoo.VOCAB) for t in right]

    return propose


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_partial_acceptance_equals_plain_decoding(kind, temperature):
    model, sampling = zoo.tiny(kind), Sampling(temperature=temperature, seed=2)
    expected = plain(model, 50, sampling)
    for seed, submission in enumerate((LayerByLayer(), Whole(), LayerByLayer())):
        target = Target(model, submission=submission)
        assert speculate(target, expected, sampling, partly_right(expected, seed)) == expected
        target.close()


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_next"])
def test_rejecting_everything_for_long_stays_exact(kind):
    """Replays must not pile up."""
    model = zoo.tiny(kind)
    expected = plain(model, 40, Sampling())
    target = Target(model)
    longest = 0

    def wrong(done):
        nonlocal longest
        longest = max(longest, len(target._replay))
        return [(expected[min(len(done), 39)] + 1) % zoo.VOCAB] * 3

    assert speculate(target, expected, Sampling(), wrong) == expected
    assert longest <= 9
    target.close()


def wide_headed():
    """Heads of 32, the least that can be quantised."""
    args = qwen3.ModelArgs.from_dict(
        {
            **{"model_type": "qwen3", "vocab_size": zoo.VOCAB, "hidden_size": 64, "num_hidden_layers": 3},
            **{"intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32},
            **{"rms_norm_eps": 1e-5, "rope_theta": 1e4, "max_position_embeddings": 512, "tie_word_embeddings": False},
        }
    )
    mx.random.seed(0)
    model = qwen3.Model(args)
    mx.eval(model.parameters())
    return model


@pytest.mark.parametrize("step", [1, 2, 3, 7, 19, 20])
@pytest.mark.parametrize("kind", ["gemma3_text", "qwen3_next"])
def test_any_prefill_step_gives_the_same(kind, step):
    model = zoo.tiny(kind)
    expected = plain(model, 12, Sampling())
    target = Target(model, kv=KVOptions(prefill_step_size=step))
    for length in (2, 3, 20):  # how much of the prompt is there from before
        target.prefill(PROMPT[: length - 1], Sampler(Sampling()))
        assert speculate(target, expected, Sampling(), partly_right(expected, step)) == expected
    target.close()


@pytest.mark.parametrize("options", [{"max_kv_size": 12}, {"kv_bits": 8, "quantized_kv_start": 34}])
def test_mlx_lms_cache_options_stay_exact(options):
    model = wide_headed()
    if "max_kv_size" in options:
        expected = plain(model, 40, Sampling(), **options)
    else:
        target = Target(model, kv=KVOptions(kv_group_size=32, **options))
        expected = speculate(target, [0] * 40, Sampling(), lambda done: [])
        target.close()

    def within(propose):
        return lambda done: propose(done)[: target.room()]

    target = Target(model, kv=KVOptions(kv_group_size=32, **options))
    for seed in range(3):
        assert speculate(target, expected, Sampling(), within(partly_right(expected, seed))) == expected
    target.close()


@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text", "qwen3_next"])
def test_a_later_request_reuses_the_shared_prefix_and_stays_exact(kind):
    model, target = zoo.tiny(kind), None
    target = Target(model)
    rng = random.Random(5)
    prompt = list(PROMPT)
    for turn in range(5):
        expected = plain(model, 12, Sampling(), prompt)
        assert speculate(target, expected, Sampling(), partly_right(expected, turn), prompt) == expected
        keep = rng.choice([len(prompt) + 12, len(prompt) + 3, 10])
        prompt = [*[*prompt, *expected][:keep], *(rng.randrange(zoo.VOCAB) for _ in range(rng.randint(1, 4)))]
    assert target.prefill(prompt, Sampler(Sampling())) > 0 or kind != "qwen3"
    target.close()


def test_an_interrupted_step_does_not_spoil_the_next_request():
    model = zoo.tiny("qwen3")
    target, expected = Target(model), plain(model, 20, Sampling())
    target.prefill(PROMPT[:-1], Sampler(Sampling()))
    target.begin(PROMPT[-1], [1, 2, 3], PROMPT)  # neither finished nor committed
    assert speculate(target, expected, Sampling(), partly_right(expected, 0)) == expected
    target.close()


@pytest.mark.parametrize("submission", [LayerByLayer(), Whole()])
def test_a_cpu_takes_in_a_prompt_with_one_layer_in_flight(monkeypatch, submission):
    """Whoever shares it is not starved (docs/log.md); the last layer's output is nobody's."""
    model, events = zoo.tiny("qwen3"), []
    target = Target(model, submission=submission)
    evaluate = mx.eval

    def called(layer, call, *args, **kwargs):
        events.append("layer")
        return call(*args, **kwargs)

    def evaluated(*args):
        events.append("done")
        evaluate(*args)

    for layer in model.layers:
        interpose(layer, called)
    monkeypatch.setattr(mx, "eval", evaluated)
    target.prefill(PROMPT, Sampler(Sampling()))
    layers = len(model.layers)
    each = [*["layer", "done"] * layers, "done"] if submission.eager else [*["layer"] * layers, "done"]
    assert events == each  # the last one: what the cache holds
    target.close()


def test_the_tap_after_the_last_layer_is_the_models_own_head():
    model = zoo.tiny("gemma2")  # soft-capped logits
    target = Target(model)
    inputs = mx.array([PROMPT])
    with target._stages.recording() as outputs:
        logits = model(inputs)
    assert mx.allclose(target._stages.lens(outputs[-1], inputs), logits, atol=1e-5)
    target.close()


def test_the_tap_gives_the_best_tokens_of_each_row_and_the_windows_own_probabilities():
    model, window = zoo.tiny("qwen3"), [3, 4, 5]
    target = Target(model, exit_layer=2, kappa=4)
    target.prefill(PROMPT[:-1], Sampler(Sampling()))
    found = target.begin(PROMPT[-1], window, PROMPT).read()
    target.finish()
    with target._stages.recording() as outputs:
        model(mx.array([[*PROMPT, *window]]))
    lens = target._stages.lens(outputs[1], mx.array([[*PROMPT, *window]]))[0, -4:]
    probs = np.array(mx.softmax(lens, axis=-1))
    assert found.tokens == np.argsort(-probs, axis=-1)[:, :9].tolist()
    assert np.allclose(found.own, probs[np.arange(3), window], atol=1e-5)
    target.close()


def test_closing_gives_the_model_back_as_it_was():
    model = zoo.tiny("qwen3")
    classes = [type(layer) for layer in model.layers]
    before = model(mx.array([PROMPT]))
    target = Target(model)
    assert [type(layer) for layer in model.layers] != classes
    assert all(isinstance(layer, cls) for layer, cls in zip(model.layers, classes, strict=True))
    target.close()
    target.close()
    assert [type(layer) for layer in model.layers] == classes
    assert mx.array_equal(before, model(mx.array([PROMPT])))


@pytest.mark.parametrize("exit_layer", [0, 4, -1, 99])
def test_an_exit_layer_out_of_range_is_named(exit_layer):
    with pytest.raises(UsageError, match=r"exit_layer is .* 4 layers.* 1 … 3"):
        Target(zoo.tiny("qwen3"), exit_layer=exit_layer)


def test_a_model_whose_tokens_see_later_ones_is_not_given_windows():
    target = Target(zoo.tiny("phi3small"))
    assert "see those after it" in target.window_refusal
    target.close()


@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text", "qwen3_next"])
@pytest.mark.parametrize("processors", [False, True])
def test_plain_steps_are_submitted_ahead_and_may_end_anywhere(kind, processors):
    model = zoo.tiny(kind)
    seen = []

    def watch(tokens, logits):
        seen.append(tokens.tolist())
        return logits

    sampling = Sampling(temperature=0.7, seed=1, logits_processors=(watch,) if processors else ())
    target, prompt = Target(model), list(PROMPT)
    for count, take in ((6, 6), (6, 3), (1, 1), (9, 8)):
        expected = plain(model, take, Sampling(temperature=0.7, seed=1), prompt)
        target.prefill(prompt[:-1], Sampler(sampling))
        tokens, seen[:] = list(prompt), []
        steps = target.plain(tokens, count)
        for _ in range(take):
            tokens.append(next(steps)[0])
        steps.close()
        assert tokens[len(prompt) :] == expected
        if processors:
            assert seen[:take] == [tokens[: len(prompt) + i] for i in range(take)]
        prompt = [*tokens, 5, 6]
    target.close()
