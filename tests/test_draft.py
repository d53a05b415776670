"""Drafts: branches flattened into one forward propose what each branch would propose alone."""

import mlx.core as mx
import pytest
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror_mlx.draft import AutoregressiveDraft, Draft, ScriptedDraft
from mirror_mlx.draft.forks import Forks
from mirror_mlx.draft.tree import Tree
from mirror_mlx.messages import Root
from mirror_mlx.sampling import Sampler, Sampling

TREES = ["qwen3", "llama", "gemma3_text", "exaone4", "deepseek_v3", "phi3", "olmo2", "qwen3_moe"]
FORKS = ["qwen3_next", "mamba2", "lfm2", "rwkv7"]
CONTEXT = [(i * 7 + 3) % zoo.VOCAB for i in range(20)]


def alone(model, sampling, context, count):
    """The tokens one branch proposes, by plain forwards over the whole text."""
    tokens = list(context)
    for _ in range(count):
        logits = model(mx.array([tokens]))[0, -1:]
        tokens.append(Sampler(sampling).choose(logits, [len(tokens)]).item())
    return tokens[len(context) :]


@pytest.mark.parametrize("kind", TREES)
def test_models_with_keys_and_values_are_flattened(kind):
    draft = AutoregressiveDraft(zoo.tiny(kind))
    assert isinstance(draft._trunk, Tree)
    draft.close()


@pytest.mark.parametrize("kind", FORKS)
def test_models_with_other_state_are_forked_and_want_few_roots(kind):
    draft = AutoregressiveDraft(zoo.tiny(kind))
    assert isinstance(draft._trunk, Forks)
    assert draft.max_roots == 4
    draft.close()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text", "exaone4", "qwen3_next", "mamba2"])
@given(data=st.data())
@settings(max_examples=4)
def test_branches_propose_what_they_would_alone(kind, temperature, data):
    model, sampling = zoo.tiny(kind), Sampling(temperature=temperature, seed=1)
    draft = AutoregressiveDraft(model)
    draft.begin(sampling)
    context = CONTEXT[: data.draw(st.integers(1, 20))]
    draft.prefill(context[:-1])
    token = st.integers(0, zoo.VOCAB - 1)
    for _ in range(2):
        window = data.draw(st.lists(token, max_size=4))
        found = draft.glue([context[-1], *window], data.draw(st.sampled_from([0, 3])))
        if found is not None:
            assert [best[0] for best in found.tokens] == [
                alone(model, sampling, [*context, *window[:row]], 1)[0] for row in range(len(window) + 1)
            ]
        roots = {Root(data.draw(st.integers(0, len(window))), data.draw(token)).key for _ in range(3)}
        proposed = {key: [] for key in roots}
        opened = []
        for key in [*roots, None, None]:  # branches of different ages share their passes
            if key:
                draft.expand([Root(*key)])
                opened.append(key)
            for grown, tokens in draft.advance(opened).items():
                proposed[grown] += tokens
        for (row, first), tokens in proposed.items():
            assert tokens == alone(model, sampling, [*context, *window[:row], first], len(tokens))
        accepted = data.draw(st.integers(0, len(window)))
        draft.commit(accepted + 1)
        context = [*context, *window[:accepted], data.draw(token)]
    draft.rewind(min(5, len(context) - 1))
    context = context[: min(5, len(context) - 1)]
    draft.glue([9], 0)
    draft.expand([Root(0, 4)])
    assert draft.advance([(0, 4)])[(0, 4)] == alone(model, sampling, [*context, 9, 4], 1)
    draft.close()


def test_a_flattened_rollout_is_one_forward_per_pass_whatever_the_number_of_branches():
    model = zoo.tiny("qwen3")
    draft = AutoregressiveDraft(model)
    draft.prefill(CONTEXT)
    draft.glue([1, 2, 3], 0)
    roots = [Root(row, token) for row in range(3) for token in range(10)]
    draft.expand(roots)
    before = draft._trunk.used
    draft.advance([root.key for root in roots])
    assert draft._trunk.used - before == 3 + 30  # the glued rows ride along; the prefix is not repeated
    draft.close()


def test_roots_outside_the_drafts_vocabulary_are_left_out():
    draft = AutoregressiveDraft(zoo.tiny("qwen3"))
    draft.prefill([1, 2])
    draft.glue([3], 0)
    draft.expand([Root(0, 10**6)])
    assert draft.advance([(0, 10**6)]) == {}
    draft.close()


def test_closing_gives_the_model_back_as_it_was():
    model = zoo.tiny("qwen3")
    classes = {name: type(module) for name, module in model.named_modules()}
    draft = AutoregressiveDraft(model)
    draft.close()
    draft.close()
    assert {name: type(module) for name, module in model.named_modules()} == classes


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.lists(st.integers(0, 9), max_size=4), st.data())
def test_a_scripted_draft_follows_its_function(context, window, data):
    def fn(tokens):
        return (sum(tokens) * 3 + len(tokens)) % 10

    draft = ScriptedDraft(fn)
    assert isinstance(draft, Draft)
    draft.prefill(context[:-1])
    found = draft.glue([context[-1], *window], 4)
    assert [row[0] for row in found.tokens] == [fn([*context, *window[:r]]) for r in range(len(window) + 1)]
    row = data.draw(st.integers(0, len(window)))
    draft.expand([Root(row, 7)])
    tokens = [*context, *window[:row], 7]
    for _ in range(3):
        assert draft.advance([(row, 7)]) == {(row, 7): [fn(tokens)]}
        tokens.append(fn(tokens))
    draft.commit(1)
    assert draft.glue([5], 1).tokens == [[fn([*context, 5])]]
