"""Rejection sampling keeps the target's law, whoever proposed: χ² on small vocabularies, alone and in the engine."""

from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
import streams
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx.utils import tree_flatten
from whims import Whim, whimsical

import mirror_mlx
from mirror_mlx.bench.peers import view
from mirror_mlx.draft import AutoregressiveDraft, ScriptedDraft, StreamingDraft
from mirror_mlx.draft.streaming import MlxSegments
from mirror_mlx.errors import UsageError
from mirror_mlx.rejection import Law, judge, propose, propose_of
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.tuning.policy import Fixed
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.stopping import Stop

V, ROWS = 12, 3000


def logits(seed, scale=1.5):
    return mx.array(np.random.default_rng(seed).normal(size=V).astype(np.float32) * scale)


def fits(counts, probs):
    """χ² beyond what one in 100,000 samples of this law has: 4.3 standard deviations of its distribution."""
    expected = np.asarray(probs, np.float64) * counts.sum()
    rare = expected < 5
    seen, wanted = np.append(counts[~rare], counts[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    kept = wanted > 0
    assert not seen[~kept].any()
    freedom = max(kept.sum() - 1, 1)
    statistic = float(((seen - wanted)[kept] ** 2 / wanted[kept]).sum())
    return statistic < freedom + 4.3 * np.sqrt(2 * freedom) + 10


def law(sampling, row):
    return np.array(mx.softmax(Sampler(sampling).warped(row[None], [0]), axis=-1))[0]


def judged(sampling, target, window, laws):
    rows = mx.broadcast_to(target, (ROWS + 1, V))
    return np.array(judge(Sampler(sampling), rows, range(ROWS + 1), (), window, laws))[:-1]


@settings(max_examples=12)
@given(st.integers(0, 1000), st.sampled_from([{}, {"top_p": 0.8}, {"top_k": 4}, {"min_p": 0.1}]), st.booleans())
def test_what_comes_out_is_the_targets_law(seed, warpers, saguaro):
    sampling = Sampling(
        temperature=0.8, seed=seed, coupled=False, downweight=(3, 0.3) if saguaro else None, **warpers
    )  # fmt: skip
    target, draft = logits(seed), logits(seed + 1)
    made = propose(Sampler(sampling), mx.broadcast_to(draft, (ROWS, V)), range(ROWS))
    proposed = np.bincount(made.tokens, minlength=V)
    told = np.zeros(V)
    told[made.laws[0].ids] = made.laws[0].probs
    assert fits(proposed, told)  # the draft draws from what it says it draws from
    found = judged(sampling, target, made.tokens, made.laws)
    probs = law(sampling, target)
    assert fits(np.bincount(found, minlength=V), probs)
    held = float((found == np.array(made.tokens)).mean())
    assert held >= np.minimum(probs, told).sum() - 0.05  # 1 − TV, the most there can be, and what a residual adds


@settings(max_examples=8)
@given(st.integers(0, 1000), st.integers(0, V - 1))
def test_a_proposal_that_was_given_is_judged_by_the_targets_law_alone(seed, token):
    sampling = Sampling(temperature=1.0, seed=seed, coupled=False)
    target = logits(seed)
    found = judged(sampling, target, [token] * ROWS, [None] * ROWS)
    assert fits(np.bincount(found, minlength=V), law(sampling, target))


def test_a_coupled_draft_would_break_it():
    """Which is why the draft draws with noise of its own."""
    sampling = Sampling(temperature=1.0, coupled=False)
    target = logits(5)
    same = Sampler(sampling).noise(range(ROWS), V)  # the residual's
    window = np.array(mx.argmax(mx.broadcast_to(logits(6), (ROWS, V)) + same, axis=-1)).tolist()
    ids, probs = np.arange(V), np.array(mx.softmax(logits(6)))
    found = judged(sampling, target, window, [Law(ids, probs)] * ROWS)
    assert not fits(np.bincount(found, minlength=V), law(sampling, target))


@pytest.mark.parametrize("anew", [True, False])
def test_what_was_proposed_before_may_decide_whether_to_propose(anew):
    """And nothing else, or the law of what is proposed is another one where that was so than where it was not."""
    sampling = Sampling(temperature=1.0, coupled=False, seed=4)
    target, draft, rows = logits(7), mx.broadcast_to(logits(8), (ROWS, V)), range(ROWS)
    before = propose(Sampler(sampling), draft, rows, after=1)
    made = propose(Sampler(sampling), draft, rows, after=2 if anew else 1)
    plain = np.array(judge(Sampler(sampling), mx.broadcast_to(target, (ROWS, V)), rows, (), [], []))
    sure = np.array(before.confidences) > np.median(before.confidences)
    found = np.where(sure, judged(sampling, target, made.tokens, made.laws), plain)
    assert fits(np.bincount(found, minlength=V), law(sampling, target)) == anew


def flat(model):
    """The same model, which finds all tokens equally likely."""
    floats = [(name, mx.zeros_like(one)) for name, one in tree_flatten(model.parameters()) if one.dtype == mx.float32]
    mx.eval(floats)  # here: the draft's thread has no part in it
    model.load_weights(floats, strict=False)
    return model


@pytest.mark.parametrize("kind", ["model", "streams", "checked"])
def test_drafts_draw_anew_in_every_step(kind):
    model, settings_ = zoo.tiny("qwen3"), {"num_draft_tokens": 4, "kappa": 3, "max_roots": 12, "mode": "mirror"}
    if kind == "model":
        draft = AutoregressiveDraft(flat(zoo.tiny("qwen3", seed=1)))
    else:
        draft = StreamingDraft(MlxSegments(flat(streams.tiny())))
        settings_ |= {"stream_mode": "exact" if kind == "checked" else "trust"}
    with mirror_mlx.Engine(model, draft=draft, accept="reject", **settings_) as engine:
        list(engine.stream([3, 1, 4, 1, 5], 80, Sampling(temperature=1.0, seed=2)))
        steps = engine.trace.steps[:-4]
    again, same = 0, 0
    for step, following in pairwise(steps):
        for old, new in zip(step.window.tokens[step.outcome.accepted + 1 :], following.window.tokens, strict=False):
            again, same = again + 1, same + (old == new)
    assert again > 50
    assert same < again / 5


def test_some_tokens_of_a_row_are_enough():
    sampling = Sampling(temperature=1.0, coupled=False, seed=3)
    ids = np.tile(np.array([7, 2, 9]), (ROWS, 1))
    logprobs = np.log(np.tile(np.array([0.6, 0.3, 0.1], np.float32), (ROWS, 1)))
    made = propose_of(Sampler(sampling), ids, logprobs, range(ROWS), V)
    counts = np.bincount(made.tokens, minlength=V)
    expected = np.zeros(V)
    expected[[7, 2, 9]] = 0.6, 0.3, 0.1
    assert fits(counts, expected)


def test_saguaro_sampling_trades_proposals_for_hits():
    """Rejections end at the tokens that were prepared for more often, and there are more of them (SSD, theorem 15)."""
    target, draft = logits(1), logits(1) + 0.1 * logits(2)
    first = set(np.argsort(-np.array(draft))[:3].tolist())
    held, caught = [], []
    for factor in (1.0, 0.5, 0.1):
        sampling = Sampling(temperature=1.0, coupled=False, downweight=(3, factor))
        made = propose(Sampler(sampling), mx.broadcast_to(draft, (ROWS, V)), range(ROWS))
        found = judged(sampling, target, made.tokens, made.laws)
        rejected = found[found != np.array(made.tokens)]
        held.append(1 - len(rejected) / ROWS)
        caught.append(np.isin(rejected, list(first)).mean())
    assert held[0] > held[1] > held[2]
    assert caught[0] < caught[1] < caught[2]


def first_tokens(model, prompt, sampling, count):
    """The law of the first `count` tokens one by one, given the prompt: {prefix: probabilities}."""
    found = {}

    def descend(prefix, weight):
        if len(prefix) == count or weight < 1e-3:
            return
        row = model(mx.array([prompt + list(prefix)]))[0, -1]
        probs = np.array(mx.softmax(Sampler(sampling).warped(row[None], [0]), axis=-1))[0]
        found[prefix] = weight, probs
        for token in np.argsort(-probs)[:2]:
            descend((*prefix, int(token)), weight * float(probs[token]))

    descend((), 1.0)
    return found


class Early(Fixed):
    """Windows end once they are unlikely to hold: about half of those of two proposals or more."""

    def stop(self, setting):
        return Stop(lambda sure: sure, [0.0, 0.35, 0.1, 0.0])


@pytest.mark.parametrize(
    "kind",
    ["model", "wrong", "right", "lookup", "downweight", "serial", "misses", "streams", "checked", "early", "whims"],
)
def test_the_engine_keeps_the_law_of_its_text(kind):
    """Hits, misses, given proposals, Saguaro sampling, windows that end early: the joint law of the first tokens."""
    model = zoo.tiny("qwen3")
    settings_ = {"num_draft_tokens": 2, "kappa": 3, "max_roots": 12, "accept": "reject", "mode": "mirror"}
    if kind in ("streams", "checked"):  # which know what comes next, and have a pass for that with the window's rows
        streaming = streams.agreeing(zoo.VOCAB)
        model, draft = view(streaming.tracks[0]), StreamingDraft(MlxSegments(streaming))
        settings_ |= {"stream_mode": "exact" if kind == "checked" else "trust", "num_draft_tokens": 3}
    elif kind in ("wrong", "right"):
        draft = ScriptedDraft(lambda context: 1 if kind == "wrong" else context[-1] % 5)
    elif kind == "lookup":
        draft = mirror_mlx.lookup.PromptLookup()
    else:
        draft = AutoregressiveDraft(zoo.tiny("qwen3", seed=1))
    if kind == "downweight":
        settings_ |= {"downweight": 0.3}
    if kind == "serial":
        settings_ |= {"mode": "sd"}
    if kind == "misses":
        settings_ |= {"max_roots": 1, "predictor": "draft"}
    prompt, runs = [3, 1, 4, 1, 5], 600
    sharp = Sampling(temperature=0.3)
    laws = first_tokens(model, prompt, sharp, 3)
    texts = []
    with mirror_mlx.Engine(model, draft=draft, **settings_) as engine:
        if kind == "early":
            whimsical(engine, Early(Setting("sd", 3, 3)))
        if kind == "whims":
            whimsical(engine, Whim(7, exits=[1]))
        for seed in range(runs):
            sampling = Sampling(temperature=0.3, seed=seed)
            texts.append(tuple(r.token for r in engine.stream(prompt, 4, sampling)))
    for prefix, (_, probs) in laws.items():
        after = [text[len(prefix)] for text in texts if text[: len(prefix)] == prefix]
        if len(after) >= 60:
            assert fits(np.bincount(after, minlength=len(probs)), probs), prefix


def test_greedy_decoding_knows_no_rejection():
    model, draft = zoo.tiny("qwen3"), AutoregressiveDraft(zoo.tiny("qwen3", seed=1))
    with mirror_mlx.Engine(model, mode="ar") as engine:
        wanted = [r.token for r in engine.stream([3, 1, 4], 24)]
    with mirror_mlx.Engine(model, draft=draft, accept="reject") as engine:
        assert [r.token for r in engine.stream([3, 1, 4], 24)] == wanted


def test_what_downweighting_needs_is_said():
    with pytest.raises(UsageError, match="downweight needs accept='reject'"):
        mirror_mlx.Engine(zoo.tiny("qwen3"), downweight=0.5)
    with pytest.raises(UsageError, match="downweight is 0"):
        mirror_mlx.Engine(zoo.tiny("qwen3"), accept="reject", downweight=0.0)
